"""``ucb-length`` (BanditSpec §6.2)."""

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


def test_one_named_drafter():
    policy = make_policy("ucb-length:drafter=code", ["math", "code"])
    assert policy.select() == 1 and list(policy.candidates()) == [1]
    with pytest.raises(PolicyError, match="no drafter 'poems'; choose one of: math, code"):
        make_policy("ucb-length:drafter=poems", ["math", "code"])
