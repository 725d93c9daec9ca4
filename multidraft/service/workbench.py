"""The pool, the device and the history of a server, and the runs that visitors and programs ask for."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import partial
from threading import Event, Lock, Timer
from typing import Any

from drafters.errors import ContextWindowError
from drafters.hardware import Trimming, describe
from drafters.pool import Pool
from multidraft._version import version
from multidraft.bench.measure import Measurement, Request
from multidraft.engine.decoding import Decoding
from multidraft.engine.experience import Beginning, beginning, context_of
from multidraft.engine.output import TokenLogprob, logprobs_of_prompt
from multidraft.policies.titles import DEFAULT_POLICY
from multidraft.replay.machine_costs import MachineCosts
from multidraft.service.jobs import Job, Jobs
from multidraft.service.learning import learn_from, traffic_of
from multidraft.service.lending import Lender
from multidraft.service.limits import Limits
from multidraft.service.queue import Caller
from multidraft.service.settings import on_zerogpu
from multidraft.service.zerogpu import ZeroGpu
from storage.records import Generation
from storage.run import Run, Scores
from storage.store import Kept, Store

log = logging.getLogger(__name__)

DRAWING_SECONDS = 0.4
"""How long a page is given to draw what it was last sent."""

ROUND_SECONDS, PLAYED_SECONDS = 0.06, 5.0
"""How long a page shows each of the rounds that were quicker, and all of them at the most."""

LOOK_SECONDS = 0.02
"""How often it is looked meanwhile whether others wait."""

RETURN_SECONDS = 10.0
"""So long a run outlasts the page that watches it, which may only be loaded again."""


class Workbench:
    """One pool on one device, where jobs take turns, and the history of their runs.

    Args:
        pool: what decodes; a :class:`~multidraft.service.pool_loading.Loading` exchanges it.
        store: where runs are recorded; it holds the device up for ``storage.store.KEEPING_SECONDS`` at most.
        limits: what may be asked for; by default what this machine can bear.

    Attributes:
        observers: each is shown every run before it begins, or ends without having begun.
        recorded_costs: what the rounds of the history have cost; read on the device's thread.
        cut_off, resuming: what the end of an earlier server cut off, by the ids of its jobs, of which batches may wait
            for their pool to be in use again; held by who takes them up (``multidraft.service.recovery``).
    """

    def __init__(self, pool: Pool, store: Store, limits: Limits | None = None):
        pool.traffic = traffic_of(pool, store.path)  # before anything makes a twin of it
        self.pool, self.store, self.limits = pool, store, limits or Limits()
        self.hardware = describe(pool.device)
        self.version = version()
        self.recorded_costs = MachineCosts(store.path)
        self.lender = Lender()
        self._trim = Trimming()
        self.observers: list[Callable[[Measurement], None]] = []
        self.cut_off, self.resuming = dict[str, dict[str, Any]](), Lock()
        self.gpu = ZeroGpu(pool) if on_zerogpu() else None
        # On ZeroGPU texts are decoded in other processes, from which nothing of them comes back to learn from.
        self.jobs = Jobs(self.limits, None if self.gpu else lambda: self.pool.study())

    def submit(self, request: Request, pool: Pool | None = None) -> RunJob:
        """Put a run in the queue.

        Args:
            pool: what it runs on, by default the present one.

        Raises:
            UserError: the prompt or the policy cannot be run; nothing is in the queue then.
        """
        return self.jobs.submit(RunJob(self, request, pool))

    def beginning(self, prompt: str) -> Beginning:
        """What the default policy would begin a prompt with on the present pool, as it knows its drafters by now.

        Raises:
            UserError: the prompt cannot be run, or too much else is to be done.
        """
        decoding = Decoding(self.pool, prompt, DEFAULT_POLICY, learn=False)
        self.limits.check_text(len(decoding.context), 1)
        known = context_of(decoding.pool, decoding.policy, decoding.generation, decoding.params)
        # Between rounds, for costs are measured in them.
        return self.jobs.do(lambda: beginning(decoding.policy, known)).result()

    def fits(self, card_hash: str, prompt: str) -> bool:
        """Whether the target of a card knows what is asked (``Pool.fits``), as far as the loaded pool tells."""
        return card_hash != self.pool.card_hash or self.pool.fits(prompt)

    def observe(self, measurement: Measurement) -> None:
        """Show the observers a run that is to begin, or to end without."""
        for observer in self.observers:
            observer(measurement)

    def measure(self, measurement: Measurement) -> Generator[object]:
        """Measure and score a run once there is room for its caches, yielding after each round; on the device's
        thread, and never raising.

        Where it is closed, the run ends as a cancelled one.
        """
        if measurement.generation.status == "running":  # else it was decoded beside others, and observed then
            self.observe(measurement)
        pace, begun = self.jobs.pace, 0.0
        if self.gpu:  # a worker process has one text at a time
            begun = pace.begin()
            self.gpu.compute(measurement)
            pace.end(begun, counts=True)
            self.hardware = measurement.run.conditions.hardware
            measurement.phase = "done"
            return
        own, lent, steps = measurement.pool, None, measurement.steps()
        try:
            lent = yield from self.lender.lend(own, measurement.decoding.longest)
            begun = pace.begin()
            measurement.use(lent)
            for _ in steps:
                yield None
        except GeneratorExit:
            measurement.cancel()
            deque(steps, maxlen=0)
            raise
        finally:
            measurement.phase = "done"
            if lent:
                self.lender.take_back(lent, own)
                pace.end(begun, counts=not self.jobs.idle)

    def record(self, *runs: Run, anew: Kept | None = None, **job: Any) -> Kept | None:
        """Write those of some runs that emitted something, all or none, and wait until they are committed: only then
        are they told as finished, and no later round is timed beside the writing. The pool learns from them. It never
        raises.

        A run that is in the history has its number there as ``id``; one that has none is not kept yet.

        Args:
            anew: what this returned for the same runs before: they are brought up to date.
            job: what ``begins`` or ``ends`` with them, see ``Store.add``.
        """
        written = [run for run in runs if run.generation.rounds]
        if not written and not job:
            return anew
        try:
            kept = self.store.add(*written, anew=anew if written else None, **job)
            kept.wait()
            self._trim()
            for run, id in zip(written, kept.ids, strict=False):
                run.id = id
            for run in written:
                learn_from(self.pool, run)
            return kept if written else anew
        except RuntimeError as error:  # the store is closed: the server is shutting down
            log.warning("a run was not recorded: %s", error)
        except Exception:
            log.exception("a run could not be recorded")
        return anew

    def give_up(self, id: str) -> bool:
        """End a batch that waits for its pool; returns whether there is one."""
        with self.resuming:
            waited = self.cut_off.pop(id, None) is not None
        if waited:
            self.record(ends=id, ending="stopped while it waited for its pool")
        return waited

    def warm_up(self) -> None:
        """Decode a few tokens, unrecorded, so that the first visitor's figures don't measure the start-up.

        On ZeroGPU each worker process does so for itself.
        """
        if self.gpu is None:
            self.jobs.do(lambda: self.lender.warm_up(self.pool)).result()

    def close(self) -> None:
        """Cancel what is under way or in the queue and end the device's thread."""
        self.jobs.close()


def _until_still(jobs: Jobs, cancelled: Event, generation: Generation, decoded_at: float) -> bool:
    """Leave the machine to the page until it has shown all rounds; false where others wait meanwhile."""
    playing = min(len(generation.rounds) * ROUND_SECONDS, PLAYED_SECONDS)
    shown_at = decoded_at - generation.seconds + playing
    return leave_to_page(jobs, cancelled, max(time.monotonic(), shown_at) + DRAWING_SECONDS)


def leave_to_page(jobs: Jobs, cancelled: Event, until: float) -> bool:
    """Leave the machine to the page until then (by ``time.monotonic``); false where others wait meanwhile, or it was
    cancelled."""
    while jobs.idle and not cancelled.wait(LOOK_SECONDS):
        if time.monotonic() >= until:
            return True
    return False


class RunJob(Job[Run]):
    """One run of its own. If a page watches it, another one of the visitor that takes its place as the ``caller`` finds
    it for :data:`RETURN_SECONDS` after the first was left.

    Attributes:
        recorded: whether its text has ended and was written, or could not be for now: then it may be told as finished,
            though it may still be scored.

    Raises:
        UserError: see :class:`~multidraft.bench.measure.Measurement`.
    """

    kind, plural = "run", "runs"
    allowed = "run_seconds"

    def __init__(self, workbench: Workbench, request: Request, pool: Pool | None = None):
        super().__init__()
        self.workbench, self.request, self.pool = workbench, request, (pool := pool or workbench.pool)
        self.retained = workbench.limits.queue if request.watched else 0
        self.measurement = Measurement(pool, request)
        workbench.limits.check_text(len(self.measurement.decoding.context), request.params.max_new_tokens)
        if request.scores_when_idle:
            self.measurement.scores_while = lambda: workbench.jobs.idle
            self.measurement.when_decoded = self._record  # nobody waits for what comes after
        elif request.watched and pool.device.type == "cpu":  # a browser may run on it too
            # Nothing of the job: a cycle would keep a pool that has been exchanged.
            parts = workbench.jobs, self.cancelled, self.run.generation
            self.measurement.until_still = partial(_until_still, *parts)
        self._kept: Kept | None = None

    @property
    def run(self) -> Run:
        """What is known of it so far."""
        return self.measurement.run

    def steps(self) -> Generator[object, None, Run]:
        self.workbench.record(begins=(self.id, {"runs": [self.run.to_json()]}))
        try:
            yield from self.workbench.measure(self.measurement)
        finally:
            if self._kept is None or self.run.scores != Scores() or self.run.generation.error:  # or nothing is new
                self._record()
        return self.run

    def _record(self) -> None:
        self._kept = self.workbench.record(self.run, anew=self._kept, ends=self.id)
        self.recorded = True
        self.measurement.tell()

    def stop(self) -> None:
        self.measurement.cancel()

    def end_early(self, why: str) -> None:
        if self.run.generation.status != "running":  # what is still to be measured or scored stays unknown
            return self.cancel()
        self.run.generation.error = why
        super().end_early(why)

    def leave(self) -> None:
        """:meth:`cancel` it, unless it has ended but for its baseline and scores, which last; not at once if a page
        may come back to it."""
        if self.request.watched:
            later = Timer(RETURN_SECONDS, self._give_up, [self.caller])
            later.daemon = True
            later.start()
        else:
            self._give_up(self.caller)

    def _give_up(self, caller: Caller) -> None:
        """Nobody has come back to it since ``caller`` left."""
        if self.caller is not caller:
            return
        if self.measurement.phase not in ("measuring", "scoring"):
            self.cancel()
        self.retained = 0
        if self.done and self._jobs:
            self._jobs.forget(self)

    def finish(self) -> None:
        if self.measurement.phase == "waiting":
            self.workbench.observe(self.measurement)
            self.measurement.drop()


class Reading(Job[list[TokenLogprob]]):
    """The target reads a text: the log-probabilities of its tokens, each with ``top`` alternatives.

    On ZeroGPU there is no device to read on.

    Raises:
        ContextWindowError: the text has more tokens than the window of the target.
        TextMemoryError: its keys and values take more than those of all texts may.
    """

    kind, plural = "reading", "readings"
    allowed = "run_seconds"

    def __init__(self, workbench: Workbench, pool: Pool, ids: Sequence[int], top: int):
        super().__init__()
        if len(ids) > (most := pool.target.window):
            said = f"the text has {len(ids):,} tokens, but the context window of pool {pool.name!r} holds {most:,}"
            raise ContextWindowError(f"{said}; shorten it")
        pool.caches.check(len(ids), 0, most)
        workbench.limits.check_text(len(ids), 0)
        self.workbench, self.pool, self.ids, self.top = workbench, pool, ids, top

    def steps(self) -> Generator[object, None, list[TokenLogprob]]:
        pool = yield from self.workbench.lender.lend(self.pool, len(self.ids))
        found = list[TokenLogprob]()
        try:
            with pool.lock:
                for part in logprobs_of_prompt(pool, self.ids, self.top):
                    found += part
        finally:
            self.workbench.lender.take_back(pool, self.pool)
        return found
