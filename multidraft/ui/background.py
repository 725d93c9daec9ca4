"""What runs on the server by itself, whoever looks on, and is kept for a while when it has ended."""

from __future__ import annotations

import logging
import threading
import uuid
from abc import ABC, abstractmethod
from contextvars import copy_context
from typing import Generic, TypeVar

from multidraft.errors import UserError, told
from multidraft.ui.worker import Workbench

log = logging.getLogger(__name__)

KEPT = 20
"""How many of a kind that have ended can still be looked at."""

MOST_RUNNING = 8
"""How many of a kind may be under way."""

T = TypeVar("T")


class Work(ABC):
    """Runs that a visitor has asked for together, in a thread of their own.

    Attributes:
        id: under which :class:`Background` finds it again.
        cancelled: set when it is to end.
        ended: set when it is over.
        error: why it broke off, if it did.
    """

    kind = "work"
    """What it is called in the log."""

    def __init__(self) -> None:
        self.id = uuid.uuid4().hex
        self.cancelled, self.ended = threading.Event(), threading.Event()
        self.error: str | None = None

    @abstractmethod
    def work(self) -> None:
        """All of it, in the caller's thread."""

    def start(self) -> None:
        """Do it in a thread of its own; :attr:`ended` tells when it is over."""
        work = copy_context().run  # whose it is, see Job.context
        threading.Thread(target=work, args=(self._work,), name=f"{self.kind}-{self.id[:8]}", daemon=True).start()

    def cancel(self) -> None:
        """End after the round in progress; may be called from another thread."""
        self.cancelled.set()

    def _work(self) -> None:
        try:
            self.work()
        except Exception as error:
            if self.cancelled.is_set():  # the server is shutting down
                return
            log.exception("a %s broke off", self.kind)
            self.error = told(error)
        finally:
            self.ended.set()


class Background(Generic[T]):
    """What visitors have under way, and the last that has ended, by its ids.

    Args:
        plural: what is kept here, for messages.
    """

    def __init__(self, workbench: Workbench, plural: str):
        self._plural = plural
        self._work: dict[str, Work] = {}
        self._held: dict[str, T] = {}
        self._changing = threading.Lock()
        workbench.at_close(self.cancel_all)

    def begin(self, work: Work, held: T) -> None:
        """Start ``work`` and keep ``held`` under its id.

        Raises:
            UserError: as many as may be are under way.
        """
        with self._changing:
            ended = [id for id, kept in self._work.items() if kept.ended.is_set()]
            if len(self._work) - len(ended) >= MOST_RUNNING:
                raise UserError(
                    f"{MOST_RUNNING} {self._plural} are under way on this server; try again when one has ended"
                )
            for id in ended[: max(0, len(ended) - KEPT + 1)]:
                del self._work[id], self._held[id]
            self._work[work.id], self._held[work.id] = work, held
        work.start()

    def get(self, id: str) -> T | None:
        """What is kept under an id, unless there was nothing, or too long ago."""
        return self._held.get(id)

    def forget(self, work: Work) -> None:
        """Keep it no longer: whoever asked for it has its results, or has gone."""
        with self._changing:
            self._work.pop(work.id, None)
            self._held.pop(work.id, None)

    def cancel_all(self) -> None:
        """End all after the rounds in progress: the server shuts down."""
        for work in list(self._work.values()):
            work.cancel()
