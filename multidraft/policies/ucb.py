"""Upper-confidence policies: play the arm that could still be the best."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from multidraft.policies.base import NO_DRAFTER, Feedback, Policy, register
from multidraft.policies.rewards import AlignmentBandit, emitted_reward
from multidraft.policies.settings import DrafterName, PolicySettings, Reward, WarmStart

Beta = Annotated[float, Field(ge=0, le=100, description="weight of exploration")]


class UpperConfidence(Policy):
    """Each arm once in the pool's order, then the one with the largest :meth:`index`; ties go to the lowest arm.

    The pulls of an arm are those of it alone: dividing by all pulls would give every arm the same bonus, and so no
    exploration.
    """

    def reset(self) -> None:
        super().reset()
        self.counts = [0.0] * self.arm_count
        self.totals = [0.0] * self.arm_count

    def index(self, mean: float, pulls: float) -> float:
        """How good an arm could be, in units of its reward, after ``pulls`` > 0 pulls."""
        raise NotImplementedError

    def spread(self, pulls: float) -> float:
        """``sqrt(2 ln t / n)``, ``t`` being the number of the round chosen for."""
        return math.sqrt(2.0 * math.log(self.t + 1) / pulls)

    def learn(self, arm: int, reward: float) -> None:
        """Count a pull of ``arm`` that was worth ``reward``; :attr:`t` is the caller's to count."""
        self.counts[arm] += 1
        self.totals[arm] += reward

    def select(self) -> int:
        if 0 in self.counts:
            return self.counts.index(0)
        indices = [self.index(total / n, n) for total, n in zip(self.totals, self.counts, strict=True)]
        return indices.index(max(indices))


@register
class UCB(UpperConfidence, AlignmentBandit):
    """MetaSD-UCB: ``argmax_i mean_i + beta * sqrt(2 ln t / n_i)``, ``t`` the number of the round chosen for."""

    name = "ucb"
    title = "UCB"
    explanation = (
        "Tries every drafter once, then prefers the one whose guesses have matched the target model best so far. "
        "Drafters it has seldom asked get a small bonus. It learns only from the drafter it asked, so each "
        "drafter it wants to know about costs it a round."
    )
    source = "MetaSD Alg. 2, beta = 0.01 from its experiments"

    class Settings(AlignmentBandit.Settings):
        reward: Reward = "bd"
        beta: Beta = 0.01

    def index(self, mean: float, pulls: float) -> float:
        return mean + self.settings.beta * self.spread(pulls)


@register
class UCBSpec(UpperConfidence):
    """UCBSpec: mean emitted tokens plus a self-normalised confidence radius.

    ``cr_i = (K/2) * sqrt( (1 + n_i)/n_i^2 * (1 + 2 ln( N * sqrt(1 + n_i) / delta )) )`` for rewards
    ``y in 1..K+1``, ``K`` being the longest draft length seen in the query: the last drafts of a query
    may be cut short, which does not narrow the range of the earlier ones.
    """

    name = "ucbspec"
    title = "UCBSpec"
    explanation = (
        "Counts how many tokens each drafter's rounds have produced, and prefers the drafter that could, within the "
        "error of that average, be the best. Its margin of error is a cautious one that holds even though the "
        "rounds of a text depend on each other, so on short texts it explores a lot."
    )
    source = "BanditSpec Alg. 4, Eqs. 5-7"

    class Settings(WarmStart):
        delta: float = Field(0.1, gt=0, le=1, description="confidence parameter; smaller explores more")

    def reset(self) -> None:
        super().reset()
        self.widest = 0

    def index(self, mean: float, pulls: float) -> float:
        log_term = math.log(self.arm_count * math.sqrt(1 + pulls) / self.settings.delta)
        return mean + self.widest / 2 * math.sqrt((1 + pulls) / pulls**2 * (1 + 2 * log_term))

    def update(self, feedback: Feedback) -> None:
        if feedback.arm == NO_DRAFTER:
            return
        self.widest = max(self.widest, feedback.draft_length)
        # The radius is stated for rewards in 1..K+1; the record keeps them in [0, 1] like every policy's.
        self.last_reward = emitted_reward(feedback)
        self.t += 1
        self.learn(feedback.arm, float(feedback.emitted))


@register
class DiscountedUCB(UCB):
    """UCB on discounted means and counts: a round ``s`` rounds ago weighs ``gamma^s``.

    ``mean_i = sum_s gamma^(t-s) r_s 1{a_s = i} / n_i``, ``n_i = sum_s gamma^(t-s) 1{a_s = i}``. MetaSD Alg. 6 divides
    the discounted sum by the plain count, which drives the mean of a drafter that is played all the time to 0; like
    Kocsis and Szepesvári, whom it cites, we discount both.

    The logarithm is that of one plus the discounted number of rounds, so that ``gamma = 1`` is exactly ``ucb``.
    """

    name = "d-ucb"
    title = "Discounted UCB"
    explanation = (
        "Like UCB, but old rounds fade: what a drafter did twenty rounds ago counts for little. It notices when "
        "another drafter becomes the better one in the middle of a text, and pays for it by asking all now and then."
    )
    source = "MetaSD Alg. 6; Kocsis & Szepesvári 2006"

    class Settings(UCB.Settings):
        gamma: float = Field(0.95, gt=0, le=1, description="discount per round; 1 is ucb")

    def learn(self, arm: int, reward: float) -> None:
        gamma = self.settings.gamma
        self.counts = [gamma * count for count in self.counts]
        self.totals = [gamma * total for total in self.totals]
        super().learn(arm, reward)

    def index(self, mean: float, pulls: float) -> float:
        if pulls <= 1e-12:  # faded to nothing: that drafter is due
            return math.inf
        return mean + self.settings.beta * math.sqrt(2.0 * math.log(sum(self.counts) + 1.0) / pulls)


@register
class SlidingWindowUCB(UCB):
    """UCB on the last ``window`` rounds, no fewer than there are drafters; one that does not occur in them is played.

    ``mean_i`` and ``n_i`` are those of the window, the bonus is ``beta * sqrt(2 ln t / n_i)`` with ``t`` the number of
    the round chosen for, not limited to the window as in Garivier and Moulines (2011).
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
            20, ge=1, le=1_000_000, description="rounds remembered, but no fewer than there are drafters"
        )

    def reset(self) -> None:
        super().reset()
        self.recent: deque[tuple[int, float]] = deque()

    def learn(self, arm: int, reward: float) -> None:
        super().learn(arm, reward)
        self.recent.append((arm, reward))
        if len(self.recent) > max(self.settings.window, self.arm_count):  # fewer would never come to the last drafters
            old, lost = self.recent.popleft()
            self.counts[old] -= 1
            self.totals[old] = self.totals[old] - lost if self.counts[old] else 0.0


@register
class UCBLength(UpperConfidence):
    """UCB over draft lengths ``0 … K`` of one drafter by the throughput of their rounds; 0 is autoregressive decoding.

    Index of a length: its mean tokens per second ÷ the largest rate seen, plus ``beta * sqrt(2 ln t / n)``. The paper
    runs UCBSpec on rewards scaled likewise; its confidence radius is wider than the whole range of the reward for
    the few dozen rounds of an answer, so we take MetaSD's form, whose width is a setting.
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

    def reset(self) -> None:
        self.arm = self.arm_of(self.settings.drafter) if self.settings.drafter else 0
        longest = self.context.draft_length
        self.counts = [0.0] * (longest + 1)
        self.totals = [0.0] * (longest + 1)
        self.fastest, self.length = 1e-9, 0

    def candidates(self) -> Sequence[int]:
        return (self.arm,)

    def select(self) -> int:
        if 0 in self.counts:
            # Long drafts first: they earn their trial best.
            self.length = self.context.draft_length - self.counts[::-1].index(0)
        else:
            self.length = super().select()
        return self.arm if self.length else NO_DRAFTER

    def draft_length(self, limit: int) -> int:
        return min(self.length, limit)

    def index(self, mean: float, pulls: float) -> float:
        return mean / self.fastest + self.settings.beta * self.spread(pulls)

    def update(self, feedback: Feedback) -> None:
        self.last_reward = feedback.block_efficiency
        # Near the end of the output a draft is cut short: that round tells about the length it had.
        length = min(feedback.draft_length, self.context.draft_length)
        rate = feedback.emitted / (feedback.seconds or 1.0)
        self.fastest = max(self.fastest, rate)
        self.t += 1
        self.learn(length, rate)
