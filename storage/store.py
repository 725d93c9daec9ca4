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
        backup: what copies it elsewhere, if anything does; users see its problems.

    Args:
        path: the database file; created if missing (its folder is not).
        queue_limit: most runs that wait in memory; beyond it the oldest are dropped.
        busy_seconds: how long one attempt waits for another program's lock.
        retry_seconds: pause between attempts while there is a problem.
    """

    def __init__(
        self, path: str | Path, *, queue_limit: int = 1000, busy_seconds: float = 5.0, retry_seconds: float = 5.0
    ):
        self.path = Path(path).absolute()
        self.backup: Backup | None = None
        self._queue_limit, self._busy_seconds, self._retry_seconds = queue_limit, busy_seconds, retry_seconds
        self._changed = threading.Condition()  # guards all that follows
        self._waiting: deque[dict[str, Any]] = deque()  # the first one may be being written
        self._dropped = 0
        self._cause: str | None = None
        self._urged = False  # whether to try again without a pause
        self._give_up_at = math.inf  # finite once the store is closed
        self._db: Database | None = None  # set by the writer alone
        self._file: tuple[int, int] | None = None  # likewise: which file the connection has open
        self._thread = threading.Thread(target=self._work, name="storage-writer", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def add(self, run: Run) -> None:
        """Queue a copy of a run for writing and return at once.

        Raises:
            RuntimeError: the store is closed. (Nothing that happens to the database raises.)
        """
        self._queue(run.to_json())

    def note(self, experiment: str, text: str) -> None:
        """Queue what is noted on an experiment (the ``batch_id`` of its runs) in place of what was; likewise."""
        self._queue({"batch_id": experiment, "note": text})

    def _queue(self, values: dict[str, Any]) -> None:
        with self._changed:
            if self._closed:
                raise RuntimeError(f"the store {self.path} is closed; open another to write")
            self._waiting.append(values)
            if len(self._waiting) > self._queue_limit:
                self._waiting.popleft()
                self._dropped += 1
            self._changed.notify_all()

    @property
    def problem(self) -> str | None:
        """Why runs are not being written: what, where, what to do; ``None`` while all is well."""
        with self._changed:
            if self._cause is None and not self._dropped:
                return None
            sentences = [self._cause or f"Runs come faster than {self.path} can take them: pause between them."]
            if waiting := len(self._waiting):
                fate = "were not written" if self._closed else "wait in memory to be written"
                sentences.append(f"Runs that {fate}: {waiting}.")
            if self._dropped:
                most = self._queue_limit
                sentences.append(f"Older runs dropped because at most {most} wait in memory: {self._dropped}.")
            return " ".join(sentences)

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until nothing is queued and the database is open; ``False`` after ``timeout`` seconds.

        While there is a problem this tries again at once.
        """
        with self._changed:
            self._urge()
            return self._changed.wait_for(lambda: (self._db or self._closed) and not self._waiting, timeout)

    def close(self, timeout: float = 10.0) -> bool:
        """Write what is queued, trying for at most ``timeout`` seconds, and end the thread.

        Returns whether everything was written; :attr:`problem` says why not. May be called again.
        """
        atexit.unregister(self.close)
        with self._changed:
            self._give_up_at = min(self._give_up_at, time.monotonic() + timeout)
            self._urge()
        self._thread.join(timeout + self._busy_seconds)
        return not self._waiting

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def _closed(self) -> bool:
        return self._give_up_at < math.inf

    def _urge(self) -> None:
        """Have the writer try again without a pause."""
        self._urged = True
        self._changed.notify_all()

    # From here on: the writer thread.

    def _work(self) -> None:
        ended = False
        while not ended:
            try:
                self._connect()
                while self._waiting:
                    self._connect()  # the file may have been replaced since
                    self._write(self._waiting[0])
            except Exception as error:  # whatever it is, the thread must live on to write the next run
                self._disconnect()  # a new connection may find the file repaired, writable or replaced
                self._note(explain(error, self.path))
            with self._changed:
                pause = self._give_up_at - time.monotonic()
                if self._db is None:
                    pause = min(pause, self._retry_seconds)
                ready = lambda: self._urged or (self._db and self._waiting)  # noqa: E731
                self._changed.wait_for(ready, None if pause == math.inf else pause)
                self._urged = False
                ended = self._closed and (not self._waiting or time.monotonic() >= self._give_up_at)
        self._disconnect()

    def _connect(self) -> None:
        """Open the database unless it is; anew if the file was moved or deleted meanwhile."""
        if self._db is not None:
            if _identity(self.path) == self._file:
                return
            self._disconnect()
        self._db = open_writer(self.path, self._busy_seconds)
        self._file = _identity(self.path)
        with self._changed:
            if not self._waiting:  # else the next write tells whether all is well again
                self._note(None)

    def _disconnect(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with suppress(sqlite3.Error):
                db.close()

    def _write(self, values: dict[str, Any]) -> None:
        """Write a run with all its rounds, or a note, and take it out of the queue; one that is itself at fault is left
        out."""
        assert self._db is not None
        cause = None
        try:
            if "note" in values:
                with writing(self._db):
                    self._db.table("notes").insert(values, pk="batch_id", replace=True)
            else:
                row, rounds = run_row(values), round_rows(values)
                with writing(self._db):
                    run_id = self._db.table("runs").insert(row).last_pk
                    self._db.table("rounds").insert_all({"run_id": run_id, **r} for r in rounds)
        except Exception as error:
            if _concerns_database(error):
                raise
            cause = f"A run could not be stored in {self.path} and was left out ({error}): please report this."
        with self._changed:
            if self._waiting and self._waiting[0] is values:
                self._waiting.popleft()
            else:  # it was dropped while it was being written
                self._dropped -= 1
            if self._dropped:
                log.warning("runs are written to %s again; dropped meanwhile: %d", self.path, self._dropped)
            self._dropped = 0
            self._note(cause)

    def _note(self, cause: str | None) -> None:
        with self._changed:
            new, self._cause = cause != self._cause, cause
            self._changed.notify_all()
        if new and cause:
            log.warning(cause)


def _concerns_database(error: Exception) -> bool:
    """Whether the file is at fault, so that trying again makes sense, rather than this one run's values."""
    return isinstance(error, (sqlite3.OperationalError, OSError, StorageError)) or type(error) is sqlite3.DatabaseError


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of the file: SQLite itself goes on writing into a deleted file."""
    with suppress(OSError):
        status = path.stat()
        return status.st_dev, status.st_ino
    return None
