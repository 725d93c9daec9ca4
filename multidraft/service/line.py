"""The line of jobs for the device: visitors take turns, and so do the jobs of each; and who the visitor is."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Generic, Protocol, TypeVar


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


J = TypeVar("J", bound=Queued)


class Line(Generic[J]):
    """Jobs in the order of their turns. However many a visitor has, each visitor gets the same part of the turns.

    Not safe between threads.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, deque[J]] = {}  # by visitor, in the order of the visitors' turns

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

    def remove(self, job: J) -> None:
        """A job leaves."""
        (own := self._jobs[job.caller.visitor]).remove(job)
        if not own:
            del self._jobs[job.caller.visitor]

    def before(self, job: J) -> int | None:
        """How many that have not started are before one that has not; ``None`` where it has, or is not in the line."""
        waiting = [other for other in self if not other.started]
        return waiting.index(job) if job in waiting else None

    def turned(self, job: J) -> None:
        """The first has had its turn and wants more: its visitor's next is that of another job, after everybody
        else's."""
        own = self._jobs.pop(job.caller.visitor)
        own.rotate(-1)
        self._jobs[job.caller.visitor] = own


class Pace:
    """How often jobs begin while others wait, and so how long those have to.

    The mean is one of the last few, weighted by how recent they are; ``now`` is in seconds, by any clock that only
    goes forwards.
    """

    MEMORY = 0.8

    def __init__(self) -> None:
        self._sum = self._weight = 0.0
        self._last: float | None = None

    def began(self, now: float, others_wait: bool) -> None:
        """A job has begun; whether others go on waiting says if the next one's beginning is measured by this."""
        if self._last is not None:
            self._sum = self.MEMORY * self._sum + now - self._last
            self._weight = self.MEMORY * self._weight + 1.0
        self._last = now if others_wait else None

    def left(self) -> None:
        """Nobody waits any more."""
        self._last = None

    def wait(self, now: float, ahead: int) -> float | None:
        """Seconds until the job begins that ``ahead`` others are before; ``None`` as long as none has been seen."""
        if not self._weight:
            return None
        since = 0.0 if self._last is None else now - self._last
        mean = self._sum / self._weight
        if since > mean:  # that no job has begun for so long tells something, too
            mean = (self.MEMORY * self._sum + since) / (self.MEMORY * self._weight + 1.0)
        return ahead * mean + max(mean - since, 0.0)
