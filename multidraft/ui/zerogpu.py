"""Runs on a Hugging Face ZeroGPU Space, where only a worker process has the GPU, and only while a run lasts.

``spaces.GPU`` forks the worker and pickles what goes in and what comes out. In goes what was asked for, with what the
pool has learnt so far; out come the rounds as they are decoded, and at the end what the run has taught. So the process
that serves the page keeps all that lasts: the history, the line of runs, the measured costs, the policies' experience.

The GPU is asked for once a run: plain decoding, decoding and scoring all happen within one call.
"""

from __future__ import annotations

import ctypes
import logging
import math
import mmap
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from multidraft.costs import CostMeter
from multidraft.hardware import describe
from multidraft.lossless import Difference
from multidraft.records import Round, Status
from multidraft.regret import Regret
from multidraft.settings import on_zerogpu

if TYPE_CHECKING:
    from multidraft.ui.worker import Baseline, Job, Phase, Request, Workbench

log = logging.getLogger(__name__)

UPDATE_SECONDS = 0.05
"""How often the worker says how far it is, and hears whether it is to stop."""

START_SECONDS = 8.0
"""Of a call: the fork, CUDA's start and the warm-up, all taken generously."""

BYTES_PER_SECOND = 2e9
"""Weights reach the GPU at least as fast."""

TOKEN_SECONDS = 0.05
"""Of plain decoding, while nothing is measured."""

MARGIN = 1.5

MOST_SECONDS = 120
"""Most that is asked for: the platform refuses requests that are too long, and visitors have a daily quota."""


def prepare() -> None:
    """On a ZeroGPU Space: make models that are loaded from now on, in this thread, ready for the worker's GPU."""
    if on_zerogpu():
        import spaces  # noqa: F401


@dataclass(frozen=True)
class Memory:
    """What a pool has learnt from earlier runs: see :class:`~drafters.pool.Pool`."""

    previous: dict[str, list[float]]
    costs: CostMeter


@dataclass(frozen=True)
class Update:
    """How far the worker is; ``rounds`` are those since the update before."""

    phase: Phase
    baseline: Baseline | None
    prefill_seconds: float
    rounds: tuple[Round, ...]


@dataclass(frozen=True)
class Ended:
    """How the run ended, what is known of it, and what the pool has learnt."""

    status: Status
    error: str | None
    differences: list[Difference] | None
    regret: Regret | None
    table: np.ndarray | None
    hardware: str
    memory: Memory


class ZeroGpu:
    """Computes the jobs of a workbench in the worker process, one at a time.

    Create it before the page is launched: ``spaces`` wants to know by then what needs a GPU.
    """

    def __init__(self, workbench: Workbench):
        import spaces

        self._workbench = workbench
        self._bytes = workbench.pool.weight_bytes
        self._number = 0
        # The number of the run to be stopped, in memory that is shared with the workers, which are forked after this.
        # Closing the generator, the only other way, would stop the worker too, but throw away what it has to tell.
        self._stopped = ctypes.c_int64.from_buffer(mmap.mmap(-1, ctypes.sizeof(ctypes.c_int64)))
        self._warm = False  # of the worker: this process never is
        self._call = spaces.GPU(duration=self.seconds)(self.in_worker)

    def compute(self, job: Job) -> None:
        """Measure, decode and score; never raising. The job is kept up to date meanwhile."""
        generation = job.generation
        if job.cancelled:
            generation.status = "cancelled"
            return
        self._number += 1
        pool = self._workbench.pool
        try:
            updates = job.context.run(self._call, self._number, job.request, Memory(pool.previous, pool.costs))
            while update := job.context.run(next, updates, None):
                if isinstance(update, Ended):
                    self._end(job, update)
                else:
                    _follow(job, update)
                if job.cancelled:
                    self._stopped.value = self._number
        except Exception as error:
            log.exception("a run failed on ZeroGPU")
            generation.status, generation.error = "error", _explain(error)
        if generation.status == "running":
            generation.status, generation.error = "error", "the GPU's worker process ended without a word"

    def seconds(self, number: int, request: Request, memory: Memory) -> int:
        """Seconds of the GPU to ask for, given what :meth:`in_worker` is."""
        tokens = request.params.max_new_tokens * (1 if request.baseline or request.is_baseline else 2)
        plain = memory.costs.plain
        decoding = tokens * (plain.mean if plain.weight else TOKEN_SECONDS)
        return min(math.ceil(START_SECONDS + self._bytes / BYTES_PER_SECOND + MARGIN * decoding), MOST_SECONDS)

    def in_worker(self, number: int, request: Request, memory: Memory) -> Iterator[Update | Ended]:
        """The run itself, in the worker process: what comes of it goes to :meth:`compute`."""
        from multidraft.ui.worker import Job, warm_up

        pool = self._workbench.pool
        if not self._warm:
            pool.lock = threading.RLock()  # the other process may have held it when it forked
            warm_up(pool)
            self._warm = True
        pool.previous = dict(memory.previous)
        if memory.costs.plain.weight:  # else there is what the warm-up has measured
            pool.costs = memory.costs
        job = Job(self._workbench, request)
        work = threading.Thread(target=job.compute)
        work.start()
        told = 0
        try:
            while True:
                work.join(UPDATE_SECONDS)
                ended = not work.is_alive()
                rounds = tuple(job.generation.rounds[told:])
                told += len(rounds)
                yield Update(job.phase, job.baseline, job.generation.prefill_seconds, rounds)
                if ended:
                    break
                if self._stopped.value == number:
                    job.cancel()
        finally:  # also where the other process has dropped the call
            job.cancel()
            work.join()
        known = (job.generation.status, job.generation.error, job.differences, job.regret, job.table)
        yield Ended(*known, describe(pool.device), Memory(pool.previous, pool.costs))

    def _end(self, job: Job, ended: Ended) -> None:
        generation, pool = job.generation, self._workbench.pool
        generation.status, generation.error = ended.status, ended.error
        job.differences, job.regret, job.table = ended.differences, ended.regret, ended.table
        job.hardware = self._workbench.hardware = ended.hardware
        pool.previous, pool.costs = ended.memory.previous, ended.memory.costs


def _follow(job: Job, update: Update) -> None:
    """Keep the job as it is in the worker."""
    generation = job.generation
    job.phase, job.baseline, generation.prefill_seconds = update.phase, update.baseline, update.prefill_seconds
    for round in update.rounds:
        job.decoding.context.extend(round.tokens)
        generation.token_ids.extend(round.tokens)
        generation.text += round.text
        generation.rounds.append(round)  # last: others read all that belongs to the rounds that are there


def _explain(error: Exception) -> str:
    """What the visitor is told; ``spaces`` raises ``gr.Error``, whose message is for them."""
    message = str(getattr(error, "message", "") or error)
    if "GPU task aborted" in message:
        return "the GPU was taken away before the run ended, for it took too long: ask for fewer new tokens"
    title = getattr(error, "title", None)
    return f"{title}: {message}" if title else f"{type(error).__name__}: {message}"
