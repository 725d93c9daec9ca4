"""The one device at work: runs wait in line, decode in a thread of their own, and are recorded when they end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Literal

from drafters.pool import Pool
from multidraft import version
from multidraft.engine import Decoding
from multidraft.hardware import describe
from multidraft.records import Generation
from multidraft.regret import Regret, acceptance_table, regret_of
from multidraft.sampling import SamplingParams
from storage.rows import Source
from storage.store import RunContext, Store

log = logging.getLogger(__name__)

BASELINE_TOKENS = 64
"""Length of the plain decoding that a run's speed is compared with: short, since the visitor waits for it."""

FINISHED = ("completed", "stopped", "context_limit")
"""Statuses of runs that came to an end of their own: only these have a regret."""

Phase = Literal["waiting", "measuring", "decoding", "scoring", "done"]


@dataclass(frozen=True)
class Request:
    """One run asked for.

    Attributes:
        prompt, policy, params, seed: as :class:`~multidraft.engine.Decoding` takes them.
        source: where it comes from, for the record.
        task, suite, batch_id: for the record, where they are known.
        baseline: a measurement of the same prompt and parameters to use again; ``None`` measures anew.
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


@dataclass(frozen=True)
class Baseline:
    """Plain decoding of the prompt, without drafters.

    Attributes:
        tokens_per_second: one token by the median time of a token, prefill apart: a hiccup of the machine in so
            short a measurement must not make plain decoding look slow.
        token_ids: what it emitted; a greedy run must begin with the same tokens.
        whole: whether that is the whole answer, up to the most new tokens asked for.
    """

    tokens_per_second: float
    token_ids: tuple[int, ...]
    whole: bool


@dataclass(frozen=True)
class Agreement:
    """A greedy run's tokens beside those of its baseline.

    Attributes:
        compared: how many tokens both have.
        first_difference: number (from 1) of the first that differs, ``None`` where none does.
        lossless: whether the whole output is the same; ``None`` where the baseline ends before it.
    """

    compared: int
    first_difference: int | None
    lossless: bool | None

    @classmethod
    def of(cls, token_ids: Sequence[int], baseline: Baseline) -> Agreement:
        """Compare an output with a baseline."""
        pairs = list(zip(token_ids, baseline.token_ids, strict=False))
        first = next((i for i, (a, b) in enumerate(pairs, start=1) if a != b), None)
        whole = baseline.whole and len(token_ids) == len(baseline.token_ids)
        return cls(len(pairs), first, False if first else True if whole else None)


class Job:
    """A run from the moment it is asked for; read it from any thread.

    Raises:
        UserError: what :class:`~multidraft.engine.Decoding` refuses, at once and in the caller's thread.
    """

    def __init__(self, workbench: Workbench, request: Request):
        self.request = request
        self.decoding = Decoding(workbench.pool, request.prompt, request.policy, request.params, request.seed)
        self.baseline = request.baseline
        self.agreement: Agreement | None = None
        self.regret: Regret | None = None
        self.phase: Phase = "waiting"
        self._workbench = workbench
        self._plain: Decoding | None = None
        self._cancelled = threading.Event()
        self._done = threading.Event()

    @property
    def generation(self) -> Generation:
        """What the device's thread is writing."""
        return self.decoding.generation

    def snapshot(self) -> Generation:
        """What is done so far, in rounds that are whole: it no longer changes."""
        rounds = list(self.generation.rounds)
        return replace(self.generation, rounds=rounds, token_ids=[token for r in rounds for token in r.tokens])

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
        """End it after the round in progress, or take it out of the line; nothing happens if it has ended."""
        self._cancelled.set()
        self.decoding.cancel()
        if plain := self._plain:
            plain.cancel()

    def work(self) -> None:
        """Measure, decode, score and record; on the device's thread, and never raising."""
        try:
            if self.baseline is None:
                self.phase = "measuring"
                self.baseline = self._measure()
            self.phase = "decoding"
            self._decode()
            self.phase = "scoring"
            self._score()
        except Exception as error:
            log.exception("a run failed")
            self.generation.status, self.generation.error = "error", f"{type(error).__name__}: {error}"
        finally:
            self._workbench.record(self)
            self.phase = "done"
            self._done.set()

    def drop(self) -> None:
        """End it before it began: the workbench closed."""
        self.generation.status, self.phase = "cancelled", "done"
        self._done.set()

    def _measure(self) -> Baseline | None:
        """Decode the first tokens of the answer without drafters; ``None`` if cancelled meanwhile."""
        request = self.request
        length = min(BASELINE_TOKENS, request.params.max_new_tokens)
        params = replace(request.params, max_new_tokens=length)
        self._plain = Decoding(self._workbench.pool, request.prompt, "autoregressive", params, request.seed)
        if self._cancelled.is_set():  # by a visitor who could not yet cancel what was made just now
            return None
        plain = self._plain.run()
        if plain.status == "cancelled":
            return None
        whole = plain.status != "completed" or length == request.params.max_new_tokens
        rate = 1.0 / median(r.seconds for r in plain.rounds)
        return Baseline(rate, tuple(plain.token_ids), whole)

    def _decode(self) -> None:
        if self._cancelled.is_set():  # in line or while measuring: spare the device the prompt
            self.generation.status = "cancelled"
        else:
            self.decoding.run()

    def _score(self) -> None:
        """What is known of a greedy run only afterwards, off the clock: equality with plain decoding, and regret."""
        generation, params, pool = self.generation, self.request.params, self._workbench.pool
        if not params.greedy or not generation.rounds:
            return
        if self.baseline:
            self.agreement = Agreement.of(generation.token_ids, self.baseline)
        if generation.status in FINISHED:
            prompt_ids = self.decoding.context[: generation.prompt_tokens]
            table = acceptance_table(pool, prompt_ids, generation.token_ids, params.draft_length)
            self.regret = regret_of(generation, table)


class Workbench:
    """Pool, device and history: one run at a time on the device, the others in line.

    Args:
        pool: what decodes.
        store: where runs are recorded; it never holds the device up.
    """

    def __init__(self, pool: Pool, store: Store):
        self.pool, self.store = pool, store
        self.hardware = describe(pool.device)
        self.version = version()
        self._device = ThreadPoolExecutor(max_workers=1, thread_name_prefix="device")
        self._line: list[Job] = []
        self._changed = threading.Lock()

    def submit(self, request: Request) -> Job:
        """Put a run in line.

        Raises:
            UserError: the prompt or the policy cannot be run; nothing is in line then.
        """
        job = Job(self, request)
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
        """Decode a few tokens, unrecorded, so that the first visitor's figures don't measure the start-up."""
        drafters = self.pool.drafters
        for spec in ("autoregressive", *(f"fixed:{drafter.name}" for drafter in drafters)):
            params = SamplingParams(max_new_tokens=4, draft_length=self.pool.draft_length)
            self._device.submit(Decoding(self.pool, "Hello", spec, params).run).result()

    def record(self, job: Job) -> None:
        """Hand a run that emitted something to the store."""
        if not job.generation.rounds:
            return
        request, regret, baseline = job.request, job.regret, job.baseline
        context = RunContext(
            source=request.source,
            pool=self.pool.name,
            card_hash=self.pool.card_hash,
            parameters=asdict(request.params),
            seed=request.seed,
            hardware=self.hardware,
            dtype=self.pool.dtype,
            version=self.version,
            task=request.task,
            suite=request.suite,
            batch_id=request.batch_id,
            baseline_tokens_per_second=baseline.tokens_per_second if baseline else None,
            regret_rounds=regret.rounds if regret else None,
            best_arm=self.pool.drafters[regret.best_arm].name if regret else None,
            best_arm_ratio=regret.best_arm_ratio if regret else None,
            lossless=job.agreement.lossless if job.agreement else None,
        )
        try:
            self.store.add(job.generation, context)
        except RuntimeError as error:  # the store is closed: the server is shutting down
            log.warning("a run was not recorded: %s", error)

    def close(self) -> None:
        """Cancel what is under way or in line and end the device's thread."""
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


class Stops:
    """What the Stop button of each visitor ends."""

    def __init__(self) -> None:
        self._cancels: dict[str, Callable[[], None]] = {}

    def set(self, visitor: str | None, cancel: Callable[[], None]) -> None:
        """From now on Stop of ``visitor`` calls ``cancel``."""
        self._cancels[visitor or ""] = cancel

    def forget(self, visitor: str | None) -> None:
        """The run of ``visitor`` ended."""
        self._cancels.pop(visitor or "", None)

    def stop(self, visitor: str | None) -> None:
        """End what ``visitor`` has running, if anything."""
        if cancel := self._cancels.get(visitor or ""):
            cancel()
