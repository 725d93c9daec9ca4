"""The line of jobs for the device: visitors take turns, and so do the jobs of each; and who the visitor is."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
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
    decodes: ClassVar[bool]


J = TypeVar("J", bound=Queued)


class Pace:
    """How often jobs begin while others wait, and so how long those have to.

    The mean is one of the last ten or so, weighted by how recent they are.

    Attributes:
        begun: how many jobs have begun so far.
    """

    MEMORY = 0.9

    def __init__(self) -> None:
        self.begun = 0
        self._sum = self._weight = 0.0
        self._last: float | None = None

    def began(self, now: float, others_wait: bool) -> None:
        """A job has begun; whether others go on waiting says if the next one's beginning is measured by this."""
        self.begun += 1
        if self._last is not None:
            self._sum = self.MEMORY * self._sum + now - self._last
            self._weight = self.MEMORY * self._weight + 1.0
        self._last = now if others_wait else None

    def left(self) -> None:
        """Nobody waits any more."""
        self._last = None

    def wait(self, now: float, ahead: int, waited: float = 0.0, begun: int = 0) -> float | None:
        """Seconds until the job begins that ``ahead`` others are before; ``None`` as long as no pace has been seen.

        Never less than at the pace of the time that it has waited, however fast the last few began.

        Args:
            waited: seconds for which it has waited so far, in which ``begun`` others have begun.
        """
        if not self._weight:
            return None
        since = 0.0 if self._last is None else now - self._last
        mean = self._sum / self._weight
        if since > mean:  # that no job has begun for so long tells something, too
            mean = (self.MEMORY * self._sum + since) / (self.MEMORY * self._weight + 1.0)
        return (ahead + 1) * max(mean, waited / (begun + 1))


class Line(Generic[J]):
    """Jobs in the order of their turns. However many a visitor has, each visitor gets the same part of the turns.

    Not safe between threads.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, deque[J]] = {}  # by visitor, in the order of the visitors' turns
        self._joined: dict[J, tuple[float, int]] = {}  # in that in which they came: when, and how many had begun
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

    def add(self, job: J, now: float) -> None:
        """A job joins. Here and below ``now`` is in seconds, by any clock that only goes forwards."""
        self._jobs.setdefault(job.caller.visitor, deque()).append(job)
        self._joined[job] = now, self._pace.begun

    def remove(self, job: J) -> None:
        """A job leaves."""
        (own := self._jobs[job.caller.visitor]).remove(job)
        del self._joined[job]
        if not own:
            del self._jobs[job.caller.visitor]
        if not self._waits:
            self._pace.left()

    def began(self, job: J, now: float) -> None:
        """A job has got what it waited for."""
        if job.decodes:
            self._pace.began(now, self._waits)

    @property
    def _waits(self) -> bool:
        return any(job.decodes and not job.started for job in self._joined)

    def place(self, job: J, now: float) -> tuple[int, float | None]:
        """How many others are before one that waits, those at work too, and seconds until it begins, ``None`` as long
        as no pace is known; ``(0, 0)`` where it has begun, waits for no place on the device, or is not in the line.

        Places go to the visitor who has the fewest, and else to whoever came first, as ``Lender`` gives them.
        """
        own = Counter(other.caller.visitor for other in self._joined if other.started)
        working, waiting = own.total(), dict[J, tuple[int, int]]()
        for number, other in enumerate(self._joined):
            if other.decodes and not other.started:
                waiting[other] = own[other.caller.visitor], number
                own[other.caller.visitor] += 1
        if job not in waiting:
            return 0, 0.0
        before = sum(place < waiting[job] for place in waiting.values())
        joined, begun = self._joined[job]
        return working + before, self._pace.wait(now, before, now - joined, self._pace.begun - begun)

    def turned(self, job: J) -> None:
        """The first has had its turn and wants more: its visitor's next is that of another job, after everybody
        else's."""
        own = self._jobs.pop(job.caller.visitor)
        own.rotate(-1)
        self._jobs[job.caller.visitor] = own
