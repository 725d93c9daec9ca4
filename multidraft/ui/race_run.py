"""The runs of a race: its lanes one after the other on the device, each alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

from multidraft.engine import Decoding
from multidraft.errors import UserError
from multidraft.records import FINISHED
from multidraft.sampling import SamplingParams
from multidraft.ui import race_data
from multidraft.ui.worker import Baseline, Job, Request, Workbench

FEWEST, MOST = 2, 4
"""Lanes of a race."""

UPDATE_SECONDS = 0.5
"""How often whoever looks on hears of it: seldom, since each time takes some of the speed that is being measured."""


class RaceRun:
    """The lanes of one race, all on the pool it began with; other visitors' runs may come in between, never during one.

    Plain decoding is measured once, before the first lane, as Play does.

    Raises:
        UserError: too few or too many lanes, or a prompt, policy or seed that cannot be run; nothing runs then.
    """

    def __init__(
        self,
        workbench: Workbench,
        prompt: str,
        specs: Sequence[str],
        params: SamplingParams,
        seed: int = 0,
        task: str | None = None,
    ):
        if not FEWEST <= len(specs) <= MOST:
            raise UserError(
                f"a race has {FEWEST} to {MOST} lanes, and {len(specs) or 'none'} has a policy; "
                "choose policies in the fields Lane 1 to Lane 4"
            )
        self.pool = workbench.pool
        for spec in specs:  # all of them are checked before anything runs; nothing is computed here
            Decoding(self.pool, prompt, spec, params, seed)
        self.workbench, self.prompt, self.specs, self.params = workbench, prompt, list(specs), params
        self.seed, self.task = seed, task
        self.jobs: list[Job] = []
        self.cancelled = threading.Event()

    def cancel(self) -> None:
        """End after the round in progress; may be called from another thread."""
        self.cancelled.set()
        for job in list(self.jobs):
            job.cancel()

    def run(self) -> Iterator[None]:
        """Measure the lanes, yielding now and then; ``jobs`` grows meanwhile."""
        baseline: Baseline | None = None
        for spec in self.specs:
            if self.cancelled.is_set():
                return
            job = self.workbench.submit(
                Request(self.prompt, spec, self.params, self.seed, "race", task=self.task, baseline=baseline), self.pool
            )
            self.jobs.append(job)
            try:
                yield
                while not job.wait(UPDATE_SECONDS):
                    if self.cancelled.is_set():
                        job.cancel()
                    yield
            finally:
                job.cancel()
            baseline = job.baseline

    @property
    def measured(self) -> list[Job]:
        """The lanes that came to an end of their own: only these are replayed."""
        return [job for job in self.jobs if job.done and job.generation.status in FINISHED and job.generation.rounds]

    @property
    def states(self) -> list[race_data.State]:
        """How far each lane is."""
        return [self._state(lane) for lane in range(len(self.specs))]

    def _state(self, lane: int) -> race_data.State:
        if lane >= len(self.jobs):
            return "left out" if self.cancelled.is_set() else "waiting"
        job = self.jobs[lane]
        if not job.done:
            return "measuring"
        return "measured" if job.generation.status in FINISHED else "left out"

    def replay(self) -> dict[str, Any]:
        """What the browser needs to play the measured lanes again."""
        jobs = self.measured
        return race_data.replay_data(
            [job.generation for job in jobs],
            greedy=self.params.greedy,
            lossless=[job.lossless for job in jobs],
            plain_rate=next((job.baseline.tokens_per_second for job in jobs if job.baseline), None),
        )
