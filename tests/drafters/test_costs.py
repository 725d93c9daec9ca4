"""Costs: learnt from rounds, robust against hiccups."""

import numpy as np
import pytest

from drafters.costs import CostMeter, Costs, Line, Unread


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
            meter.evaluated(since, true.evaluation_seconds(since))
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


def test_a_drafter_never_measured_is_taken_for_an_average_one():
    meter = CostMeter(3)
    for arm, seconds in ((0, 4.0), (1, 8.0)):
        meter.played(arm, 4, 4, seconds, 6.0, 2)
    assert meter.costs(4).draft_step.tolist() == [1.0, 2.0, 1.5]


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
