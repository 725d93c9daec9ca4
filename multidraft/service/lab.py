"""What the laboratory computes: policies replayed on recorded texts, as jobs that take turns with the runs."""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from drafters.card import is_bundled
from drafters.errors import UserError
from multidraft.bench.measured_verdict import decoded, measured, ran_live
from multidraft.policies import canonical_spec
from multidraft.policies.specs import without_divergence
from multidraft.policies.titles import DEFAULT_POLICY, policy_choices, policy_title
from multidraft.replay.advice import NEWEST, Advice, advise, candidates, most_replays
from multidraft.replay.experiment import BEST_FIXED, ORACLE, Experiment, as_traffic
from multidraft.replay.machine_costs import MachineCosts
from multidraft.replay.outcomes import Outcome, is_whole, mean_regret, numeric_settings, sweep, sweep_values
from multidraft.replay.recorded import (
    Recorded,
    Route,
    memory_of,
    of_newest_bench,
    of_usual_setting,
    recorded_texts,
    route_of,
    with_costs,
)
from multidraft.replay.walk import Replayed
from multidraft.service import unfamiliar
from multidraft.service.jobs import Job
from multidraft.service.workbench import Workbench
from storage import experiments
from storage.filters import Filter
from storage.problems import StorageError
from storage.records import PLAIN
from storage.texts import Bench, TextFilter

T = TypeVar("T")
R = TypeVar("R")

COLD, ROUTED, TAUGHT = (f"{DEFAULT_POLICY}:start={start}" for start in ("cold", "router", "traffic"))
"""What is compared to show what was learnt: with nothing, and with what a pool with a router knows from its first
query on."""

MOST_POLICIES = 30

VERDICTS_KEPT = 64
"""Of the verdicts asked for last, so many are kept."""

VERDICT_FLUSH_SECONDS = 1.0


@dataclass(frozen=True)
class Sweep:
    """One setting of a policy swept over the texts: the outcomes by value, and what they are compared with, at the
    recorded draft length."""

    policy: str
    setting: str
    outcomes: dict[float, Outcome]
    oracle: Outcome
    best_fixed: Outcome


@dataclass(frozen=True)
class Learnt:
    """Texts as traffic, oldest first, and ``played`` on them the default policy: ``TAUGHT`` begins each with what those
    before taught, ``COLD`` with nothing, and where there is a router ``ROUTED`` with its guess."""

    texts: list[Recorded]
    played: Mapping[str, list[Replayed]]


@dataclass(frozen=True)
class Range:
    """The values of a sweep: so many points from start to end, evenly spaced or by a constant ratio."""

    start: float
    end: float
    points: int
    log: bool


class LabWork:
    """Reads a history and replays it: the one at ``path``, by default the workbench's."""

    def __init__(self, workbench: Workbench, path: Path | None = None):
        self.workbench, self.path = workbench, path or workbench.store.path
        self.costs = MachineCosts(path) if path else workbench.recorded_costs

    def route(self, pool: str, card_hash: str, drafters: Sequence[str]) -> Route | None:
        """The router of the pool that wrote a text, the loaded or a bundled one; it is asked once for each prompt."""
        loaded = self.workbench.pool
        if loaded.card_hash == card_hash:
            return lru_cache(maxsize=1024)(loaded.route) if loaded.router is not None else None
        return route_of(pool, drafters) if is_bundled(pool) else None

    def choices(self, bench: Bench) -> list[tuple[str, str]]:
        """Titles and specs of all policies that can be replayed on the texts of a bench."""
        choices = policy_choices(bench.drafters, self.route(bench.pool, bench.card_hash, bench.drafters) is not None)
        return [
            (title if (replayed := without_divergence(spec)) == spec else policy_title(replayed), replayed)
            for title, spec in choices
        ]

    def experiment(self, filter: TextFilter, specs: Sequence[str]) -> ExperimentJob:
        """Start replaying policies on texts; raises :class:`UserError` where that cannot be done."""
        return self.workbench.jobs.submit(ExperimentJob(self, filter, specs))

    def advise(self, filter: TextFilter, *, shared: bool = False) -> AdviceJob:
        """Start working out the verdict on the traffic that the texts stand for; likewise."""
        return self.workbench.jobs.submit(AdviceJob(self, replace(filter, newest=NEWEST), shared=shared))

    def learnt(self, filter: TextFilter) -> LearntJob:
        """Start replaying the texts as traffic; likewise."""
        return self.workbench.jobs.submit(LearntJob(self, replace(filter, newest=NEWEST)))

    def sweep(self, filter: TextFilter, spec: str, setting: str, values: Range) -> SweepJob:
        """Start sweeping a setting; likewise."""
        return self.workbench.jobs.submit(SweepJob(self, filter, spec, setting, values))


class ReplayJob(Job[T]):
    """Replays on texts, of which ``replays`` of ``total`` are done (0 while the texts are being read); it fails where
    there is no text, or a policy that cannot be replayed. What is ``shared`` goes on when who asked leaves."""

    kind, plural, decodes = "replay", "replays", False
    allowed = "run_seconds"
    limit = 16

    def __init__(self, lab: LabWork, filter: TextFilter, *, shared: bool = False):
        super().__init__()
        self.shared = shared
        self.lab, self.filter = lab, filter
        self.replays = self.total = 0
        self._texts: Sequence[Any] = ()

    def prepare(self) -> None:
        """Read the texts, for the device is not to wait for the disk."""
        self._texts = recorded_texts(self.lab.path, self.filter)

    def leave(self) -> None:
        if not self.shared:
            self.cancel()

    def finish(self) -> None:
        self._texts = ()

    def explain(self, error: BaseException) -> str:
        return str(error) if isinstance(error, StorageError) else super().explain(error)

    def _counted(self, replays: Generator[None, None, R]) -> Generator[None, None, R]:
        """What some replays return, each of which counts."""
        while True:
            try:
                next(replays)
            except StopIteration as end:
                found: R = end.value
                return found
            self.replays = min(self.replays + 1, self.total)
            yield

    def _warning(self, recorded: Sequence[Recorded]) -> str:
        """What is to be said of the prompts."""
        prompts = (text.run.generation.prompt for text in recorded)
        return unfamiliar.warning(self.lab.workbench.fits, recorded[0].run.conditions.card_hash, prompts)

    def _recorded(self) -> Generator[None, None, tuple[list[Recorded], Route | None]]:
        """The texts with their costs, and their pool's router."""
        recorded: list[Recorded] = []
        for text in with_costs(self._texts, self.lab.costs):
            if text is not None:
                recorded.append(text)
            yield
        first = recorded[0].run
        return recorded, self.lab.route(first.conditions.pool, first.conditions.card_hash, first.generation.drafters)


class ExperimentJob(ReplayJob[Experiment]):
    """Policies replayed on texts."""

    def __init__(self, lab: LabWork, filter: TextFilter, specs: Sequence[str]):
        if not 1 <= len(specs) <= MOST_POLICIES:
            raise UserError(f"choose 1 to {MOST_POLICIES} policies, not {len(specs)}")
        super().__init__(lab, filter)
        played = {spec: without_divergence(spec) for spec in map(canonical_spec, specs)}
        self._asked = list(dict.fromkeys(played.values()))
        self._instead = {spec: other for spec, other in played.items() if spec != other}

    def prepare(self) -> None:
        super().prepare()
        live = ran_live(self.lab.path, self._texts, self.filter.runs)
        # Of texts under several settings no run is of all.
        self._measured = measured(live, self._texts) if of_usual_setting(self._texts) == list(self._texts) else None

    def steps(self) -> Generator[None, None, Experiment]:
        recorded, route = yield from self._recorded()
        for spec in self._asked:  # one that cannot be replayed shows before the long work begins
            recorded[0].replay(spec, route)
            yield
        found: dict[str, list[Replayed]] = {spec: [] for spec in (*self._asked, ORACLE, PLAIN, BEST_FIXED)}
        self.total = len(found) * len(recorded)
        for spec, played in found.items():
            for text in recorded:
                played.append(text.replay(spec, route) if spec != BEST_FIXED else text.best_fixed())
                self.replays += 1
                yield
        curves = {}
        for spec in self._asked:
            curves[spec] = mean_regret(recorded, found[spec])
            yield
        return Experiment(recorded, found, curves, self._measured, self._instead, self._warning(recorded))


class LearntJob(ReplayJob[Learnt]):
    """Texts replayed as traffic, in the order in which they were written."""

    def steps(self) -> Generator[None, None, Learnt]:
        recorded, route = yield from self._recorded()
        newest = recorded[0].run.conditions
        texts = [text for text in reversed(recorded) if text.run.conditions.card_hash == newest.card_hash]
        self.total = len(texts)
        specs = (COLD, ROUTED, TAUGHT) if route else (COLD, TAUGHT)
        played = yield from self._counted(as_traffic(texts, specs, route))
        return Learnt(texts, played)


class SweepJob(ReplayJob[Sweep]):
    """One setting of a policy swept over texts."""

    def __init__(self, lab: LabWork, filter: TextFilter, spec: str, setting: str, values: Range):
        if setting not in (known := numeric_settings(spec)):
            raise UserError(f"{setting!r} cannot be swept; choose one of: {', '.join(known)}")
        super().__init__(lab, filter)
        whole = is_whole(spec, setting)
        self._points = sweep_values(values.start, values.end, values.points, log=values.log, whole=whole)
        self._spec, self._setting = without_divergence(spec), setting

    def steps(self) -> Generator[None, None, Sweep]:
        recorded, route = yield from self._recorded()
        found: dict[float, list[Replayed]] = {value: [] for value in self._points}
        self.total = len(found) * len(recorded)
        for value, played in sweep(recorded, self._spec, self._setting, self._points, route):
            found[value].append(played)
            self.replays += 1
            yield
        oracle, best = list[Replayed](), list[Replayed]()
        for text in recorded:
            oracle.append(text.replay(ORACLE))
            best.append(text.best_fixed())
            yield
        outcomes = {value: Outcome.of(played) for value, played in found.items()}
        return Sweep(self._spec, self._setting, outcomes, Outcome.of(oracle), Outcome.of(best))


class AdviceJob(ReplayJob[Advice]):
    """The verdict on the traffic that some texts stand for."""

    def prepare(self) -> None:
        self.lab.workbench.store.flush()  # a batch that has just ended
        found = recorded_texts(self.lab.path, self.filter)
        self._texts = of_usual_setting(of_newest_bench(found))
        self._left_out = len(found) - len(self._texts)
        drafters, made_on = self._texts[0].generation.drafters, self._texts[0].conditions
        self._memory = memory_of(made_on.pool, drafters, made_on.hardware) if is_bundled(made_on.pool) else {}
        self._live = ran_live(self.lab.path, self._texts, self.filter.runs)

    def steps(self) -> Generator[None, None, Advice]:
        recorded, route = yield from self._recorded()
        drafters = recorded[0].drafters
        live = decoded(self._live)
        specs = candidates(drafters, route, live)
        self.total = most_replays(len(recorded), len(specs), len(drafters))
        known = measured(self._live, [text.run for text in recorded])
        found = yield from self._counted(advise(recorded, specs, route, self._memory, known, live))
        return replace(found, left_out=self._left_out, warning=self._warning(recorded))

    def finish(self) -> None:
        super().finish()
        self._live = []  # a row for each run, and verdicts are kept


class Verdicts:
    """The verdicts on batches of the history, under way or ended: each is worked out once, whoever asks."""

    def __init__(self, work: LabWork):
        self.work, self._lock = work, threading.Lock()
        self._jobs: dict[tuple[str, int], AdviceJob] = {}

    def job(self, id: str) -> AdviceJob:
        """The one on an experiment; a new one where runs were added, or the last was stopped or failed.

        Raises:
            UserError: too many jobs wait.
            StorageError: the history cannot be read.
        """
        store = self.work.workbench.store
        store.flush(VERDICT_FLUSH_SECONDS)  # a batch that has just ended
        about = experiments.experiment(store.path, id)
        key = id, about["runs"] if about else 0
        with self._lock:
            job = self._jobs.pop(key, None)
            if job is None or job.cancelled.is_set() or job.error:
                job = self.work.advise(TextFilter(Filter(batch_id=(id,))), shared=True)
            self._jobs[key] = job
            while len(self._jobs) > VERDICTS_KEPT:
                del self._jobs[next(iter(self._jobs))]
            return job
