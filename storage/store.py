"""Writing runs: a queue in front of the one thread that owns the database connection."""

from __future__ import annotations

import atexit
import logging
import math
import sqlite3
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from sqlite_utils import Database

from storage.connection import open_writer, writing
from storage.problems import StorageError, explain
from storage.rows import round_rows, run_row
from storage.run import Run
from storage.sync import Backup

log = logging.getLogger(__name__)


class Store:
    """Writes runs to a SQLite file without blocking the caller, and without raising what goes wrong.

    A run that cannot be written waits in memory and is tried again; :attr:`problem` tells the user meanwhile.
    At exit of the interpreter an open store is closed.

    Attributes:
        path: the database file.
        backup: what copies it elsewhere, if anything does; users see its problems.

    Args:
        path: the database file; created if missing (its folder is not).
        queue_limit: most runs that wait in memory; beyond it the oldest are dropped.
        busy_seconds: how long one attempt waits for another program's lock.
        retry_seconds: pause between attempts while there is a problem.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        queue_limit: int = 1000,
        busy_seconds: float = 5.0,
        retry_seconds: float = 5.0,
    ):
        if queue_limit < 1:
            raise ValueError(f"queue_limit must be at least 1, got {queue_limit}")
        self.path = Path(path).absolute()
        self.backup: Backup | None = None
        self._queue_limit = queue_limit
        self._busy_seconds = busy_seconds
        self._retry_seconds = retry_seconds
        self._changed = threading.Condition()  # guards all that follows, but for what the writer alone touches
        self._waiting: deque[dict[str, Any]] = deque()
        self._writing: dict[str, Any] | None = None
        self._dropped = 0
        self._cause: str | None = None
        self._retry_at = 0.0
        self._give_up_at = math.inf  # finite once the store is closed
        self._connected = False
        self._db: Database | None = None  # the writer's alone
        self._file: tuple[int, int] | None = None  # likewise: which file the connection has open
        self._thread = threading.Thread(target=self._work, name="storage-writer", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def add(self, run: Run) -> None:
        """Queue a copy of a run for writing and return at once.

        Raises:
            RuntimeError: the store is closed. (Nothing that happens to the database raises.)
        """
        values = run.to_json()
        with self._changed:
            if self._closed:
                raise RuntimeError(f"the store {self.path} is closed; open another to add runs")
            self._waiting.append(values)
            self._drop_oldest()
            self._changed.notify_all()

    @property
    def problem(self) -> str | None:
        """Why runs are not being written: what, where, what to do; ``None`` while all is well."""
        with self._changed:
            if self._cause is None and not self._dropped:
                return None
            sentences = [self._cause or f"Runs come faster than {self.path} can take them: pause between them."]
            if waiting := len(self._waiting) + (self._writing is not None):
                fate = "were not written" if self._closed else "wait in memory to be written"
                sentences.append(f"Runs that {fate}: {waiting}.")
            if self._dropped:
                sentences.append(
                    f"Older runs dropped because at most {self._queue_limit} wait in memory: {self._dropped}."
                )
            return " ".join(sentences)

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until nothing is queued and the database is open; ``False`` after ``timeout`` seconds.

        While there is a problem this tries again at once.
        """
        with self._changed:
            self._retry_at = 0.0
            self._changed.notify_all()
            return self._changed.wait_for(self._is_idle, timeout)

    def close(self, timeout: float = 10.0) -> bool:
        """Write what is queued, trying for at most ``timeout`` seconds, and end the thread.

        Returns whether everything was written; :attr:`problem` says why not. May be called again.
        """
        atexit.unregister(self.close)
        with self._changed:
            self._give_up_at = min(self._give_up_at, time.monotonic() + timeout)
            self._retry_at = 0.0
            self._changed.notify_all()
        self._thread.join(timeout + self._busy_seconds)
        with self._changed:
            return not self._waiting and self._writing is None

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _is_idle(self) -> bool:
        return (self._connected or self._closed) and not self._waiting and self._writing is None

    @property
    def _closed(self) -> bool:
        return self._give_up_at < math.inf

    def _drop_oldest(self) -> None:
        while len(self._waiting) > self._queue_limit:
            self._waiting.popleft()
            self._dropped += 1

    # From here on: the writer thread.

    def _work(self) -> None:
        while self._wait_for_work():
            try:
                self._connect()
                while (values := self._take()) is not None:
                    assert self._db is not None
                    _insert(self._db, values)
                    self._succeeded()
            except Exception as error:  # whatever it is, the thread must live on to write the next run
                self._failed(error)
        self._disconnect()

    def _wait_for_work(self) -> bool:
        """Sleep until there is something to do; ``False`` once the store is closed and done (or out of time)."""
        with self._changed:
            while True:
                now = time.monotonic()
                if now >= self._give_up_at or (self._closed and not self._waiting):
                    return False
                wake_at = math.inf if self._connected and not self._waiting else self._retry_at
                if wake_at <= now:
                    return True
                until = min(wake_at, self._give_up_at)
                self._changed.wait(None if until == math.inf else until - now)

    def _connect(self) -> None:
        """Open the database unless it is; anew if the file was moved or deleted meanwhile."""
        if self._db is not None and _identity(self.path) != self._file:
            self._disconnect()
        if self._db is not None:
            return
        self._db = open_writer(self.path, self._busy_seconds)
        self._file = _identity(self.path)
        with self._changed:
            self._connected = True
            if not self._waiting:  # else the next write tells whether all is well again
                self._cause = None
            self._changed.notify_all()

    def _disconnect(self) -> None:
        with self._changed:
            self._connected = False
        if self._db is not None:
            with suppress(sqlite3.Error):
                self._db.close()
            self._db = None

    def _take(self) -> dict[str, Any] | None:
        with self._changed:
            self._writing = self._waiting.popleft() if self._waiting else None
            return self._writing

    def _succeeded(self) -> None:
        with self._changed:
            dropped, self._dropped = self._dropped, 0
            self._writing = None
            self._cause = None
            self._changed.notify_all()
        if dropped:
            log.warning("runs are written to %s again; dropped meanwhile: %d", self.path, dropped)

    def _failed(self, error: Exception) -> None:
        of_database = self._writing is None or _concerns_database(error)
        if of_database:
            self._disconnect()  # a new connection may find the file repaired, writable or replaced
        with self._changed:
            values, self._writing = self._writing, None
            if of_database:
                cause = explain(error, self.path)
                self._retry_at = time.monotonic() + self._retry_seconds
                if values is not None:
                    self._waiting.appendleft(values)
                    self._drop_oldest()
            else:
                cause = f"A run could not be stored in {self.path} and was left out ({error}): please report this."
            new, self._cause = cause != self._cause, cause
            self._changed.notify_all()
        if new:
            log.warning(cause)


def _insert(db: Database, values: dict[str, Any]) -> None:
    """One run with all its rounds, or nothing of it."""
    row, rounds = run_row(values), round_rows(values)
    with writing(db):
        run_id = db.table("runs").insert(row).last_pk
        db.table("rounds").insert_all({"run_id": run_id, **r} for r in rounds)


def _concerns_database(error: Exception) -> bool:
    """Whether the file is at fault, so that trying again makes sense, rather than this one run's values."""
    return isinstance(error, (sqlite3.OperationalError, OSError, StorageError)) or type(error) is sqlite3.DatabaseError


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of the file: SQLite itself goes on writing into a deleted file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
