"""Thompson sampling and KL-UCB."""

import math

import numpy as np
import pytest

from multidraft.policies import make_policy
from multidraft.policies.posterior import kl_upper_bound
from tests.multidraft.policies.test_ucb import check_index, seen


def test_thompson_draws_from_the_posterior():
    """The share of draws that arm 0 wins is P(Beta(1 + 6, 1 + 2) > Beta(1 + 3, 1 + 5)), here by quadrature."""
    policy = make_policy("thompson:reward=be", 2)
    for arm, accepted in [(0, 3)] * 8 + [(1, 1)] * 4 + [(1, 2)] * 4:
        policy.update(seen(arm, accepted))
    assert (policy.successes, policy.failures) == ([7.0, 4.0], [3.0, 6.0])
    x = (np.arange(20_000) + 0.5) / 20_000
    first, second = x**6 * (1 - x) ** 2, x**3 * (1 - x) ** 5
    exact = (first / first.sum() * np.cumsum(second / second.sum())).sum()
    draws = np.mean([policy.select() == 0 for _ in range(20_000)])
    assert draws == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 20_000))


@pytest.mark.parametrize(("mean", "divergence"), [(0.0, 0.1), (0.3, 0.0), (0.5, 0.2), (0.9, 0.05), (0.2, 3.0)])
def test_the_bound_lies_where_the_divergence_is_spent(mean, divergence):
    low, high = mean, 1.0
    for _ in range(60):  # by bisection
        q = (low + high) / 2
        kl = (mean * math.log(mean / q) if mean else 0.0) + (1 - mean) * math.log((1 - mean) / (1 - q))
        low, high = (q, high) if kl <= divergence else (low, q)
    assert kl_upper_bound(mean, divergence) == pytest.approx(low, abs=1e-6)


@pytest.mark.parametrize(("mean", "divergence"), [(1.0, 0.3), (0.999, 1.0)])
def test_the_bound_of_a_perfect_drafter_is_one(mean, divergence):
    assert kl_upper_bound(mean, divergence) == 1.0


@pytest.mark.parametrize(
    ("c", "played", "spent"),
    [(0, 9, math.log(10)), (3, 9, math.log(10) + 3 * math.log(math.log(10))), (3, 1, math.log(2))],
)
def test_the_divergence_spent_grows_with_the_rounds(c, played, spent):
    """``ln t + c ln ln t`` over the pulls, ``t`` the round chosen for; ``ln ln t`` counts from where it is positive."""
    policy = make_policy(f"kl-ucb:c={c}", 2)
    policy.t = played
    assert policy.index(0.5, 4) == kl_upper_bound(0.5, spent / 4)


def test_kl_ucb_index_against_the_formula():
    check_index("kl-ucb:reward=be", lambda t, r, ages: kl_upper_bound(r.mean(), math.log(t) / len(r)))
