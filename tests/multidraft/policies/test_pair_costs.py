"""Seconds of rounds by drafter, acceptance and draft length, by hand."""

import numpy as np
import pytest

from drafters.costs import Costs
from multidraft.policies import Context, make_policy
from tests.multidraft.policies.test_rate_hedge import K, policy_with


def test_costs_of_a_pair_by_hand():
    """Each drafted token costs its step and, with its width, a share of the verification, which starts at 1.3 - 0.1."""
    costs = Costs(
        np.array([0.1, 0.2]), np.array([0.01, 0.02]), np.array([1.0, 1.3, 1.4, 1.5, 1.6]), 0.7, 0.01,
        overrun=np.array([1.0, 0.5]), width=np.array([1.0, 3.0]), draft_start=np.array([0.05, 0.0]),
    )  # fmt: skip
    policy = policy_with(costs)
    assert policy.drafting[0] == pytest.approx([1.25 + 0.2 * drafted for drafted in (1, 2, 3, 4)])
    # At each level q of acceptance: of k tokens a are accepted with the chance q^a (1 - q), or q^k, and then follow
    # 1/2 + 1/4 ... in vain, as far as there is room.
    q, vain = policy.levels.accepted[1], [1 - 0.5**m for m in range(K + 1)]
    drafted = [q**k * k + sum(q**a * (1 - q) * (a + vain[k - a]) for a in range(k)) for k in range(1, K + 1)]
    seconds = 1.2 + 0.5 * np.maximum(drafted, 1.0)
    assert policy.pairs.known[1] == pytest.approx(np.hstack([policy.levels.yields, seconds.T]))
    assert policy.drafting[1] == pytest.approx(seconds @ policy.belief[1])
    assert (policy.plain, policy.pairs.evaluation) == (1.0, (0.7, 0.01))
    assert policy.pairs.catch_up.tolist() == [0.01, 0.02]
    # Were it known that one token in two is accepted (level 6 of 13): 1.5 tokens, 1.75, 1.875 or 1.9375.
    best = min(seconds[k, 6] / tokens for k, tokens in enumerate((1.5, 1.75, 1.875, 1.9375)))
    assert policy.pairs.pace[:, 6] == pytest.approx([1.65 / 1.75, best])


@pytest.mark.parametrize("costs", [None, Costs(np.zeros(2), np.zeros(2), np.zeros(K + 1))])
def test_while_nothing_is_measured_a_drafted_token_costs_a_tenth_of_a_step(costs):
    policy = policy_with(costs)
    assert policy.drafting == pytest.approx(np.tile([1.1, 1.2, 1.3, 1.4], (2, 1)))
    assert policy.plain == 1.0 and policy.pairs.evaluation == (0.0, 0.0)


@pytest.mark.parametrize(
    ("verify", "drafting"),
    [
        ([1.0, 1.3], [1.4]),  # drafts of one token tell no slope
        ([1.0, 1.3, 1.5], [1.4, 1.7]),
        ([0.006, 0.008, 0.009, 0.01, 0.011], [0.108, 0.209, 0.31, 0.411]),
    ],
)
def test_costs_of_chains_of_any_length_in_any_unit(verify, drafting):
    policy = make_policy("rate-hedge", 1)
    policy.begin(Context(draft_length=len(drafting), costs=Costs(np.array([0.1]), np.zeros(1), np.array(verify))))
    assert policy.drafting[0].tolist() == pytest.approx(drafting) and policy.plain == verify[0]
