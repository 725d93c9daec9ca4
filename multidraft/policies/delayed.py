"""Losses of the full-information game, and the queue in which the late ones wait."""

from __future__ import annotations

import numpy as np


def expected_accept_lengths(gamma: np.ndarray, draft_length: int) -> np.ndarray:
    """Tokens that a round of ``draft_length`` is expected to emit, from every position where that is known.

    ``EAL_K[t] = 1 + sum_{j=1..K} prod_{m<j} gamma[t+m, m]``, the closed form of HedgeSpec Theorem 3 with the acceptance
    probability of each depth, evaluated from the inside out: ``1 + g_0[t] (1 + g_1[t+1] (1 + ...))``.

    Args:
        gamma: acceptance probabilities ``(m, depths, N)`` of consecutive positions; the last depth stands for any
            further ones.
        draft_length: K >= 1.

    Returns:
        ``(m - K + 1, N)`` in [1, K+1]; no rows where ``m < K``.
    """
    complete = max(len(gamma) - draft_length + 1, 0)
    lengths = np.ones((complete, gamma.shape[2]))
    for depth in reversed(range(draft_length)):
        lengths = 1.0 + gamma[depth : depth + complete, min(depth, gamma.shape[1] - 1)] * lengths
    return lengths


class LengthLossQueue:
    """Hands out the length losses in order, each exactly once and only when it is complete.

    The loss of position ``t``, ``f_t[i] = 1 - EAL_K[i] / (K + 1)``, needs the K verified positions
    ``t .. t+K-1``. Computing it from fewer would favour drafters that look good over short stretches
    (HedgeSpec Example 7), so an incomplete loss waits, and at the end of a query it is dropped with the queue.

    K is the longest draft length seen: the last drafts of a query may be cut short by its length limit,
    and their positions are still judged by full rounds.

    Source: HedgeSpec §3.3 and B.1 (QFI-D, Alg. 1; Joulani et al. 2013 Alg. 2).

    Args:
        arm_count: number of drafters N.
    """

    def __init__(self, arm_count: int):
        self.draft_length = 0
        self._arm_count = arm_count
        self.skip()

    def skip(self) -> None:
        """The positions pushed next do not follow those before: what waits will never be complete."""
        self._rows: np.ndarray | None = None

    def push(self, gamma: np.ndarray, draft_length: int) -> np.ndarray:
        """Append verified positions; return the losses ``(c, N)`` they complete, oldest first.

        Args:
            gamma: acceptance probabilities ``(m, depths, N)``, the positions right after those pushed before.
            draft_length: draft length of the round, >= 0.
        """
        self.draft_length = max(self.draft_length, draft_length)
        rows = gamma if self._rows is None else np.concatenate((self._rows, gamma))
        if self.draft_length == 0:  # nothing was drafted yet, so there is no length to judge by
            self._rows = rows
            return np.empty((0, self._arm_count))
        losses = 1.0 - expected_accept_lengths(rows, self.draft_length) / (self.draft_length + 1)
        self._rows = rows[len(losses) :]
        return losses

    def __len__(self) -> int:
        """Positions whose loss is not complete yet."""
        return 0 if self._rows is None else len(self._rows)
