"""The runs of a race: its lanes one after the other on the device, each alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from drafters.pool import Pool
from multidraft.engine import Decoding
from multidraft.errors import UserError
from multidraft.records import FINISHED
from multidraft.sampling import SamplingParams
from multidraft.ui import race_data
from multidraft.ui.background import Background, Work
from multidraft.ui.worker import Baseline, Job, Request, Workbench

FEWEST, MOST = 2, 4
"""Lanes of a race."""

UPDATE_SECONDS = 0.5
"""How often whoever looks on hears of it: seldom, since each time takes some of the speed that is being measured."""


@dataclass(frozen=True)
class Outcome:
    """What is left of a race that has ended.

    Attributes:
        stage: the data of the replay, or, of a race with too few lanes for one, of the lanes as they were left.
        measured: how many lanes came to an end of their own; ``total``: of how many.
        failed: title and error of the first lane that failed, if one did.
    """

    stage: dict[str, Any]
    measured: int
    total: int
    failed: tuple[str, str] | None = None


class RaceRun(Work):
    """The lanes of one race, all on the pool it began with; other visitors' runs may come in between, never during one.

    A lane that decodes plainly is measured first, whichever it is, and all of it is what the speed-ups compare with,
    here and in the history. Without one, plain decoding is measured once, before the first lane, as Play does.

    Attributes:
        jobs: the lanes begun so far, by their index; none once :attr:`outcome` is there.
        lane: the index of the last one begun.
        drafters: the names of the pool's drafters.

    Raises:
        UserError: too few or too many lanes, or a prompt, policy or seed that cannot be run; nothing runs then.
    """

    kind = "race"

    def __init__(
        self,
        workbench: Workbench,
        prompt: str,
        specs: Sequence[str],
        params: SamplingParams,
        seed: int = 0,
        task: str | None = None,
    ):
        super().__init__()
        if not FEWEST <= len(specs) <= MOST:
            raise UserError(
                f"a race has {FEWEST} to {MOST} lanes, and {len(specs) or 'none'} has a policy; "
                "choose policies in the fields Lane 1 to Lane 4"
            )
        pool = workbench.pool
        for spec in specs:  # all of them are checked before anything runs; nothing is computed here
            Decoding(pool, prompt, spec, params, seed)
        self.workbench, self.prompt, self.specs, self.params = workbench, prompt, list(specs), params
        self.seed, self.task = seed, task
        self.drafters = [drafter.name for drafter in pool.drafters]
        self._order = sorted(range(len(specs)), key=lambda lane: not race_data.is_plain(specs[lane]))
        self.lane = self._order[0]
        self.jobs: dict[int, Job] = {}
        self.outcome: Outcome | None = None
        self._pool: Pool | None = pool  # until the end: races are kept longer than pools

    def cancel(self) -> None:
        """End after the round in progress; may be called from another thread."""
        super().cancel()
        for job in list(self.jobs.values()):
            job.cancel()

    def work(self) -> None:
        """Measure the lanes and keep the :attr:`outcome`."""
        try:
            for _ in self.run():
                pass
            self.outcome = self.conclude()
        finally:
            self.jobs, self._pool = {}, None

    def run(self) -> Iterator[None]:
        """Measure the lanes in the caller's thread, yielding now and then; ``jobs`` grows meanwhile."""
        baseline: Baseline | None = None
        for lane in self._order:
            if self.cancelled.is_set():
                return
            spec = self.specs[lane]
            request = Request(
                self.prompt,
                spec,
                self.params,
                self.seed,
                "race",
                task=self.task,
                baseline=baseline,
                is_baseline=baseline is None and race_data.is_plain(spec),
            )
            self.jobs[lane] = job = self.workbench.submit(request, self._pool)
            self.lane = lane
            try:
                yield
                while not job.wait(UPDATE_SECONDS):
                    if self.cancelled.is_set():
                        job.cancel()
                    yield
            finally:
                job.cancel()
            baseline = job.baseline

    def conclude(self) -> Outcome:
        """What can be shown of the lanes that have been run."""
        jobs, total = self.measured, len(self.specs)
        ended = (self.jobs[lane] for lane in sorted(self.jobs))
        errors = [(job.request.policy, job.generation) for job in ended if job.generation.status == "error"]
        failed = next(((race_data.lane_title(spec), str(lane.error)) for spec, lane in errors), None)
        stage = race_data.pending(self.specs, self.states) if len(jobs) < FEWEST else self.replay()
        return Outcome(stage, len(jobs), total, failed)

    @property
    def measured(self) -> list[Job]:
        """The lanes that came to an end of their own, in their order: only these are replayed."""
        jobs = (self.jobs[lane] for lane in sorted(self.jobs))
        return [job for job in jobs if job.done and job.generation.status in FINISHED and job.generation.rounds]

    @property
    def states(self) -> list[race_data.State]:
        """How far each lane is."""
        return [self._state(self.jobs.get(lane)) for lane in range(len(self.specs))]

    def _state(self, job: Job | None) -> race_data.State:
        if job is None:
            return "left out" if self.cancelled.is_set() else "waiting"
        if not job.done:
            return "measuring"
        return "measured" if job.generation.status in FINISHED else "left out"

    def replay(self) -> dict[str, Any]:
        """What the browser needs to play the measured lanes again."""
        jobs = self.measured
        return race_data.replay_data(
            [job.generation for job in jobs],
            greedy=self.params.greedy,
            plain_rates=[job.baseline.tokens_per_second if job.baseline else None for job in jobs],
            lossless=[job.lossless for job in jobs],
        )


class Races(Background[RaceRun]):
    """The races of a server by their ids: those under way, and the last that have ended."""

    def __init__(self, workbench: Workbench):
        super().__init__(workbench, "races")

    def start(self, race: RaceRun) -> None:
        """Start a race and keep it.

        Raises:
            UserError: as many as may be are under way.
        """
        self.begin(race, race)
