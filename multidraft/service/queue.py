"""The line of jobs for the device: visitors take turns, and so do the jobs of each; and who the visitor is."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from heapq import heapreplace
from itertools import chain, zip_longest
from typing import ClassVar, Generic, Protocol, TypeVar


@dataclass(frozen=True)
class Caller:
    """Who asks for a job.

    Attributes:
        visitor: what tells visitors apart, such as a network address; empty for the server itself.
        session: of the page or program that waits for the result, if it is known: see ``Jobs.left``.
    """

    visitor: str = ""
    session: str | None = None


CALLER: ContextVar[Caller] = ContextVar("caller", default=Caller())  # noqa: B039
"""Who asks, in the thread or task that answers them; and in a job's steps, whose job it is."""


class Queued(Protocol):
    """What stands in the line."""

    caller: Caller
    started: bool
    device_seconds: float
    decodes: ClassVar[bool]


J = TypeVar("J", bound=Queued)


class Pace:
    """How long jobs have the device, and so how long those have to wait that have no place on it yet.

    The mean is one of the last ten or so, weighted by how recent they are.
    """

    MEMORY = 0.9

    def __init__(self) -> None:
        self._sum = self._weight = 0.0

    def ended(self, seconds: float) -> None:
        """A job has given its place back, having had the device for so long."""
        self._sum = self.MEMORY * self._sum + seconds
        self._weight = self.MEMORY * self._weight + 1.0

    def wait(self, had: Iterable[float], ahead: int, beside: int = 0) -> float | None:
        """Seconds until the job begins that ``ahead`` others are before; ``None`` until a first job has ended.

        Args:
            had: seconds that each job with a place has had the device for. One that is past the mean is taken to need
                as much again as it is past it.
            beside: jobs without a place that take turns with them.
        """
        if not self._weight:
            return None
        mean = self._sum / self._weight
        ends = sorted(abs(mean - seconds) for seconds in had)  # in the time of one of them: turns are equal
        at = 0.0
        for _ in range(ahead + 1 if ends else 0):
            at = heapreplace(ends, ends[0] + mean)
        return at * (len(ends) + beside)


class Queue(Generic[J]):
    """Jobs in the order of their turns. However many a visitor has, each visitor gets the same part of the turns.

    Not safe between threads.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, deque[J]] = {}  # by visitor, in the order of the visitors' turns
        self._came: dict[J, None] = {}  # in that in which they came
        self._pace = Pace()

    def __iter__(self) -> Iterator[J]:
        rounds = zip_longest(*self._jobs.values())
        return (job for job in chain.from_iterable(rounds) if job is not None)

    def __len__(self) -> int:
        return sum(map(len, self._jobs.values()))

    @property
    def first(self) -> J:
        """Whose turn it is; of a line that is not empty."""
        return next(iter(self._jobs.values()))[0]

    def add(self, job: J) -> None:
        """A job joins."""
        self._jobs.setdefault(job.caller.visitor, deque()).append(job)
        self._came[job] = None

    def remove(self, job: J) -> None:
        """A job leaves."""
        (own := self._jobs[job.caller.visitor]).remove(job)
        del self._came[job]
        if not own:
            del self._jobs[job.caller.visitor]
        if job.started and job.decodes:
            self._pace.ended(job.device_seconds)

    def place(self, job: J) -> tuple[int, float | None]:
        """How many others are before one that waits, those at work too, and seconds until it begins, ``None`` as long
        as no pace is known; ``(0, 0)`` where it has begun, waits for no place on the device, or is not in the line.

        Places go to the visitor who has the fewest, and else to whoever came first, as ``Lender`` gives them.
        """
        working = [other for other in self._came if other.started]
        own, waiting = Counter(other.caller.visitor for other in working), dict[J, tuple[int, int]]()
        for number, other in enumerate(self._came):
            if other.decodes and not other.started:
                waiting[other] = own[other.caller.visitor], number
                own[other.caller.visitor] += 1
        if job not in waiting:
            return 0, 0.0
        before = sum(place < waiting[job] for place in waiting.values())
        had = [other.device_seconds for other in working if other.decodes]
        return len(working) + before, self._pace.wait(had, before, len(working) - len(had))

    def turned(self, job: J) -> None:
        """The first has had its turn and wants more: its visitor's next is that of another job, after everybody
        else's."""
        own = self._jobs.pop(job.caller.visitor)
        own.rotate(-1)
        self._jobs[job.caller.visitor] = own
