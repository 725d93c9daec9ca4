"""Discounted and sliding-window UCB (MetaSD Algs. 6 and 8)."""

import math

import numpy as np
import pytest

from multidraft.policies import make_policy
from tests.multidraft.policies.test_ucb import check_index, play, seen


def test_discounted_index_against_the_formula():
    def index(t, r, ages):
        weights, rounds = 0.9**ages, (1 - 0.9 ** (t - 1)) / (1 - 0.9)
        return (weights @ r + 0.3 * math.sqrt(2 * math.log(rounds + 1) * weights.sum())) / weights.sum()

    check_index("d-ucb:beta=0.3,gamma=0.9", index)


def test_windowed_index_against_the_formula():
    def index(t, r, ages):
        r = r[ages < 10]
        return r.mean() + 0.3 * math.sqrt(2 * math.log(t) / len(r)) if len(r) else math.inf

    check_index("sw-ucb:beta=0.3,window=10", index)


@pytest.mark.parametrize("spec", ["d-ucb:beta=0.2", "sw-ucb:beta=0.2"])
def test_a_change_of_the_best_drafter_is_noticed_where_ucb_sleeps(spec):
    """Arm 0 is best for 150 rounds, then it turns bad and arm 1 good: who has switched 60 rounds later?"""
    shares = {}
    for name in (spec, "ucb:beta=0.2"):
        policy = make_policy(name, 2)
        play(policy, [1.0, 0.5], 150)
        shares[name] = play(policy, [0.5, 0.75], 60).count(1)
    assert shares[spec] > 30 > shares["ucb:beta=0.2"]


@pytest.mark.parametrize("beta", [0.01, 0.3, 2.0])
def test_no_discount_is_exactly_ucb(beta):
    """The same arms for the same rewards, near-ties among them."""
    rng = np.random.default_rng(1)
    policies = [make_policy(f"d-ucb:gamma=1,beta={beta}", 4), make_policy(f"ucb:beta={beta}", 4)]
    for _ in range(500):
        first, second = (policy.select() for policy in policies)
        assert first == second
        reward = float(rng.integers(0, 3)) / 4 + 0.01 * first
        for policy in policies:
            policy.update(seen(first, 1, reward))


@pytest.mark.parametrize("left", [1e-13, 0.0])
def test_a_faded_drafter_is_due_again(left):
    policy = make_policy("d-ucb:gamma=0.1", 2)
    assert 0 in play(policy, [0.25, 1.0], 40)[5:]
    policy.counts[0] = left  # what 0.1 ** 13 and 0.1 ** 400 come to
    assert policy.select() == 0
