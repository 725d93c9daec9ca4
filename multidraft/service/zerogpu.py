"""Runs on a Hugging Face ZeroGPU Space, where only a worker process has the GPU, and only while a run lasts.

``spaces.GPU`` forks the worker and pickles what goes in and what comes out. In goes what was asked for, with what the
pool has learnt so far; out come the rounds as they are decoded, and at the end what the run has taught. So the process
that serves the page keeps all that lasts: the history, the line of runs, the measured costs, the policies' experience.

The GPU is asked for once per run: baseline, decoding and scoring all happen within one call.
"""

from __future__ import annotations

import ctypes
import logging
import math
import mmap
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace

from drafters.costs import CostMeter
from drafters.device_lock import DeviceLock
from drafters.hardware import describe
from drafters.pool import Pool
from drafters.traffic import Prior
from multidraft.bench.measure import Measurement, Phase, Request
from multidraft.engine.lossless import Difference
from multidraft.engine.warming import warm_up
from multidraft.policies.specs import is_plain
from multidraft.service.settings import on_zerogpu
from storage.records import Generation, Round
from storage.run import Baseline, Scores

log = logging.getLogger(__name__)

UPDATE_SECONDS = 0.05
"""How often the worker says how far it is, and hears whether it is to stop."""

# What a call is assumed to take: the fork, CUDA's start and the warm-up, taken generously; weights to the GPU at the
# slowest; a token of autoregressive decoding, before anything is measured.
START_SECONDS, BYTES_PER_SECOND, TOKEN_SECONDS, MARGIN = 8.0, 2e9, 0.05, 1.5

MOST_SECONDS = 120
"""Most that is asked for: the platform refuses requests that are too long, and visitors have a daily quota."""


def prepare() -> None:
    """On a ZeroGPU Space: make models that are loaded from now on, in this thread, ready for the worker's GPU."""
    if on_zerogpu():
        import spaces  # noqa: F401


@dataclass(frozen=True)
class Memory:
    """What a pool has learnt from earlier runs (see :class:`~drafters.pool.Pool`), of its traffic only what that makes
    expect for the prompt."""

    previous: dict[str, list[float]]
    costs: CostMeter
    expected: Prior | None = None

    def prior(self, prompt: str) -> Prior | None:
        """As :meth:`~drafters.traffic.Traffic.prior`."""
        return self.expected


@dataclass(frozen=True)
class Update:
    """How far the worker is; ``rounds`` are those since the update before."""

    phase: Phase
    baseline: Baseline | None
    prefill_seconds: float
    rounds: tuple[Round, ...]


@dataclass(frozen=True)
class Ended:
    """How the run ended, what is known of it, and what the pool has learnt; ``generation`` is without the text and its
    rounds, which came before."""

    generation: Generation
    differences: list[Difference] | None
    scores: Scores
    hardware: str
    memory: Memory


class ZeroGpu:
    """Measures runs on a pool in the worker process, one at a time.

    Create it before the page is launched: ``spaces`` wants to know by then what needs a GPU.

    Args:
        pool: the only one: its weights are handed over to the GPU at the start.
    """

    def __init__(self, pool: Pool):
        import spaces

        self._pool, self._number = pool, 0
        # The number of the run to be stopped, in memory that is shared with the workers, which are forked after this.
        # Closing the generator, the only other way, would stop the worker too, but throw away what it has to tell.
        self._stopped = ctypes.c_int64.from_buffer(mmap.mmap(-1, ctypes.sizeof(ctypes.c_int64)))
        self._warm = False  # of the worker: this process never is
        self._call = spaces.GPU(duration=self.seconds)(self.in_worker)

    def compute(self, measurement: Measurement) -> None:
        """As :meth:`~multidraft.bench.measure.Measurement.compute`, which is kept up to date meanwhile.

        Call it in the context of the visitor: ``spaces`` counts the time against their quota.
        """
        generation, pool = measurement.generation, self._pool
        if measurement.cancelled:
            generation.status = "cancelled"
            return
        self._number += 1
        try:
            expected = pool.traffic.prior(generation.prompt) if pool.traffic else None
            memory = Memory(pool.previous, pool.costs, expected)
            for update in self._call(self._number, measurement.request, memory):
                if isinstance(update, Ended):
                    self._end(measurement, update)
                else:
                    _follow(measurement, update)
                if measurement.cancelled:
                    self._stopped.value = self._number
        except Exception as error:
            log.exception("a run failed on ZeroGPU")
            generation.status, generation.error = "error", _explain(error)
        if generation.status == "running":
            generation.status, generation.error = "error", "the GPU's worker process ended unexpectedly; try again"

    def seconds(self, number: int, request: Request, memory: Memory) -> int:
        """Seconds of the GPU to ask for, given what :meth:`in_worker` is."""
        has_baseline = any(run.baseline for run in request.earlier) or not request.measures_baseline
        has_baseline = has_baseline or is_plain(request.policy)
        tokens = request.params.max_new_tokens * (1 if has_baseline else 2)
        plain = memory.costs.plain
        decoding = tokens * (plain.mean if plain.weight else TOKEN_SECONDS)
        loading = self._pool.weight_bytes / BYTES_PER_SECOND
        return min(math.ceil(START_SECONDS + loading + MARGIN * decoding), MOST_SECONDS)

    def in_worker(self, number: int, request: Request, memory: Memory) -> Iterator[Update | Ended]:
        """The run itself, in the worker process: what comes of it goes to :meth:`compute`."""
        pool = self._pool
        if not self._warm:
            pool.lock = DeviceLock()  # the other process may have held it when it forked
            warm_up(pool)
            self._warm = True
        pool.previous, pool.traffic = dict(memory.previous), memory
        if memory.costs.plain.weight:  # else there is what the warm-up has measured
            pool.costs = memory.costs
        measurement = Measurement(pool, request)
        work = threading.Thread(target=measurement.compute)
        work.start()
        sent, ended = 0, False
        generation = measurement.generation
        try:
            while not ended:
                work.join(UPDATE_SECONDS)
                ended = not work.is_alive()
                rounds = tuple(generation.rounds[sent:])
                sent += len(rounds)
                yield Update(measurement.phase, measurement.run.baseline, generation.prefill_seconds, rounds)
                if self._stopped.value == number:
                    measurement.cancel()
        finally:  # also where the other process has dropped the call
            measurement.cancel()
            work.join()
        known = replace(generation, rounds=[], token_ids=[], text=""), measurement.differences, measurement.run.scores
        yield Ended(*known, describe(pool.device), Memory(pool.previous, pool.costs))

    def _end(self, measurement: Measurement, ended: Ended) -> None:
        generation, run, pool = measurement.generation, measurement.run, self._pool
        for name in ("status", "benched", "prior", "readers", "versions"):
            setattr(generation, name, getattr(ended.generation, name))
        generation.error = ended.generation.error or generation.error
        measurement.differences, run.scores = ended.differences, ended.scores
        run.conditions = replace(run.conditions, hardware=ended.hardware)
        pool.previous, pool.costs = ended.memory.previous, ended.memory.costs


def _follow(measurement: Measurement, update: Update) -> None:
    """Keep the measurement as it is in the worker."""
    generation = measurement.generation
    measurement.run.baseline, generation.prefill_seconds = update.baseline, update.prefill_seconds
    for round in update.rounds:
        measurement.decoding.context.extend(round.tokens)
        generation.token_ids.extend(round.tokens)
        generation.text += round.text
        generation.rounds.append(round)  # last: others read all that belongs to the rounds that are there
    measurement.phase = update.phase


def _explain(error: Exception) -> str:
    """What the visitor is told; ``spaces`` raises ``gr.Error``, whose message is for them."""
    message = str(getattr(error, "message", "") or error)
    if "GPU task aborted" in message:
        return "the GPU was taken away before the run ended, because it took too long; ask for fewer new tokens"
    title = getattr(error, "title", None)
    return f"{title}: {message}" if title else f"{type(error).__name__}: {message}"
