"""``ucb-length`` (BanditSpec §6.2)."""

import math

import numpy as np
import pytest

from drafters.errors import PolicyError
from multidraft.policies import NO_DRAFTER, Context, Feedback, make_policy


def play(policy, gamma, step, rounds, longest=6, seed=0):
    """Lengths played where each token is accepted with probability ``gamma`` and costs ``step`` target forwards."""
    rng = np.random.default_rng(seed)
    policy.begin(Context(draft_length=longest))
    lengths = []
    for _ in range(rounds):
        arm = policy.select()
        length = policy.draft_length(longest) if arm != NO_DRAFTER else 0
        accepted = int((np.cumprod(rng.random(length) < gamma)).sum())
        policy.update(Feedback(arm, length, accepted, accepted + 1, length, seconds=1.0 + step * length))
        lengths.append(length)
    return lengths


def test_every_length_is_tried_once_the_longest_first():
    assert play(make_policy("ucb-length", 2), 0.5, 0.1, 7) == [6, 5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize(("gamma", "step", "best"), [(0.95, 0.02, {5, 6}), (0.1, 0.3, {0}), (0.6, 0.15, {1, 2, 3})])
def test_the_fastest_length_wins(gamma, step, best):
    lengths = play(make_policy("ucb-length", 2), gamma, step, 1500)
    assert np.mean([length in best for length in lengths[-500:]]) > 0.8


@pytest.mark.parametrize("clock", [1.0, 100.0])
def test_index_by_hand(clock):
    """Rates 3/2, 2/4 and 1/4 relative to the largest, whatever the clock's unit, and ``sqrt(2 ln t / n)``, t = 4."""
    policy = make_policy("ucb-length:beta=0.5", 2)
    policy.begin(Context(draft_length=2))
    for length, seconds in ((2, 2.0), (1, 4.0), (0, 4.0)):
        assert policy.select() == (0 if length else NO_DRAFTER)
        policy.update(Feedback(0, length, length, length + 1, length, seconds=clock * seconds))
    assert policy.counts == [1, 1, 1] and policy.totals == pytest.approx([0.25 / clock, 0.5 / clock, 1.5 / clock])
    assert policy.index(0.75 / clock, 2) == pytest.approx(0.5 + 0.5 * math.sqrt(math.log(4)))


def test_rounds_that_nobody_timed_are_of_one_second_and_a_cut_draft_tells_of_its_own_length():
    policy = make_policy("ucb-length", 2)
    policy.begin(Context(draft_length=4))
    policy.update(Feedback(0, 2, 2, 3, 2))
    assert policy.totals == [0, 0, 3, 0, 0] and policy.last_reward == 1.0
    assert policy.select() == 0 and policy.draft_length(3) == 3 and policy.draft_length(9) == 4
    assert policy.uses_costs and list(policy.candidates()) == [0]


def test_one_named_drafter():
    policy = make_policy("ucb-length:drafter=code", ["math", "code"])
    assert policy.select() == 1 and list(policy.candidates()) == [1]
    with pytest.raises(PolicyError, match="no drafter 'poems'; choose one of: math, code"):
        make_policy("ucb-length:drafter=poems", ["math", "code"])
