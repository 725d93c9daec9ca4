"""Full-information learners: every drafter is judged on every verified token, whichever of them drafted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from drafters.errors import PolicyError
from multidraft.policies.base import Feedback, register
from multidraft.policies.delayed import LengthLossQueue, expected_accept_lengths
from multidraft.policies.exp3 import DrawnArm, softmax
from multidraft.policies.settings import Start, WarmStart


class FullInformation(DrawnArm):
    """Losses of all arms in, one arm drawn from ``p`` per round.

    Subclasses override :meth:`learn`, and :meth:`reset` for their state.

    In the token-level game every verified position is judged by full drafts of K tokens, with delayed feedback. In the
    chunk-level game every round is judged once and at once, by the tokens it happened to emit; what a drafter
    would have got beyond them stays unseen, which can favour the wrong one (HedgeSpec B.4).

    Evaluating all drafters costs time, so it is skipped (HedgeSpec B.5): it follows each of the first ``warmup`` rounds
    after a cold start, then every ``every`` rounds, but never before the positions waiting complete a loss. All since
    the last one, or the last ``span`` of them, come in one batch; positions between two spans teach nothing.

    The loss ``length`` is ``1 - EAL_K/(K+1)``, known K tokens later; ``acceptance`` is ``1 - gamma``, known at once;
    ``hybrid``, as in the paper's experiments, learns from acceptance until the first length losses arrive, and from all
    length losses then on. The fewer than K first positions of a hybrid query thus count in both ways where every round
    is evaluated.

    What past queries or the router make expect is the default start, as a text of some dozen rounds is short for a
    learner that has to be cold first; ``start=cold`` is the papers' own.

    Source: HedgeSpec Fig. 4 (token game), B.1 with Alg. 1 (QFI-D), B.3 (chunk game), B.5 (hybrid losses, skipping).
    """

    uses_gamma = True

    class Settings(WarmStart):
        loss: Literal["length", "acceptance", "hybrid"] = Field(
            "hybrid", description="expected accept length, acceptance, or acceptance until lengths are known"
        )
        game: Literal["token", "chunk"] = Field("token", description="judge every position, or every round once")
        warmup: int = Field(6, ge=0, le=10_000, description="rounds after a cold start that are all evaluated")
        every: int = Field(12, ge=1, le=1000, description="rounds per evaluation after the warm-up")
        span: int = Field(
            0, ge=0, le=100_000, description="most positions per evaluation, but no fewer than K; 0 for all"
        )
        gamma: Literal["hard", "soft"] = Field(
            "hard", description="acceptance in greedy runs: hit or miss, or 1 - TV at temperature 1"
        )
        start: Start = "traffic"

        @model_validator(mode="after")
        def _chunks_are_judged_whole(self) -> Self:
            if self.span and self.game == "chunk":
                raise PolicyError("span is for game=token: a chunk is judged whole")
            return self

    def reset(self) -> None:
        super().reset()
        self.uses_soft_gamma = self.settings.gamma == "soft"
        self.queue = LengthLossQueue(self.arm_count)
        self.unseen_chunks: list[int] = []
        self.trial_rounds = self.settings.warmup

    def learn(self, losses: list[float]) -> None:
        """Update ``p`` by the losses of all arms, each in [0, 1], at the next position of the game."""
        raise NotImplementedError

    def warm_up(self, guess: Sequence[float]) -> None:
        """Count the guess as one loss for each token of a draft, in place of the rounds evaluated one by one."""
        self.trial_rounds = 0
        for _ in range(self.context.draft_length):
            self.learn([1.0 - value for value in guess])

    def wants_evaluation(self, emitted: int) -> bool:
        played = self.t + 1  # asked before update() counts the round
        due = played <= self.trial_rounds or (played - self.trial_rounds) % self.settings.every == 0
        if self.settings.loss != "length" or self.settings.game == "chunk":
            return due
        # Length losses need K verified positions: with fewer an evaluation teaches nothing.
        waiting = len(self.queue) + sum(self.unseen_chunks) + emitted
        return due and waiting >= (self.queue.draft_length or self.context.draft_length)

    @property
    def evaluation_span(self) -> int | None:
        return max(self.settings.span, self.context.draft_length) if self.settings.span else None

    def update(self, feedback: Feedback) -> None:
        self.t += 1
        # It learns from losses of all arms, not from a reward: BE is for the record.
        self.last_reward = feedback.block_efficiency
        self.unseen_chunks.append(feedback.emitted)
        if feedback.gamma is not None:
            if self.settings.span and len(feedback.gamma) < sum(self.unseen_chunks):
                self.queue.skip()
            for losses in self._losses(feedback.gamma, feedback.draft_length).tolist():
                self.learn(losses)
            self.unseen_chunks = []

    def _losses(self, gamma: np.ndarray, draft_length: int) -> np.ndarray:
        if self.settings.game == "chunk":
            chunks = np.split(gamma, np.cumsum(self.unseen_chunks)[:-1])
            return np.array([self._chunk_loss(chunk) for chunk in chunks if len(chunk)])
        at_once = 1.0 - gamma[:, 0]  # of the first drafted token at each position (HedgeSpec §3.3)
        if self.settings.loss == "acceptance":
            return at_once
        lengths = self.queue.push(gamma, draft_length)
        # Once the queue has spoken, each new position completes one loss (K staying the same): no way back.
        return at_once if self.settings.loss == "hybrid" and len(lengths) == 0 else lengths

    def _chunk_loss(self, gamma: np.ndarray) -> np.ndarray:
        """Loss ``(N,)`` of a chunk of ``k`` verified positions (HedgeSpec B.3, with the chunk's own length as K)."""
        if self.settings.loss == "acceptance":
            return (1.0 - gamma[:, 0]).mean(axis=0)
        return 1.0 - expected_accept_lengths(gamma, len(gamma))[0] / (len(gamma) + 1)


@register
class Hedge(FullInformation):
    """Exponential weights ``p_i ∝ exp(-eta * sum of losses of i)`` with ``eta = sqrt(8 ln N / T)``.

    The horizon T is unknown: it starts at 16 positions and doubles whenever it is reached. The sums are kept then,
    since a restart would forget which drafter is good; decreasing rates have the same regret up to a constant.
    """

    name = "hedge"
    title = "Hedge"
    explanation = (
        "Asks every drafter how well it would have guessed what the target model wrote, and shifts weight from those "
        "with larger losses to those with smaller ones, by a rate that has to be guessed from the length of the text."
    )
    source = "HedgeSpec B.1; Freund & Schapire 1997; doubling: Cesa-Bianchi & Lugosi 2006, 2.3"

    def reset(self) -> None:
        super().reset()
        self.sums = [0.0] * self.arm_count
        self.positions, self.horizon = 0, 16

    def learn(self, losses: list[float]) -> None:
        self.sums = [total + loss for total, loss in zip(self.sums, losses, strict=True)]
        self.positions += 1
        if self.positions == self.horizon:  # what is drawn from now on is of the next period
            self.horizon *= 2
        eta = math.sqrt(8.0 * math.log(self.arm_count) / self.horizon)
        self.p = softmax([-eta * total for total in self.sums])


@register
class AdaNormalHedge(FullInformation):
    """AdaNormalHedge: ``p_i ∝ (Phi(R_i + 1, C_i + 1) - Phi(R_i - 1, C_i + 1)) / 2``, ``Phi(R, C) = exp([R]_+^2 / 3C)``.

    ``R_i += f_A - f_i``, ``C_i += |f_A - f_i|`` with ``f_A = sum_i p_i f_i``; uniform while no weight is positive.
    """

    name = "ada-normal-hedge"
    title = "AdaNormalHedge"
    explanation = (
        "A relative of NormalHedge that also counts how much each drafter's losses have differed from the mixture's. "
        "It settles faster where one drafter is clearly the best throughout."
    )
    source = "HedgeSpec B.2 and D.6; Luo & Schapire 2015, Alg. 1 with Eq. 2"

    def reset(self) -> None:
        super().reset()
        self.regrets = [0.0] * self.arm_count
        self.spreads = [0.0] * self.arm_count

    def learn(self, losses: list[float]) -> None:
        own = sum(map(mul, self.p, losses))
        potentials: list[tuple[int, float, float]] = []  # arms with any weight, and the exponents of their two Phi
        largest = 0.0
        for arm, loss in enumerate(losses):
            self.spreads[arm] += abs(own - loss)
            self.regrets[arm] = regret = self.regrets[arm] + own - loss
            if regret > -1.0:
                scale = 3.0 * (self.spreads[arm] + 1.0)
                upper = (regret + 1.0) ** 2 / scale
                potentials.append((arm, upper, (regret - 1.0) ** 2 / scale if regret > 1.0 else 0.0))
                largest = max(largest, upper)
        weights = [0.0] * self.arm_count
        for arm, upper, lower in potentials:  # regrets of thousands would overflow the exponentials themselves
            weights[arm] = math.exp(upper - largest) - math.exp(lower - largest)
        total = sum(weights)
        self.p = [w / total for w in weights] if total > 0.0 else [1.0 / self.arm_count] * self.arm_count


@register
class NormalHedge(FullInformation):
    """NormalHedge, HedgeSpec's default learner; it has no learning rate to tune.

    ``R_i += f_A - f_i`` with ``f_A = sum_i p_i f_i``; with ``c > 0`` such that
    ``(1/N) sum_i exp([R_i]_+^2 / 2c) = e``, ``p_i ∝ ([R_i]_+ / c) exp([R_i]_+^2 / 2c)``;
    uniform while no ``R_i > 0``.
    """

    name = "normal-hedge"
    title = "HedgeSpec (NormalHedge)"
    explanation = (
        "Once the target model has settled some tokens, every drafter is asked how well it would have guessed them, "
        "not only the one that was used. So it learns about all drafters at once, without trying the bad ones out, "
        "and soon draws nearly always the one that would have got furthest."
    )
    source = "HedgeSpec Fig. 7; Chaudhuri et al. 2009"

    def reset(self) -> None:
        super().reset()
        self.regrets = [0.0] * self.arm_count
        self.exponent = 1.0

    def learn(self, losses: list[float]) -> None:
        own = sum(map(mul, self.p, losses))
        self.regrets = [regret + own - loss for regret, loss in zip(self.regrets, losses, strict=True)]
        largest = max(self.regrets)
        if largest <= 0.0:
            self.p = [1.0 / self.arm_count] * self.arm_count
            return
        # Only ratios of regrets matter to p: with x = max(R)^2 / 2c and r_i = [R_i]_+ / max(R),
        # p_i ∝ r_i exp(x r_i^2), where neither tiny nor huge regrets can under- or overflow.
        ratios = [(arm, regret / largest) for arm, regret in enumerate(self.regrets) if regret > 0.0]
        self.exponent = solve_exponent([ratio * ratio for _, ratio in ratios], self.arm_count, self.exponent)
        weights = [0.0] * self.arm_count
        for arm, ratio in ratios:
            weights[arm] = ratio * math.exp(self.exponent * ratio * ratio)
        total = sum(weights)
        self.p = [weight / total for weight in weights]


def solve_exponent(squares: Sequence[float], count: int, start: float) -> float:
    """The ``x`` with ``(1/N) sum_i exp(x s_i) = e`` (step 4 of HedgeSpec Fig. 7, ``c = max(R)^2 / 2x``).

    With all ``s_i`` in [0, 1] and the largest 1, ``x`` lies in [1, 1 + ln N]. Newton's method runs on
    ``h(x) = ln((1/N) sum_i exp(x s_i)) - 1``: ``h`` is convex and increasing, so after its first step, held to
    the bracket, ``x`` falls to the root without crossing it. Two or three steps do when ``start`` is the
    root of the position before.

    Args:
        squares: ``s_i = ([R_i]_+ / max(R))^2`` of the arms with a positive regret; the others' are 0.
        count: number of arms N.
        start: where to begin, any number in the bracket.

    Returns:
        ``x`` to about 1e-9.
    """
    others = count - len(squares)
    highest = 1.0 + math.log(count)
    x = start
    while True:
        total, slope = float(others), 0.0
        for square in squares:
            power = math.exp(x * square)
            total += power
            slope += square * power
        step = (math.log(total / count) - 1.0) * total / slope
        x = min(x - step, highest)
        if abs(step) < 3e-5:  # convergence is quadratic, so what is left is of the order of step squared
            return x
