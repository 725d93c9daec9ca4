"""How well each drafter did in a query: what the next one can begin with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from multidraft.policies import Feedback


class Experience:
    """Means in [0, 1] of each drafter over one query.

    For policies that learn from rewards it is the mean reward of the rounds played. For those that evaluate all
    drafters it is the acceptance by token: of evaluated positions, and of the tokens of drafts up to the first refused.

    Args:
        drafters: the pool's.
        before: the means of the query before, which stand for drafters that this one tells nothing about.
        by_token: whether the policy evaluates.
    """

    def __init__(self, drafters: Sequence[object], before: Sequence[float] | None = None, *, by_token: bool = False):
        self.before, self.by_token = before, by_token
        self.sums, self.counts = np.zeros(len(drafters)), np.zeros(len(drafters))

    def add(self, feedback: Feedback, reward: float | None) -> None:
        """Count a round, and the evaluation that followed it."""
        if feedback.arm >= 0 and feedback.drafted:
            if self.by_token:
                self.sums[feedback.arm] += feedback.accepted
                self.counts[feedback.arm] += min(feedback.accepted + 1, feedback.drafted)
            elif reward is not None:
                self.sums[feedback.arm] += reward
                self.counts[feedback.arm] += 1
        if feedback.gamma is not None:
            self.sums += feedback.gamma[:, 0].sum(axis=0)
            self.counts += len(feedback.gamma)

    def means(self) -> list[float] | None:
        """The means; ``None`` while there is nothing to tell."""
        known = self.counts > 0
        if not known.any():
            return None if self.before is None else list(self.before)
        means = self.sums / np.maximum(self.counts, 1)
        # A drafter nobody asked is taken for an average one.
        unknown = float(means[known].mean()) if self.before is None else np.asarray(self.before)
        return [float(mean) for mean in np.where(known, means, unknown)]
