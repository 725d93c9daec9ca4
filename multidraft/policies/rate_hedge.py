"""``rate-hedge``: drafter and draft length by expected tokens per second, our own policy."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from pydantic import Field

from drafters.traffic import Prior
from multidraft.policies.base import NO_DRAFTER, Context, Feedback, Policy, register
from multidraft.policies.likeness import Likeness
from multidraft.policies.pair_costs import GUESS_TOKENS, Levels, PairCosts
from multidraft.policies.settings import Start, WarmStart

# What each of these numbers changes: python -m tests.perf.sensitivity; docs/policies.md has its table.
HORIZON = 8.0
"""Up to how many times as much text as there has been is taken to follow: in all of it an evaluation pays."""
LUCK = 0.05
"""Up to this share chance decides between drafters: costs of those of one shape differ by what their measurements are
off, and the same of them would go first in text after text."""
READERS = 0.15
"""By what share a drafter may promise to be slower than the fastest and still read the prompt before the first round:
it is likely to be asked, and would hold up that round."""
UNKNOWN = 0.6
"""Guess of a drafter's acceptance where nothing is known, as in ``drafters.traffic``: it should be tried."""
SPAN = 32
"""Positions that are evaluated at most. Whatever is older tells little of what comes next, and costs as much."""
REFRESH = 8
"""Every so many rounds costs are read anew, as they change slowly, and where no draft pays it looks for one."""
LONG_AFTER = 2
"""So many drafts in turn that were accepted whole, and shorter than the longest, call for a longest one: without long
drafts nothing would tell that what they cost was measured at a bad time. A further one takes ``RETRY_GROWTH`` times as
many."""
RETRY_GROWTH = 4
"""Where drafting seems not to pay it is tried all the same, first after ``REFRESH`` rounds; by how much longer it takes
from try to try. The first round of a text alone is one: nothing else would tell that costs measured at a bad time are
wrong."""


@register
class RateHedge(Policy):
    """Plays the pair of drafter and draft length with the most expected tokens per second; length 0 is no draft.

    *Acceptance.* What is known of a drafter is a distribution over the chance ``q`` that its next token is accepted. A
    round with ``a`` accepted tokens multiplies it by ``q^a``, and by ``1 - q`` where a token was refused, so a short
    draft says nothing about longer ones instead of something wrong: no feedback is censored, and none has to wait
    (compare HedgeSpec Example 7). A draft of ``k`` tokens yields ``E[1 + q + … + q^k]``: the less is known, the more
    long drafts may bring. A drafter that ends its draft before the length asked for yields no more than one whose next
    token is refused.

    *Change.* With every token written another task may have begun, with the chance ``1 - memory``. What holds then is
    what has been typical of the text: the mean of the start's guess and of all that was believed so far, so texts that
    no drafter knows are not taken for known ones again and again. Each distribution relaxes towards it: the forward
    pass of a hidden Markov model, or the fixed share of Herbster & Warmuth (1998), with shares of the past (Bousquet &
    Warmuth 2002). A drafter to which others were preferred has its next chance when they fail.

    *Traffic.* Past texts with such prompts tell how well all drafters do together, stretch by stretch: what one shows
    then speaks for or against the others too (:class:`~multidraft.policies.likeness.Likeness`).

    *Time.* With measured costs the pair takes ``D_k[i] d_i + v(D_k[i]) + s_i * unread_i / t`` seconds: what a drafter
    has to read first is spread over as many rounds as there have been. ``D_k`` is how many of ``k`` tokens are drafted:
    as many as are accepted, and those beyond, geometric for drafters that end their drafts when unsure. So to try one
    that may know nothing is cheap where it notices. Where a drafter has nothing to say, a round takes as long as one
    without a draft. In a batch verification is cheaper, since texts share what it takes whatever they do, so drafts
    have to be the better. Of renewals with rewards the best has the largest ratio of the means (Ross 1996, 3.6).

    *Staying.* A round in which the pair yields what was expected of it is no reason to choose another: it is played
    again, and what it has shown is learnt together with the next round, up to the next reading of costs.

    *Evaluations.* Each round tells about the drafter that was played, for nothing. All are evaluated together when that
    is worth its time: what one of them would save on average by being better than the present choice (the value of
    perfect information about it, Howard 1966), in the text to come: ``HORIZON`` times what there has been, or up to
    the next change, whichever comes first. The first drafter is what past queries or the router make expect. In a batch
    there are none: each would hold up all texts, and tell about one.

    *No draft.* Where none seems to pay one is made all the same in the first round and, less and less often, in later
    ones: without drafts there is no evidence of them, nor of what they cost by now. In a batch drafts are made while
    they pay for all texts together (:class:`~drafters.crowd.Crowd`): one that made none would be written on in small
    steps while the others' drafts are verified, and be decoded alone in the end.
    """

    name = "rate-hedge"
    title = "RateHedge (ours)"
    explanation = (
        "Chooses which drafter guesses and how far ahead, to get the most tokens per second, from what it has measured "
        "so far. When guessing does not pay, it stops guessing, apart from a try now and then. It tries or asks the "
        "other drafters when the one in charge disappoints or a better one seems likely."
    )
    source = "This project; builds on HedgeSpec's full information and BanditSpec's draft lengths"
    uses_gamma = True
    uses_costs = True

    class Settings(WarmStart):
        budget: float = Field(
            0.03, ge=0, lt=1, description="share of the decoding time that evaluations may take beyond the first"
        )
        memory: float = Field(0.99, gt=0, le=1, description="chance that one token later the task is still the same")
        start: Start = "traffic"

    def reset(self) -> None:
        self.longest = self.context.draft_length
        self.levels = Levels(self.longest)
        self.pairs = PairCosts(self.arm_count, self.levels)
        luck = np.random.default_rng([self.seed, zlib.crc32(self.context.prompt.encode(errors="replace"))])
        self.luck = 1.0 + LUCK * luck.random((self.arm_count, 1))
        self.unread = np.zeros(self.arm_count)
        self.arm, self.length, self.rate, self.seconds = 0, 0, 0.0, 0.0
        self.elapsed, self.evaluating, self.emitted, self.written = 0.0, 0.0, 0, 0
        self.undrafted, self.wakes, self.retry_after = 0, 0, 0
        self.whole, self.long_after = 0, LONG_AFTER
        self.seen: tuple[int, np.ndarray] | None = None
        self.stays, self.chosen = False, 0
        self.probing, self.trying_long, self.paused = False, False, False
        self.readers: Sequence[int] = range(self.arm_count)
        self._read_costs()
        self.likeness: Likeness | None = None
        self._believe(np.full(self.arm_count, UNKNOWN))
        self._choose_readers()

    def begin(self, context: Context | None = None) -> None:
        """Begin the query, in a batch that does not draft as soon as it does: a start takes as long as some rounds."""
        costs = context.costs if context else None
        self.asleep = costs is not None and not costs.drafts
        if context and self.asleep:
            self.context, self.last_reward, self.emitted = context, None, 0
            return
        super().begin(context)
        readers = self.candidates()
        self.unread[[arm for arm in range(self.arm_count) if arm not in readers]] = self.context.prompt_tokens

    def _wake(self) -> None:
        """Begin late: no drafter has read anything yet."""
        unread = self.context.prompt_tokens + self.emitted
        self.asleep = False
        super().begin(self.context)
        self.unread[:] = unread

    def candidates(self) -> Sequence[int]:
        """Those that promise to be fast, cold by their costs alone; none in a batch, which may not draft at all."""
        return [] if self.asleep or not self.alone else self.readers

    def warm_up(self, guess: Sequence[float]) -> None:
        self._believe(np.clip(guess, 0.05, 0.95))
        self._choose_readers()

    def expect(self, prior: Prior) -> None:
        super().expect(prior)
        if prior.texts:
            self.likeness = Likeness(prior, self.levels.log_chances)
            self._conclude()
            self._choose_readers()

    def _choose_readers(self) -> None:
        """The drafters whose best length promises tokens per second within ``READERS`` of the fastest's."""
        rates = (self.tokens / self.drafting).max(axis=1)
        self.readers = np.flatnonzero(rates * (1.0 + READERS) >= rates.max()).tolist()

    def _conclude(self) -> None:
        """What to believe of all drafters, the tokens that each length is expected to yield, and the seconds of its
        round before what has to be read, both ``(N, K)``."""
        self.expected = self.likeness.belief(self.belief) if self.likeness else self.belief
        both = (self.expected[:, None] @ self.pairs.known)[:, 0]
        self.tokens, self.drafting = both[:, : self.longest], both[:, self.longest :]

    def _believe(self, guess: np.ndarray) -> None:
        """Begin with a guess ``(N,)``: a Beta distribution, in log odds, by its counts of accepted and refused."""
        counts = GUESS_TOKENS * np.array([guess, 1.0 - guess]).T
        weights = np.exp(counts @ self.levels.log_chances)
        self.belief = weights / weights.sum(axis=1, keepdims=True)
        self.typical = self.belief.copy()
        self._conclude()

    def _read_costs(self) -> None:
        self.refresh = self.t - self.t % REFRESH + REFRESH
        self.pairs.read(self.context.costs)
        self.alone, self.plain = self.pairs.alone, self.pairs.plain

    @property
    def resting(self) -> bool:
        """Whether it looks at nothing in this round: where a batch does not draft, and alone where drafts do not pay,
        until it reads costs again."""
        return self.asleep or self.paused or (self.undrafted > 0 and self.t < self.wakes)

    @property
    def _mean_unread(self) -> float:
        return float(self.unread.sum()) / self.arm_count  # NumPy's own mean takes five times as long

    def select(self) -> int:
        self.paused = self.context.costs is not None and not self.context.costs.drafts
        self.trying_long = False
        if self.asleep:
            if self.paused:
                return NO_DRAFTER
            self._wake()
        if self.resting:
            self.seconds = self.plain
            return NO_DRAFTER
        if self.stays:
            return self.arm
        seconds = self.drafting + (self.pairs.catch_up * self.unread / max(self.t, 1))[:, None]
        rates = self.tokens / seconds
        arm, column = divmod(int((rates * self.luck).argmax()), self.longest)
        self.rate = float(rates[arm, column])
        self.probing = self.alone and self.rate * self.plain <= 1.0
        if self.probing and self.undrafted < self.retry_after:
            self.probing = False
            self.rate, self.seconds, self.length = 1.0 / self.plain, self.plain, 0
            return NO_DRAFTER
        self.trying_long = self.alone and column + 1 < self.longest and self.whole >= self.long_after
        if self.trying_long or (self.probing and self.t):
            column = self.longest - 1
        self.arm, self.seconds = arm, float(seconds[arm, column])
        self.chosen = self.length = column + 1
        return arm

    def draft_length(self, limit: int) -> int:
        self.length = min(self.chosen, limit)  # a draft that the end of the output cuts is not refused there
        return self.length

    def wants_evaluation(self, emitted: int) -> bool:
        if self.resting or self.arm_count == 1 or not self.alone or self._as_expected(emitted):
            return False
        fixed, per_token = self.pairs.evaluation
        horizon = min(HORIZON * self.elapsed, 1.0 / (self.rate * max(1.0 - self.settings.memory, 1e-9)))
        most = horizon * (1.0 - self.rate * self.pairs.fastest)  # to be saved, were the best drafter known
        if self.evaluating > 0.0:
            most = min(most, self.settings.budget * self.elapsed - self.evaluating)
        if fixed > most:
            return False
        cost = fixed + per_token * (self._mean_unread + self.emitted + emitted)
        if cost > most:
            return False
        saved = np.vecdot(self.expected, np.maximum(1.0 - self.rate * self.pairs.pace, 0.0))
        if self.length:
            saved[self.arm] = 0.0
        return float(saved.max()) * horizon > cost

    def _as_expected(self, emitted: int) -> bool:
        """Whether a round with a draft that was no mere try has yielded what was expected of it."""
        return self.length > 0 and not (self.probing or self.trying_long) and emitted >= self.rate * self.seconds

    @property
    def evaluation_span(self) -> int:
        return SPAN

    def update(self, feedback: Feedback) -> None:
        if self.asleep:
            self.emitted += feedback.emitted
            return
        rested = self.resting
        self.t += 1
        self.last_reward = feedback.block_efficiency
        self.elapsed += self.seconds  # by the costs, not the clock: hiccups are no reason for anything
        self.emitted += feedback.emitted
        if self.resting:
            self.undrafted += not self.paused
            return
        arm, length, self.stays = feedback.arm, feedback.draft_length, False
        if arm != NO_DRAFTER and length:
            self._count_draft(arm, feedback.drafted, feedback.accepted, length)
            long = self.alone and self.whole >= self.long_after and length < self.longest
            read = self.unread[arm] <= 1.0  # or this round's time and rate are not those of the next
            self.stays = read and self.t < self.refresh and not long and self._as_expected(feedback.emitted)
            self.stays = self.stays and feedback.gamma is None
            if self.stays:
                return
        kept = self.settings.memory**self.emitted
        self.belief += (1.0 - kept) * (self.typical - self.belief)
        if self.likeness:
            self.likeness.pass_on(self.emitted, kept)
        self.pairs.silent *= kept
        self.unread += self.emitted
        emitted, self.emitted = self.emitted, 0
        if self.seen is not None:
            self._learn(*self.seen)
        self.undrafted = self.undrafted + 1 if arm == NO_DRAFTER else 0
        if not rested:
            self.wakes = self.t - self.t % REFRESH + REFRESH
        if self.probing:
            self.retry_after = max(REFRESH - 1, RETRY_GROWTH * self.retry_after)
        elif self.undrafted == 0:
            self.retry_after = REFRESH - 1
        if feedback.gamma is not None:
            self._evaluated(feedback.gamma)
        self.written += emitted
        self.typical += emitted / (GUESS_TOKENS + self.written) * (self.belief - self.typical)
        if self.t >= self.refresh or self.probing or self.trying_long or rested:
            self._read_costs()
        self._conclude()

    def _count_draft(self, arm: int, drafted: int, accepted: int, length: int) -> None:
        """Count a draft: it is learnt with those that follow it at once. One that ended before the ``length`` asked for
        counts as refused there."""
        self.whole = self.whole + 1 if accepted == length and not self.trying_long else 0
        if self.trying_long:
            self.long_after *= RETRY_GROWTH
        elif length == self.longest:
            self.long_after = LONG_AFTER
        self.pairs.drafted(arm, drafted)
        chances = self.levels.chances[accepted < length][accepted]
        if self.seen is not None and self.seen[0] != arm:
            self._learn(*self.seen)
        self.seen = arm, chances if self.seen is None else self.seen[1] * chances

    def _learn(self, arm: int, chances: np.ndarray) -> None:
        """Take over what was seen of a drafter: its chances at each level of acceptance ``(levels,)``."""
        row = self.belief[arm]
        row *= chances
        chance = row.sum()
        row /= chance
        if self.likeness:
            self.likeness.saw(arm, chances, chance)
        self.seen = None
        self.unread[arm] = 1.0

    def _evaluated(self, gamma: np.ndarray) -> None:
        """Count what each drafter would have had accepted, had it drafted at the evaluated positions, one draft after
        the other: γ ``(m, K, N)``. Where acceptance has a chance, how deep a draft has come has a distribution."""
        fixed, per_token = self.pairs.evaluation
        self.evaluating += fixed + per_token * self._mean_unread
        accepted, depths = np.empty((len(gamma), self.arm_count)), np.zeros((self.longest, self.arm_count))
        depths[0] = 1.0
        for position, hits in enumerate(gamma):
            reached = depths * hits[: self.longest]
            reached.sum(axis=0, out=accepted[position])
            depths[1:] = reached[:-1]
            depths[0] = 1.0 - accepted[position] + reached[-1]
        fading = self.settings.memory ** np.arange(len(gamma) - 1.0, -1.0, -1.0)
        counts = np.array([fading @ accepted, fading @ (1.0 - accepted)]).T @ self.levels.log_chances
        chances = np.exp(counts - counts.max(axis=1, keepdims=True))
        self.belief *= chances
        sums = self.belief.sum(axis=1)
        self.belief /= sums[:, None]
        if self.likeness:
            self.likeness.saw_all(chances, sums)
        self.unread[:] = 0.0
