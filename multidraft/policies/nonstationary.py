"""Upper-confidence policies that forget: for texts whose best drafter changes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from multidraft.errors import PolicyError
from multidraft.policies.base import register
from multidraft.policies.ucb import UCB


@register
class DiscountedUCB(UCB):
    """UCB on discounted means and counts: a round ``s`` rounds ago weighs ``gamma^s``.

    ``mean_i = sum_s gamma^(t-s) r_s 1{a_s = i} / n_i``, ``n_i = sum_s gamma^(t-s) 1{a_s = i}``. MetaSD Alg. 6 divides
    the discounted sum by the plain count, which drives the mean of a drafter that is played all the time to 0; like
    Kocsis and Szepesvári, whom it cites, we discount both.

    Args:
        gamma: discount a round, above 0 and at most 1 (1 is ``ucb``).
        reward, beta: as ``ucb``.

    Source: MetaSD Alg. 6 (Kocsis & Szepesvári 2006).
    """

    name = "d-ucb"
    title = "Discounted UCB"
    explanation = (
        "Like UCB, but old rounds fade: what a drafter did twenty rounds ago counts for little. It notices when "
        "another drafter becomes the better one in the middle of a text, and pays for it by asking all now and then."
    )
    source = "MetaSD Alg. 6"

    def __init__(self, arms: Sequence[str], seed: int = 0, gamma: float = 0.95, reward: str = "bd", beta: float = 0.01):
        if not 0 < gamma <= 1:
            raise PolicyError(f"gamma must be above 0 and at most 1, got {gamma}")
        self.gamma = gamma
        super().__init__(arms, seed, reward, beta)

    def reset(self, prompt: str = "") -> None:
        super().reset(prompt)
        self.weights = [0.0] * self.arm_count

    def credit(self, arm: int, value: float) -> None:
        super().credit(arm, 0.0)
        self.weights = [self.gamma * weight for weight in self.weights]
        self.totals = [self.gamma * total for total in self.totals]
        self.weights[arm] += 1.0
        self.totals[arm] += value

    def select(self) -> int:
        if 0 in self.counts:
            return self.counts.index(0)
        # A weight that has faded to nothing would divide by zero: that drafter is due.
        pairs = zip(self.totals, self.weights, strict=True)
        log_term = 2.0 * math.log(max(sum(self.weights), 1.0))
        indices = [total / n + self.beta * math.sqrt(log_term / n) if n > 1e-12 else math.inf for total, n in pairs]
        return indices.index(max(indices))


@register
class SlidingWindowUCB(UCB):
    """UCB on the last ``window`` rounds; a drafter that does not occur in them is played.

    Args:
        window: rounds remembered, at least the number of drafters for the others to be compared at all.
        reward, beta: as ``ucb``.

    Source: MetaSD Alg. 8 (Garivier & Moulines 2011).
    """

    name = "sw-ucb"
    title = "Sliding-window UCB"
    explanation = (
        "Like UCB, but only the last twenty rounds count. A drafter that was not asked for that long is asked again, "
        "so a change of topic is noticed; on a text that stays the same, those rounds are wasted."
    )
    source = "MetaSD Alg. 8"

    def __init__(self, arms: Sequence[str], seed: int = 0, window: int = 20, reward: str = "bd", beta: float = 0.01):
        if window < 1:
            raise PolicyError(f"window must be at least 1 round, got {window}")
        self.window = window
        super().__init__(arms, seed, reward, beta)

    def reset(self, prompt: str = "") -> None:
        super().reset(prompt)
        self.recent: deque[tuple[int, float]] = deque()

    def credit(self, arm: int, value: float) -> None:
        super().credit(arm, value)
        self.recent.append((arm, value))
        if len(self.recent) > self.window:
            old, lost = self.recent.popleft()
            self.counts[old] -= 1
            self.totals[old] = self.totals[old] - lost if self.counts[old] else 0.0

    def bonus(self, pulls: int) -> float:
        return self.beta * math.sqrt(2.0 * math.log(min(self.t, self.window) + 1) / pulls)
