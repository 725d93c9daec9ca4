"""The queue of jobs for the device: visitors take turns, and so do the jobs of each; and who the visitor is."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from heapq import heapreplace
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
    """What stands in the queue."""

    caller: Caller
    started: bool
    decodes: ClassVar[bool]


J = TypeVar("J", bound=Queued)


class Pace:
    """How long texts need the device, and so how long those have to wait that have no place on it yet.

    Texts with a place take turns, so each has its part of the time: the clock here goes on by a second in as many
    seconds as there are such texts.

    Args:
        now: seconds, by a clock that only goes forwards.
    """

    MEMORY = 0.9
    """Weight of a text one later."""
    LEAST = 0.25
    """A text is taken to need that part of the mean at least, however long it has had the device."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._at, self._clock = now, now(), 0.0
        self._begun: list[float] = []
        self._sum = self._weight = 0.0

    def begin(self) -> float:
        """A text has got a place; returns what :meth:`end` has to be given."""
        self._clock, self._at = self._read(len(self._begun)), self._now()
        self._begun.append(self._clock)
        return self._clock

    def end(self, begun: float, counts: bool) -> None:
        """It gives its place back; whether it tells how long texts take: one may have waited for the page that shows
        it, as long as nothing else wanted the device."""
        self._clock, self._at = self._read(len(self._begun)), self._now()
        self._begun.remove(begun)
        if counts:
            self._sum = self.MEMORY * self._sum + self._clock - begun
            self._weight = self.MEMORY * self._weight + 1.0

    def wait(self, ahead: int) -> float | None:
        """Seconds until a text begins that ``ahead`` others are before; ``None`` where no text is under way, or none
        has ended yet. Texts take as long as the last ten or so did; one that has taken longer, as much longer again."""
        begun = tuple(self._begun)
        if not self._weight or not begun:
            return None
        mean, clock, at = self._sum / self._weight, self._read(len(begun)), 0.0
        ends = sorted(max(abs(mean - clock + each), self.LEAST * mean) for each in begun)
        for _ in range(ahead + 1):
            at = heapreplace(ends, ends[0] + mean)
        return at * len(ends)

    def _read(self, texts: int) -> float:
        return self._clock + (self._now() - self._at) / texts if texts else self._clock


class Queue(Generic[J]):
    """Jobs in the order of their turns. However many a visitor has, each visitor gets the same part of the turns.

    Not safe between threads.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, deque[J]] = {}  # by visitor, in the order of the visitors' turns
        self._came: dict[J, None] = {}  # in that in which they came

    def __iter__(self) -> Iterator[J]:
        return iter(self._came)

    def __len__(self) -> int:
        return len(self._came)

    @property
    def first(self) -> J:
        """Whose turn it is; of a queue that is not empty."""
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

    def place(self, job: J) -> tuple[int, int] | None:
        """How many others are before one that waits for a place on the device, those at work too, and how many of them
        wait themselves; ``None`` where it has begun, waits for no place, or is not in the queue.

        Places go to the visitor who has the fewest, and else to whoever came first, as ``Lender`` gives them.
        """
        own = Counter(other.caller.visitor for other in self._came if other.started)
        working, waiting = own.total(), dict[J, tuple[int, int]]()
        for number, other in enumerate(self._came):
            if other.decodes and not other.started:
                waiting[other] = own[other.caller.visitor], number
                own[other.caller.visitor] += 1
        if job not in waiting:
            return None
        before = sum(place < waiting[job] for place in waiting.values())
        return working + before, before

    def turned(self, job: J) -> None:
        """The first has had its turn and wants more: its visitor's next is that of another job, after everybody
        else's."""
        own = self._jobs.pop(job.caller.visitor)
        own.rotate(-1)
        self._jobs[job.caller.visitor] = own
