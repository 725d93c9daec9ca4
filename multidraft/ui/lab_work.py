"""What the laboratory computes: policies replayed on recorded texts, slice by slice between timed runs."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import CancelledError, Future, wait
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np

from drafters.card import pool_names
from multidraft.bench.machine_costs import MachineCosts
from multidraft.bench.outcomes import Outcome, is_whole, mean_regret, numeric_settings, sweep, sweep_values
from multidraft.bench.replays import Recorded, Route, recorded_texts, route_of, with_costs, without_divergence
from multidraft.errors import UserError
from multidraft.policies import canonical_spec
from multidraft.replay import Replayed
from multidraft.ui.choices import policy_choices, policy_title
from multidraft.ui.worker import Workbench
from storage.texts import Bench, TextFilter

T = TypeVar("T")

MOST_POLICIES = 30

SLICE_SECONDS = 0.3
"""How long replays hold the device, where they cannot slow down a run, before the next in line has its turn."""

UPDATE_SECONDS = 0.15

ORACLE, PLAIN, BEST_FIXED = "oracle", "autoregressive", ""
"""What policies are compared with: the best single drafter, plain decoding, the best drafter and draft length."""


@dataclass(frozen=True)
class Progress:
    """How many replays are done, of how many; 0 of 0 while the texts are being read."""

    done: int = 0
    total: int = 0


@dataclass(frozen=True)
class Experiment:
    """Policies replayed on texts.

    Attributes:
        recorded: the texts.
        played: replays in the order of the texts by the policy's spec, as it was replayed; ``ORACLE``, ``PLAIN`` and
            ``BEST_FIXED`` among them.
        regret: after each round, mean over the texts (``outcomes.mean_regret``), of the policies that were asked for.
    """

    recorded: list[Recorded]
    played: dict[str, list[Replayed]]
    regret: dict[str, np.ndarray]

    def outcome(self, spec: str) -> Outcome:
        """The figures of one policy."""
        return Outcome.of(self.played[spec])

    @property
    def policies(self) -> list[str]:
        """The specs that were asked for, the fastest by the measured costs first."""
        return sorted(self.regret, key=lambda spec: -(self.outcome(spec).tokens_per_second or 0.0))


@dataclass(frozen=True)
class Sweep:
    """One setting of a policy swept over the texts.

    Attributes:
        policy, setting: what was swept.
        outcomes: by value.
        oracle, best_fixed: what they are compared with, at the recorded draft length.
    """

    policy: str
    setting: str
    outcomes: dict[float, Outcome]
    oracle: Outcome
    best_fixed: Outcome


@dataclass(frozen=True)
class Range:
    """The values of a sweep: so many points from start to end, evenly spaced or by a constant ratio."""

    start: float
    end: float
    points: int
    log: bool


class LabWork:
    """Reads the history and replays it, on the device's thread in turn with the runs."""

    def __init__(self, workbench: Workbench):
        self.workbench = workbench
        self._costs = MachineCosts(workbench.store.path)

    def route(self, pool: str, card_hash: str, drafters: Sequence[str]) -> Route | None:
        """The router of the pool that wrote a text, the loaded or a bundled one; it is asked once for each prompt."""
        loaded = self.workbench.pool
        if loaded.card_hash == card_hash:
            return lru_cache(maxsize=1024)(loaded.route) if loaded.router is not None else None
        return route_of(pool, drafters) if pool in pool_names() else None

    def choices(self, bench: Bench) -> list[tuple[str, str]]:
        """Titles and specs of all policies that can be replayed on the texts of a bench."""
        choices = policy_choices(bench.drafters, self.route(bench.pool, bench.card_hash, bench.drafters) is not None)
        replayed = ((title, spec, without_divergence(spec)) for title, spec in choices)
        return [(title if other == spec else policy_title(other), other) for title, spec, other in replayed]

    def experiment(self, filter: TextFilter, specs: Sequence[str]) -> Iterator[Progress | Experiment]:
        """Replay policies on texts: says how far it is, and at the end what was found.

        Raises:
            UserError: no text, no policy, too many, or one that cannot be replayed; nothing is replayed then.
        """
        if not 1 <= len(specs) <= MOST_POLICIES:
            raise UserError(f"choose 1 to {MOST_POLICIES} policies, not {len(specs)}")
        recorded = yield from self._texts(filter)
        first = recorded[0].run
        route = self.route(first["pool"], first["card_hash"], first["drafters"])
        asked = [without_divergence(canonical_spec(spec)) for spec in specs]
        for _ in self._in_slices(recorded[0].replay(spec, route) for spec in asked):
            yield Progress()
        found: dict[str, list[Replayed]] = {spec: [] for spec in (*asked, ORACLE, PLAIN, BEST_FIXED)}
        steps = (
            (spec, text.replay(spec, route) if spec != BEST_FIXED else text.best_fixed())
            for spec in found
            for text in recorded
        )
        done = 0
        for slice in self._in_slices(steps):
            for spec, played in slice:
                found[spec].append(played)
            done += len(slice)
            yield Progress(done, len(found) * len(recorded))
        curves: dict[str, np.ndarray] = {}
        for made in self._in_slices((spec, mean_regret(recorded, found[spec])) for spec in asked):
            curves.update(made)
            yield Progress(done, done)
        yield Experiment(recorded, found, curves)

    def sweep(self, filter: TextFilter, spec: str, setting: str, values: Range) -> Iterator[Progress | Sweep]:
        """Sweep a setting, likewise.

        Raises:
            UserError: no text, or a policy, setting or range that cannot be used.
        """
        if setting not in (known := numeric_settings(spec)):
            raise UserError(f"{setting!r} cannot be swept; choose one of: {', '.join(known)}")
        points = sweep_values(values.start, values.end, values.points, log=values.log, whole=is_whole(spec, setting))
        recorded = yield from self._texts(filter)
        first = recorded[0].run
        route = self.route(first["pool"], first["card_hash"], first["drafters"])
        spec = without_divergence(spec)
        found: dict[float, list[Replayed]] = {value: [] for value in points}
        done = 0
        for slice in self._in_slices(sweep(recorded, spec, setting, points, route)):
            for value, played in slice:
                found[value].append(played)
            done += len(slice)
            yield Progress(done, len(points) * len(recorded))
        references: list[tuple[Replayed, Replayed]] = []
        for pairs in self._in_slices((text.replay(ORACLE), text.best_fixed()) for text in recorded):
            references += pairs
            yield Progress(done, done)
        oracle, best = map(Outcome.of, zip(*references))
        yield Sweep(spec, setting, {value: Outcome.of(played) for value, played in found.items()}, oracle, best)

    def _texts(self, filter: TextFilter) -> Generator[Progress, None, list[Recorded]]:
        """The texts: read in this thread, for the device is not to wait for the disk; their costs in slices."""
        yield Progress()
        recorded: list[Recorded] = []
        for slice in self._in_slices(with_costs(recorded_texts(self.workbench.store.path, filter), self._costs)):
            recorded += [text for text in slice if text is not None]
            yield Progress()
        return recorded

    def _in_slices(self, steps: Iterator[T]) -> Iterator[list[T]]:
        """What ``steps`` yields, in lists: each made in one go between runs, empty ones while it has to wait.

        Nothing of it is made that is not asked for: who stops asking stops the work.
        """
        ended = False
        while not ended:
            slice = self._between_runs(steps)
            while not wait([slice], UPDATE_SECONDS).done:
                yield []
            try:
                taken, ended = slice.result()
            except CancelledError:
                raise UserError("the server is shutting down") from None
            yield taken

    def _between_runs(self, steps: Iterator[T]) -> Future[tuple[list[T], bool]]:
        try:
            return self.workbench.between_runs(lambda: _take(steps))
        except RuntimeError:
            raise UserError("the server is shutting down") from None


def _take(steps: Iterator[T]) -> tuple[list[T], bool]:
    """What comes of ``steps`` within a slice of time, and whether that was all."""
    taken, until = list[T](), time.monotonic() + SLICE_SECONDS
    for step in steps:
        taken.append(step)
        if time.monotonic() > until:
            return taken, False
    return taken, True
