"""Costs: learnt from rounds, robust against hiccups."""

import numpy as np
import pytest

from drafters.costs import CostMeter, Costs, Crowd, Line, Unread


def round_seconds(costs, arm, drafted=0.0, nodes=0.0, unread=0):
    """Seconds of a round in which ``arm`` drafts ``drafted`` tokens in depth and ``nodes`` in all; ``None``: nobody."""
    drafting = 0.0 if arm is None else costs.drafting(arm, drafted, unread)
    return costs.overhead + drafting + costs.verification(nodes)


def test_a_line_through_noisy_measurements():
    rng = np.random.default_rng(0)
    line = Line()
    for _ in range(300):
        k = int(rng.integers(0, 9))
        line.add(k, (5.0 + 0.5 * k) * rng.uniform(0.95, 1.05))
    assert line.fixed == pytest.approx(5.0, rel=0.05) and line.per_unit == pytest.approx(0.5, rel=0.15)


def test_a_line_through_measurements_of_one_size_is_flat():
    line = Line()
    for _ in range(5):
        line.add(4, 2.0)
    assert (line.per_unit, line.at(9)) == (0.0, pytest.approx(2.0))
    assert Line().at(3) == 0.0


def test_a_hiccup_counts_little():
    line = Line()
    for _ in range(50):
        line.add(1, 1.0)
    line.add(1, 500.0)
    assert line.at(1) < 1.1


def test_old_measurements_fade():
    line = Line()
    for seconds in [2.0] * 100 + [1.0] * 200:
        line.add(1, seconds)
    assert line.at(1) == pytest.approx(1.0, abs=0.05)


def test_a_fast_measurement_tells_that_those_before_were_disturbed():
    line = Line()
    for k, seconds in ((1, 5.0), (1, 7.0), (1, 6.0), (1, 1.0), (1, 1.2)):
        line.clock(k, seconds)
    assert line.at(1) == pytest.approx(1.07, abs=0.02)


def test_fewer_units_may_take_less():
    line = Line()
    for _ in range(20):
        line.clock(60, 20.0)
    line.clock(1, 1.0)
    line.clock(1, 1.0)
    assert line.at(60) == pytest.approx(20.0, rel=0.05) and line.at(1) == pytest.approx(1.0, rel=0.05)


def line_through(*points):
    line = Line()
    for units, seconds in points:
        line.clock(units, seconds)
    return line


@pytest.mark.parametrize(
    ("points", "fixed", "per_unit"),
    [
        ([(1, 4.0), (3, 8.0)], 2.0, 2.0),
        ([(1, 5.0), (2, 5.5)], 4.5, 0.5),
        ([(1, 5.0), (3, 4.0)], (0.98 * 5 + 4) / 1.98, 0.0),  # more work never takes less
        ([(1, 2.0), (3, 12.0)], 0.0, (0.98 * 2 + 12) / (0.98 + 3)),  # nor no work a negative time
        ([(0, 4.0), (0, 3.0)], (0.98 * 4 + 3) / 1.98, 0.0),
    ],
)
def test_a_line_through_two_measurements_by_hand(points, fixed, per_unit):
    """The older one weighs 0.98."""
    line = line_through(*points)
    assert (line.fixed, line.per_unit) == (pytest.approx(fixed), pytest.approx(per_unit))


@pytest.mark.parametrize(("before", "counted"), [(3, 100.0), (4, 3.0)])
def test_from_the_fifth_measurement_on_one_counts_as_three_times_the_expected_at_most(before, counted):
    line = Line()
    for seconds in (*[1.0] * before, 100.0):
        line.add(1, seconds)
    older = sum(0.98**age for age in range(1, before + 1))
    assert line.mean == pytest.approx((older + counted) / (older + 1))


@pytest.mark.parametrize(
    ("units", "seconds", "together"),
    [
        (3, 2.9, True),  # less than half of the mean, 6.02
        (3, 3.1, False),
        (9, 2.9, True),  # so it is for more than the mean of the units, 2.01
        (1, 1.4, True),  # a line through the mean and 0 allows 3.0 of one unit, half of which is 1.5
        (1, 1.6, False),
    ],
)
def test_a_measurement_of_less_than_half_the_least_makes_those_before_one_of_its_own_speed(units, seconds, together):
    line = line_through((1, 4.0), (3, 8.0), (units, seconds))  # 2 + 2 a unit
    assert line.weight == pytest.approx(0.98 * (1.0 if together else 1.98) + 1.0)
    if together:  # scaled to the newest, with which they lie on one line
        level = seconds / (2.0 + 2.0 * units)
        assert (line.fixed, line.per_unit) == (pytest.approx(2.0 * level), pytest.approx(2.0 * level))


def test_of_measurements_without_units_the_fast_one_counts_too():
    line = line_through((0, 4.0), (0, 1.9))
    assert (line.weight, line.mean) == (pytest.approx(1.98), pytest.approx(1.9))


def test_a_meter_recovers_what_rounds_cost():
    """Rounds timed by known costs; the meter finds step, catch-up, verification and evaluation."""
    true = Costs(np.array([0.4, 0.8]), np.array([0.05, 0.1]), 6.0 + 0.3 * np.arange(9), 1.5, 0.02)
    rng = np.random.default_rng(1)
    meter = CostMeter(2)
    meter.begin()
    unread = [0, 0]
    since = 0
    for round_ in range(600):
        arm = int(rng.integers(0, 2)) if rng.random() < 0.3 else round_ // 200 % 2
        length = int(rng.integers(1, 9))
        tokens = int(rng.integers(1, length + 2))
        draft = true.draft_step[arm] * length + true.catch_up[arm] * unread[arm]
        meter.played(arm, length, length, draft, true.verify[length], tokens)
        unread = [tokens + u for u in unread]
        unread[arm] = 1
        since += tokens
        if round_ % 40 == 39:
            meter.evaluated(true.evaluation_seconds(meter.unread.mean))
            unread, since = [0, 0], 0
    found = meter.costs(8)
    assert found.draft_step == pytest.approx(true.draft_step, rel=0.15)
    assert found.catch_up == pytest.approx(true.catch_up, rel=0.5)
    assert found.verify == pytest.approx(true.verify, rel=0.02)
    assert found.evaluation_seconds(30) == pytest.approx(true.evaluation_seconds(30), rel=0.1)


def test_how_long_drafts_are_is_learnt_whatever_came_first():
    meter = CostMeter(2)
    for drafted in [0, 1] * 5:
        meter.played(0, 8, drafted, 0.1, 1.0, 1)
    assert meter.costs(8).persistence.tolist() == [0.0, 1.0]
    for _ in range(400):
        meter.played(0, 8, 8, 0.8, 1.0, 9)
    assert meter.costs(8).persistence[0] > 0.99
    rng = np.random.default_rng(2)
    for drafted in rng.geometric(1 - 0.7, 2000).clip(max=8):  # goes on with probability 0.7
        meter.played(1, 8, int(drafted), 0.1, 1.0, 1)
    assert meter.costs(8).persistence[1] == pytest.approx(0.7, abs=0.1)


def test_a_round_of_a_drafter_that_stops_by_itself_is_charged_for_what_it_drafts():
    costs = Costs(np.array([0.1]), np.array([0.01]), np.array([1.0, 1.2, 1.4, 1.6]), persistence=np.array([0.5]))
    assert costs.expected(0, 3) == pytest.approx((1.75, 1.75))
    assert costs.expected(0, 3, accepted=1) == pytest.approx((2.5, 2.5))
    assert costs.expected(0, 3, accepted=3) == (3, 3)
    assert round_seconds(costs, 0, 1.75, 1.75, unread=2) == pytest.approx(0.175 + 0.02 + 1.35)
    assert round_seconds(costs, 0, 0, 0) == pytest.approx(0.1 + 1.0)  # to find nothing takes a look too


def test_costs_that_are_not_given():
    costs = Costs(np.array([0.1]), np.array([0.01]), np.array([2.0]))
    assert costs.expected(0, 4) == costs.expected(0, 4, 4) == (4, 4)  # a chain that goes on to its end
    assert costs.drafting(0, 3) == pytest.approx(0.3) and costs.overhead == 0.0
    assert costs.evaluation_seconds(5) == 0.0 and costs.verification(3) == 2.0
    assert costs.texts == 1
    same = Costs.uniform(2, 3, step=0.1, verify=1.0)
    assert same.verify.tolist() == [1.0] * 4 and same.evaluation_seconds(7) == 0.0
    assert Costs.uniform(2, 3, step=0.1, verify=1.0, evaluate=0.7).evaluation_seconds(7) == 0.7


def test_verification_between_the_sizes_measured_and_beyond():
    costs = Costs(np.array([0.1]), np.zeros(1), np.array([1.0, 2.0, 2.5]), evaluate=0.5, evaluate_token=0.1)
    assert [costs.verification(nodes) for nodes in (0, 0.5, 1, 1.5, 2, 4)] == [1.0, 1.5, 2.0, 2.25, 2.5, 3.5]
    assert costs.evaluation_seconds(3) == pytest.approx(0.8)


def test_a_draft_has_a_start_and_a_round_an_overhead():
    costs = Costs(np.array([0.1]), np.zeros(1), np.ones(4), draft_start=np.array([0.5]), overhead=0.01)
    assert round_seconds(costs, 0, 3, 3) == pytest.approx(0.01 + 0.5 + 0.3 + 1.0)
    assert round_seconds(costs, None) == pytest.approx(1.01)


def test_what_drafters_have_to_read():
    unread = Unread(3)
    unread.emitted(4, [1])
    unread.emitted(2, [])
    assert unread.tokens == [6, 3, 6]
    unread.evaluated()
    assert unread.tokens == [0, 0, 0]
    assert (Unread(3, 9).tokens, Unread(3, readers=[1]).tokens) == ([0, 0, 0], [0, 0, 0])
    late = Unread(3, 9, [1])  # the others read the prompt when they are first asked
    assert late.tokens == [9, 0, 9] and late.mean == 6.0 and Unread(0).mean == 0.0


def test_what_takes_longer_with_more_than_two_tokens_to_read_is_the_reading():
    meter = CostMeter(3)
    meter.played(0, 4, 4, 0.4, 1.0, 2)
    meter.played(1, 4, 4, 0.8, 1.0, 2)  # its first time: two tokens were unread, and now 3 for drafter 0
    meter.played(0, 4, 4, 1.0, 1.0, 1)
    assert meter.costs(4).draft_step == pytest.approx([0.1, 0.2, 0.0])
    assert meter.costs(4).catch_up == pytest.approx([0.6 / 3] * 3)
    meter.played(1, 4, 4, 1.6, 1.0, 5)  # two unread
    assert meter.steps[1].mean == pytest.approx((0.98 * 0.2 + 0.4) / 1.98)
    meter.evaluated(0.5)  # all have read everything
    meter.played(0, 4, 4, 0.4, 1.0, 1)
    assert meter.unread.tokens == [1, 1, 1] and meter.reads[0].weight == 1.0


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


def test_a_meter_knows_what_a_round_of_its_batch_takes():
    meter = CostMeter(1)
    meter.played(None, 0, 0, 0.0, 0.9, 1)
    meter.played(0, 4, 4, 0.4, 1.0, 2)
    assert meter.costs(4).verify.tolist() == [0.9] + [1.0] * 4 and meter.costs(4).texts == 1
    meter.crowd.texts = 3
    assert meter.costs(4).verify == pytest.approx(1.0), "nothing is known of the batch yet"
    meter.crowd.passed(9.0)
    assert meter.costs(4).verify == pytest.approx(1.0), "a round with drafts says nothing of those without"
    for _ in range(Crowd.SETTLING):
        meter.crowd.passed(9.0)
    assert meter.costs(4).verify == pytest.approx(1.0), "nor do the first without any after it"
    meter.crowd.passed(6.0)
    assert meter.costs(4).verify == pytest.approx(2.0) and meter.costs(4).texts == 3
    assert not meter.drafts and meter.costs(4).drafts is False


def test_a_meter_that_has_measured_nothing():
    costs = CostMeter(2).costs(4)
    assert costs.persistence.tolist() == costs.width.tolist() == [1.0, 1.0]
    assert costs.draft_step.tolist() == costs.catch_up.tolist() == [0.0, 0.0]
    assert costs.verify.tolist() == [0.0] * 5 and len(CostMeter(1).costs(1).verify) == 3


@pytest.mark.parametrize(("drafted", "persistence"), [(8, 1.0), (7, 6 / 7), (4, 3 / 4), (1, 0.0)])
def test_a_draft_could_have_gone_on_after_each_token_but_the_last_asked_for(drafted, persistence):
    meter = CostMeter(1)
    meter.played(0, 8, drafted, 0.1, 1.0, 1)
    assert meter.costs(8).persistence.tolist() == [pytest.approx(persistence)]


def test_a_drafter_never_measured_seems_to_cost_nothing_so_that_it_is_tried():
    meter = CostMeter(3)
    for arm, seconds in ((0, 4.0), (1, 8.0)):
        meter.played(arm, 4, 4, seconds, 6.0, 2)
    assert meter.costs(4).draft_step.tolist() == [1.0, 2.0, 0.0]


def test_a_drafter_that_always_had_much_to_read_costs_what_is_certain():
    meter = CostMeter(1)
    meter.begin(100, readers=[])
    for seconds, emitted, cost in ((5.2, 6, 5.2 / 104), (2.0, 1, 0.5)):  # after 100 tokens; after one: its measure
        meter.played(0, 4, 4, seconds, 6.0, emitted)
        assert meter.costs(4).draft_step.tolist() == [pytest.approx(cost)]


def test_a_round_without_a_drafter_costs_a_plain_step():
    costs = Costs.uniform(2, 3, step=0.1, verify=1.0)
    assert round_seconds(costs, None) == 1.0
    assert round_seconds(costs, 1, 3, 3, unread=5) == pytest.approx(1.3)
    assert costs.costs(3) is costs


def test_plain_decoding_is_measured_by_itself():
    meter = CostMeter(1)
    for length in (1, 2, 4, 6) * 5:
        meter.played(0, length, length, 0.4 * length, 4.0 + 0.1 * length, 2)
    assert meter.costs(4).verify == pytest.approx([4.0, 4.1, 4.2, 4.3, 4.4])  # not seen yet: by the line
    meter.played(None, 0, 0, 0.0, 3.7, 1)
    assert meter.costs(4).verify == pytest.approx([3.7, 4.1, 4.2, 4.3, 4.4])
    alone = CostMeter(1)
    alone.played(None, 0, 0, 0.0, 3.7, 1)
    assert alone.costs(2).verify == pytest.approx([3.7, 3.7, 3.7])


def test_a_tree_costs_its_depth_to_draft_and_its_nodes_to_verify():
    """Drafter 0 drafts trees of three nodes per level, at 0.5 a level; verification takes 2 + 0.1 a node."""
    meter = CostMeter(2)
    for depth in (1, 2, 4, 3, 2, 4):
        meter.played(0, 4, 3 * depth, 0.5 * depth, 2.0 + 0.3 * depth, 1, depth=depth)
        meter.played(1, 4, 4, 0.8, 2.4, 1)
    costs = meter.costs(4)
    assert costs.width.tolist() == pytest.approx([3.0, 1.0])
    assert costs.draft_step.tolist() == pytest.approx([0.5, 0.2])
    assert costs.verify[1:].tolist() == pytest.approx([2.1, 2.2, 2.3, 2.4])
    assert costs.verification(9.0) == pytest.approx(2.9) and costs.verification(2.5) == pytest.approx(2.25)
    assert costs.expected(0, 4, accepted=4) == pytest.approx((4, 12))
    assert round_seconds(costs, 0, 4, 12) == pytest.approx(4 * 0.5 + 2.0 + 12 * 0.1)
    assert round_seconds(costs, 1, 4, 4) == pytest.approx(0.8 + 2.4)
