"""Batches at work: each in a thread of its own, whoever looks on, and kept for a while when it has ended."""

from __future__ import annotations

import time
import zlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

from drafters.pool import Pool
from multidraft.bench.runner import seed_of
from multidraft.bench.suites import Suite, SuiteItem
from multidraft.engine import check_seed, policy_for
from multidraft.errors import ContextWindowError, PromptError
from multidraft.policies import canonical_spec, check_specs
from multidraft.sampling import SamplingParams
from multidraft.ui import batch_rows, choices, tokens
from multidraft.ui.background import Background, Work
from multidraft.ui.batch_rows import Row
from multidraft.ui.worker import Baseline, Request, Workbench
from storage.rows import Source

UPDATE_SECONDS = 0.15


@dataclass(frozen=True)
class Progress:
    """How far a batch is: runs done of all, and the prompt and policy at work (or waiting for the device)."""

    done: int
    total: int
    now: str


class BatchRun(Work):
    """The runs of one batch, one after the other; other visitors' runs may come in between.

    Each prompt's plain decoding is measured once, before its first policy. Every prompt has a row per policy, in order.
    All run on the pool that the batch began with, whichever is loaded meanwhile.

    Attributes:
        policies: their specs, each once, in the spelling under which runs are recorded.
        pool: that pool's name; ``dtype`` is its number type, ``drafters`` are its drafters' names.
        hardware: what its last run was computed on.
        suite: what the records call the prompts' origin, if that has a name.
        id: see :class:`~multidraft.ui.background.Work`; also in the records of its runs.
        rows: what is done so far; it only grows.
        progress: where it stands.

    Raises:
        UserError: no policy, or one that cannot be played, or a seed that is none; nothing has run then.
    """

    kind = "batch"

    def __init__(
        self,
        workbench: Workbench,
        suite: str | None,
        items: Sequence[SuiteItem],
        policies: Sequence[str],
        params: SamplingParams,
        seed: int = 0,
        source: Source = "batch",
    ):
        super().__init__()
        self.workbench, self.suite, self.items = workbench, suite, items
        self.policies = list(dict.fromkeys(map(canonical_spec, policies)))
        self.params, self.seed, self.source = params, seed, source
        self.rows: list[Row] = []
        self.progress = Progress(0, self.total, "")
        self._outputs: list[bytes] = []
        self._seconds: dict[str, list[float]] = {policy: [] for policy in self.policies}
        check_seed(seed)
        check_specs(self.policies)
        pool = workbench.pool
        for policy in self.policies:
            policy_for(pool, policy)  # a bad spec is refused before anything runs
        self.pool, self.dtype, self.hardware = pool.name, pool.dtype, workbench.hardware
        self.drafters = [drafter.name for drafter in pool.drafters]
        self._pool: Pool | None = pool  # until the end: batches are kept longer than pools

    @property
    def total(self) -> int:
        """Runs in all."""
        return len(self.items) * len(self.policies)

    def work(self) -> None:
        """Run all, :attr:`progress` telling how far it is."""
        for progress in self.run():
            self.progress = progress

    def run(self) -> Iterator[Progress]:
        """Run all in the caller's thread, saying now and then how far it is."""
        try:
            yield from self._run_all()
        finally:
            self._pool = None

    def _run_all(self) -> Iterator[Progress]:
        for item in self.items:
            baseline: Baseline | None = None
            for policy in self.policies:
                if self.cancelled.is_set():
                    return
                now = f"{item.task or item.id}, {choices.policy_title(policy)}"
                progress = Progress(len(self.rows), self.total, now)
                yield progress
                begun = time.monotonic()
                baseline = yield from self._run_one(item, policy, baseline, progress)
                self._seconds[policy].append(time.monotonic() - begun)
        yield Progress(len(self.rows), self.total, "")

    @property
    def seconds_left(self) -> float | None:
        """How long the rest would take if each policy's runs took as long as they did so far, waiting included.

        ``None`` until every policy has had a run.
        """
        done = {policy: list(seconds) for policy, seconds in self._seconds.items()}
        if not all(done.values()):
            return None
        return sum((len(self.items) - len(s)) * sum(s) / len(s) for s in done.values())

    def output_html(self, row: int) -> str:
        """The output of a row, each token in its drafter's colour."""
        return zlib.decompress(self._outputs[row]).decode()

    def _run_one(
        self, item: SuiteItem, policy: str, baseline: Baseline | None, progress: Progress
    ) -> Generator[Progress, None, Baseline | None]:
        seed = seed_of(self.seed, item)
        request = Request(
            item.prompt, policy, self.params, seed, self.source, item.task or None, self.suite, self.id, baseline
        )
        try:
            job = self.workbench.submit(request, self._pool)
        except PromptError as error:
            status = batch_rows.TOO_LONG if isinstance(error, ContextWindowError) else "error"
            self._add(Row(item.id, item.task or batch_rows.NO_TASK, policy, status, error=str(error)), "")
            return baseline
        try:
            while not job.wait(UPDATE_SECONDS):
                if self.cancelled.is_set():
                    job.cancel()
                yield progress
        finally:
            job.cancel()
        self.hardware = job.hardware or self.hardware
        self._add(Row.of(item, policy, job.generation, job.baseline), tokens.rounds_html(job.generation.rounds))
        return job.baseline

    def _add(self, row: Row, output: str) -> None:
        self._outputs.append(zlib.compress(output.encode()))
        self.rows.append(row)


@dataclass(frozen=True)
class Held:
    """A batch and the suite it was made of; ``file`` is where that was uploaded, unless it is a bundled one."""

    run: BatchRun
    suite: Suite
    file: str | None = None


class Batches(Background[Held]):
    """The batches of a server by their ids: those under way, and the last that have ended."""

    def __init__(self, workbench: Workbench):
        super().__init__(workbench, "batches")

    def start(self, run: BatchRun, suite: Suite, file: str | None = None) -> None:
        """Start a batch and keep it (see :class:`Held`).

        Raises:
            UserError: as many as may be are under way.
        """
        self.begin(run, Held(run, suite, file))
