"""AdaNormalHedge (HedgeSpec B.2 and D.6; Luo & Schapire 2015, Alg. 1 with Eq. 2)."""

import numpy as np
import pytest

from multidraft.policies import make_policy
from tests.multidraft.policies.test_hedge import feed


def phi(regrets, spreads):
    return np.exp(np.maximum(regrets, 0) ** 2 / (3 * spreads))


def weighed(regrets, spreads):
    """The distribution as printed."""
    weights = (phi(regrets + 1, spreads + 1) - phi(regrets - 1, spreads + 1)) / 2
    return (weights / weights.sum()).tolist()


def test_ada_normal_hedge_against_the_formula():
    rng = np.random.default_rng(3)
    policy = make_policy("ada-normal-hedge:loss=acceptance", 3)
    p, regrets, spreads = np.full(3, 1 / 3), np.zeros(3), np.zeros(3)
    for _ in range(80):
        loss = rng.uniform(size=3) * [0.5, 1.0, 0.9]
        regrets, spreads = regrets + p @ loss - loss, spreads + abs(p @ loss - loss)
        p = np.array(weighed(regrets, spreads))
        assert feed(policy, [1 - loss]) == pytest.approx(p.tolist())
    assert p.argmax() == 0


def test_ada_normal_hedge_survives_huge_regrets():
    policy = make_policy("ada-normal-hedge:loss=acceptance", 2)
    for _ in range(20):
        p = feed(policy, np.tile([1.0, 0.0], (1000, 1)))
    assert p == [pytest.approx(1.0), pytest.approx(0.0)]


@pytest.mark.parametrize(
    ("regrets", "expected"),
    [
        ([2.0, 1.5, -0.5], weighed(np.array([2.0, 1.5, -0.5]), np.array([3.0, 2.0, 1.0]))),
        ([-1.0, 1.0, -2.0], [0.0, 1.0, 0.0]),
        ([5000.0, 0.0, 0.0], [1.0, 0.0, 0.0]),  # beyond a double's exponential
        ([-1.0, -1.0, -3.0], [1 / 3] * 3),  # uniform while no weight is positive
    ],
)
def test_regrets_of_any_size_are_weighed(regrets, expected):
    policy = make_policy("ada-normal-hedge", 3)
    policy.regrets, policy.spreads = regrets, [3.0, 2.0, 1.0]
    policy.learn([0.5] * 3)  # no drafter differs from the others
    assert policy.probabilities() == pytest.approx(expected)
