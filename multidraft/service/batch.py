"""A batch: the prompts of a suite under one or more policies, one by one or several at once."""

from __future__ import annotations

import pickle
import time
import zlib
from collections.abc import Generator, Sequence

from drafters.errors import UserError
from drafters.sampling import SamplingParams
from multidraft.bench.batches import BatchFigures, SuiteBatch
from multidraft.bench.measure import Measurement
from multidraft.bench.runner import Entry, SuiteRun
from multidraft.bench.suites import Suite, SuiteItem
from multidraft.bench.summary import Row
from multidraft.service.jobs import WAITING, Job
from multidraft.service.workbench import Workbench
from storage.records import Round
from storage.run import Origin, Source

TEXTS_AT_ONCE = (1, 2, 4, 8, 16)
"""How many prompts of a batch may be decoded at once."""


class BatchJob(Job[None]):
    """The runs of one batch; other jobs may have their turns in between.

    They are timed one by one, each alone on the device; or so many prompts are decoded at once under each policy, and
    what is timed is the batch of them. All run on the pool that the batch began with, whichever is loaded meanwhile.

    Args:
        texts_at_once: one of :data:`TEXTS_AT_ONCE`.
        suite: what the prompts are taken from; ``None`` leaves their origin unnamed in the records.
        file: where the suite was uploaded, unless it is a bundled one.

    Attributes:
        policies: their specs in the canonical spelling, each once.
        pool, dtype, drafters: that pool's name, dtype and drafters' names.
        hardware: what its last run was computed on.
        rows: those of the runs that are done; it only grows. ``items_of_rows`` has the place of the prompt of each.
        figures: the throughput of each policy whose texts have all ended, where several are decoded at once.
        shares_forwards: whether texts that are decoded at once share forwards; else they take turns.

    Raises:
        UserError: no policy, or one that cannot be played, an invalid seed, or a number of texts at once that is none
            of those; nothing has run then.
    """

    kind, plural = "batch", "batches"
    limit, retained = 8, 20

    def __init__(
        self,
        workbench: Workbench,
        items: Sequence[SuiteItem],
        policies: Sequence[str],
        params: SamplingParams,
        seed: int = 0,
        source: Source = "batch",
        suite: Suite | None = None,
        file: str | None = None,
        texts_at_once: int = 1,
        learn: bool = True,
    ):
        super().__init__()
        pool = workbench.pool
        if texts_at_once not in TEXTS_AT_ONCE:
            raise UserError(f"texts at once must be one of {', '.join(map(str, TEXTS_AT_ONCE))}, got {texts_at_once}")
        if texts_at_once > 1 and workbench.gpu:
            raise UserError("on ZeroGPU prompts are decoded one by one; set texts at once to 1")
        origin = Origin(source, suite=suite.name if suite else None, batch_id=self.id, learn=learn)
        self.workbench, self.items, self.params, self.seed = workbench, items, params, seed
        self.suite, self.file = suite, file
        self.texts_at_once, self.shares_forwards = texts_at_once, hasattr(pool.target.decoder, "runs")
        self.figures: list[BatchFigures] = []
        self._run: SuiteRun | None
        if texts_at_once == 1:
            self._run = SuiteRun(pool, items, policies, params, seed=seed, origin=origin)
        else:
            self._run = SuiteBatch(
                pool, items, policies, params, texts_at_once, seed=seed, origin=origin, waiting=WAITING
            )
            self.figures = self._run.figures
        self.policies, self.total = self._run.specs, self._run.total
        self.pool, self.dtype, self.hardware = pool.name, pool.dtype, workbench.hardware
        self.drafters = [drafter.name for drafter in pool.drafters]
        self.rows: list[Row] = []
        self.items_of_rows: list[int] = []
        self._places = {id(item): place for place, item in enumerate(items)}
        self._begun = 0.0
        self._rounds: list[bytes] = []
        self._seconds: dict[str, list[float]] = {policy: [] for policy in self.policies}

    @property
    def runs_done(self) -> int:
        """How many runs have ended, of :attr:`total`."""
        return run.done if (run := self._run) else len(self.rows)

    @property
    def now(self) -> tuple[SuiteItem, str] | None:
        """The prompt and the policy at work, or waiting for their turn."""
        return run.now if (run := self._run) else None

    @property
    def seconds_left(self) -> float | None:
        """How long the rest would take if each policy's runs took as long as they did so far.

        ``None`` until every policy has had a run, or where several prompts are decoded at once, until one has ended.
        """
        if self.texts_at_once > 1:
            done_runs = self.runs_done
            return (time.monotonic() - self._begun) * (self.total - done_runs) / done_runs if done_runs else None
        done = {policy: list(seconds) for policy, seconds in self._seconds.items()}
        if not all(done.values()):
            return None
        return sum((len(self.items) - len(s)) * sum(s) / len(s) for s in done.values())

    def rounds(self, row: int) -> list[Round]:
        """The rounds of a row."""
        found: list[Round] = pickle.loads(zlib.decompress(self._rounds[row]))
        return found

    def steps(self) -> Generator[object, None, None]:
        assert self._run is not None
        self._begun = time.monotonic()
        yield from self._run.steps(self._measure, self._add)

    def stop(self) -> None:
        if run := self._run:
            run.cancel()

    def finish(self) -> None:
        self._run = None  # it holds the pool, and batches are retained longer than pools

    def _measure(self, measurement: Measurement) -> Generator[object]:
        begun, run = time.monotonic(), measurement.run
        yield from self.workbench.measure(measurement)
        self.hardware = run.conditions.hardware
        self._seconds[run.generation.policy].append(time.monotonic() - begun)

    def _add(self, entry: Entry) -> None:
        self.workbench.record(entry.run)
        if not entry.run.generation.prompt_tokens:  # refused: it took no time
            self._seconds[entry.policy].append(0.0)
        self._rounds.append(zlib.compress(pickle.dumps(entry.run.generation.rounds)))
        self.items_of_rows.append(self._places[id(entry.item)])
        self.rows.append(Row.of(entry.item.id, entry.item.task, entry.run, too_long=entry.too_long))
