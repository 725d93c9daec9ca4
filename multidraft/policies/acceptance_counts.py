"""What a policy has seen of its drafters' tokens, fading as the text goes on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class AcceptanceCounts:
    """How often each drafter's tokens were tried and accepted, by their depth in the draft.

    A token is tried where all before it in its draft were accepted. The last column counts something else: the chances
    that a drafter had to go on drafting, and how often it took them.

    All counts fade at once by letting those that follow weigh more: nothing but a number is touched. Lists, since a
    round changes some numbers of one drafter, where Python is faster than array operations.

    Args:
        drafters: N.
        longest: longest draft K.
    """

    OVERFLOW = 1e100

    def __init__(self, drafters: int, longest: int):
        self.stored_trials = [[0.0] * (longest + 1) for _ in range(drafters)]
        self.stored_hits = [[0.0] * (longest + 1) for _ in range(drafters)]
        self.unit = 1.0
        """What a count of now weighs in the stored numbers."""

    def fade(self, share: float) -> None:
        """Leave a share of all counts."""
        self.unit /= max(share, 1.0 / self.OVERFLOW)
        if self.unit > self.OVERFLOW:
            for drafter in range(len(self.stored_trials)):
                self.keep(drafter, 1.0 / self.unit)
            self.unit = 1.0

    def keep(self, drafter: int, share: float) -> None:
        """Leave a share of the counts of one drafter."""
        for rows in (self.stored_trials, self.stored_hits):
            rows[drafter] = [share * count for count in rows[drafter]]

    def add_draft(self, drafter: int, drafted: int, accepted: int, length: int) -> None:
        """Count a draft of which ``accepted`` of ``drafted`` tokens were, where ``length`` were asked for.

        One that ended early counts as refused there.
        """
        trials, hits, unit = self.stored_trials[drafter], self.stored_hits[drafter], self.unit
        for depth in range(accepted):
            trials[depth] += unit
            hits[depth] += unit
        if accepted < length:
            trials[accepted] += unit
        trials[-1] += unit * min(drafted, length - 1)
        hits[-1] += unit * (drafted - 1)

    def add(self, depth: int, trials: Sequence[float], hits: Sequence[float], weight: float) -> None:
        """Count tries and hits of all drafters at one depth, each for ``weight``."""
        for drafter, (tried, hit) in enumerate(zip(trials, hits, strict=True)):
            self.stored_trials[drafter][depth] += self.unit * weight * tried
            self.stored_hits[drafter][depth] += self.unit * weight * hit

    @property
    def trials(self) -> np.ndarray:
        """Counts ``(N, K + 1)`` as they weigh now."""
        return np.array(self.stored_trials) / self.unit

    @property
    def hits(self) -> np.ndarray:
        """Counts ``(N, K + 1)`` as they weigh now."""
        return np.array(self.stored_hits) / self.unit
