"""Discounted and sliding-window UCB (MetaSD Algs. 6 and 8)."""

import math

import numpy as np
import pytest

from multidraft.policies import make_policy
from tests.multidraft.policies.test_ucb import play, seen


def test_discounted_index_against_the_formula():
    rng = np.random.default_rng(5)
    policy = make_policy("d-ucb:beta=0.3,gamma=0.9", 3)
    history = []
    for t in range(200):
        arm = policy.select()
        if t >= 3:
            weights = 0.9 ** np.arange(t - 1, -1, -1)
            arms, rewards = (np.array(column) for column in zip(*history))
            n = np.array([weights[arms == i].sum() for i in range(3)])
            means = np.array([(weights * rewards)[arms == i].sum() for i in range(3)]) / n
            assert arm == int(np.argmax(means + 0.3 * np.sqrt(2 * math.log(n.sum() + 1) / n)))
        reward = float(rng.uniform(0, 0.5) + 0.2 * arm)
        policy.update(seen(arm, 1, reward))
        history.append((arm, reward))


def test_windowed_index_against_the_formula():
    rng = np.random.default_rng(6)
    policy = make_policy("sw-ucb:beta=0.3,window=10", 3)
    history = []
    for t in range(200):
        arm = policy.select()
        recent = history[-10:]
        counts = [sum(a == i for a, _ in recent) for i in range(3)]
        if 0 in counts:
            assert arm == counts.index(0)
        else:
            means = [sum(r for a, r in recent if a == i) / counts[i] for i in range(3)]
            log_term = 2 * math.log(t + 1)
            assert arm == int(np.argmax([m + 0.3 * math.sqrt(log_term / n) for m, n in zip(means, counts)]))
        reward = float(rng.uniform(0, 0.5) + 0.2 * arm)
        policy.update(seen(arm, 1, reward))
        history.append((arm, reward))


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
