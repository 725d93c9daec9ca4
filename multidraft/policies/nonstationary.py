"""Upper-confidence policies that forget: for texts whose best drafter changes."""

from __future__ import annotations

import math
from collections import deque

from pydantic import Field

from multidraft.policies.base import register
from multidraft.policies.ucb import UCB


@register
class DiscountedUCB(UCB):
    """UCB on discounted means and counts: a round ``s`` rounds ago weighs ``gamma^s``.

    ``mean_i = sum_s gamma^(t-s) r_s 1{a_s = i} / n_i``, ``n_i = sum_s gamma^(t-s) 1{a_s = i}``. MetaSD Alg. 6 divides
    the discounted sum by the plain count, which drives the mean of a drafter that is played all the time to 0; like
    Kocsis and Szepesvári, whom it cites, we discount both.

    The logarithm is that of one plus the discounted number of rounds, so that ``gamma = 1`` is exactly ``ucb``.

    Source: MetaSD Alg. 6 (Kocsis & Szepesvári 2006).
    """

    name = "d-ucb"
    title = "Discounted UCB"
    explanation = (
        "Like UCB, but old rounds fade: what a drafter did twenty rounds ago counts for little. It notices when "
        "another drafter becomes the better one in the middle of a text, and pays for it by asking all now and then."
    )
    source = "MetaSD Alg. 6"

    class Settings(UCB.Settings):
        gamma: float = Field(0.95, gt=0, le=1, description="discount per round; 1 is ucb")

    settings: Settings

    def reset(self) -> None:
        super().reset()
        self.weights = [0.0] * self.arm_count

    def credit(self, arm: int, value: float) -> None:
        super().credit(arm, 0.0)
        gamma = self.settings.gamma
        self.weights = [gamma * weight for weight in self.weights]
        self.totals = [gamma * total for total in self.totals]
        self.weights[arm] += 1.0
        self.totals[arm] += value

    def select(self) -> int:
        if 0 in self.counts:
            return self.counts.index(0)
        # A weight that has faded to nothing would divide by zero: that drafter is due.
        log_term = 2.0 * math.log(sum(self.weights) + 1.0)
        indices = [
            total / n + self.settings.beta * math.sqrt(log_term / n) if n > 1e-12 else math.inf
            for total, n in zip(self.totals, self.weights, strict=True)
        ]
        return indices.index(max(indices))


@register
class SlidingWindowUCB(UCB):
    """UCB on the last ``window`` rounds; a drafter that does not occur in them is played.

    ``mean_i`` and ``n_i`` are those of the window, the bonus is ``beta * sqrt(2 ln t / n_i)`` with ``t`` the number of
    the round chosen for, not limited to the window as in Garivier and Moulines (2011).

    Source: MetaSD Alg. 8.
    """

    name = "sw-ucb"
    title = "Sliding-window UCB"
    explanation = (
        "Like UCB, but only the last twenty rounds count. A drafter that was not asked for that long is asked again, "
        "so a change of topic is noticed; on a text that stays the same, those rounds are wasted."
    )
    source = "MetaSD Alg. 8"

    class Settings(UCB.Settings):
        window: int = Field(
            20, ge=1, le=1_000_000, description="rounds remembered; fewer than there are drafters compare nothing"
        )

    settings: Settings

    def reset(self) -> None:
        super().reset()
        self.recent: deque[tuple[int, float]] = deque()

    def credit(self, arm: int, value: float) -> None:
        super().credit(arm, value)
        self.recent.append((arm, value))
        if len(self.recent) > self.settings.window:
            old, lost = self.recent.popleft()
            self.counts[old] -= 1
            self.totals[old] = self.totals[old] - lost if self.counts[old] else 0.0
