"""``rate-hedge``: drafter and draft length by expected tokens per second, our own policy."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from pydantic import Field

from drafters.costs import Costs
from drafters.traffic import Prior
from multidraft.policies.base import NO_DRAFTER, Context, Feedback, Policy, register
from multidraft.policies.likeness import Likeness
from multidraft.policies.settings import Start, WarmStart

# What each of these numbers changes: python -m tests.perf.sensitivity; docs/policies.md has its table.
LEVELS = 13
"""Acceptances that are told apart, evenly spaced in their log odds from 0.018 to 0.982: a matter of resolution only."""
GUESS_TOKENS = 4.0
"""How many tokens' worth of evidence a guess about a drafter counts: the start's of its acceptance, which is of such
prompts and not of this one, and that it drafts at all."""
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
    without a draft. In a batch verification is cheaper, since texts share what
    it takes whatever they do, so drafts have to be the better. Of renewals with rewards the best has the largest ratio
    of the means (Ross 1996, 3.6).

    *Evaluations.* Each round tells about the drafter that was played, for nothing. All are evaluated together when that
    is worth its time: what one of them would save on average by being better than the present choice (the value of
    perfect information about it, Howard 1966), in the text to come: ``HORIZON`` times what there has been, or up to
    the next change, whichever comes first. The first drafter is what past queries or the router make expect.
    Where no draft seems to pay one is made all the same in the first round and, less and less often, in later ones:
    without drafts there is no evidence of them, nor of what they cost by now.
    """

    name = "rate-hedge"
    title = "RateHedge (ours)"
    explanation = (
        "Chooses who guesses and how many tokens ahead, for the most tokens per second, by what it has measured so "
        "far. When guessing does not pay, it stops guessing, apart from a try now and then. It tries or asks the other "
        "drafters when the one in charge disappoints or a better one seems likely."
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
        odds = np.exp(np.linspace(-4.0, 4.0, LEVELS))
        levels = odds / (1.0 + odds)
        self.refused = 1.0 - levels
        self.log_chances = np.log([levels, self.refused])
        # By depth the chance that a draft is accepted so far, and the tokens that each length yields (levels, K); the
        # chance that as many tokens of a length are left when no more will be accepted (K, levels x K).
        self.accepted = levels ** np.arange(self.longest + 1)[:, None]
        self.chances = self.accepted, self.accepted * self.refused  # of a draft, without a refused token and with one
        self.yields = 1.0 + self.accepted[1:].T.cumsum(axis=1)
        left = np.arange(self.longest)
        failing = np.tril(self.refused[:, None, None] * levels[:, None, None] ** (left[:, None] - left))
        self.failing = failing.reshape(-1, self.longest).T
        luck = np.random.default_rng([self.seed, zlib.crc32(self.context.prompt.encode(errors="replace"))])
        self.luck = 1.0 + LUCK * luck.random((self.arm_count, 1))
        self.unread = np.zeros(self.arm_count)
        self.silent = np.zeros((2, self.arm_count))  # fading: drafts asked for, and those without a token
        self.arm, self.length, self.rate, self.seconds = 0, 0, 0.0, 0.0
        self.elapsed, self.evaluating, self.emitted, self.written = 0.0, 0.0, 0, 0
        self.undrafted, self.wakes, self.retry_after = 0, 0, 0
        self.whole, self.long_after = 0, LONG_AFTER
        self.probing, self.trying_long, self.paused = False, False, False
        self.readers: Sequence[int] = range(self.arm_count)
        self.known = np.empty((self.arm_count, LEVELS, 2 * self.longest))
        self.known[:, :, : self.longest] = self.yields
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
            self.likeness = Likeness(prior, self.log_chances)
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
        both = (self.expected[:, None] @ self.known)[:, 0]
        self.tokens, self.drafting = both[:, : self.longest], both[:, self.longest :]

    def _believe(self, guess: np.ndarray) -> None:
        """Begin with a guess ``(N,)``: a Beta distribution, in log odds, by its counts of accepted and refused."""
        counts = GUESS_TOKENS * np.array([guess, 1.0 - guess]).T
        weights = np.exp(counts @ self.log_chances)
        self.belief = weights / weights.sum(axis=1, keepdims=True)
        self.typical = self.belief.copy()
        self._conclude()

    def _read_costs(self) -> None:
        """Take over the present costs; where nothing is measured yet a drafted token costs a tenth of a target step."""
        known = self.context.costs.costs(self.longest) if self.context.costs else None
        self.alone = known is None or known.texts == 1
        if known is None or not known.verify[0] > 0:
            known = Costs.uniform(self.arm_count, self.longest, step=0.1, verify=1.0)
        self.catch_up, self.plain = known.catch_up, float(known.verify[0])
        self.evaluation = (known.evaluate, known.evaluate_token)
        # A round takes so long, and so much more for each drafted token, by the drafter as by the target.
        each = float(known.verify[-1] - known.verify[1]) / max(len(known.verify) - 2, 1)
        width = 1.0 if known.width is None else known.width
        fixed = float(known.verify[1]) - each + (0.0 if known.draft_start is None else known.draft_start)
        go_on = np.ones(self.arm_count) if known.overrun is None else known.overrun
        vain = (go_on[:, None] ** np.arange(1, self.longest + 1)).cumsum(axis=1)
        drafted = self.yields - 1.0 + (vain @ self.failing).reshape(-1, *self.yields.shape)
        per_token = (known.draft_step + width * each)[:, None, None]
        self.speaking = np.reshape(fixed, (-1, 1, 1)) + per_token * np.maximum(drafted, 1.0)
        self._price()

    def _price(self) -> None:
        """By drafter, were its acceptance known, the tokens of a round of each length and its seconds, before what has
        to be read, ``(N, levels, 2 K)``; and seconds per token at the best length ``(N, levels)``."""
        silent = self.silent[1] / (self.silent[0] + GUESS_TOKENS)
        seconds = self.speaking + silent[:, None, None] * (self.plain - self.speaking)
        self.known[:, :, self.longest :] = seconds
        self.known_pace = (seconds / self.yields).min(axis=2)
        self.fastest = float(self.known_pace.min())

    @property
    def resting(self) -> bool:
        """Whether it looks at nothing in this round: where a batch does not draft; where drafts do not pay, no more
        often than costs are read, and in a batch, which others tell about too, less and less often."""
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
        seconds = self.drafting + (self.catch_up * self.unread / max(self.t, 1))[:, None]
        rates = self.tokens / seconds
        arm, column = divmod(int((rates * self.luck).argmax()), self.longest)
        self.rate = float(rates[arm, column])
        self.probing = self.rate * self.plain <= 1.0
        if self.probing and (not self.alone or self.undrafted < self.retry_after):
            self.probing = False
            self.rate, self.seconds, self.length = 1.0 / self.plain, self.plain, 0
            return NO_DRAFTER
        self.trying_long = self.alone and column + 1 < self.longest and self.whole >= self.long_after
        if self.trying_long or (self.probing and self.t):
            column = self.longest - 1
        self.arm, self.length, self.seconds = arm, column + 1, float(seconds[arm, column])
        return arm

    def draft_length(self, limit: int) -> int:
        self.length = min(self.length, limit)  # a draft that the end of the output cuts is not refused there
        return self.length

    def wants_evaluation(self, emitted: int) -> bool:
        if self.resting or self.arm_count == 1 or (self.length == 0 and not self.alone):
            return False  # in a batch that hardly drafts there is nothing to be saved
        fixed, per_token = self.evaluation
        horizon = min(HORIZON * self.elapsed, 1.0 / (self.rate * max(1.0 - self.settings.memory, 1e-9)))
        most = horizon * (1.0 - self.rate * self.fastest)  # to be saved, were the best drafter known
        if self.evaluating > 0.0:
            most = min(most, self.settings.budget * self.elapsed - self.evaluating)
        if fixed > most:
            return False
        cost = fixed + per_token * (self._mean_unread + self.emitted + emitted)
        if cost > most:
            return False
        saved = np.vecdot(self.expected, np.maximum(1.0 - self.rate * self.known_pace, 0.0))
        if self.length:
            saved[self.arm] = 0.0
        return float(saved.max()) * horizon > cost

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
        kept = self.settings.memory**self.emitted
        self.belief += (1.0 - kept) * (self.typical - self.belief)
        if self.likeness:
            self.likeness.pass_on(self.emitted, kept)
        self.silent *= kept
        self.unread += self.emitted
        emitted, self.emitted = self.emitted, 0
        arm, length = feedback.arm, feedback.draft_length
        if arm != NO_DRAFTER and length:
            self._count_draft(arm, feedback.drafted, feedback.accepted, length)
            self.unread[arm] = 1.0
        self.undrafted = self.undrafted + 1 if arm == NO_DRAFTER else 0
        if not rested:
            next_refresh = self.t - self.t % REFRESH + REFRESH
            self.wakes = next_refresh if self.alone else max(next_refresh, self.t + self.undrafted)
        if self.probing:
            self.retry_after = max(REFRESH - 1, RETRY_GROWTH * self.retry_after)
        elif self.undrafted == 0:
            self.retry_after = REFRESH - 1
        if feedback.gamma is not None:
            self._evaluated(feedback.gamma)
        self.written += emitted
        self.typical += emitted / (GUESS_TOKENS + self.written) * (self.belief - self.typical)
        if self.t % REFRESH == 0 or self.probing or self.trying_long or rested:
            self._read_costs()
        self._conclude()

    def _count_draft(self, arm: int, drafted: int, accepted: int, length: int) -> None:
        """Count a draft; one that ended before the ``length`` asked for counts as refused there."""
        self.whole = self.whole + 1 if accepted == length and not self.trying_long else 0
        if self.trying_long:
            self.long_after *= RETRY_GROWTH
        elif length == self.longest:
            self.long_after = LONG_AFTER
        self.silent[0, arm] += 1.0
        if not drafted:
            self.silent[1, arm] += 1.0
            self._price()
        row, chances = self.belief[arm], self.chances[accepted < length][accepted]
        row *= chances
        chance = row.sum()
        row /= chance
        if self.likeness:
            self.likeness.saw(arm, chances, chance)

    def _evaluated(self, gamma: np.ndarray) -> None:
        """Count what each drafter would have had accepted, had it drafted at the evaluated positions, one draft after
        the other: γ ``(m, K, N)``. Where acceptance has a chance, how deep a draft has come has a distribution."""
        fixed, per_token = self.evaluation
        self.evaluating += fixed + per_token * self._mean_unread
        accepted, depths = np.empty((len(gamma), self.arm_count)), np.zeros((self.longest, self.arm_count))
        depths[0] = 1.0
        for position, hits in enumerate(gamma):
            reached = depths * hits[: self.longest]
            reached.sum(axis=0, out=accepted[position])
            depths[1:] = reached[:-1]
            depths[0] = 1.0 - accepted[position] + reached[-1]
        fading = self.settings.memory ** np.arange(len(gamma) - 1.0, -1.0, -1.0)
        counts = np.array([fading @ accepted, fading @ (1.0 - accepted)]).T @ self.log_chances
        chances = np.exp(counts - counts.max(axis=1, keepdims=True))
        self.belief *= chances
        sums = self.belief.sum(axis=1)
        self.belief /= sums[:, None]
        if self.likeness:
            self.likeness.saw_all(chances, sums)
        self.unread[:] = 0.0
