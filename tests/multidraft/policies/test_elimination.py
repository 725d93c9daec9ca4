"""Sequential halving (MetaSD Alg. 5) and explore-then-commit (MetaSD Alg. 4)."""

import math

import pytest

from multidraft.policies import NO_DRAFTER, Feedback, make_policy
from tests.multidraft.policies.test_ucb import play, seen


def test_halving_by_hand():
    # Five arms: all five once, the best three (1, 3, 4) once each, then two (3, 4), then the winner alone.
    policy = make_policy("sh", 5)
    assert play(policy, [0.0, 0.5, 0.25, 1.0, 0.75], 14) == [0, 1, 2, 3, 4, 1, 3, 4, 3, 4, 3, 3, 3, 3]


def test_a_longer_period_plays_every_drafter_as_often():
    policy = make_policy("sh:period=3", 4)
    assert play(policy, [0.25, 0.5, 1.0, 0.75], 20) == [0, 1, 2, 3] * 3 + [2, 3] * 3 + [2] * 2


def test_ties_stay_in_the_pools_order():
    assert play(make_policy("sh", 4), [0.5] * 4, 8) == [0, 1, 2, 3, 0, 1, 0, 0]


def test_each_phase_counts_its_own_rewards():
    """A drafter that was lucky first and bad later is dropped for the later rounds."""
    policy = make_policy("sh:reward=be", 4)
    for arm, accepted in [(0, 4), (1, 3), (2, 0), (3, 0), (0, 1), (1, 2)]:
        assert policy.select() == arm
        policy.update(seen(arm, accepted))
    assert policy.select() == 1


@pytest.mark.parametrize("arms", [1, 2, 3, 6, 8])
def test_explore_then_commit_keeps_its_budget(arms):
    """B0 = c ln B rounds at most, each phase an equal share of them, then one drafter for good."""
    policy = make_policy("petc:c=12,budget=1000", arms)
    exploration = 12 * math.log(1000)
    played = []
    for _ in range(300):
        played.append(policy.select())
        policy.update(seen(played[-1], 1, (1 + played[-1]) / arms))
    committed = max((t for t in range(300) if played[t] != arms - 1), default=-1) + 1
    assert committed <= exploration
    assert played[-100:] == [arms - 1] * 100
    if arms > 1:
        assert committed > exploration / 2


def test_a_small_budget_still_plays_each_once():
    assert play(make_policy("petc:c=0.01", 4), [0.25, 0.5, 1.0, 0.75], 8) == [0, 1, 2, 3, 2, 3, 2, 2]


@pytest.mark.parametrize("name", ["sh", "petc"])
def test_a_round_without_a_drafter_takes_no_turn(name):
    policy = make_policy(name, 3)
    policy.update(Feedback(NO_DRAFTER, 0, 0, 1, 0))
    assert [play(policy, [0.5] * 3, 1) for _ in range(3)] == [[0], [1], [2]]
