"""``rate-hedge``: drafter and draft length by expected tokens per second, our own policy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from multidraft.errors import PolicyError
from multidraft.policies.base import NO_DRAFTER, Feedback, Policy, register

PRIOR_TOKENS = 2.5
"""How many tokens' worth of evidence the first guess about a drafter counts."""
NEIGHBOURS = 2.0
"""How many tokens' worth of evidence a drafter's acceptance at one depth lends to the next: texts are accepted in
bursts, so short drafts that are accepted whole promise more than their average."""
UNKNOWN, JUDGED = 0.6, 0.3
"""Guess of a drafter's acceptance: after a cold start, when it should be tried; once it was evaluated, when the
evidence should speak."""
EVALUATION_WEIGHT = 0.5
"""Drafts that begin at neighbouring positions share tokens, so each counts for less than a draft of its own."""
WORSE, ALARM = 0.5, 5.0
"""The change watched for: a drafter whose acceptance falls to this share of what it was. The log-likelihood ratio,
summed over rounds and never below 0, that calls for an evaluation: Page's cumulative-sum test (1954)."""
RECENT, FORGET = 10, 0.25
"""After a surprise: positions of the evaluation that count at least, and what is left of all evidence before it. Most
surprises are false, since refusals come in bursts."""
PROVOKED = 5.0
"""By how much evaluations that a change calls for may exceed the budget."""
BETTER = 0.9
"""Acceptance of the drafter that an evaluation may discover."""
HOPE, HOPE_WARM, HOPE_FADES = 0.5, 0.2, 0.5
"""Chance that there is such a drafter: after a cold start or a surprise, after a warm start, and what is left of it
after an evaluation that discovered none."""


@register
class RateHedge(Policy):
    """Plays the pair of drafter and draft length with the most expected tokens per second; length 0 is plain decoding.

    *Acceptance.* For each drafter ``i`` and depth ``j`` it keeps how often the ``j``-th drafted token was reached and
    accepted, fading with the text. Their ratios are the hazards of a Kaplan-Meier estimate, so a draft that ended
    before its ``j``-th token says nothing about depth ``j`` instead of something wrong: no feedback is censored, and
    none has to wait (compare HedgeSpec Example 7). ``EAL_k[i] = 1 + sum_{j<=k} prod_{m<=j} hazard_m[i]``.

    *Time.* With measured costs the pair yields ``EAL_k[i]`` tokens in ``k d_i + v(k) + s_i * unread_i`` seconds, the
    catch-up of a cold drafter charged. Of renewals with rewards the best has the largest ratio of the means.

    *Evidence.* Each round tells about the drafter that was played, for nothing. All others are evaluated together when
    a test says that the drafter in charge has become worse (then everything before the change is discounted), or
    when the evaluation is worth its time: the chance that it discovers a better drafter, times the time that one
    would save in as much text as there has been so far. The first drafter is the router's, where the pool has one.

    Args:
        budget: share of the decoding time that evaluations may take beyond the first, 0 or more and below 1; five times
            as much where changes call for them.
        memory: weight of evidence one token later, above 0 and at most 1.
        start: ``router`` by default (where the pool has one).

    Source: ours; renewal reward as in Ross (1996, 3.6), hazards as in Kaplan & Meier (1958).
    """

    name = "rate-hedge"
    title = "Rate (ours)"
    explanation = (
        "Chooses not only who guesses but also how many tokens ahead, by the clock: expected tokens divided by "
        "expected seconds, both measured as the text is written. When guessing does not pay, it stops guessing. It "
        "asks all drafters for their opinion only when the one in charge disappoints."
    )
    source = "This project; builds on HedgeSpec's full information and BanditSpec's draft lengths"
    uses_gamma = True

    start = "router"

    def __init__(self, arms: Sequence[str], seed: int = 0, budget: float = 0.03, memory: float = 0.985):
        if not 0 <= budget < 1:
            raise PolicyError(f"budget must be 0 or more and below 1, got {budget}")
        if not 0 < memory <= 1:
            raise PolicyError(f"memory must be above 0 and at most 1, got {memory}")
        self.budget, self.memory = budget, memory
        super().__init__(arms, seed)

    def reset(self, prompt: str = "") -> None:
        super().reset(prompt)
        count, longest = self.arm_count, self.longest
        self.trials, self.hits = np.zeros((count, longest)), np.zeros((count, longest))
        self.lengths = np.arange(1, longest + 1)
        self.guess = np.full(count, UNKNOWN)
        self.unread = np.zeros(count)
        self.arm, self.length, self.rate, self.seconds = 0, 0, 0.0, 0.0
        self.change, self.changed = 0.0, 0
        self.hope = HOPE
        self.waiting, self.elapsed, self.evaluating = 0, 0.0, 0.0
        self._read_costs()

    def warm_up(self, guess: Sequence[float]) -> None:
        self.guess = np.clip(guess, 0.05, 0.95)
        self.hope = HOPE_WARM

    def _read_costs(self) -> None:
        """Take over the present costs; where nothing is measured yet a drafted token costs a tenth of a target step."""
        known = self.costs.costs(self.longest) if self.costs else None
        if known is None or not known.verify[0] > 0:
            self.step, self.catch_up = np.full(self.arm_count, 0.1), np.zeros(self.arm_count)
            self.verify, self.evaluation = np.full(self.longest + 1, 1.0), (0.0, 0.0)
        else:
            self.step, self.catch_up, self.verify = known.draft_step, known.catch_up, known.verify
            self.evaluation = (known.evaluate, known.evaluate_token)
        # What a drafter with the acceptance BETTER would make of them, in tokens per second.
        seconds = float(np.median(self.step)) * self.lengths + self.verify[1:]
        self.best_rate = float(((1.0 + (BETTER**self.lengths).cumsum()) / seconds).max())

    def expected_tokens(self) -> np.ndarray:
        """``EAL_k[i]`` ``(N, K)``: tokens that a round of each drafter and draft length is expected to emit."""
        # Some dozens of numbers, each from the one before: plain Python is several times as fast as array operations.
        tokens, self.hazards = [], []
        for hits, trials, guess in zip(self.hits.tolist(), self.trials.tolist(), self.guess.tolist(), strict=True):
            hazard, weight, reached, emitted = guess, PRIOR_TOKENS, 1.0, 1.0
            row, chances = [], []
            for hit, trial in zip(hits, trials, strict=True):
                hazard = (hit + weight * hazard) / (trial + weight)
                weight = NEIGHBOURS
                reached *= hazard
                emitted += reached
                row.append(emitted)
                chances.append(min(hazard, 0.98))  # for the test below, to which nothing is impossible
            tokens.append(row)
            self.hazards.append(chances)
        return np.array(tokens)

    def _evidence_of_change(self, arm: int, accepted: int, length: int) -> float:
        """Log-likelihood ratio of a round: acceptance fell to ``WORSE`` of what it was, against: it did not."""
        ratio = accepted * math.log(WORSE)
        if accepted < length:
            hazard = self.hazards[arm][accepted]
            ratio += math.log((1.0 - WORSE * hazard) / (1.0 - hazard))
        return ratio

    def select(self) -> int:
        tokens = self.expected_tokens()
        fixed = self.catch_up * self.unread
        seconds = fixed[:, None] + self.step[:, None] * self.lengths + self.verify[1:]
        rates = tokens / seconds
        best = int(rates.argmax())
        arm, column = divmod(best, self.longest)
        self.rate, plain = float(rates[arm, column]), float(self.verify[0])
        if self.rate * plain <= 1.0:
            self.rate, self.seconds, self.length = 1.0 / plain, plain, 0
            return NO_DRAFTER
        self.arm, self.length, self.seconds = arm, column + 1, float(seconds[arm, column])
        return arm

    def draft_length(self, limit: int) -> int:
        return min(self.length, limit)

    def wants_evaluation(self, emitted: int) -> bool:
        self.waiting += emitted
        if self.length:
            accepted = min(emitted - 1, self.length)
            self.change = max(self.change + self._evidence_of_change(self.arm, accepted, self.length), 0.0)
        # The change began where the sum last stood at 0.
        self.changed = self.changed + emitted if self.change > 0.0 else 0
        fixed, per_token = self.evaluation
        cost = fixed + per_token * self.waiting
        alarmed = self.change > ALARM
        allowed = self.budget * self.elapsed * (PROVOKED if alarmed else 1.0)
        if self.evaluating > 0.0 and self.evaluating + cost > allowed:
            return False
        saved = self.hope * max(0.0, 1.0 - self.rate / self.best_rate) * self.elapsed
        return alarmed or saved > cost

    def update(self, feedback: Feedback) -> None:
        self.t += 1
        self.last_reward = feedback.block_efficiency
        self.elapsed += self.seconds  # by the costs, not the clock: hiccups are no reason for anything
        self._fade(self.memory**feedback.emitted)
        self.unread += feedback.emitted
        if feedback.arm != NO_DRAFTER and feedback.draft_length:
            reached = min(feedback.accepted + 1, max(feedback.drafted, 1))
            self.trials[feedback.arm, :reached] += 1.0
            self.hits[feedback.arm, : feedback.accepted] += 1.0
            self.unread[feedback.arm] = 1.0
        if feedback.gamma is not None:
            self._evaluated(feedback.gamma)
        elif self.change > ALARM:  # no time for an evaluation: others get their turn by the doubt alone
            self.trials[self.arm] *= FORGET
            self.hits[self.arm] *= FORGET
            self.change, self.changed = 0.0, 0
        if self.t % 16 == 0:
            self._read_costs()

    def _fade(self, share: float) -> None:
        self.trials *= share
        self.hits *= share

    def _evaluated(self, gamma: np.ndarray) -> None:
        """Count every start of a draft among the evaluated positions, as deep as the positions known go."""
        recent = gamma
        if self.change > ALARM:
            self._fade(FORGET)
            self.hope = HOPE
            recent = gamma[-max(self.changed, RECENT) :]
        self.hope *= HOPE_FADES
        self.guess[:] = JUDGED
        self.waiting, self.change, self.changed = 0, 0.0, 0
        reached = np.ones_like(recent)
        for depth in range(min(self.longest, len(recent))):
            reached = reached[: len(recent) - depth]
            accepted = reached * recent[depth:]
            self.trials[:, depth] += EVALUATION_WEIGHT * reached.sum(axis=0)
            self.hits[:, depth] += EVALUATION_WEIGHT * accepted.sum(axis=0)
            reached = accepted
        self.unread[:] = 0.0
        fixed, per_token = self.evaluation
        self.evaluating += fixed + per_token * len(gamma)
        self._read_costs()
