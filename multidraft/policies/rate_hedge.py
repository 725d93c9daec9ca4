"""``rate-hedge``: drafter and draft length by expected tokens per second, our own policy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from pydantic import Field

from drafters.costs import Costs
from multidraft.policies.base import NO_DRAFTER, Context, Feedback, Policy, register
from multidraft.policies.settings import Start, WarmStart

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
RIVAL_THRESHOLD = 2.5
"""The sum from which on another drafter that the start trusted is given a round: a cheaper question than an evaluation,
and the answer where a prompt holds two tasks."""
RECENT, FORGET = 10, 0.25
"""After a surprise: positions that are evaluated at least, and what is left of all evidence before it. Most surprises
are false, since refusals come in bursts."""
SPAN = 32
"""Positions that are evaluated at most where nothing surprises: more would cost more than they tell."""
PROVOKED = 5.0
"""By how much evaluations that a change calls for may exceed the budget."""
BETTER = 0.9
"""Acceptance of the drafter that an evaluation may discover."""
DRAFTS_ON = 4.0
"""How many drafted tokens' worth of evidence the pool's measurement of how long a drafter drafts counts."""
RETRY_AFTER, RETRY_GROWTH = 7, 4
"""Where drafting seems not to pay: rounds without a draft until one is tried all the same, and by how much longer it
takes from try to try. The first round of a text alone is one: nothing else would tell that costs measured at a bad time
are wrong."""
REFRESH = 8
"""Every so many rounds the costs are read anew and the estimates of all drafters fade; in between only the one that was
played has news."""
DISCOVERY_CHANCE, DISCOVERY_CHANCE_WARM, DISCOVERY_CHANCE_DECAY = 0.5, 0.2, 0.5
"""Chance that there is such a drafter: after a cold start or a surprise, after a warm start as long as it holds what it
promised, and what is left of it after an evaluation that discovered none."""
TRUSTED = 0.6
"""Acceptance that a warm start promises of drafters worth waiting for."""


@register
class RateHedge(Policy):
    """Plays the pair of drafter and draft length with the most expected tokens per second; length 0 is no draft.

    *Acceptance.* For each drafter ``i`` and depth ``j`` it keeps how often the first ``j - 1`` tokens were accepted and
    how often the ``j``-th then was, fading with the text. Their ratios are the hazards of a Kaplan-Meier estimate, so a
    draft of less than ``j`` tokens says nothing about depth ``j`` instead of something wrong: no feedback is censored,
    and none has to wait (compare HedgeSpec Example 7). ``EAL_k[i] = 1 + sum_{j<=k} prod_{m<=j} hazard_m[i]``. A
    drafter that ends its draft before the length asked for yields no more than one whose next token is refused.

    *Time.* With measured costs the pair yields ``EAL_k[i]`` tokens in ``D_k[i] d_i + v(D_k[i]) + s_i * unread_i / t``
    seconds: what a drafter has to read first is spread over as many rounds as there have been. ``D_k`` is how many of
    ``k`` tokens are drafted, geometric for drafters that end their drafts when unsure. In a batch verification is
    cheaper, since texts share what it takes whatever they do, so drafts have to be the better. Of renewals with rewards
    the best has the largest ratio of the means (Ross 1996, 3.6).

    *Evidence.* Each round tells about the drafter that was played, for nothing. When a test says that the drafter in
    charge has become worse, others that the start trusted get a round each; where that does not help, all are evaluated
    together and everything before the change is discounted. They are evaluated too when that is worth its time: the
    chance that it discovers a better drafter, times the time that one
    would save in as much text as there has been so far. The first drafter is what past queries or the router
    make expect.
    Where no draft seems to pay one is made all the same in the first round and, less and less often, in later ones:
    without drafts there is no evidence of them, nor of what they cost by now.
    """

    name = "rate-hedge"
    title = "Rate (ours)"
    explanation = (
        "Chooses not only who guesses but also how many tokens ahead, by the clock: expected tokens divided by "
        "expected seconds, both measured as the text is written. When guessing does not pay, it stops guessing, but "
        "for a try now and then. It tries or asks the other drafters when the one in charge disappoints or a better "
        "one seems likely."
    )
    source = "This project; builds on HedgeSpec's full information and BanditSpec's draft lengths"
    uses_gamma = True
    uses_costs = True

    class Settings(WarmStart):
        budget: float = Field(
            0.03,
            ge=0,
            lt=1,
            description="share of the decoding time that evaluations may take beyond the first; five times as much "
            "where changes call for them",
        )
        memory: float = Field(0.985, gt=0, le=1, description="weight of evidence one token later")
        start: Start = "traffic"

    def reset(self) -> None:
        self.longest = longest = self.context.draft_length
        count = self.arm_count
        # Fading trials and hits (2, N, K + 1): how often each drafter's token at a depth was tried, as all before it in
        # the draft were accepted, and how often it was. The last column: the chances to draft on, and those taken.
        self.counts = np.zeros((2, count, longest + 1))
        self.lengths = np.arange(1, longest + 1)
        self.guess = np.full(count, UNKNOWN)
        self.routed = np.full(count, JUDGED)
        self.tokens, self.drafting = np.empty((2, count, longest))
        self.hazards: list[list[float]] = [[] for _ in range(count)]
        self.unread = np.zeros(count)
        self.arm, self.length, self.rate, self.seconds = 0, 0, 0.0, 0.0
        self.change, self.changed = 0.0, 0
        self.trial, self.doubted, self.tried = NO_DRAFTER, NO_DRAFTER, set[int]()
        self.discovery_chance, self.trusting = DISCOVERY_CHANCE if count > 1 else 0.0, False
        self.elapsed, self.evaluating, self.emitted = 0.0, 0.0, 0
        self._read_costs()
        self.undrafted, self.wakes, self.retry_after = 0, 0, 0
        self.probing, self.paused = False, False
        self._estimate(range(count))

    def begin(self, context: Context | None = None) -> None:
        super().begin(context)
        readers = self.candidates()
        self.unread[[arm for arm in range(self.arm_count) if arm not in readers]] = self.context.prompt_tokens

    def candidates(self) -> Sequence[int]:
        """Those that the start trusts, all where it trusts none; none in a batch, which may not draft at all."""
        if not self.alone:
            return []
        trusted = [arm for arm in range(self.arm_count) if self.routed[arm] >= TRUSTED]
        return trusted or range(self.arm_count)

    def warm_up(self, guess: Sequence[float]) -> None:
        self.guess = np.clip(guess, 0.05, 0.95)
        self.routed = np.maximum(self.guess, JUDGED)
        if self.guess.max() >= TRUSTED:
            self.discovery_chance, self.trusting = DISCOVERY_CHANCE_WARM, True
        self._estimate(range(self.arm_count))

    def _read_costs(self) -> None:
        """Take over the present costs; where nothing is measured yet a drafted token costs a tenth of a target step."""
        known = self.context.costs.costs(self.longest) if self.context.costs else None
        if known is None or not known.verify[0] > 0:
            known = Costs.uniform(self.arm_count, self.longest, step=0.1, verify=1.0)
        self.catch_up, self.plain = known.catch_up, float(known.verify[0])
        self.alone = known.texts == 1
        self.evaluation = (known.evaluate, known.evaluate_token)
        # A round takes so long, and so much more for each drafted token, by the drafter as by the target.
        each = float(known.verify[-1] - known.verify[1]) / max(len(known.verify) - 2, 1)
        width = 1.0 if known.width is None else known.width
        self.each = known.draft_step + width * each
        self.fixed = np.full(self.arm_count, float(known.verify[1]) - each)
        if known.draft_start is not None:
            self.fixed += known.draft_start
        self.drafts_on = np.ones(self.arm_count) if known.persistence is None else known.persistence
        # What a drafter with the acceptance BETTER would make of them, in tokens per second.
        seconds = float(np.median(self.fixed)) + float(np.median(self.each)) * self.lengths
        self.best_rate = float(((1.0 + (BETTER**self.lengths).cumsum()) / seconds).max())

    def _estimate(self, arms: Iterable[int]) -> None:
        """Of drafters ``i`` the tokens that a round is expected to emit, ``EAL_k[i]``, and the seconds it takes but for
        what has to be read first."""
        # Some dozens of numbers, each from the one before: plain Python is several times as fast as array operations.
        for arm in arms:
            hazard, weight, reached, emitted = float(self.guess[arm]), PRIOR_TOKENS, 1.0, 1.0
            trials, hits = self.counts[:, arm].tolist()
            goes_on = (hits[-1] + DRAFTS_ON * float(self.drafts_on[arm])) / (trials[-1] + DRAFTS_ON)
            seconds, next_token = float(self.fixed[arm]), float(self.each[arm])
            tokens, drafting, hazards = [], [], []
            for depth in range(self.longest):
                hazard = (hits[depth] + weight * hazard) / (trials[depth] + weight)
                weight = NEIGHBOURS
                reached *= hazard
                emitted += reached
                seconds += next_token
                next_token *= goes_on
                tokens.append(emitted)
                drafting.append(seconds)
                hazards.append(hazard)
            self.tokens[arm], self.drafting[arm], self.hazards[arm] = tokens, drafting, hazards

    def _evidence_of_change(self, arm: int, accepted: int, length: int) -> float:
        """Log-likelihood ratio of a round: acceptance fell to ``WORSE`` of what it was, against: it did not."""
        ratio = accepted * math.log(WORSE)
        if accepted < length:
            hazard = min(self.hazards[arm][accepted], 0.98)  # nothing is impossible
            ratio += math.log((1.0 - WORSE * hazard) / (1.0 - hazard))
        return ratio

    @property
    def resting(self) -> bool:
        """Whether it looks at nothing in this round: where a batch does not draft; where drafts do not pay, no more
        often than estimates are made, and in a batch, which others tell about too, less and less often."""
        return self.paused or (self.undrafted > 0 and self.t < self.wakes)

    def select(self) -> int:
        self.paused = self.context.costs is not None and not self.context.costs.drafts
        if self.resting:
            self.seconds = self.plain
            return NO_DRAFTER
        seconds = self.drafting + (self.catch_up * self.unread)[:, None] / max(self.t, 1)
        rates = self.tokens / seconds
        if self.trial != NO_DRAFTER:
            arm, column = self.trial, int(rates[self.trial].argmax())
        else:
            arm, column = divmod(int(rates.argmax()), self.longest)
        self.rate = float(rates[arm, column])
        self.probing = self.rate * self.plain <= 1.0 and self.trial == NO_DRAFTER
        if self.probing and (not self.alone or self.undrafted < self.retry_after):
            self.probing = False
            self.rate, self.seconds, self.length = 1.0 / self.plain, self.plain, 0
            return NO_DRAFTER
        self.arm, self.length, self.seconds = arm, column + 1, float(seconds[arm, column])
        if self.trusting and self.routed[arm] < TRUSTED:  # the start's favourites have failed
            self.discovery_chance, self.trusting = DISCOVERY_CHANCE, False
        return arm

    def draft_length(self, limit: int) -> int:
        self.length = min(self.length, limit)  # a draft that the end of the output cuts is not refused there
        return self.length

    def wants_evaluation(self, emitted: int) -> bool:
        if self.resting or (self.length == 0 and not self.alone):
            return False  # in a batch that hardly drafts there is nothing to be saved
        if self.length and self.trial == NO_DRAFTER:
            accepted = min(emitted - 1, self.length)
            self.change = max(self.change + self._evidence_of_change(self.arm, accepted, self.length), 0.0)
        # The change began where the sum last stood at 0.
        self.changed = self.changed + emitted if self.change > 0.0 else 0
        fixed, per_token = self.evaluation
        cost = fixed + per_token * (float(self.unread.mean()) + self.emitted + emitted)
        alarmed = self.change > ALARM and not self._rivals()
        allowed = self.settings.budget * self.elapsed * (PROVOKED if alarmed else 1.0)
        if self.evaluating > 0.0 and self.evaluating + cost > allowed:
            return False
        saved = self.discovery_chance * max(0.0, 1.0 - self.rate / self.best_rate) * self.elapsed
        return alarmed or saved > cost

    @property
    def evaluation_span(self) -> int:
        return max(self.changed, RECENT) if self.change > ALARM else SPAN

    def update(self, feedback: Feedback) -> None:
        rested = self.resting
        self.t += 1
        self.last_reward = feedback.block_efficiency
        self.elapsed += self.seconds  # by the costs, not the clock: hiccups are no reason for anything
        self.emitted += feedback.emitted
        if self.resting:
            self.undrafted += not self.paused
            return
        self.counts *= self.settings.memory**self.emitted
        self.unread += self.emitted
        self.emitted = 0
        arm, length = feedback.arm, feedback.draft_length
        if arm != NO_DRAFTER and length:
            self._count_draft(arm, max(feedback.drafted, 1), feedback.accepted, length)
            self.unread[arm] = 1.0
        self.undrafted = self.undrafted + 1 if arm == NO_DRAFTER else 0
        if not rested:
            next_refresh = self.t - self.t % REFRESH + REFRESH
            self.wakes = next_refresh if self.alone else max(next_refresh, self.t + self.undrafted)
        if self.probing:
            self.retry_after = max(RETRY_AFTER, RETRY_GROWTH * self.retry_after)
        elif self.undrafted == 0:
            self.retry_after = RETRY_AFTER
        if self.change == 0.0:
            self.tried.clear()
        if feedback.gamma is not None:
            self._evaluated(feedback.gamma)
        elif self.trial != NO_DRAFTER:
            if feedback.accepted >= min(2, max(feedback.drafted, 1)):  # the rival does better
                self.counts[:, self.doubted] *= FORGET
                self.change, self.changed = 0.0, 0
                self._estimate((self.doubted,))
            self.trial = NO_DRAFTER
        elif self.change > RIVAL_THRESHOLD and (rivals := self._rivals()):
            self._begin_trial(rivals[0])
        elif self.change > ALARM:  # no time for an evaluation: others get their turn by the doubt alone
            self.counts[:, self.arm] *= FORGET
            self.change, self.changed = 0.0, 0
        if self.t % REFRESH == 0 or self.probing or rested:
            self._read_costs()
            self._estimate(range(self.arm_count))
        elif feedback.gamma is None and arm != NO_DRAFTER:
            self._estimate((arm,))

    def _count_draft(self, arm: int, drafted: int, accepted: int, length: int) -> None:
        """Count a draft; one that ended before the ``length`` asked for counts as refused there."""
        tried = min(accepted + 1, length)
        trials = [1.0] * tried + [0.0] * (self.longest - tried) + [min(drafted, length - 1)]
        hits = [1.0] * accepted + [0.0] * (self.longest - accepted) + [drafted - 1]
        self.counts[:, arm] += trials, hits

    def _rivals(self) -> list[int]:
        """Drafters that the start trusted and that were not asked since the doubts began."""
        others = (i for i in range(self.arm_count) if i != self.arm and i not in self.tried)
        return [i for i in others if self.routed[i] >= TRUSTED]

    def _begin_trial(self, rival: int) -> None:
        """Let ``rival`` draft next, as new as on the first day: what it did wrong was another task."""
        self.trial, self.doubted = rival, self.arm
        self.tried |= {rival, self.arm}
        self.counts[:, rival] = 0.0
        self.guess[rival] = self.routed[rival]
        self._estimate((rival,))

    def _evaluated(self, gamma: np.ndarray) -> None:
        """Count every start of a draft among the evaluated positions, as deep as the positions known go."""
        self.guess[:] = JUDGED
        if self.change > ALARM:
            self.counts *= FORGET
            self.discovery_chance = DISCOVERY_CHANCE
            self.guess[:] = self.routed  # a second task of the prompt may have begun
            self.guess[self.arm if self.trial == NO_DRAFTER else self.doubted] = JUDGED
        self.discovery_chance *= DISCOVERY_CHANCE_DECAY
        self._read_costs()
        fixed, per_token = self.evaluation
        self.evaluating += fixed + per_token * float(self.unread.mean())
        self.change, self.changed, self.trial = 0.0, 0, NO_DRAFTER
        reached, seen = np.ones((len(gamma), self.arm_count)), np.zeros_like(self.counts)
        for depth in range(min(self.longest, len(gamma))):
            reached = reached[: len(gamma) - depth]
            accepted = reached * gamma[depth:, depth]
            seen[0, :, depth], seen[1, :, depth] = reached.sum(axis=0), accepted.sum(axis=0)
            reached = accepted
        self.counts += EVALUATION_WEIGHT * seen
        self.unread[:] = 0.0
        self._estimate(range(self.arm_count))
