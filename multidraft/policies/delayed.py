"""Losses of the full-information game, and the queue in which the late ones wait."""

from __future__ import annotations

import numpy as np


def acceptance_losses(gamma: np.ndarray) -> np.ndarray:
    """Loss ``1 - gamma`` ``(m, N)`` of each position, known at once (HedgeSpec §3.3)."""
    return 1.0 - gamma


def expected_accept_lengths(gamma: np.ndarray, draft_length: int) -> np.ndarray:
    """Tokens that a round of ``draft_length`` is expected to emit, from every position where that is known.

    ``EAL_K[t] = 1 + sum_{j=1..K} prod_{m<=j} gamma[t+m-1]``, the closed form of HedgeSpec Theorem 3,
    evaluated from the inside out: ``1 + g_t (1 + g_{t+1} (1 + ...))``.

    Args:
        gamma: acceptance probabilities ``(m, N)`` of consecutive positions.
        draft_length: K >= 1.

    Returns:
        ``(m - K + 1, N)`` in [1, K+1]; no rows where ``m < K``.
    """
    complete = max(len(gamma) - draft_length + 1, 0)
    lengths = np.ones((complete, gamma.shape[1]))
    for offset in reversed(range(draft_length)):
        lengths = 1.0 + gamma[offset : offset + complete] * lengths
    return lengths


class LengthLossQueue:
    """Hands out the length losses in order, each exactly once and only when it is complete.

    The loss of position ``t``, ``f_t[i] = 1 - EAL_K[i] / (K + 1)``, needs the K verified rows
    ``t .. t+K-1``. Computing it from fewer would favour drafters that look good over short stretches
    (HedgeSpec Example 7), so an incomplete loss waits, and at the end of a query it is dropped with the queue.

    K is the longest draft length seen: the last drafts of a query may be cut short by its length limit,
    and their positions are still judged by full rounds.

    Source: HedgeSpec §3.3 and §3.4 (QFI-D, Joulani et al. 2013 Alg. 2).

    Args:
        arm_count: number of drafters N.
    """

    def __init__(self, arm_count: int):
        self.draft_length = 0
        self._rows = np.empty((0, arm_count))

    def skip(self) -> None:
        """The positions pushed next do not follow those before: what waits will never be complete."""
        self._rows = self._rows[:0]

    def push(self, gamma: np.ndarray, draft_length: int) -> np.ndarray:
        """Append verified positions; return the losses ``(c, N)`` they complete, oldest first.

        Args:
            gamma: acceptance probabilities ``(m, N)``, the positions right after those pushed before.
            draft_length: draft length of the round, >= 0.
        """
        self.draft_length = max(self.draft_length, draft_length)
        self._rows = np.concatenate((self._rows, gamma))
        if self.draft_length == 0:  # nothing was drafted yet, so there is no length to judge by
            return np.empty((0, gamma.shape[1]))
        losses = 1.0 - expected_accept_lengths(self._rows, self.draft_length) / (self.draft_length + 1)
        self._rows = self._rows[len(losses) :]
        return losses

    def __len__(self) -> int:
        """Positions whose loss is not complete yet."""
        return len(self._rows)
