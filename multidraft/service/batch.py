"""A batch: the prompts of a suite under one or more policies, one by one or several at once."""

from __future__ import annotations

import pickle
import time
import zlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from drafters.errors import UserError
from drafters.sampling import SamplingParams
from multidraft.bench.batches import BatchFigures, SuiteBatch
from multidraft.bench.measure import Measurement, conditions_of
from multidraft.bench.runner import Entry, SuiteRun, seed_of
from multidraft.bench.suites import Suite, SuiteItem
from multidraft.bench.summary import TOO_LONG, Row
from multidraft.bench.table import count, too_long
from multidraft.service.jobs import WAITING, Job
from multidraft.service.learning import traffic_of
from multidraft.service.workbench import DRAWING_SECONDS, Workbench, leave_to_page
from storage import experiments
from storage.records import Round
from storage.run import Origin, Run, Source

TEXTS_AT_ONCE = (1, 2, 4, 8, 16)
"""How many prompts of a batch may be decoded at once."""

SHOWN_SECONDS = 2.0
"""How often a page is shown how far a batch is, between two prompts."""

LONGEST_SECONDS = 5.0
"""Where a prompt takes longer, the page is shown that it goes on."""

LOOK_SECONDS = 0.05
"""How often a page's thread looks whether there is something to show."""


class BatchJob(Job[None]):
    """The runs of one batch; other jobs may have their turns in between. One that the end of the server cut off goes on
    with the next: see :class:`ResumedBatch`.

    They are timed one by one, each alone on the device; or so many prompts are decoded at once under each policy, and
    what is timed is the batch of them. All run on the pool that the batch began with, whichever is loaded meanwhile.

    Args:
        texts_at_once: one of :data:`TEXTS_AT_ONCE`.
        suite: what the prompts are taken from; ``None`` leaves their origin unnamed in the records.
        file: where the suite was uploaded, unless it is a bundled one.
        continues: the id of the batch that this one is the rest of.

    Attributes:
        policies: their specs in the canonical spelling, each once.
        pool, dtype, drafters: that pool's name, dtype and drafters' names.
        hardware: what its last run was computed on.
        rows: those of the runs that are done; it only grows. ``items_of_rows`` has the place of the prompt of each.
        unkept: how many of them could not be written when they were done: they wait in memory.
        figures: the throughput of each policy whose texts have all ended, where several are decoded at once.
        shares_forwards: whether texts that are decoded at once share forwards; else they take turns.

    Raises:
        UserError: no policy, or one that cannot be played, an invalid seed, more than the server's limits, or a number
            of texts at once that is none of those; nothing has run then.
    """

    kind, plural = "batch", "batches"
    allowed = "batch_seconds"
    limit: ClassVar[int | None] = 8
    retained = 20

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
        continues: str | None = None,
    ):
        super().__init__()
        self.id = continues or self.id
        pool = workbench.pool
        if texts_at_once not in TEXTS_AT_ONCE:
            raise UserError(f"texts at once must be one of {', '.join(map(str, TEXTS_AT_ONCE))}, got {texts_at_once}")
        if texts_at_once > 1 and workbench.gpu:
            raise UserError("on ZeroGPU prompts are decoded one by one; set texts at once to 1")
        workbench.limits.check_batch(len(items), len(policies))
        workbench.limits.check_answer(params.max_new_tokens)
        origin = Origin(source, suite=suite.name if suite else None, batch_id=self.id, learn=learn)
        self.workbench, self.items, self.params, self.seed = workbench, items, params, seed
        self.suite, self.file, self.learn = suite, file, learn
        self.texts_at_once, self.shares_forwards = texts_at_once, hasattr(pool.target.decoder, "runs")
        self.figures: list[BatchFigures] = []
        self._run: SuiteRun | None
        asked = pool, items, policies, params
        if texts_at_once == 1:
            self._run = SuiteRun(*asked, seed=seed, origin=origin)
        else:
            observe = workbench.observe
            self._run = SuiteBatch(*asked, texts_at_once, seed=seed, origin=origin, waiting=WAITING, observe=observe)
            self.figures = self._run.figures
        self.policies, self.total = self._run.specs, self._run.total
        self.pool, self.dtype, self.hardware = pool.name, pool.dtype, workbench.hardware
        self.drafters = pool.drafter_names
        self.rows: list[Row] = []
        self.items_of_rows: list[int] = []
        self._places = {id(item): place for place, item in enumerate(items)}
        self.unkept = 0
        self._origin, self._conditions, self._starts, self._known = origin, conditions_of(pool), 1, 0
        self._begun = self._shown_at = self._looked_at = self._paused = 0.0
        self._shown, self._on_cpu = 0, pool.device.type == "cpu"
        self._rounds: list[bytes] = []
        self._seconds: dict[str, list[float]] = {policy: [] for policy in self.policies}

    @property
    def runs_done(self) -> int:
        """How many runs have ended, of :attr:`total`; at the end without those that were cancelled."""
        return run.done if (run := self._run) else sum(row.status != "cancelled" for row in self.rows)

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
            left, made = self.total - self.runs_done, self.runs_done - self._known
            return (time.monotonic() - self._begun) * left / made if made > 0 else None
        done = {policy: list(seconds) for policy, seconds in self._seconds.items()}
        if not all(done.values()):
            return None
        seconds = sum((len(self.items) - len(s)) * sum(s) / len(s) for s in done.values())
        spent = time.monotonic() - self._begun
        return seconds * spent / max(spent - self._paused, spent / 2)

    def rounds(self, row: int) -> list[Round]:
        """The rounds of a row."""
        found: list[Round] = pickle.loads(zlib.decompress(self._rounds[row]))
        return found

    def steps(self) -> Generator[object, None, None]:
        assert self._run is not None
        self._begun = self._shown_at = time.monotonic()
        self._shown += 1
        self.workbench.record(begins=(self.id, self._asked()))
        yield from self._run.steps(self._measure, self._add)

    def look(self) -> bool:
        """Wait until a page may draw how far the batch is; returns whether it has ended. For any thread.

        Where page and batch may share a CPU, drawing slows decoding down: the batch pauses for it.
        """
        shown, until = self._shown, time.monotonic() + LONGEST_SECONDS
        while not self.ended.wait(LOOK_SECONDS) and self._shown == shown and time.monotonic() < until:
            self._looked_at = time.monotonic()
        return self.done

    def _show(self) -> None:
        """Let pages draw what is new, if they have not done so lately; the pause for it counts as no time of the
        device, and ends where somebody waits."""
        now = time.monotonic()
        if now - self._shown_at < SHOWN_SECONDS:
            return
        self._shown += 1
        if self._on_cpu and now - self._looked_at < LONGEST_SECONDS:
            leave_to_page(self.workbench.jobs, self.cancelled, now + DRAWING_SECONDS)
        self._shown_at = time.monotonic()
        self._paused += self._shown_at - now
        self.device_seconds -= self._shown_at - now

    def leave(self) -> None:
        """The page finds it again; a program that asked for it has nothing to find it by."""
        if self._origin.source == "api":
            self.cancel()

    def stop(self) -> None:
        if run := self._run:
            run.cancel()

    def finish(self) -> None:
        self._run = None  # it holds the pool, and batches are retained longer than pools
        if not self._goes_on:
            self.workbench.record(ends=self.id, ending=self.ending)

    @property
    def ending(self) -> str | None:
        """How it ended, if before all its runs were done, or what was left out."""
        after = f"after {self.runs_done:,} of {count(self.total, 'run')}"
        if self.error:
            return f"ended early {after}: {self.error}"
        if self.runs_done < self.total:
            return f"stopped {after}"
        return too_long(sum(row.status == TOO_LONG for row in self.rows), self.total)

    @property
    def _goes_on(self) -> bool:
        """Whether the server ends, and the next one goes on with it."""
        return self.workbench.jobs.closed and self._origin.source != "api"  # whose caller has gone with the server

    @property
    def prompt_count(self) -> int:
        """How many prompts it runs."""
        return len(self.items)

    def _asked(self) -> dict[str, Any]:
        """What another server needs to go on."""
        return {
            "source": self._origin.source,
            "items": [asdict(item) for item in self.items],
            "policies": self.policies,
            "params": asdict(self.params),
            "seed": self.seed,
            "suite": self.suite and self.suite.name,
            "file": self.file,
            "texts_at_once": self.texts_at_once,
            "learn": self.learn,
            "conditions": asdict(self._conditions),
            "figures": [asdict(figures) for figures in self.figures],
            "rows": max(len(self.rows), self._known),
            "starts": self._starts,
        }

    def _measure(self, measurement: Measurement) -> Generator[object]:
        begun, run = time.monotonic(), measurement.run
        yield from self.workbench.measure(measurement)
        self.hardware = run.conditions.hardware
        self._seconds[run.generation.policy].append(time.monotonic() - begun)

    def _add(self, entries: Sequence[Entry]) -> None:
        """Runs that belong together: those of a prompt, or those of a policy that decodes prompts at once."""
        if self._goes_on and self.cancelled.is_set():
            return  # they are made again
        runs = [entry.run for entry in entries if entry.run.id is None]
        # The figures are not in the history.
        job: dict[str, Any] = {"begins": (self.id, self._asked())} if self.figures else {}
        self.workbench.record(*runs, **job)
        self.unkept += sum(run.id is None and bool(run.generation.rounds) for run in runs)
        new = set(map(id, runs))
        for entry in entries:
            if not (generation := entry.run.generation).prompt_tokens or id(entry.run) not in new:  # refused, or known
                self._seconds[entry.policy].append(generation.request_seconds)
            self._rounds.append(zlib.compress(pickle.dumps(generation.rounds)))
            self.items_of_rows.append(self._places[id(entry.item)])
            self.rows.append(Row.of(entry.item.id, entry.item.task, entry.run, too_long=entry.too_long))
        self._show()


class ResumedBatch(BatchJob):
    """A batch goes on where the end of a server cut it off: what is in the history is not run again.

    Runs of a prompt, or of a policy that decodes prompts at once, are written together: either all of them are there,
    or none. It needs no place among the batches of visitors: it had one.

    Args:
        asked: what that server has written of it.

    Raises:
        UserError: it cannot be run on the present pool.
    """

    limit = None

    def __init__(self, workbench: Workbench, id: str, asked: Mapping[str, Any]):
        items = [SuiteItem(**item) for item in asked["items"]]
        params, suite = SamplingParams(**asked["params"]), asked["suite"] and Suite(asked["suite"], items)
        same = {name: asked[name] for name in ("policies", "seed", "source", "file", "texts_at_once", "learn")}
        super().__init__(workbench, items, params=params, suite=suite, continues=id, **same)
        self.figures.extend(BatchFigures(**figures) for figures in asked["figures"])
        self._starts, self._rows_before = asked["starts"] + 1, asked["rows"]

    def prepare(self) -> None:
        """Read what was run."""
        assert self._run is not None
        path = self.workbench.store.path
        self._run.known = known = recorded(path, self.id, self.items, self.seed)
        self._known = len(known)
        if isinstance(self._run, SuiteBatch) and known:  # each policy begins with what was learnt before the first
            begun = min(run.created_at for run in known.values())
            self._run.traffic = traffic_of(self._run.pool, path, before=begun)
        if self._known > self._rows_before:  # it came further than the last time
            self._starts = 1


def recorded(path: Path, id: str, items: Sequence[SuiteItem], seed: int) -> dict[tuple[int, str], Run]:
    """The runs of a batch that are in the history, by the place of their prompt and their policy."""
    found: dict[tuple[str, int, str], list[Run]] = {}
    for run in experiments.runs(path, id):
        if (g := run.generation).rounds:
            found.setdefault((g.prompt, run.seed, g.policy), []).append(run)
    policies = {policy for _, _, policy in found}
    return {
        (place, policy): runs.pop()
        for place, item in enumerate(items)
        for policy in policies
        if (runs := found.get((item.prompt, seed_of(seed, item), policy)))
    }
