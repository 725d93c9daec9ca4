"""EXP3: exponential weights on importance-weighted rewards or losses, for arms that may change."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from pydantic import Field

from multidraft.policies.base import NO_DRAFTER, Feedback, Policy, register
from multidraft.policies.rewards import AlignmentBandit, emitted_reward
from multidraft.policies.settings import WarmStart


def softmax(scores: Sequence[float]) -> list[float]:
    """Normalised exponentials, taken relative to the largest score so that none overflows."""
    largest = max(scores)
    weights = [math.exp(score - largest) for score in scores]
    total = sum(weights)
    return [weight / total for weight in weights]


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


class DrawnArm(Policy):
    """Draws each arm from ``p``, which subclasses recompute in ``update``."""

    def reset(self) -> None:
        super().reset()
        self.p = [1.0 / self.arm_count] * self.arm_count

    def select(self) -> int:
        return sample_arm(self.p, self.rng)

    def probabilities(self) -> list[float]:
        return list(self.p)


class ExponentialWeights(DrawnArm):
    """Learns from the arm played alone."""

    def reset(self) -> None:
        super().reset()
        self.scores = [0.0] * self.arm_count

    def warm_up(self, guess: Sequence[float]) -> None:
        uniform = list(self.p)
        for arm in range(self.arm_count):  # each pseudo-round by the chance it had, whatever came before it
            self.p = list(uniform)
            self.update(self.as_if_played(arm, guess[arm]))


@register
class Exp3(AlignmentBandit, ExponentialWeights):
    """MetaSD-EXP3: ``P_i = (1 - gamma) w_i / sum(w) + gamma/N``, then ``w_i *= exp(gamma * (r/P_i) / N)``.

    ``scores`` are the logarithms of the weights: the weights themselves overflow after some 700 rounds.
    """

    name = "exp3"
    title = "EXP3"
    explanation = (
        "Draws the drafter by lot. A drafter whose guesses matched the target model gets more tickets, and a fixed "
        "share of the draws (40 % unless set otherwise) is spread over all of them, so that it notices when another "
        "one becomes better. That watchfulness costs speed on texts where one drafter is best throughout."
    )
    source = "MetaSD Alg. 7, gamma = 0.4 from its experiments; Auer et al. 2002"

    class Settings(AlignmentBandit.Settings):
        gamma: float = Field(0.4, gt=0, le=1, description="share of uniform exploration")

    def learn(self, arm: int, reward: float) -> None:
        gamma = self.settings.gamma
        self.scores[arm] += gamma * reward / self.p[arm] / self.arm_count
        floor = gamma / self.arm_count
        self.p = [(1 - gamma) * weight + floor for weight in softmax(self.scores)]


@register
class Exp3Spec(ExponentialWeights):
    """EXP3Spec, anytime: ``P_i ∝ exp(-eta_t * sum of loss estimates of i)``, ``eta_t = sqrt(ln N / (t N))``.

    The loss of a round is ``(K + 1 - y) / K`` for ``y`` emitted tokens, its estimate that loss over ``P_i``
    for the arm played and 0 for the others. ``scores`` are the negated sums of the estimates.
    """

    name = "exp3spec"
    title = "EXP3Spec"
    explanation = (
        "Draws the drafter by lot and takes tickets away from a drafter whose guesses were refused, more boldly at "
        "first and more carefully later. It needs no setting and no idea of how long the text will be, but it "
        "learns only from the drafter it asked, which takes many rounds when there are many drafters."
    )
    source = "BanditSpec Alg. 5, Eqs. 13-14"
    Settings = WarmStart

    def update(self, feedback: Feedback) -> None:
        if feedback.arm == NO_DRAFTER:
            return
        self.t += 1
        # 1 - (y-1)/K is the paper's loss; the record keeps the reward, as for every policy.
        self.last_reward = emitted_reward(feedback)
        self.scores[feedback.arm] -= (1.0 - self.last_reward) / self.p[feedback.arm]
        eta = math.sqrt(math.log(self.arm_count) / ((self.t + 1) * self.arm_count))  # of the round to come
        self.p = softmax([eta * score for score in self.scores])
