"""The one device at work: runs wait in line, decode in a thread of their own, and are recorded when they end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Literal, TypeVar

import numpy as np

from drafters.pool import Pool
from multidraft import version
from multidraft.bench.history import run_context
from multidraft.bench.runner import BASELINE
from multidraft.costs import CostMeter
from multidraft.engine import Decoding
from multidraft.errors import told
from multidraft.hardware import describe
from multidraft.lossless import Difference, greedy_differences
from multidraft.policies import parse_spec
from multidraft.records import FINISHED, Generation, Turn
from multidraft.regret import Regret, acceptance_table, regret_of
from multidraft.sampling import SamplingParams
from multidraft.ui import zerogpu
from storage.rows import Source, speedup
from storage.store import Store

log = logging.getLogger(__name__)

BASELINE_TOKENS = 64
"""Length of the plain decoding that a run's speed is compared with: short, since the visitor waits for it."""

T = TypeVar("T")

Phase = Literal["waiting", "measuring", "decoding", "scoring", "done"]


@dataclass(frozen=True)
class Request:
    """One run asked for.

    Attributes:
        prompt, policy, params, seed: as :class:`~multidraft.engine.Decoding` takes them.
        source: where it comes from, for the record.
        task, suite, batch_id: for the record, where they are known.
        baseline: a measurement of the same prompt and parameters to use again; ``None`` measures anew.
        is_baseline: whether it is plain decoding itself, all of it, that its speed and others' are to be compared with.
        turns: earlier turns of the conversation.
    """

    prompt: str
    policy: str
    params: SamplingParams
    seed: int = 0
    source: Source = "play"
    task: str | None = None
    suite: str | None = None
    batch_id: str | None = None
    baseline: Baseline | None = None
    is_baseline: bool = False
    turns: tuple[Turn, ...] = ()


@dataclass(frozen=True)
class Baseline:
    """Plain decoding of the prompt, without drafters.

    Attributes:
        tokens_per_second: prefill apart. Of a short measurement one token by the median time of a token: a hiccup of
            the machine must not make plain decoding look slow; of a whole run as of any other.
        tokens: how many tokens it emitted.
    """

    tokens_per_second: float
    tokens: int


class Job:
    """A run from the moment it is asked for; read it from any thread.

    It keeps the pool that was the workbench's then, or the one that it is to use.

    Raises:
        UserError: what :class:`~multidraft.engine.Decoding` refuses, at once and in the caller's thread.
    """

    def __init__(self, workbench: Workbench, request: Request, pool: Pool | None = None):
        self.request, self.pool = request, pool or workbench.pool
        self.decoding = self._decoding(request.policy, request.params)
        self.baseline = request.baseline
        self.differences: list[Difference] | None = None
        self.regret: Regret | None = None
        self.table: np.ndarray | None = None
        self.phase: Phase = "waiting"
        self.hardware: str | None = None  # if it is not the workbench's own
        self.context = copy_context()  # of who asks: on ZeroGPU a visitor's time counts against their own quota
        self._workbench = workbench
        self._plain: Decoding | None = None
        self._cancelled = threading.Event()
        self._done = threading.Event()

    @property
    def generation(self) -> Generation:
        """What the device's thread is writing."""
        return self.decoding.generation

    @property
    def lossless(self) -> bool | None:
        """Whether the output is the target's own, near-ties within rounding apart; ``None`` for sampled runs."""
        return None if self.differences is None else all(d.rounding for d in self.differences)

    def snapshot(self) -> Generation:
        """What is done so far, in rounds that are whole: it no longer changes."""
        rounds = list(self.generation.rounds)
        return replace(self.generation, rounds=rounds, token_ids=[token for r in rounds for token in r.tokens])

    def known(self) -> dict[str, Any]:
        """What is known of the run beside its generation, under the names in which programs get it."""
        plain = self.baseline.tokens_per_second if self.baseline else None
        regret, names = self.regret, self.generation.drafters
        return {
            "baseline_tokens_per_second": plain,
            "speedup": speedup(len(self.generation.token_ids), self.generation.tokens_per_second, plain),
            "lossless": self.lossless,
            "regret_rounds": regret.rounds if regret else None,
            "best_drafter": names[regret.best_arm] if regret else None,
        }

    @property
    def ahead(self) -> int:
        """How many runs are to end before this one begins."""
        return self._workbench.ahead_of(self)

    @property
    def done(self) -> bool:
        """Whether it ended, be it well or not."""
        return self._done.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait for the end, at most ``seconds``; returns :attr:`done`."""
        return self._done.wait(seconds)

    def cancel(self) -> None:
        """End it after the round in progress, or take it out of the line; nothing happens if it has ended.

        While it is scored, what is still to be found out stays unknown: see :attr:`unscored`.
        """
        self._cancelled.set()
        self.decoding.cancel()
        if plain := self._plain:
            plain.cancel()

    def leave(self) -> None:
        """Nobody follows it any more: :meth:`cancel` it, unless it has ended but for its scores, which last."""
        if self.phase != "scoring":
            self.cancel()

    @property
    def cancelled(self) -> bool:
        """Whether it is to end."""
        return self._cancelled.is_set()

    @property
    def unscored(self) -> bool:
        """Whether it was cancelled between its last round and the end of the search for the best single drafter."""
        return self.cancelled and self.table is None and self.compared

    @property
    def compared(self) -> bool:
        """Whether it is compared with the best single drafter: a greedy run that ended of itself, of any policy that
        may draft, whether it did or not: never to draft may be its fault."""
        finished = bool(self.generation.rounds) and self.generation.status in FINISHED
        return finished and self.request.params.greedy and parse_spec(self.generation.policy)[0] != BASELINE

    def work(self) -> None:
        """Compute and record; on the device's thread, and never raising."""
        try:
            if gpu := self._workbench.gpu:
                gpu.compute(self)
            else:
                self.compute()
            self._workbench.record(self)
        except Exception:
            log.exception("a run could not be recorded")
        finally:
            self.phase = "done"
            self._done.set()

    def compute(self) -> None:
        """Measure, decode and score, where the device is; never raising."""
        try:
            if self.baseline is None and not self.request.is_baseline:
                self.phase = "measuring"
                self.baseline = self._measure()
            self.phase = "decoding"
            self._decode()
            if self.request.is_baseline:
                self.baseline = _whole(self.generation)
        except Exception as error:
            log.exception("a run failed")
            self.generation.status, self.generation.error = "error", told(error)
        try:
            self.phase = "scoring"
            self._score()
        except CancelledError:
            pass
        except Exception:
            log.exception("a run could not be scored")

    def drop(self) -> None:
        """End it before it began: the workbench closed."""
        self.generation.status, self.phase = "cancelled", "done"
        self._done.set()

    def _decoding(self, policy: str, params: SamplingParams) -> Decoding:
        return Decoding(self.pool, self.request.prompt, policy, params, self.request.seed, self.request.turns)

    def _measure(self) -> Baseline | None:
        """Decode the first tokens of the answer without drafters; ``None`` if cancelled meanwhile."""
        request = self.request
        length = min(BASELINE_TOKENS, request.params.max_new_tokens)
        params = replace(request.params, max_new_tokens=length)
        self._plain = self._decoding("autoregressive", params)
        if self._cancelled.is_set():  # by a visitor who could not yet cancel what was made just now
            return None
        plain = self._plain.run()
        if plain.status == "cancelled":
            return None
        return Baseline(1.0 / median(r.seconds for r in plain.rounds), len(plain.token_ids))

    def _decode(self) -> None:
        if self._cancelled.is_set():  # in line or while measuring: spare the device the prompt
            self.generation.status = "cancelled"
        else:
            self.decoding.run()

    def _score(self) -> None:
        """What is known of a greedy run only afterwards, off the clock: that it is the target's own, and regret."""
        generation, params, pool = self.generation, self.request.params, self.pool
        if not params.greedy or not generation.rounds or generation.status == "error":
            return
        prompt_ids = self.decoding.context[: generation.prompt_tokens]
        self.differences = greedy_differences(pool, prompt_ids, generation.token_ids)
        if self.compared:
            self.table = acceptance_table(pool, prompt_ids, generation.token_ids, params.draft_length, self._check)
            self.regret = regret_of(generation, self.table)

    def _check(self) -> None:
        """Raise ``CancelledError`` if it is to end."""
        if self.cancelled:
            raise CancelledError


class Workbench:
    """Pool, device and history: one run at a time on the device, the others in line.

    Args:
        pool: what decodes; :meth:`switch` exchanges it.
        store: where runs are recorded; it never holds the device up.
    """

    def __init__(self, pool: Pool, store: Store):
        self.pool, self.store = pool, store
        self.hardware = describe(pool.device)
        self.version = version()
        self._device = ThreadPoolExecutor(max_workers=1, thread_name_prefix="device")
        self._line: list[Job] = []
        self._changed = threading.Lock()
        self._at_close: list[Callable[[], None]] = []
        self.gpu = zerogpu.ZeroGpu(self) if zerogpu.on_zerogpu() else None

    def submit(self, request: Request, pool: Pool | None = None) -> Job:
        """Put a run in line.

        Args:
            pool: what is to decode it; by default the present pool.

        Raises:
            UserError: the prompt or the policy cannot be run; nothing is in line then.
        """
        job = Job(self, request, pool)
        with self._changed:
            self._line.append(job)
        future = self._device.submit(job.work)
        future.add_done_callback(lambda done: self._left(job, done))
        return job

    def ahead_of(self, job: Job) -> int:
        """How many runs stand before ``job``."""
        with self._changed:
            return self._line.index(job) if job in self._line else 0

    def warm_up(self) -> None:
        """Decode a few tokens, unrecorded, so that the first visitor's figures don't measure the start-up.

        On ZeroGPU each worker process does so for itself.
        """
        if self.gpu is None:
            self._device.submit(warm_up, self.pool).result()

    def switch(self, pool: Pool, check: Callable[[], None] = lambda: None) -> Future[None]:
        """Have ``pool``, warmed up, decode what is asked for once the runs now in line have ended.

        Whoever still has runs to make on the old pool hands it to :meth:`submit`; its memory is free when nobody does.

        Args:
            check: called before; if it raises, the old pool stays.

        Raises:
            RuntimeError: the workbench is closed.
        """

        def exchange() -> None:
            check()
            warm_up(pool)
            check()
            self.pool, self.hardware = pool, describe(pool.device)

        return self.between_runs(exchange)

    def record(self, job: Job) -> None:
        """Hand a run that emitted something to the store."""
        if not job.generation.rounds:
            return
        request = job.request
        context = run_context(
            job.pool,
            request.params,
            source=request.source,
            seed=request.seed,
            task=request.task,
            suite=request.suite,
            batch_id=request.batch_id,
            turns=request.turns,
            baseline_tokens_per_second=job.baseline.tokens_per_second if job.baseline else None,
            regret=job.regret,
            table=job.table,
            lossless=job.lossless,
            hardware=job.hardware,
        )
        try:
            self.store.add(job.generation, context)
        except RuntimeError as error:  # the store is closed: the server is shutting down
            log.warning("a run was not recorded: %s", error)

    def between_runs(self, work: Callable[[], T]) -> Future[T]:
        """Do something short on the device's thread, in line with the runs: beside one it would slow it down.

        Raises:
            RuntimeError: the workbench is closed.
        """
        return self._device.submit(work)

    def at_close(self, end: Callable[[], None]) -> None:
        """Have ``end`` called when the workbench closes, before its runs are cancelled."""
        self._at_close.append(end)

    def close(self) -> None:
        """Cancel what is under way or in line and end the device's thread."""
        for end in self._at_close:
            end()
        with self._changed:
            jobs = list(self._line)
        for job in jobs:
            job.cancel()
        self._device.shutdown(cancel_futures=True)

    def _left(self, job: Job, future: Future[None]) -> None:
        with self._changed:
            self._line.remove(job)
        if future.cancelled():
            job.drop()


def _whole(plain: Generation) -> Baseline | None:
    """A run of plain decoding as what others are compared with, unless it broke off."""
    if plain.status not in FINISHED or not plain.rounds:
        return None
    return Baseline(plain.tokens_per_second, len(plain.token_ids))


def warm_up(pool: Pool) -> None:
    """Decode a few tokens plainly and with each drafter; on the device's thread.

    What the first time took is forgotten: it holds the start of everything. The second leaves the pool some rounds of
    each, by which policies know what they cost.
    """
    specs = ("autoregressive", *(f"fixed:{drafter.name}" for drafter in pool.drafters))
    for tokens in (4, 8):
        pool.costs = CostMeter(len(pool.drafters))
        params = SamplingParams(max_new_tokens=tokens, draft_length=pool.draft_length)
        for spec in specs:
            Decoding(pool, "Hello", spec, params).run()
