"""When texts of a batch may draft."""

import pytest

from drafters.crowd import Crowd


def rounds(crowd, count, *, texts, seconds, emitted, drafting):
    """``count`` rounds of a batch, in which texts draft where they may if ``drafting``; how many of them drafted."""
    drafted = 0
    for _ in range(count):
        crowd.texts = texts
        drafts = drafting and crowd.drafts
        drafted += drafts
        for _ in range(texts):
            crowd.played(emitted if drafts else 1, drafts)
        crowd.passed(seconds if drafts else texts * 0.1)
    return drafted


def test_a_text_alone_may_always_draft():
    assert Crowd().drafts and Crowd().share is None


def test_a_batch_begins_with_rounds_without_drafts_and_knows_what_they_take():
    crowd = Crowd()
    assert rounds(crowd, Crowd.PLAIN_ROUNDS, texts=4, seconds=9.0, emitted=2, drafting=True) == 0
    assert crowd.drafts and crowd.share == pytest.approx(0.1)
    assert crowd.plain.weight == pytest.approx(sum(0.98**n for n in range(Crowd.PLAIN_ROUNDS - Crowd.SETTLING)))
    crowd.texts = 1
    assert crowd.share is None, "of a text alone the meter knows that"


@pytest.mark.parametrize(("seconds", "pays"), [(0.7, True), (0.79, True), (0.81, False), (0.9, False)])
def test_drafts_pay_where_the_same_tokens_would_have_taken_longer(seconds, pays):
    """Eight tokens a round instead of four, which take 0.8 seconds without drafts."""
    crowd = Crowd()
    tried = Crowd.PLAIN_ROUNDS + Crowd.TRIED_ROUNDS
    drafted = rounds(crowd, tried, texts=4, seconds=seconds, emitted=2, drafting=True)
    assert drafted == Crowd.TRIED_ROUNDS or not pays
    assert not crowd.drafts, "what rounds take without drafts is measured again, or drafts pause"
    rounds(crowd, Crowd.PLAIN_ROUNDS, texts=4, seconds=seconds, emitted=2, drafting=True)
    assert crowd.drafts == pays


def test_a_stretch_that_loses_much_ends_before_its_time():
    """Each round loses 2.4 - 0.8 seconds, and a round without drafts takes 0.4: four losses pass twelve."""
    crowd = Crowd()
    rounds(crowd, Crowd.PLAIN_ROUNDS, texts=4, seconds=9.0, emitted=2, drafting=True)
    assert rounds(crowd, 6, texts=4, seconds=2.4, emitted=2, drafting=True) == 4
    assert -crowd.rounds == round(16 / Crowd.SPARED) - 2 and crowd.lost == []


@pytest.mark.parametrize("seconds", [0.41, 0.45, 0.6, 3.0])
def test_stretches_that_do_not_pay_cost_no_more_than_a_share_of_the_time(seconds):
    """Two tokens of each text take 0.4 seconds without drafts."""
    crowd, without, lost = Crowd(), 0.0, 0.0
    for _ in range(20_000):
        drafted = rounds(crowd, 1, texts=2, seconds=seconds, emitted=2, drafting=True)
        without += 0.4 if drafted else 0.2
        lost += seconds - 0.4 if drafted else 0.0
    assert 0.5 * Crowd.SPARED < lost / without < 1.1 * Crowd.SPARED


def test_a_stall_of_the_machine_does_not_end_drafts_for_long():
    crowd = Crowd()
    rounds(crowd, Crowd.PLAIN_ROUNDS, texts=2, seconds=0.2, emitted=2, drafting=True)
    rounds(crowd, 1, texts=2, seconds=1000.0, emitted=2, drafting=True)
    assert crowd.drafts
    rounds(crowd, Crowd.TRIED_ROUNDS - 1, texts=2, seconds=0.3, emitted=2, drafting=True)
    assert -crowd.rounds == Crowd.PLAIN_ROUNDS and crowd.tried == 2 * Crowd.TRIED_ROUNDS


def test_drafts_are_tried_again_and_may_pay_then():
    crowd = Crowd()
    rounds(crowd, Crowd.PLAIN_ROUNDS + Crowd.TRIED_ROUNDS, texts=2, seconds=0.45, emitted=2, drafting=True)
    while not crowd.drafts:
        rounds(crowd, 1, texts=2, seconds=0.1, emitted=2, drafting=True)
    rounds(crowd, Crowd.TRIED_ROUNDS, texts=2, seconds=0.1, emitted=2, drafting=True)
    assert -crowd.rounds == Crowd.PLAIN_ROUNDS and crowd.tried == 2 * Crowd.TRIED_ROUNDS


def test_what_rounds_take_is_known_from_batch_to_batch_and_drafts_are_tried_in_each():
    crowd = Crowd()
    rounds(crowd, Crowd.PLAIN_ROUNDS + 5, texts=4, seconds=0.1, emitted=2, drafting=True)
    crowd.begin()
    assert rounds(crowd, 5, texts=4, seconds=0.1, emitted=2, drafting=True) == 5, "drafts go on where they pay"
    rounds(crowd, 5, texts=4, seconds=9.0, emitted=2, drafting=True)
    assert -crowd.rounds > Crowd.PLAIN_ROUNDS
    crowd.begin()
    assert rounds(crowd, Crowd.PLAIN_ROUNDS, texts=4, seconds=0.1, emitted=2, drafting=True) == 0
    assert crowd.drafts and crowd.lost == []


@pytest.mark.parametrize("before", [10, 60, 62])
def test_what_a_batch_reads_first_does_not_end_its_drafts(before):
    """Its first rounds take as long as two without drafts, the others 0.2 seconds less than their tokens would."""
    crowd = Crowd()
    rounds(crowd, Crowd.PLAIN_ROUNDS + before, texts=4, seconds=0.6, emitted=2, drafting=True)
    crowd.begin()
    assert rounds(crowd, 4, texts=4, seconds=1.6, emitted=2, drafting=True) == 4
    assert rounds(crowd, 60, texts=4, seconds=0.6, emitted=2, drafting=True) == 60


def test_rounds_without_drafts_are_measured_again_however_short_batches_are():
    crowd, plain = Crowd(), 0
    for _ in range(20):
        crowd.begin()
        plain += 50 - rounds(crowd, 50, texts=4, seconds=0.6, emitted=2, drafting=True)
    assert plain == 4 * Crowd.PLAIN_ROUNDS


def test_rounds_without_drafts_are_measured_for_each_power_of_two_texts():
    crowd = Crowd()
    for texts, plain in ((4, 12), (7, 0), (8, 12), (5, 0), (2, 12), (1, 0), (3, 0)):
        drafted = rounds(crowd, 20, texts=texts, seconds=0.1, emitted=2, drafting=True)
        assert drafted == 20 - plain, texts


def test_the_round_in_which_drafts_begin_is_not_one_without_drafts():
    """Its texts begin to draft before it ends."""
    crowd = Crowd()
    rounds(crowd, Crowd.PLAIN_ROUNDS, texts=4, seconds=9.0, emitted=2, drafting=True)
    crowd.passed(0.9)
    assert crowd.rounds == 1 and crowd.share == pytest.approx(0.1)


def test_stretches_with_drafts_grow_where_they_pay():
    crowd, lengths = Crowd(), []
    for _ in range(6):
        rounds(crowd, Crowd.PLAIN_ROUNDS, texts=4, seconds=0.5, emitted=2, drafting=True)
        lengths.append(rounds(crowd, crowd.tried, texts=4, seconds=0.5, emitted=2, drafting=True))
    assert lengths == [64, 128, 256, 256, 256, 256]
    rounds(crowd, Crowd.PLAIN_ROUNDS + 12, texts=4, seconds=1.5, emitted=2, drafting=True)
    assert crowd.rounds < -Crowd.PLAIN_ROUNDS and crowd.tried == Crowd.TRIED_ROUNDS, "they no longer pay"
