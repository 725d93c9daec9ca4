"""Noticing that the database was replaced while it is open, with ``mv`` or ``cp``, which SQLite itself does not.

SQLite would go on with pages that it remembers and with its write-ahead log, and mix them into what has been put there.
So the log is emptied after each transaction, and before each one it is looked whether the file is as it was left.
"""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from sqlite_utils import Database

from storage.problems import StorageError

log = logging.getLogger(__name__)

State = tuple[int, int, int, int]
"""Of a file: device, inode, size, time of the last change in nanoseconds."""


class Watch:
    """Knows the file that the one writer has open. For that thread only."""

    def __init__(self, path: Path):
        self._path = path
        self._left: State | None = None
        self._version = 0  # changes when another connection commits
        self._emptied = False
        self._unsettled = False
        self._seen: State | None = None

    def leave(self, db: Database) -> None:
        """Empty the log, unless somebody is reading it, and remember the file as it is then; after each transaction."""
        self._version, self._emptied = _version(db), False  # before: what others commit from here on is told by it
        (patience,) = db.execute("PRAGMA busy_timeout").fetchone()
        db.execute("PRAGMA busy_timeout = 0")
        with suppress(sqlite3.Error):  # as on a full disk: what was committed stays in the log
            self._emptied = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
        db.execute(f"PRAGMA busy_timeout = {patience}")
        self._left = state_of(self._path)

    def replaced(self, db: Database) -> bool:
        """Whether it is another file, or has been written by something else than SQLite; then it must be closed."""
        now = state_of(self._path)
        if now is None or self._left is None or now[:2] != self._left[:2]:
            self._unsettled = True
        elif now != self._left or not self._emptied:
            self._unsettled = self._emptied and _version(db) == self._version
            if not self._unsettled:  # another program has written runs, or somebody was reading
                self.leave(db)
        return self._unsettled

    def settle(self) -> None:
        """Before the database is opened again: once what was put there is whole, SQLite forgets what it knew of it.

        Raises:
            StorageError: it may still be changing.
            sqlite3.Error: another program has it open.
        """
        if not self._unsettled:
            return
        before, self._seen = self._seen, state_of(self._path)
        if self._seen is not None and before != self._seen:
            raise StorageError(
                f"The file {self._path} was replaced while it was open: runs are written to what is there now, "
                "as soon as it stays as it is."
            )
        if self._seen is not None:
            with closing(sqlite3.connect(self._path, timeout=0)) as connection:
                connection.execute("PRAGMA journal_mode = DELETE")  # only where nobody has it open
        log.warning("the history goes on in what is at %s now", self._path)
        self._unsettled, self._seen = False, None


def _version(db: Database) -> int:
    return int(db.execute("PRAGMA data_version").fetchone()[0])


def state_of(path: Path) -> State | None:
    """What every change of a file changes; ``None`` where there is none."""
    with suppress(OSError):
        status = path.stat()
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
    return None
