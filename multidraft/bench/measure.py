"""How a prompt is measured and scored under a policy: one way for page, API, batches, races and benchmarks.

The baseline of a run is autoregressive decoding of the same prompt with the same parameters and seed on the same
machine. Where ``autoregressive`` is among the policies that are measured on a prompt, it is that run, the whole answer;
otherwise it is measured just after the first of them: the whole answer too where that is soon done, else its first
tokens, since whoever watches is not to wait for it.

A page that draws an answer on the machine that decodes it slows both down. An answer that was soon over is therefore
decoded once more, just after its baseline, when the page is still: those are its times then.
"""

from __future__ import annotations

import logging
import platform
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version as version_of
from typing import TYPE_CHECKING, Literal

from drafters.caches import ran_out
from drafters.errors import UserError, error_message
from drafters.hardware import describe
from drafters.sampling import SamplingParams
from drafters.traffic import suitability
from multidraft._version import version
from multidraft.bench.baseline import finished, settle_baseline
from multidraft.engine.decoding import Decoding
from multidraft.engine.lossless import Difference, greedy_differences
from multidraft.engine.output import Output
from multidraft.engine.retiming import Retiming
from multidraft.policies.delayed import expected_accept_lengths
from multidraft.policies.specs import is_plain, parse_spec
from multidraft.replay.regret import expected_regret_of, gamma_table, regret_of
from storage.records import PLAIN, Generation, Turn
from storage.run import Baseline, Conditions, Origin, Run, Scores

if TYPE_CHECKING:
    from drafters.pool import Pool

log = logging.getLogger(__name__)

PREFIX_TOKENS, WHOLE_SECONDS = 64, 1.0
"""A baseline that is measured for one run's sake ends after a multiple of so many tokens once it has taken so long."""

SHORT_SECONDS = 2.0
"""Decoding that was shorter is timed again where a page drew meanwhile; longer runs suffer less from that."""

Phase = Literal["waiting", "decoding", "measuring", "scoring", "done"]


@dataclass(frozen=True)
class Request:
    """One run asked for.

    Attributes:
        prompt, policy, params, seed, turns, output: see :class:`~multidraft.engine.decoding.Decoding`.
        origin: where it comes from, for the record.
        measures_baseline: whether the baseline is measured afterwards if no earlier run has one; not where the policies
            of this prompt include autoregressive decoding (see :func:`~multidraft.bench.baseline.settle_baseline`).
        whole_baseline: whether that is always the whole answer, however long it takes: the runs of a suite are compared
            with each other, and speed-ups over a prefix are not like those over an answer.
        earlier: runs of the same prompt, parameters and seed: their baseline is used again, and what is known of an
            output that is equal to this one's.
        scores_when_idle: whether it is scored only while nothing else waits for the device.
        watched: whether a page draws the answer while it is decoded.
        reads_twice: whether the target reads the prompt once before the clock starts: where whole requests are compared
            one after the other, none is to pay for what the device did before.
    """

    prompt: str | Sequence[int]
    policy: str
    params: SamplingParams
    seed: int = 0
    origin: Origin = Origin("play")  # noqa: RUF009
    turns: tuple[Turn, ...] = ()
    measures_baseline: bool = True
    whole_baseline: bool = False
    earlier: tuple[Run, ...] = ()
    output: Output = Output()  # noqa: RUF009
    scores_when_idle: bool = False
    watched: bool = False
    reads_twice: bool = False


class Measurement:
    """A run while it is measured; read it from any thread.

    Attributes:
        run: what is known so far; its generation grows round by round.
        differences: where a greedy output differs from the target's own choice; ``None`` until that was examined.
        phase: what is being done.
        asked_at: when it was asked for, by ``time.monotonic``.
        scores_while: it is scored as long as this is true, by default always.
        when_decoded: called when the last round is over, before anything else is measured.
        timed_again: whether its rounds are being timed a second time, or were, as far as they turned out the same.
        until_still: where a page may disturb the clock, waits until it no longer draws, given when the last round was
            over (by ``time.monotonic``), or tells that nobody can wait so long.

    Raises:
        UserError: what :class:`~multidraft.engine.decoding.Decoding` refuses, at once and in the caller's thread.
    """

    def __init__(self, pool: Pool, request: Request):
        self.pool, self.request = pool, request
        self.decoding = self._decoding(request.policy, request.params)
        baseline = next((run.baseline for run in request.earlier if run.baseline), None)
        known = (self.decoding.params, self.decoding.seed, conditions_of(pool), request.origin, baseline)
        self.run = Run(self.decoding.generation, *known)
        self.differences: list[Difference] | None = None
        self.asked_at = time.monotonic()
        self.scores_while: Callable[[], bool] = lambda: True
        self.when_decoded: Callable[[], None] = lambda: None
        self.until_still: Callable[[float], bool] | None = None
        self._phase: Phase = "waiting"
        self._watchers = list[Callable[[], None]]()
        self.timed_again = False
        self._timed: Decoding | None = None
        self._cancelled = threading.Event()

    @property
    def phase(self) -> Phase:
        return self._phase

    @phase.setter
    def phase(self, phase: Phase) -> None:
        self._phase = phase
        self.tell()

    def watch(self, watcher: Callable[[], None]) -> None:
        """Have this called after each round and at each change of phase, by the thread that decodes: it has to be
        quick and must not raise. Who came last is told first."""
        self._watchers.insert(0, watcher)

    def tell(self) -> None:
        """Call those who watch."""
        for watcher in tuple(self._watchers):
            watcher()

    @property
    def generation(self) -> Generation:
        """The run's generation."""
        return self.run.generation

    def snapshot(self) -> Generation:
        """What is done so far, in whole rounds: it no longer changes."""
        rounds = list(self.generation.rounds)
        return replace(self.generation, rounds=rounds, token_ids=[token for r in rounds for token in r.tokens])

    def cancel(self) -> None:
        """End it after the round in progress; may be called from another thread.

        While it is scored, what is still to be found out stays unknown: see :attr:`unscored`.
        """
        self._cancelled.set()
        self.decoding.cancel()
        if timed := self._timed:
            timed.cancel()

    @property
    def cancelled(self) -> bool:
        """Whether it is to end early."""
        return self._cancelled.is_set()

    @property
    def compared(self) -> bool:
        """Whether it has a regret: it ended of itself, under a policy that may draft, whether it did or not."""
        return finished(self.generation) and not self._plain

    @property
    def _plain(self) -> bool:
        return is_plain(self.generation.policy)

    @property
    def unscored(self) -> bool:
        """Whether it was cancelled after its last round, before its regret was known."""
        scores = self.run.scores
        known = scores.regret_rounds is not None or scores.expected_regret is not None
        return self.cancelled and self.compared and not known

    def use(self, pool: Pool) -> None:
        """Decode on a twin of the pool; before it has begun."""
        self.pool = self.decoding.pool = pool

    def compute(self) -> Run:
        """Measure, decode and score at once; see :meth:`steps`."""
        deque(self.steps(), maxlen=0)
        return self.run

    def steps(self) -> Iterator[None]:
        """Decode, measure the baseline where there is none, and score; where the pool is, and never raising. It yields
        after each round: what others do then is in no figure. What was decoded beside others is scored only.

        An output that cannot be scored leaves the run as it is, but for its ``error``.
        """
        decoded_at = 0.0
        if self.generation.status == "running":
            with self._noted():
                self.phase = "decoding"
                yield from self._decode()
                self.when_decoded()
                decoded_at = time.monotonic()
                short = finished(self.generation) and self.generation.seconds < SHORT_SECONDS
                self.timed_again = short and self.until_still is not None
                if not self.timed_again:
                    self.run.baseline = yield from self._baseline()
        self._score_noted()
        if self.timed_again and self.until_still and not self.cancelled:
            with self._noted():
                self.phase = "measuring"
                self.timed_again = self.until_still(decoded_at) and not self.generation.benched
                found = yield from self._baseline()
                if self.timed_again:
                    yield from self._time_again()
                self.run.baseline = found  # now, not before: the page would draw it meanwhile
        if self._plain and self.request.measures_baseline:
            settle_baseline([self.run])

    def _score_noted(self) -> None:
        self.phase = "scoring"
        try:
            if self.generation.rounds and self.generation.status != "error" and self.scores_while():
                self._score()
        except CancelledError:
            pass
        except Exception as error:
            log.info("the output of %s cannot be scored", self.request.policy, exc_info=True)
            ran_out(error, self.pool, len(self.decoding.context))  # then the caches are given back
            self.generation.error = f"its output cannot be scored: {error_message(error)}"

    def decode_beside_others(self, pool: Pool) -> None:
        """Decode on a twin of the pool, in a stream of a batch; never raising. :meth:`steps` scores it then."""
        self.use(pool)
        with self._noted():
            self.phase = "decoding"
            deque(self._decode(), maxlen=0)

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """Note an error instead of raising it."""
        try:
            yield
        except Exception as error:
            if not isinstance(error, UserError):
                log.warning("%s failed on %r", self.request.policy, self.generation.prompt[:60], exc_info=True)
            self.generation.status, self.generation.error = "error", error_message(error)

    def drop(self) -> None:
        """It was cancelled before it began."""
        self.generation.status, self.phase = "cancelled", "done"

    def _decoding(self, policy: str, params: SamplingParams, learn: bool = True) -> Decoding:
        asked = self.request
        known = asked.seed, asked.turns, asked.output
        return Decoding(self.pool, asked.prompt, policy, params, *known, learn=asked.origin.learn and learn)

    def _time_again(self) -> Iterator[None]:
        asked = self.request
        known = asked.prompt, asked.policy, asked.params, asked.seed, asked.turns, asked.output
        self._timed = again = Retiming(self.generation, self.pool, *known, learn=False)
        if not self.cancelled:  # before there was anything to cancel
            yield from again.retime()

    def _baseline(self) -> Generator[None, None, Baseline | None]:
        """Decode as many tokens as the answer has without drafters, or the first of them, where that is asked for."""
        if self.run.baseline or not self.request.measures_baseline or self._plain or self.cancelled:
            return self.run.baseline
        self.phase = "measuring"
        length = len(self.generation.token_ids)
        self._timed = plain = self._decoding(PLAIN, replace(self.request.params, max_new_tokens=length), False)
        if self.cancelled:  # before there was anything to cancel
            return None
        found = plain.generation
        for _ in plain:
            yield
            long = found.seconds > WHOLE_SECONDS and not self.request.whole_baseline
            if long and len(found.rounds) % PREFIX_TOKENS == 0:
                break
        return None if found.status == "cancelled" else Baseline.of(found, "answer" if finished(found) else "prefix")

    def _decode(self) -> Iterator[None]:
        if self.cancelled:  # in the queue: spare the device the prefill
            self.generation.status = "cancelled"
            return
        if self.request.reads_twice:
            with self.pool.lock:
                self.pool.target.prefill(self.decoding.context)
        for _ in self.decoding:
            self.tell()
            yield

    def _score(self) -> None:
        generation, params = self.generation, self.decoding.params
        prompt_ids = self.decoding.context[: generation.prompt_tokens]
        if params.greedy:
            self._score_greedy(prompt_ids)
        elif self.compared and parse_spec(generation.policy)[0] != "draft-all":  # there no drafter was chosen
            self._check()
            gamma = gamma_table(self.pool, prompt_ids, generation.token_ids, params, without=generation.benched)
            expected = expected_accept_lengths(gamma, params.draft_length).T - 1.0
            suits = suitability(expected, params.draft_length)
            self.run.scores = replace(expected_regret_of(generation, gamma, params.draft_length), suitability=suits)

    def _score_greedy(self, prompt_ids: Sequence[int]) -> None:
        run, params, ids = self.run, self.decoding.params, self.generation.token_ids
        self.differences = differences = greedy_differences(self.pool, prompt_ids, ids)
        lossless = all(d.rounding for d in differences)
        gap = max((d.gap for d in differences if d.rounding), default=None)
        run.scores = Scores(lossless, gap)
        if not self.compared or not lossless:
            return
        g, benched = self.generation, self.generation.benched  # what those would have drafted is not known
        alike = (r for r in self.request.earlier if r.generation.versions == g.versions)
        alike = (r for r in alike if r.generation.benched.keys() == benched.keys())
        known = (r.scores.acceptance for r in alike if r.generation.token_ids == ids)
        table = next((found for found in known if found is not None), None)
        if table is None:
            context = [*prompt_ids, *ids]
            table = self.pool.acceptances(context, len(prompt_ids), params.draft_length, self._check, benched)
        regret = regret_of(self.generation, table.accepted)
        suits = suitability(table.accepted, params.draft_length)
        run.scores = replace(regret, lossless=lossless, near_tie_gap=gap, acceptance=table, suitability=suits)

    def _check(self) -> None:
        if self.cancelled or not self.scores_while():
            raise CancelledError


def conditions_of(pool: Pool) -> Conditions:
    """Under what conditions a run on this pool is made."""
    libraries = {"python": platform.python_version(), **{name: version_of(name) for name in ("torch", "transformers")}}
    return Conditions(pool.name, pool.card_hash, describe(pool.device), pool.dtype, version(), libraries)
