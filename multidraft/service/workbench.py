"""The pool, the device and the history of a server, and the runs that visitors and programs ask for."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator

from drafters.hardware import describe
from drafters.pool import Pool
from multidraft._version import version
from multidraft.bench.measure import Measurement, Request
from multidraft.replay.machine_costs import MachineCosts
from multidraft.service.jobs import Job, Jobs
from multidraft.service.lending import Lender, warm_up
from multidraft.service.settings import on_zerogpu
from multidraft.service.zerogpu import ZeroGpu
from storage.run import Run
from storage.store import Store

log = logging.getLogger(__name__)


class Workbench:
    """One pool on one device, where jobs take turns, and the history of their runs.

    Args:
        pool: what decodes; a :class:`~multidraft.service.pool_loading.Loading` exchanges it.
        store: where runs are recorded; it never holds the device up.

    Attributes:
        observers: each is shown every run when it begins.
        recorded_costs: what the rounds of the history have cost; read on the device's thread.
    """

    def __init__(self, pool: Pool, store: Store):
        self.pool, self.store = pool, store
        self.hardware = describe(pool.device)
        self.version = version()
        self.recorded_costs = MachineCosts(store.path)
        self.jobs = Jobs()
        self.lender = Lender()
        self.observers: list[Callable[[Measurement], None]] = []
        self.gpu = ZeroGpu(pool, warm_up) if on_zerogpu() else None

    def submit(self, request: Request) -> RunJob:
        """Put a run on the present pool in the queue.

        Raises:
            UserError: the prompt or the policy cannot be run; nothing is in the queue then.
        """
        return self.jobs.submit(RunJob(self, request))

    def measure(self, measurement: Measurement) -> Generator[object]:
        """Measure and score a run once there is room for its caches, yielding after each round; on the device's
        thread, and never raising.

        Where it is closed, the run ends as a cancelled one.
        """
        for observer in self.observers:
            observer(measurement)
        if self.gpu:  # a worker process has one text at a time
            self.gpu.compute(measurement)
            self.hardware = measurement.run.conditions.hardware
            measurement.phase = "done"
            return
        yield from self.on_lent(measurement, measurement.steps())

    def on_lent(self, measurement: Measurement, steps: Iterator[None]) -> Generator[object]:
        """Take the steps of a measurement on caches that are lent to it meanwhile; see :meth:`measure`."""
        own, lent = measurement.pool, None
        try:
            lent = yield from self.lender.lend(own, measurement.decoding.longest)
            measurement.use(lent)
            for _ in steps:
                yield None
        except GeneratorExit:
            measurement.cancel()
            deque(steps, maxlen=0)
            raise
        finally:
            measurement.phase = "done"
            if lent:
                self.lender.take_back(lent, own)

    def record(self, run: Run) -> None:
        """Hand a run that emitted something to the store; never raising."""
        if not run.generation.rounds:
            return
        try:
            self.store.add(run)
        except RuntimeError as error:  # the store is closed: the server is shutting down
            log.warning("a run was not recorded: %s", error)
        except Exception:
            log.exception("a run could not be recorded")

    def warm_up(self) -> None:
        """Decode a few tokens, unrecorded, so that the first visitor's figures don't measure the start-up.

        On ZeroGPU each worker process does so for itself.
        """
        if self.gpu is None:
            self.jobs.do(lambda: self.lender.warm_up(self.pool)).result()

    def close(self) -> None:
        """Cancel what is under way or in the queue and end the device's thread."""
        self.jobs.close()


class RunJob(Job[Run]):
    """One run of its own.

    Raises:
        UserError: see :class:`~multidraft.bench.measure.Measurement`.
    """

    kind, plural = "run", "runs"

    def __init__(self, workbench: Workbench, request: Request):
        super().__init__()
        self.workbench, self.request, self.pool = workbench, request, workbench.pool
        self.measurement = Measurement(workbench.pool, request)
        if request.scores_when_idle:
            self.measurement.scores_while = lambda: workbench.jobs.idle

    @property
    def run(self) -> Run:
        """What is known of it so far."""
        return self.measurement.run

    def steps(self) -> Generator[object, None, Run]:
        try:
            yield from self.workbench.measure(self.measurement)
        finally:
            self.workbench.record(self.run)
        return self.run

    def stop(self) -> None:
        self.measurement.cancel()

    def leave(self) -> None:
        """Nobody watches it any more: :meth:`cancel` it, unless it has ended but for its baseline and scores,
        which last."""
        if self.measurement.phase not in ("measuring", "scoring"):
            self.cancel()

    def finish(self) -> None:
        if self.measurement.phase == "waiting":
            self.measurement.drop()
