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


@pytest.mark.parametrize(("seconds", "pays"), [(0.7, True), (0.82, True), (0.83, False), (0.9, False)])
def test_drafts_pay_where_the_same_tokens_would_have_taken_longer(seconds, pays):
    """Eight tokens a round instead of four, which take 0.8 seconds without drafts; three per cent are forgiven."""
    crowd = Crowd()
    tried = Crowd.PLAIN_ROUNDS + Crowd.TRIED_ROUNDS
    assert rounds(crowd, tried, texts=4, seconds=seconds, emitted=2, drafting=True) == Crowd.TRIED_ROUNDS
    assert not crowd.drafts, "what rounds take without drafts is measured again, or drafts pause"
    rounds(crowd, Crowd.PLAIN_ROUNDS, texts=4, seconds=seconds, emitted=2, drafting=True)
    assert crowd.drafts == pays


def test_a_stretch_that_loses_much_ends_before_its_time():
    """Each round loses 1.34 - 0.8 seconds, and a round without drafts takes 0.4: the third loss passes four of them."""
    crowd = Crowd()
    rounds(crowd, Crowd.PLAIN_ROUNDS, texts=4, seconds=9.0, emitted=2, drafting=True)
    assert rounds(crowd, 6, texts=4, seconds=1.34, emitted=2, drafting=True) == 3
    assert -crowd.rounds == 4 * Crowd.PAUSE - 3 and crowd.seconds == 0.0


def test_where_drafts_do_not_pay_they_are_tried_less_and_less_often():
    crowd, pauses = Crowd(), []
    crowd.texts = 2
    for _ in range(3):
        while not crowd.drafts:
            rounds(crowd, 1, texts=2, seconds=0.45, emitted=2, drafting=True)
        rounds(crowd, Crowd.TRIED_ROUNDS, texts=2, seconds=0.45, emitted=2, drafting=True)
        pauses.append(-crowd.rounds)
    assert pauses == [2 * Crowd.PAUSE * Crowd.PAUSE_GROWTH**tries for tries in range(3)]
    while not crowd.drafts:
        rounds(crowd, 1, texts=2, seconds=0.1, emitted=2, drafting=True)
    rounds(crowd, Crowd.TRIED_ROUNDS, texts=2, seconds=0.1, emitted=2, drafting=True)
    assert crowd.pause == Crowd.PAUSE and -crowd.rounds == Crowd.PLAIN_ROUNDS, "they pay again"


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
    assert lengths == [16, 32, 64, 128, 256, 256]
    rounds(crowd, Crowd.PLAIN_ROUNDS + 6, texts=4, seconds=1.5, emitted=2, drafting=True)
    assert crowd.rounds < -Crowd.PLAIN_ROUNDS and crowd.tried == Crowd.TRIED_ROUNDS, "they no longer pay"
