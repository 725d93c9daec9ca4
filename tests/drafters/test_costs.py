"""Costs: learnt from rounds, robust against hiccups."""

import copy

import numpy as np
import pytest

from drafters.costs import DOUBTED, NEXT_TO_NOTHING, CostMeter, Costs, Unread
from drafters.crowd import Crowd


def round_seconds(costs, arm, drafted=0.0, nodes=0.0, unread=0):
    """Seconds of a round in which ``arm`` drafts ``drafted`` tokens in depth and ``nodes`` in all; ``None``: nobody."""
    drafting = 0.0 if arm is None else costs.drafting(arm, drafted, unread)
    return costs.overhead + drafting + costs.verification(nodes)


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


def test_a_text_that_ends_with_a_drafted_token_has_none_drafted_in_vain():
    for accepted, overrun in ((3, 0.0), (None, 0.5)):
        meter = CostMeter(1)
        meter.played(0, 8, 3, 0.1, 0.1, emitted=3, accepted=accepted)
        assert meter.costs(8).overrun.tolist() == [overrun]


def test_how_much_is_drafted_in_vain_is_learnt_whatever_came_first_and_whatever_is_accepted():
    meter = CostMeter(2)
    for drafted in [1, 0] * 5:
        meter.played(0, 8, drafted, 0.1, 1.0, 1)
    assert meter.costs(8).overrun.tolist() == [0.5, 0.5], "one more after each; what is unknown is as usual"
    for _ in range(400):
        meter.played(0, 8, 8, 0.8, 1.0, 1)
    assert meter.costs(8).overrun[0] > 0.99
    rng = np.random.default_rng(2)
    for accepted, vain in zip(rng.integers(0, 8, 2000), rng.geometric(1 - 0.7, 2000) - 1, strict=True):
        drafted = min(accepted + vain, 8)
        meter.played(1, 8, int(drafted), 0.1, 1.0, int(accepted) + 1)
    assert meter.costs(8).overrun[1] == pytest.approx(0.7, abs=0.1)


def test_a_round_of_a_drafter_that_stops_by_itself_is_charged_for_what_it_drafts():
    costs = Costs(np.array([0.1]), np.array([0.01]), np.array([1.0, 1.2, 1.4, 1.6]), overrun=np.array([0.5]))
    assert costs.expected(0, 3) == (1.0, 1.0), "0.875, but one is drafted in any case"
    assert costs.expected(0, 3, accepted=1) == pytest.approx((1.75, 1.75))
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


def test_costs_without_a_drafter_leave_out_its_part_of_an_evaluation():
    costs = Costs(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0, 2.0]), np.full(5, 9.0), 8.0, 4.0, width=np.ones(3))
    left = costs.without(2)
    assert left.draft_step.tolist() == [1.0, 2.0] and left.catch_up.tolist() == [1.0, 1.0]
    assert (left.evaluate, left.evaluate_token) == (4.0, 2.0) and left.width is not None and len(left.width) == 2
    unread = Costs(np.ones(4), np.zeros(4), np.ones(5), 8.0, 4.0).without(0)
    assert (unread.evaluate, unread.evaluate_token) == (6.0, 3.0), "where reading takes no time all have the same part"


def test_reading_takes_what_each_drafter_takes_for_a_token():
    assert Costs(np.ones(3), np.array([1.0, 2.0, 4.0]), np.ones(5)).reading([0, 2], 10) == 50.0


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


def test_after_a_draft_of_all_each_has_read_the_text():
    meter = CostMeter(3)
    meter.begin(40, [])
    meter.played(1, 4, 4, 0.4, 1.0, 3)
    assert meter.unread.tokens == [43, 1, 43]
    meter.played(None, 4, 9, 1.2, 1.0, 3, together=True)
    assert meter.unread.tokens == [1, 1, 1] and not any(line.weight for line in (meter.steps[0], meter.reads[0]))
    meter.played(None, 0, 0, 0.0, 1.0, 1)
    assert meter.unread.tokens == [2, 2, 2]


def test_what_takes_longer_with_more_than_two_tokens_to_read_is_the_reading():
    meter = CostMeter(3)
    meter.played(0, 4, 4, 0.4, 1.0, 2)
    meter.played(1, 4, 4, 0.8, 1.0, 2)  # its first time: two tokens were unread, and now 3 for drafter 0
    meter.played(0, 4, 4, 1.0, 1.0, 1)
    assert meter.costs(4).draft_step == pytest.approx([0.1, 0.2, 0.0], rel=0.02)
    assert meter.costs(4).catch_up == pytest.approx([0.6 / 3] * 3)
    meter.played(1, 4, 4, 1.6, 1.0, 5)  # two unread
    assert meter.steps[1].mean == pytest.approx((0.98 * 0.8 + 1.6) / 1.98)
    meter.evaluated(0.5)  # all have read everything
    meter.played(0, 4, 4, 0.4, 1.0, 1)
    assert meter.unread.tokens == [1, 1, 1] and meter.reads[0].weight == 1.0


def test_a_draft_that_with_its_reading_was_fast_tells_that_drafts_were_measured_at_a_bad_time():
    meter = CostMeter(2)
    for _ in range(5):
        meter.played(0, 4, 4, 4.0, 1.0, 1)
    for _ in range(3):
        meter.played(1, 4, 4, 0.1, 1.0, 2)
    meter.played(0, 4, 4, 0.5, 1.0, 1)  # six tokens unread
    assert meter.reads[0].weight == 0.0 and meter.costs(4).draft_step[0] < 0.3


def test_what_is_measured_of_one_drafter_is_measured_of_all_of_its_shape():
    meter = CostMeter(3, ["lm", "lookup", "lm"])
    meter.played(0, 4, 4, 0.8, 1.0, 1)  # drafted a whole draft
    meter.played(1, 4, 1, 0.1, 1.0, 1)
    costs = meter.costs(4)
    assert costs.draft_step[0] == costs.draft_step[2] > 0.0 and costs.draft_step[1] != costs.draft_step[0]
    assert costs.overrun.tolist() == [1.0, 0.5, 5 / 6], "how long it drafts is each one's own"
    meter.played(0, 4, 4, 1.2, 1.0, 9)
    meter.played(2, 4, 4, 1.6, 1.0, 1)  # 11 unread
    assert meter.costs(4).catch_up[0] == meter.costs(4).catch_up[2] > 0.0
    alone = CostMeter(2, ["lm", "lm"])
    alone.played(1, 4, 4, 0.8, 1.0, 5)
    alone.played(0, 4, 4, 0.8, 1.0, 1)  # five unread and none before: as dear as what is certain
    assert alone.costs(4).draft_step[0] == alone.costs(4).draft_step[1]


def test_a_short_draft_and_a_short_reading_take_a_forward_too():
    """Drafts take 0.3 and 0.1 a token, reading 0.02 a token and 0.2 however little there is."""
    meter, rng = CostMeter(1), np.random.default_rng(3)
    for _ in range(300):
        length, unread = int(rng.integers(1, 9)), meter.unread.tokens[0]
        reading = 0.2 + 0.02 * unread if unread > NEXT_TO_NOTHING else 0.0
        meter.played(0, 8, length, 0.3 + 0.1 * length + reading, 1.0, 1)
        if rng.random() < 0.3:
            meter.played(None, 0, 0, 0.0, 1.0, int(rng.choice([3, 6, 130])))
    found = meter.costs(8)
    assert (found.draft_start[0], found.draft_step[0]) == (pytest.approx(0.3, rel=0.2), pytest.approx(0.1, rel=0.1))
    assert found.catch_up[0] == pytest.approx(0.02, rel=0.15), "of a prompt, which is where it matters"


def test_drafts_of_one_length_cost_in_proportion_to_it():
    """Or longer ones would seem to cost nothing more."""
    meter = CostMeter(1)
    for _ in range(2000):
        meter.played(0, 4, 4, 0.4, 1.0, 1)
    assert (meter.costs(8).draft_start[0], meter.costs(8).draft_step[0]) == (pytest.approx(0.0), pytest.approx(0.1))


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
        meter.played(None, 0, 0, 0.0, 1.0, 1)
        meter.crowd.passed(9.0)
    assert meter.costs(4).verify == pytest.approx(1.0), "nor do the first without any after it"
    meter.crowd.passed(6.0)
    assert meter.costs(4).verify == pytest.approx(2.0) and meter.costs(4).texts == 3
    assert not meter.drafts and meter.costs(4).drafts is False


def test_an_evaluation_takes_no_longer_to_read_than_its_drafters_one_after_the_other():
    """Two evaluations of 1 and 2 tokens, the second of which a hiccup made longer, would make a prompt look dear."""
    meter = CostMeter(2)
    for arm in (0, 1):
        meter.played(arm, 4, 4, 0.4, 1.0, 1)  # reads nothing
        meter.played(None, 0, 0, 0.0, 1.0, 99)
        meter.played(arm, 4, 4, 1.4, 1.0, 1)  # reads 100 tokens, or 101, and each takes some 0.01
    meter.evaluation.add(1, 0.5)
    meter.evaluation.add(2, 1.0)
    found = meter.costs(4)
    assert meter.evaluation.per_unit == pytest.approx(0.5) and found.evaluate_token == found.catch_up.sum() < 0.03
    assert found.evaluation_seconds(1.5) == pytest.approx(0.75, rel=0.02)


def test_a_meter_that_has_measured_nothing():
    costs = CostMeter(2).costs(4)
    assert costs.overrun.tolist() == costs.width.tolist() == [1.0, 1.0]
    assert costs.draft_step.tolist() == costs.catch_up.tolist() == [0.0, 0.0]
    assert costs.verify.tolist() == [0.0] * 5 and len(CostMeter(1).costs(1).verify) == 3


@pytest.mark.parametrize(
    ("drafted", "accepted", "overrun"),
    [(8, 8, 1.0), (8, 7, 1.0), (8, 0, 1.0), (7, 7, 0.0), (7, 5, 2 / 3), (1, 0, 1 / 2)],
)
def test_a_draft_could_have_been_longer_but_for_the_length_asked_for(drafted, accepted, overrun):
    meter = CostMeter(1)
    meter.played(0, 8, drafted, 0.1, 1.0, accepted + 1)
    assert meter.costs(8).overrun.tolist() == [pytest.approx(overrun)]


def test_a_drafter_never_measured_seems_to_cost_nothing_so_that_it_is_tried():
    meter = CostMeter(3)
    for arm, seconds in ((0, 4.0), (1, 8.0)):
        meter.played(arm, 4, 4, seconds, 6.0, 2)
    assert meter.costs(4).draft_step.tolist() == [pytest.approx(1.0, rel=0.01), 2.0, 0.0]


def test_a_drafter_that_always_had_much_to_read_costs_what_is_certain():
    meter = CostMeter(1)
    meter.begin(100, readers=[])
    for seconds, emitted, cost in ((5.2, 6, 5.2 / 104), (2.0, 1, 0.5)):  # after 100 tokens; after one: its measure
        meter.played(0, 4, 4, seconds, 6.0, emitted)
        assert meter.costs(4).draft_step.tolist() == [pytest.approx(cost)]


def test_a_drafter_that_is_not_played_gets_cheaper_until_it_is():
    """Its drafts took too long at a bad time: nothing but a further one tells that they do not."""
    meter = CostMeter(3, shapes=["small", "small", "other"])
    for seconds in (8.0, 8.2, 7.8):
        meter.played(0, 4, 4, seconds, 6.0, 2)
    twin = copy.copy(meter)  # of another text: what is measured is shared
    meter.begin(by_time=True)
    believed = [twin.costs(4).draft_step]
    for _ in range(300):
        meter.played(2, 4, 4, 1.0, 6.0, 2)
        believed.append(twin.costs(4).draft_step)
    first = np.array(believed)[:, 0]
    assert np.diff(first).max() <= 0.0 and first[30] > 0.95 * first[0] and first[-1] == DOUBTED * first[0]
    assert (np.array(believed)[:, 1] == first).all() and believed[-1][2] == pytest.approx(0.25)
    meter.played(1, 4, 4, 8.0, 6.0, 2)  # as it was, with much to read
    assert twin.costs(4).draft_step[:2] == pytest.approx([2.0, 2.0], rel=0.05)


def test_turns_and_policies_that_ignore_the_clock_make_no_drafter_cheaper():
    meter = CostMeter(3)
    meter.begin(by_time=True)
    for arm in range(3):
        meter.unread.evaluated()
        meter.played(arm, 4, 4, 0.4, 6.0, 2)
    for _ in range(20):
        for arm in range(3):
            meter.played(arm, 4, 4, 0.4, 6.0, 2)
    turns = meter.costs(4).draft_step
    assert turns == pytest.approx([0.1, 0.1, 0.1], rel=0.01)
    meter.begin()
    for _ in range(300):
        meter.played(None, 0, 0, 0.0, 4.0, 1)
    assert (meter.costs(4).draft_step == turns).all()


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


def test_a_few_rounds_without_a_draft_tell_that_the_machine_got_busy():
    meter = CostMeter(1)
    for _ in range(50):
        meter.played(None, 0, 0, 0.0, 0.5, 1)
    for _ in range(8):
        meter.played(None, 0, 0, 0.0, 1.5, 1)
    assert 1.3 < meter.costs(4).verify[0] < 1.5


def test_a_tree_costs_its_depth_to_draft_and_its_nodes_to_verify():
    """Drafter 0 drafts trees of three nodes per level, at 0.5 a level; verification takes 2 + 0.1 a node."""
    meter = CostMeter(2)
    for depth in (1, 2, 4, 3, 2, 4):
        meter.played(0, 4, 3 * depth, 0.5 * depth, 2.0 + 0.3 * depth, 1, depth=depth)
        meter.played(1, 4, 4, 0.8, 2.4, 1)
    costs = meter.costs(4)
    assert costs.width.tolist() == pytest.approx([3.0, 1.0])
    assert costs.draft_step.tolist() == pytest.approx([0.5, 0.2], rel=0.01)
    assert costs.verify[1:].tolist() == pytest.approx([2.1, 2.2, 2.3, 2.4])
    assert costs.verification(9.0) == pytest.approx(2.9) and costs.verification(2.5) == pytest.approx(2.25)
    assert costs.expected(0, 4, accepted=4) == pytest.approx((4, 12))
    assert round_seconds(costs, 0, 4, 12) == pytest.approx(4 * 0.5 + 2.0 + 12 * 0.1, rel=0.01)
    assert round_seconds(costs, 1, 4, 4) == pytest.approx(0.8 + 2.4)
