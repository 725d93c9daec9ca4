"""Two textbook bandits that model the reward itself: Thompson sampling and KL-UCB."""

from __future__ import annotations

import math

from pydantic import Field

from multidraft.policies.base import register
from multidraft.policies.rewards import AlignmentBandit
from multidraft.policies.settings import Reward
from multidraft.policies.ucb import UpperConfidence


@register
class Thompson(AlignmentBandit):
    """Beta-Bernoulli Thompson sampling, a reward ``r`` in [0, 1] counted as ``r`` of a success.

    Each round draws a mean from every drafter's posterior ``Beta(1 + sum r, 1 + sum (1 - r))`` and plays the largest.

    Fractional rewards as in Agrawal & Goyal (2012, Alg. 2), without their coin toss, which would only add noise.
    """

    name = "thompson"
    title = "Thompson sampling"
    explanation = (
        "Keeps a belief about how good each drafter is, draws one possible truth from it each round, and plays the "
        "drafter that is best in that truth. Unsure beliefs are explored by themselves, without any setting."
    )
    source = "Thompson 1933; Agrawal & Goyal 2012"

    def reset(self) -> None:
        super().reset()
        self.successes = [1.0] * self.arm_count
        self.failures = [1.0] * self.arm_count

    def select(self) -> int:
        return int(self.rng.beta(self.successes, self.failures).argmax())

    def learn(self, arm: int, reward: float) -> None:
        self.successes[arm] += reward
        self.failures[arm] += 1.0 - reward


def kl_upper_bound(mean: float, divergence: float) -> float:
    """The largest ``q >= mean`` in [0, 1] with ``kl(mean, q) <= divergence``, Bernoulli, to 1e-6.

    The divergence is convex and increasing in ``q``, so Newton's method falls to the root from above without crossing
    it. It starts from the nearer of two bounds: Pinsker's, and the one that leaves out ``-mean ln q``, which is never
    negative.
    """
    if mean >= 1.0:
        return 1.0
    rest = 1.0 - mean
    known = (mean * math.log(mean) if mean else 0.0) + rest * math.log(rest)
    q = min(mean + math.sqrt(divergence / 2), 1.0 - math.exp((known - divergence) / rest))
    while mean < q < 1.0:
        excess = known - rest * math.log(1.0 - q) - (mean * math.log(q) if mean else 0.0) - divergence
        step = excess * q * (1.0 - q) / (q - mean)
        q -= step
        if step < 1e-7:
            break
    return max(q, mean)


@register
class KLUCB(UpperConfidence, AlignmentBandit):
    """KL-UCB: ``argmax_i max{q : n_i kl(mean_i, q) <= ln t + c ln ln t}``."""

    name = "kl-ucb"
    title = "KL-UCB"
    explanation = (
        "Like UCB, with a margin of error that fits rewards between 0 and 1 exactly: narrow where a drafter is nearly "
        "always right or nearly always wrong. It wastes fewer rounds than plain error bars of the same safety."
    )
    source = "Garivier & Cappé 2011, Alg. 1"

    class Settings(AlignmentBandit.Settings):
        reward: Reward = "bd"
        c: float = Field(0.0, ge=0, le=100, description="weight of ln ln t; its authors advise 0 in practice")

    def index(self, mean: float, pulls: float) -> float:
        log_t = math.log(self.t + 1)
        return kl_upper_bound(mean, (log_t + self.settings.c * math.log(max(log_t, 1.0))) / pulls)
