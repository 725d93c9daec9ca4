"""How well each drafter did in a query: what the next one can begin with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class Experience:
    """Mean acceptance of each drafter, in [0, 1], over one query.

    Evaluations tell about all drafters at every position, rounds only about the drafter played. Where a query was
    evaluated at all, they alone count: their positions are the same for all.

    Args:
        drafters: how many.
        before: the means of the query before, which stand for drafters that this one tells nothing about.
    """

    def __init__(self, drafters: int, before: Sequence[float] | None = None):
        self.before = before
        self.judged, self.judged_count = np.zeros(drafters), 0
        self.played, self.played_count = np.zeros(drafters), np.zeros(drafters)

    def add(self, arm: int, block_efficiency: float, gamma: np.ndarray | None) -> None:
        """Count a round of drafter ``arm`` (negative: of none or of several) and the evaluation ``gamma`` (m, N)."""
        if arm >= 0:
            self.played[arm] += block_efficiency
            self.played_count[arm] += 1
        if gamma is not None:
            self.judged += gamma.sum(axis=0)
            self.judged_count += len(gamma)

    def means(self) -> list[float] | None:
        """The means; ``None`` while there is nothing to tell."""
        if self.judged_count:
            return (self.judged / self.judged_count).tolist()
        known = self.played_count > 0
        if not known.any():
            return None if self.before is None else list(self.before)
        means = np.divide(self.played, self.played_count, where=known, out=np.zeros(len(known)))
        # A drafter nobody asked is taken for an average one.
        unknown = float(means[known].mean()) if self.before is None else np.asarray(self.before)
        return np.where(known, means, unknown).tolist()
