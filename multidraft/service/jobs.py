"""All work of the service: jobs, which take turns on the one device and are found again by their ids."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextvars import copy_context
from typing import ClassVar, Generic, Literal, TypeVar

from drafters.errors import StoppingError, UserError, error_message
from multidraft.service.limits import Limits
from multidraft.service.queue import CALLER, Pace, Queue

log = logging.getLogger(__name__)

TURN_SECONDS = 0.3
"""A job's turn on the device ends with the first step that ends after so long."""

LOOK_SECONDS = 0.5
"""How often it is asked, while there is no job, whether there is anything to do meanwhile."""

CLOSING_SECONDS = 10.0
"""How long the end of the server waits for the step in progress, which may be stuck."""

WAITING = object()
"""What a job's step yields that has nothing to do before others have had their turns."""

T = TypeVar("T")


class Job(Generic[T]):
    """Work from the moment it is asked for; read it from any thread.

    Attributes:
        result: what :meth:`steps` returned, once it has ended; ``None`` where it failed or was cancelled.
        error: why it failed, for the user to read.
        cancelled: set when it is to end early.
        ended: set when it is over.
        context, caller: whose job it is; on ZeroGPU a visitor's time counts against their own quota.
        recorded: whether whoever asked has the result; what it still does then needs no place in the queue.
        started, device_seconds: whether it has done any work on the device, and how long it has had it.
    """

    kind: ClassVar[str] = "job"
    plural: ClassVar[str] = "jobs"
    limit: ClassVar[int | None] = None
    """How many of its kind may be under way at once; ``None`` sets no limit."""
    decodes: ClassVar[bool] = True
    """Whether it waits for a place on the device; others begin with their first turn."""
    allowed: ClassVar[Literal["run_seconds", "batch_seconds"] | None] = None
    """Which of the limits says how long it may have the device; ``None`` sets no limit."""
    retained: int = 0
    """How many of its kind that have ended can still be found."""

    def __init__(self) -> None:
        self.id = uuid.uuid4().hex
        self.result: T | None = None
        self.error: str | None = None
        self.cancelled, self.ended = threading.Event(), threading.Event()
        self.context, self.caller = copy_context(), CALLER.get()
        self.recorded, self.started, self.device_seconds = False, False, 0.0
        self._jobs: Jobs | None = None
        self._steps: Generator[object, None, T] | None = None

    def prepare(self) -> None:
        """What comes before its first turn and needs no device; in a thread of its own."""

    def steps(self) -> Generator[object, None, T]:
        """The work on the device's thread, which yields where another job may have its turn; ``WAITING`` where another
        must have one.

        A cancelled job is not resumed: its generator is closed where it last yielded.
        """
        raise NotImplementedError

    def stop(self) -> None:
        """Have the step in progress end early; called when the job is cancelled."""

    def finish(self) -> None:
        """Release what is needed no longer; called once, however the job ended, just before ``ended`` is set."""

    def explain(self, error: BaseException) -> str:
        """What the user is told of an error."""
        return error_message(error)

    def leave(self) -> None:
        """Nobody waits for it any more; what goes on for its own sake does nothing here."""

    @property
    def ahead(self) -> int:
        """How many jobs stand before it in the queue, those at work too; 0 once it has started."""
        return self._jobs.place(self)[0] if self._jobs else 0

    @property
    def wait_seconds(self) -> float | None:
        """How long until it begins, by how long texts have taken of late; ``None`` where that is not known."""
        return self._jobs.place(self)[1] if self._jobs else None

    @property
    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self.ended.is_set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end, at most ``seconds``; returns :attr:`done`."""
        return self.ended.wait(seconds)

    def cancel(self) -> None:
        """End it after the round in progress, or take it out of the queue; may be called from any thread."""
        if not self.done:
            self.cancelled.set()
            self.stop()
            if self._jobs:
                self._jobs._withdraw(self)

    def take_turn(self) -> bool:
        """Work on the device for one turn; returns whether the job has ended."""
        until = time.monotonic() + TURN_SECONDS
        try:
            self._steps = self._steps or self.steps()
            while not self.cancelled.is_set():
                waits = self.context.run(next, self._steps) is WAITING
                self.started = self.started or not waits
                if waits or time.monotonic() >= until:
                    return False
        except StopIteration as end:
            self.result = end.value
        except BaseException as error:  # whatever it is: a job that never ended would hold up whoever waits for it
            self.fail(error)
        return True

    def fail(self, error: BaseException) -> None:
        """Note what it failed with; the error itself is not kept, since its frames hold the pool."""
        if self.cancelled.is_set():
            return
        self.error = self.explain(error)
        if not isinstance(error, UserError):
            log.error("a %s failed", self.kind, exc_info=error)

    def end_early(self, why: str) -> None:
        """:meth:`cancel` it, and tell whoever waits for it why."""
        self.error = why
        self.cancel()

    def end(self) -> None:
        """Note that it has ended."""
        steps, self._steps = self._steps, None
        for release in (steps.close, self.finish) if steps else (self.finish,):
            try:
                release()
            except Exception:
                log.exception("the end of a %s failed", self.kind)
        self.ended.set()


class Task(Job[None], Generic[T]):
    """One function on the device's thread, between the turns of other jobs; ``future`` has its result."""

    kind, plural, decodes = "task", "tasks", False

    def __init__(self, work: Callable[[], T]):
        super().__init__()
        self.work = work
        self.future: Future[T] = Future()

    def steps(self) -> Generator[None, None, None]:
        yield from ()
        try:
            self.future.set_result(self.work())
        except BaseException as error:
            self.future.set_exception(error)

    def finish(self) -> None:
        self.future.cancel()


J = TypeVar("J", bound=Job)


class Jobs:
    """The queue of the device, its thread, and the jobs by their ids: those under way, and the last that have ended.

    Args:
        limits: how many jobs there may be, and how long each may have the device.
        meanwhile: short work on the device while there is no job, done again until it returns 0, not its seconds.

    Attributes:
        closed: whether the server is shutting down.
        pace: told of every text that begins and ends.
    """

    def __init__(self, limits: Limits | None = None, meanwhile: Callable[[], float] | None = None) -> None:
        self.limits, self._meanwhile = limits or Limits(), meanwhile
        self._queue, self.pace = Queue[Job](), Pace()  # its first one is at work
        self._found: dict[str, Job] = {}
        self._changed = threading.Condition()
        self.closed = False
        self._thread = threading.Thread(target=self._work, name="device", daemon=True)
        self._thread.start()

    def submit(self, job: J) -> J:
        """Start a job: it is prepared, then waits for its turns on the device.

        Raises:
            BusyError: as many as may be are under way, of all or of its visitor. (StoppingError: the server ends.)
        """
        with self._changed:
            self._check(job)
            self._found[job.id], job._jobs = job, self
            if not (prepares := type(job).prepare is not Job.prepare):
                self._enqueue(job)
        if prepares:
            threading.Thread(target=job.context.run, args=(self._prepare, job), name=job.kind, daemon=True).start()
        return job

    def do(self, work: Callable[[], T]) -> Future[T]:
        """Do something short on the device's thread, beside no run; cancelled where the server is shutting down."""
        return self.submit(Task(work)).future

    @property
    def listed(self) -> list[Job]:
        """The jobs that have not ended, the oldest first."""
        return [job for job in tuple(self._found.values()) if not job.done]

    def place(self, job: Job) -> tuple[int, float | None]:
        """:attr:`Job.ahead` and :attr:`Job.wait_seconds`."""
        with self._changed:
            place = self._queue.place(job)
        return (place[0], self.pace.wait(place[1])) if place else (0, 0.0)

    def left(self, session: str) -> None:
        """Whoever waited in a session for results has gone: each of its jobs hears of it."""
        for job in (job for job in self.listed if job.caller.session == session):
            job.leave()

    @property
    def idle(self) -> bool:
        """Whether nothing waits for the device beside the job at work."""
        return len(self._queue) <= 1

    @property
    def counts(self) -> tuple[int, int]:
        """How many jobs have begun, and how many wait for their first turn."""
        with self._changed:
            begun = sum(job._steps is not None for job in self._queue)
            return begun, len(self._queue) - begun

    def find(self, id: str, kind: type[J]) -> J | None:
        """The job of an id, if it is of this kind and still known."""
        job = self._found.get(id)
        return job if isinstance(job, kind) else None

    def forget(self, job: Job) -> None:
        """Let a job go: whoever asked for it has its result, or has left."""
        with self._changed:
            self._found.pop(job.id, None)

    def close(self) -> None:
        """Cancel all jobs and wait for the step in progress, for :data:`CLOSING_SECONDS` at most; nothing can be
        submitted from then on."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()
        for job in self.listed:
            job.cancel()
        self._thread.join(CLOSING_SECONDS)
        if self._thread.is_alive():
            log.error("a step did not end within %.0f seconds; the server ends without it", CLOSING_SECONDS)

    def _check(self, job: Job) -> None:
        if self.closed:
            raise StoppingError("the server is shutting down")
        alike = [other for other in self._found.values() if other.kind == job.kind]
        visitor, check = job.caller.visitor, self.limits.check_place
        if job.limit is not None:
            check(job.plural, job.limit, [other.caller.visitor for other in alike if not other.done], visitor)
        if visitor:  # what the server itself does needs no place
            placed = [other.caller.visitor for other in self.listed if not other.recorded]
            check("jobs", self.limits.queue, list(filter(None, placed)), visitor)
        past = [other for other in alike if other.done] if job.retained else []
        for other in past[: max(0, len(past) + 1 - job.retained)]:
            del self._found[other.id]

    def _enqueue(self, job: Job) -> None:
        self._queue.add(job)
        self._changed.notify_all()

    def _prepare(self, job: Job) -> None:
        try:
            job.prepare()
            with self._changed:
                if not job.cancelled.is_set() and not self.closed:
                    return self._enqueue(job)
        except BaseException as error:  # see Job.take_turn
            job.fail(error)
        self._end(job)

    def _work(self) -> None:
        busy = False
        while True:
            with self._changed:
                look = None if self._meanwhile is None else 0.0 if busy else LOOK_SECONDS
                self._changed.wait_for(lambda: self._queue or self.closed, look)
                if self.closed and not self._queue:
                    return
                job = self._queue.first if self._queue else None
            busy = job is None and self._worked()
            if job is None:
                continue
            at = time.monotonic()
            ended = job.take_turn()
            job.device_seconds += time.monotonic() - at
            most = getattr(self.limits, job.allowed) if job.allowed else None
            if not ended and most is not None and job.device_seconds > most:
                said = f"it has had the device for {most:,g} s, the most a {job.kind} may take here; ask for less"
                job.end_early(said)
            with self._changed:
                (self._queue.remove if (ended := ended or self.closed) else self._queue.turned)(job)
            if ended:
                self._end(job)

    def _worked(self) -> bool:
        """Do what there is to do meanwhile; what fails is not tried again."""
        try:
            return self._meanwhile is not None and self._meanwhile() > 0
        except Exception:
            log.exception("the work done between jobs failed and has been stopped")
            self._meanwhile = None
            return False

    def _withdraw(self, job: Job) -> None:
        """Take a cancelled job out of the queue, unless it has begun: then it ends with its turn."""
        with self._changed:
            if waiting := job in self._queue and self._queue.first is not job and job._steps is None:
                self._queue.remove(job)
        if waiting:
            self._end(job)

    def _end(self, job: Job) -> None:
        job.end()
        if not job.retained:
            self.forget(job)
