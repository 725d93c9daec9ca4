"""Length losses: the right figures, in order, exactly once, never truncated."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multidraft.policies import Context, Feedback, make_policy
from multidraft.policies.delayed import LengthLossQueue, expected_accept_lengths
from multidraft.policies.hedge import NormalHedge


def length_loss(gamma, t, k):
    """As HedgeSpec §3.3 prints it: 1 - sum_j j (1 - g_{t+j-1}) prod_{m<j} g_{t+m-1} / (K+1).

    At j = K+1, past the draft, the factor (1 - g) is 1.
    """
    total = 0.0
    for j in range(1, k + 2):
        refused = 1.0 if j == k + 1 else 1.0 - gamma[t + j - 1]
        total += j * refused * float(np.prod(gamma[t : t + j - 1]))
    return 1.0 - total / (k + 1)


def every_depth(gamma):
    """``(m, 1, N)``: the same acceptance at all depths."""
    return np.asarray(gamma)[:, None]


def test_expected_accept_lengths_by_hand():
    gamma = every_depth([[0.5, 1.0], [0.2, 1.0], [0.0, 0.5]])
    # K=2 from position 0: 1 + .5 + .5*.2 = 1.6 and 1+1+1 = 3; from position 1: 1 + .2 + 0 and 1 + 1 + .5
    assert expected_accept_lengths(gamma, 2) == pytest.approx(np.array([[1.6, 3.0], [1.2, 2.5]]))
    assert expected_accept_lengths(gamma, 4).shape == (0, 2)


def test_losses_come_when_complete_and_not_before():
    queue = LengthLossQueue(1)
    gamma = every_depth([[0.9], [0.8], [0.7], [0.6]])
    assert len(queue) == 0
    assert queue.push(gamma[:2], 3).shape == (0, 1)
    assert len(queue) == 2
    assert queue.push(gamma[2:3], 3) == pytest.approx(np.array([[1 - (1 + 0.9 + 0.72 + 0.504) / 4]]))
    assert queue.push(gamma[:0], 3).shape == (0, 1)  # nothing new, nothing twice
    assert queue.push(gamma[3:], 3) == pytest.approx(np.array([[1 - (1 + 0.8 + 0.56 + 0.336) / 4]]))
    assert len(queue) == 2  # the last K-1 positions stay unknown


def test_a_draft_cut_short_does_not_shorten_the_horizon():
    queue = LengthLossQueue(1)
    rows = np.full((3, 1, 1), 0.5)
    assert len(queue.push(rows, 4)) == 0
    assert queue.push(rows[:1], 1) == pytest.approx(np.array([[1 - (2 - 0.5**4) / 5]]))


def test_rounds_that_could_not_draft_only_wait():
    queue = LengthLossQueue(2)
    assert queue.push(np.full((2, 1, 2), 0.5), 0).shape == (0, 2)
    assert queue.push(np.full((1, 1, 2), 0.5), 2).shape == (2, 2)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), k=st.integers(1, 8), arms=st.integers(1, 4), rows=st.integers(0, 30), seed=st.integers(0, 2**20))
def test_any_split_into_batches_gives_the_same_losses(data, k, arms, rows, seed):
    gamma = np.random.default_rng(seed).choice([0.0, 0.3, 0.7, 1.0], size=(rows, arms))
    cuts = sorted(data.draw(st.lists(st.integers(0, rows), max_size=8)))
    queue, losses = LengthLossQueue(arms), []
    for batch in np.split(every_depth(gamma), cuts):
        losses.extend(queue.push(batch, k).tolist())
    whole = LengthLossQueue(arms).push(every_depth(gamma), k).tolist()
    assert losses == whole  # to the last bit
    expected = [[length_loss(gamma[:, i], t, k) for i in range(arms)] for t in range(rows - k + 1)]
    assert np.array(losses) == pytest.approx(np.array(expected), abs=1e-12)
    assert all(-1e-12 <= loss <= 1 for row in losses for loss in row)
    assert len(losses) + len(queue) == rows


def test_truncating_would_pick_the_wrong_arm():
    """After HedgeSpec Example 7: short chunks hide what the other drafter would have done beyond their end.

    Arm 0 is accepted at every second position for certain and never in between, so its rounds emit 2
    tokens. Arm 1 is accepted with 0.6 everywhere: 1/(1-0.6) = 2.5 tokens in the long run, but seen over
    two positions only 1 + 0.6 + 0.36 = 1.96.
    """
    k, chunks = 8, 40
    chunk = every_depth([[1.0, 0.6], [0.0, 0.6]])

    truncating = NormalHedge(["short", "long"])
    for _ in range(chunks):
        truncating.learn((1 - expected_accept_lengths(chunk, 2)[0] / (k + 1)).tolist())
    assert truncating.probabilities()[0] > 0.99

    waiting, queue = NormalHedge(["short", "long"]), LengthLossQueue(2)
    for _ in range(chunks):
        for losses in queue.push(chunk, k).tolist():
            waiting.learn(losses)
    assert waiting.probabilities()[1] > 0.99


def test_each_depth_has_its_own_acceptance():
    """HedgeSpec Theorem 3: gamma_k at depth k, 0 beyond the last head (B.4, Example 7)."""
    gamma = np.zeros((4, 3, 2))
    gamma[:, :2, 0] = 0.85  # two heads
    gamma[:, :, 1] = 0.75
    lengths = expected_accept_lengths(gamma, 3)
    assert lengths == pytest.approx(np.array([[1 + 0.85 + 0.85**2, 1 + 0.75 + 0.75**2 + 0.75**3]] * 2))


def test_the_draft_begun_at_a_position_meets_each_later_one_at_its_own_depth():
    gamma = np.arange(1, 13).reshape(4, 3, 1) / 12  # [t, k]
    g = gamma[:, :, 0]
    expected = [1 + g[t, 0] + g[t, 0] * g[t + 1, 1] + g[t, 0] * g[t + 1, 1] * g[t + 2, 2] for t in range(2)]
    assert expected_accept_lengths(gamma, 3)[:, 0] == pytest.approx(expected)


@pytest.mark.parametrize("name", ["normal-hedge", "ada-normal-hedge", "hedge"])
def test_two_good_heads_lose_to_a_full_drafter(name):
    """Two heads accepted with .85 yield 2.57 tokens per round, six tokens accepted with .75 yield 3.47."""
    k, rng = 6, np.random.default_rng(0)
    policy = make_policy(f"{name}:start=cold", 2)
    policy.begin(Context(draft_length=k))
    for _ in range(60):
        gamma = np.zeros((3, k, 2))
        gamma[:, :2, 0] = rng.random((3, 1)) < 0.85
        gamma[:, :, 1] = rng.random((3, 1)) < 0.75
        arm = policy.select()
        policy.update(Feedback(arm, k, 2, 3, k, gamma=gamma))
    assert policy.probabilities()[1] > 0.9
