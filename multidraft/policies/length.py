"""``ucb-length``: the draft length as the arm, tokens per second as the reward."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from multidraft.policies.base import NO_DRAFTER, Feedback, register
from multidraft.policies.settings import DrafterName, PolicySettings
from multidraft.policies.ucb import Beta, UpperConfidence


@register
class UCBLength(UpperConfidence):
    """UCB over draft lengths ``0 … K`` of one drafter by the throughput of their rounds; 0 is autoregressive decoding.

    Index of a length: its mean tokens per second ÷ the largest rate seen, plus ``beta * sqrt(2 ln t / n)``. The paper
    runs UCBSpec on rewards scaled likewise; its confidence radius is wider than the whole range of the reward for
    the few dozen rounds of an answer, so we take MetaSD's form, whose width is a setting.

    Source: BanditSpec §6.2.
    """

    name = "ucb-length"
    title = "Draft length by speed"
    explanation = (
        "Stays with one drafter and learns how many tokens it should guess ahead, by the clock: each length is tried, "
        "and the fastest is preferred. No guessing at all is one of the choices."
    )
    source = "BanditSpec §6.2"
    uses_costs = True

    class Settings(PolicySettings):
        drafter: DrafterName = Field("", description="name of the drafter; by default the first of the pool")
        beta: Beta = 0.05

    settings: Settings

    def reset(self) -> None:
        self.arm = self.arm_of(self.settings.drafter) if self.settings.drafter else 0
        longest = self.context.draft_length
        self.counts = [0] * (longest + 1)
        self.totals = [0.0] * (longest + 1)
        self.fastest, self.length = 1e-9, 0

    def candidates(self) -> Sequence[int]:
        return (self.arm,)

    def select(self) -> int:
        if 0 in self.counts:
            self.length = self.context.draft_length - self.counts[::-1].index(
                0
            )  # long drafts first: they earn their trial best
        else:
            means = [total / n / self.fastest for total, n in zip(self.totals, self.counts, strict=True)]
            indices = [mean + self.bonus(n) for mean, n in zip(means, self.counts, strict=True)]
            self.length = indices.index(max(indices))
        return self.arm if self.length else NO_DRAFTER

    def draft_length(self, limit: int) -> int:
        return min(self.length, limit)

    def bonus(self, pulls: int) -> float:
        return self.settings.beta * self.spread(pulls)

    def update(self, feedback: Feedback) -> None:
        self.last_reward = feedback.block_efficiency
        # Near the end of the output a draft is cut short: that round tells about the length it had.
        length = min(feedback.draft_length, self.context.draft_length)
        rate = feedback.emitted / (feedback.seconds or 1.0)
        self.fastest = max(self.fastest, rate)
        self.t += 1
        self.credit(length, rate)
