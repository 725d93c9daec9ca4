"""Drawing an arm from a few probabilities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def sample_arm(probabilities: Sequence[float], rng: np.random.Generator) -> int:
    """Draw an arm with one uniform number; an arm of probability 0 is never drawn.

    ``rng.choice(p=...)`` does the same about twenty times slower, and this runs once per round.
    """
    rest = rng.random()
    for arm, probability in enumerate(probabilities):
        rest -= probability
        if rest < 0:
            return arm
    # The probabilities summed to a hair under 1 and the number fell into the gap.
    return max(range(len(probabilities)), key=probabilities.__getitem__)
