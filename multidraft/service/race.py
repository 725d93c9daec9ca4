"""A race: one prompt under several policies, each measured alone on the device, one lane after the other."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Literal

from drafters.errors import UserError
from drafters.pool import Pool
from drafters.sampling import SamplingParams
from multidraft.bench.baseline import settle_baseline
from multidraft.bench.measure import Measurement, Request
from multidraft.engine.decoding import Decoding
from multidraft.policies.specs import is_plain
from multidraft.service.jobs import Job
from multidraft.service.workbench import DRAWING_SECONDS, Workbench, leave_to_page
from storage.records import FINISHED
from storage.run import Origin, Run

FEWEST, MOST = 2, 4
"""Lanes of a race."""

State = Literal["waiting", "measuring", "measured", "left out"]


class RaceJob(Job[None]):
    """The lanes of one race, all on the pool it began with; other jobs may have their turns between rounds.

    A lane that decodes autoregressively is measured first, whichever it is: it is the baseline of them all.

    Attributes:
        specs: the policy of each lane.
        runs: the lanes measured so far, by their index.
        learn: whether its runs may be learnt from.
        lane: the index of the last one begun; ``measurement`` is what measures it, until the race has ended.

    Raises:
        UserError: too few or too many lanes, or a prompt, policy or seed that cannot be run; nothing runs then.
    """

    kind, plural = "race", "races"
    allowed = "batch_seconds"
    limit, retained = 8, 20

    def __init__(
        self,
        workbench: Workbench,
        prompt: str,
        specs: Sequence[str],
        params: SamplingParams,
        seed: int = 0,
        task: str | None = None,
        learn: bool = True,
    ):
        super().__init__()
        if not FEWEST <= len(specs) <= MOST:
            raise UserError(
                f"a race has {FEWEST} to {MOST} lanes, and {len(specs) or 'none'} has a policy; "
                "choose policies in the fields Lane 1 to Lane 4"
            )
        pool = workbench.pool
        for spec in specs:  # all of them are checked before anything runs; nothing is computed here
            workbench.limits.check_text(len(Decoding(pool, prompt, spec, params, seed).context), params.max_new_tokens)
        self.workbench, self.prompt, self.specs, self.params = workbench, prompt, list(specs), params
        self.seed, self.task, self.learn = seed, task, learn
        self.drafters = pool.drafter_names
        self.runs: dict[int, Run] = {}
        self._order = sorted(range(len(specs)), key=lambda lane: not is_plain(specs[lane]))
        self.lane = self._order[0]
        self.measurement: Measurement | None = None
        self._pool: Pool | None = pool  # until the end: races are kept longer than pools

    def steps(self) -> Generator[object, None, None]:
        assert self._pool is not None
        measures = not any(map(is_plain, self.specs))
        origin = Origin("race", self.task, batch_id=self.id, learn=self.learn)
        asked = [
            Request(self.prompt, spec, self.params, self.seed, origin, measures_baseline=measures, reads_twice=True)
            for spec in self.specs
        ]
        lanes = [Measurement(self._pool, request).run.to_json() for request in asked]
        self.workbench.record(begins=(self.id, {"runs": lanes}))
        try:
            for lane in self._order:
                request = replace(asked[lane], earlier=tuple(self.runs.values()))
                self.lane, self.measurement = lane, Measurement(self._pool, request)
                if self._pool.device.type == "cpu":  # the page that draws what is next may run on it too
                    leave_to_page(self.workbench.jobs, self.cancelled, time.monotonic() + DRAWING_SECONDS)
                if self.cancelled.is_set():
                    return
                try:
                    yield from self.workbench.measure(self.measurement)
                finally:
                    self.runs[lane] = self.measurement.run
        finally:
            settle_baseline(list(self.runs.values()))
            self.workbench.record(*self.runs.values(), ends=self.id)

    def stop(self) -> None:
        if measurement := self.measurement:
            measurement.cancel()

    def finish(self) -> None:
        self.measurement = self._pool = None

    @property
    def measured(self) -> list[Run]:
        """The lanes that came to an end of their own, in their order: only these are replayed."""
        runs = (self.runs[lane] for lane in sorted(self.runs))
        return [run for run in runs if run.generation.status in FINISHED and run.generation.rounds]

    @property
    def states(self) -> list[State]:
        """How far each lane is."""
        over = self.done or self.cancelled.is_set()
        states: list[State] = ["left out" if over else "waiting"] * len(self.specs)
        if self.measurement and not over:
            states[self.lane] = "measuring"
        for lane, run in list(self.runs.items()):
            states[lane] = "measured" if run.generation.status in FINISHED else "left out"
        return states
