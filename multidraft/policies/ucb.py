"""Upper-confidence policies: play the arm that could still be the best."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field

from multidraft.policies.base import NO_DRAFTER, Feedback, Policy, register
from multidraft.policies.rewards import AlignmentBandit, emitted_reward
from multidraft.policies.settings import Reward, WarmStart

Beta = Annotated[float, Field(ge=0, le=100, description="weight of exploration")]


class UpperConfidence(Policy):
    """Each arm once in the pool's order, then ``argmax_i mean_i + bonus(n_i)``; ties go to the lowest arm.

    Subclasses give :meth:`bonus` and pass what they learn to :meth:`credit`. ``n_i`` counts the pulls of
    arm ``i`` alone: dividing by all pulls would give every arm the same bonus, and so no exploration.
    """

    def reset(self) -> None:
        super().reset()
        self.counts = [0] * self.arm_count
        self.totals = [0.0] * self.arm_count

    def bonus(self, pulls: int) -> float:
        """Width of the confidence interval of an arm after ``pulls`` >= 1 pulls, in units of its reward."""
        raise NotImplementedError

    def spread(self, pulls: int) -> float:
        """``sqrt(2 ln t / n)``, ``t`` being the number of the round chosen for."""
        return math.sqrt(2.0 * math.log(self.t + 1) / pulls)

    def credit(self, arm: int, value: float) -> None:
        """Count a pull of ``arm`` that was worth ``value``; :attr:`t` is the caller's to count."""
        self.counts[arm] += 1
        self.totals[arm] += value

    def select(self) -> int:
        if 0 in self.counts:
            return self.counts.index(0)
        indices = [total / n + self.bonus(n) for total, n in zip(self.totals, self.counts, strict=True)]
        return indices.index(max(indices))


@register
class UCB(AlignmentBandit, UpperConfidence):
    """MetaSD-UCB: ``argmax_i mean_i + beta * sqrt(2 ln t / n_i)``, ``t`` the number of the round chosen for.

    Source: MetaSD Alg. 2; beta = 0.01 from its experiments.
    """

    name = "ucb"
    title = "UCB"
    explanation = (
        "Tries every drafter once, then prefers the one whose guesses have matched the large model best so far, "
        "with a small bonus for drafters it has seldom asked. It learns only from the drafter it asked, so each "
        "drafter it wants to know about costs it a round."
    )
    source = "MetaSD Alg. 2"

    class Settings(AlignmentBandit.Settings):
        reward: Reward = "bd"
        beta: Beta = 0.01

    settings: Settings

    def bonus(self, pulls: int) -> float:
        return self.settings.beta * self.spread(pulls)

    def learn(self, arm: int, reward: float) -> None:
        self.credit(arm, reward)


@register
class UCBSpec(UpperConfidence):
    """UCBSpec: mean emitted tokens plus a self-normalised confidence radius.

    ``cr_i = (K/2) * sqrt( (1 + n_i)/n_i^2 * (1 + 2 ln( N * sqrt(1 + n_i) / delta )) )`` for rewards
    ``y in 1..K+1``, ``K`` being the longest draft length seen in the query: the last drafts of a query
    may be cut short, which does not narrow the range of the earlier ones.

    Source: BanditSpec Alg. 4, Eqs. 5-7.
    """

    name = "ucbspec"
    title = "UCBSpec"
    explanation = (
        "Counts how many tokens each drafter's rounds have produced, and prefers the drafter that could, within the "
        "error of that average, be the best. Its margin of error is a cautious one that holds even though the "
        "rounds of a text depend on each other, so on short texts it explores a lot."
    )
    source = "BanditSpec Alg. 4"

    class Settings(WarmStart):
        delta: float = Field(0.1, gt=0, le=1, description="confidence parameter; smaller explores more")

    settings: Settings

    def reset(self) -> None:
        super().reset()
        self.widest = 0

    def bonus(self, pulls: int) -> float:
        log_term = math.log(self.arm_count * math.sqrt(1 + pulls) / self.settings.delta)
        return self.widest / 2 * math.sqrt((1 + pulls) / pulls**2 * (1 + 2 * log_term))

    def update(self, feedback: Feedback) -> None:
        if feedback.arm == NO_DRAFTER:
            return
        self.widest = max(self.widest, feedback.draft_length)
        # The radius is stated for rewards in 1..K+1; the record keeps them in [0, 1] like every policy's.
        self.last_reward = emitted_reward(feedback)
        self.t += 1
        self.credit(feedback.arm, float(feedback.emitted))
