"""Writing runs: a queue in front of the one thread that owns the database connection."""

from __future__ import annotations

import atexit
import json
import logging
import math
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from storage.connection import open_writer, writing
from storage.deletion import next_id
from storage.problems import StorageError, explain
from storage.replaced import Watch
from storage.rows import round_rows, run_row
from storage.run import Run, utc_text
from storage.sync import Backup, take_in

log = logging.getLogger(__name__)

KEEPING_SECONDS = 0.5
"""How long it is waited for a run to be committed before it is told that it is not in the history yet."""

ASIDE_SECONDS = 10.0
"""How long setting aside may take, at the end, what the database does not take."""

TOGETHER = 64
"""Most of what was handed over that is committed in one transaction."""

Statement = tuple[str, Sequence[str | None]]
"""SQL and its parameters."""


class Kept:
    """What was handed to a store at once: it is written as a whole or not at all.

    Attributes:
        committed: whether it is.
        left_out: whether it never will be: a value cannot be stored, or too much waited.
    """

    def __init__(
        self, store: Store, runs: Sequence[Run] = (), anew: Kept | None = None, notes: Sequence[Statement] = ()
    ):
        self._store, self._values, self._anew = store, [run.to_json() for run in runs], anew
        self._notes = notes  # on jobs and experiments
        self._rows, self._ids = list[dict[str, Any]](), list[Any]()
        self.committed = self.left_out = False

    @property
    def ids(self) -> list[int]:
        """The numbers of its runs in the history, once it is committed."""
        return self._ids if self.committed else []

    def wait(self, seconds: float = KEEPING_SECONDS) -> bool:
        """Wait until it is committed or cannot be for now, at most so many seconds; returns :attr:`committed`."""
        store = self._store
        with store._changed:
            hopeless = lambda: store._db is None and store._cause is not None  # noqa: E731
            store._changed.wait_for(lambda: self.committed or self.left_out or hopeless(), seconds)
            return self.committed


class Store:
    """Writes runs to a SQLite file without blocking the caller, and without raising what goes wrong.

    A run that cannot be written waits in memory and is tried again; :attr:`problem` tells the user meanwhile.
    At exit of the interpreter an open store is closed. What still cannot be written then is set aside in a file beside
    the database, from where the next store of that database takes it.

    Attributes:
        backup: what copies it elsewhere, if anything does; users see its problems.

    Args:
        path: the database file; created if missing (its folder is not).
        queue_limit: most calls of :meth:`add` that wait in memory; beyond it the oldest are dropped.
        busy_seconds: how long one attempt waits for another program's lock.
        retry_seconds: pause between attempts while there is a problem, and between looks whether the file was replaced.
    """

    def __init__(
        self, path: str | Path, *, queue_limit: int = 1000, busy_seconds: float = 5.0, retry_seconds: float = 5.0
    ):
        self.path = Path(path).absolute()
        self.aside = self.path.with_name(f"{self.path.name}-waiting")
        self.backup: Backup | None = None
        self._queue_limit, self._busy_seconds, self._retry_seconds = queue_limit, busy_seconds, retry_seconds
        self._changed = threading.Condition()  # guards all that follows
        self._waiting: deque[Kept] = deque()  # the first ones may be being written
        self._dropped = 0
        self._cause: str | None = None
        self._urged = False  # whether to try again without a pause
        self._give_up_at = math.inf  # finite once the store is closed
        self._db: Database | None = None  # set by the writer alone
        self._watch = Watch(self.path)  # likewise
        self._thread = threading.Thread(target=self._work, name="storage-writer", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def add(
        self,
        *runs: Run,
        anew: Kept | None = None,
        begins: tuple[str, Mapping[str, Any]] | None = None,
        ends: str | None = None,
        ending: str | None = None,
    ) -> Kept:
        """Queue a copy of some runs for writing, all of them in one transaction, and return at once.

        Args:
            anew: what the same runs were handed over as before: their rows are brought up to date, and
                rounds that have come since are added.
            begins: id of a job that is under way from now on, and what it is, of plain values; again, to change that.
            ends: id of a job that no longer is; ``ending``: how, where that was before all its runs were done.

        Raises:
            RuntimeError: the store is closed. (Nothing that happens to the database raises.)
        """
        notes = list[Statement]()
        if begins is not None:
            id, job = begins
            values = [id, utc_text(datetime.now(UTC)), json.dumps(job, ensure_ascii=False)]
            notes.append(("INSERT OR REPLACE INTO unfinished VALUES (?, ?, ?)", values))
        if ends is not None:
            notes.append(("DELETE FROM unfinished WHERE id = ?", [ends]))
        if ending is not None:
            notes.append(("INSERT OR REPLACE INTO endings VALUES (?, ?)", [ends, ending]))
        return self._queue(Kept(self, runs, anew, notes))

    def note(self, experiment: str, text: str) -> Kept:
        """Queue what is noted on an experiment (the ``batch_id`` of its runs), unless these were deleted; likewise."""
        some, gone = (f"EXISTS (SELECT 1 FROM {table} WHERE batch_id = ?1)" for table in ("runs", "deleted"))
        sql = f"INSERT OR REPLACE INTO notes SELECT ?1, ?2 WHERE {some} OR NOT {gone}"
        return self._queue(Kept(self, notes=[(sql, (experiment, text))]))

    def _queue(self, kept: Kept) -> Kept:
        with self._changed:
            if self._closed:
                raise RuntimeError(f"the store {self.path} is closed; open another to write")
            self._waiting.append(kept)
            if len(self._waiting) > self._queue_limit:
                dropped = self._waiting.popleft()
                dropped.left_out = True
                self._dropped += len(dropped._values)
            self._changed.notify_all()
        return kept

    @property
    def problem(self) -> str | None:
        """Why runs are not being written: what, where, what to do; ``None`` while all is well."""
        with self._changed:
            if self._cause is None and not self._dropped:
                return None
            sentences = [self._cause or f"Runs arrive faster than {self.path} can be written: pause between them."]
            if waiting := sum(len(kept._values) for kept in self._waiting if kept._anew is None):
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

    def close(self, timeout: float = 5.0) -> bool:
        """Write what is queued, trying for at most ``timeout`` seconds, or set it aside, and end the thread.

        Returns whether everything is on the disk; :attr:`problem` says why not. May be called again.
        """
        atexit.unregister(self.close)
        with self._changed:
            self._give_up_at = min(self._give_up_at, time.monotonic() + timeout)
            self._urge()
        self._thread.join(timeout + self._busy_seconds + ASIDE_SECONDS)
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
                while together := self._next():
                    self._connect()  # the file may have been replaced since
                    self._write(together)
            except Exception as error:  # whatever it is, the thread must live on to write the next run
                self._disconnect()  # a new connection may find the file repaired, writable or replaced
                self._note(explain(error, self.path))
            with self._changed:
                pause = min(self._give_up_at - time.monotonic(), self._retry_seconds)
                ready = lambda: self._urged or (self._db if self._waiting else self._closed)  # noqa: E731
                self._changed.wait_for(ready, pause)
                self._urged = False
                ended = self._closed and (not self._waiting or time.monotonic() >= self._give_up_at)
        if self._waiting:
            self._set_aside()
        self._disconnect()

    def _connect(self) -> None:
        """Open the database unless it is; anew if the file was replaced or deleted meanwhile."""
        if self._db is not None:
            if not self._watch.replaced(self._db):
                return
            self._disconnect()
        self._watch.settle()
        db = open_writer(self.path, self._busy_seconds)
        self._take_back()
        self._watch.leave(db)
        self._db = db
        with self._changed:
            if not self._waiting:  # else the next write tells whether all is well again
                self._note(None)

    def _disconnect(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with suppress(sqlite3.Error):
                db.close()

    def _next(self) -> list[Kept]:
        """What is written next, in one transaction: all that waits, up to a bound."""
        with self._changed:
            return list(islice(self._waiting, TOGETHER))

    def _write(self, together: Sequence[Kept]) -> None:
        """Write all of them and take them out of the queue; one that is itself at fault is left out."""
        assert self._db is not None
        cause = None
        try:
            with writing(self._db):
                written = [kept for kept in together if not kept.left_out]  # they may have been dropped meanwhile
                for kept in written:
                    self._insert(self._db, kept)
        except Exception as error:
            if _concerns_database(error):
                raise
            if len(together) > 1:  # find out which of them it is
                for kept in together:
                    self._write([kept])
                return
            cause = f"A run could not be stored in {self.path} and was left out ({error}): please report this."
            together[0].left_out = True
        else:
            self._watch.leave(self._db)
            for kept in written:
                kept.committed, kept.left_out = True, False
        with self._changed:
            for kept in together:
                if self._waiting and self._waiting[0] is kept:
                    self._waiting.popleft()
                elif kept.committed:  # it was dropped while it was being written
                    self._dropped -= len(kept._values)
                kept._values = []
            if self._dropped:
                log.warning("runs are written to %s again; dropped meanwhile: %d", self.path, self._dropped)
            self._dropped = 0
            self._note(cause)

    def _insert(self, db: Database, kept: Kept) -> None:
        """Write one of them, inside a transaction."""
        for sql, parameters in kept._notes:
            db.execute(sql, parameters)
        kept._rows = [run_row(values) for values in kept._values]
        if (before := kept._anew) is None:
            kept._ids = [db.table("runs").insert({"id": next_id(db), **row}).last_pk for row in kept._rows]
            for number, values in zip(kept._ids, kept._values, strict=True):
                db.table("rounds").insert_all({"run_id": number, **r} for r in round_rows(values))
            return
        kept._ids = before._ids
        together = zip(before._ids, before._rows, kept._rows, kept._values, strict=False)  # none where it was left out
        for number, old, row, values in together:
            changed = {column: value for column, value in row.items() if value != old[column]}
            if changed:  # the time as well as the number: the file may have been replaced
                named = ", ".join(f"{column} = ?" for column in changed)
                same = [number, old["created_at"]]
                found = db.execute(
                    f"UPDATE runs SET {named} WHERE id = ? AND created_at = ?", [*changed.values(), *same]
                )
                if found.rowcount and row["round_count"] > old["round_count"]:  # the last one may be longer now
                    more = round_rows(values)[max(old["round_count"] - 1, 0) :]
                    db.table("rounds").insert_all(({"run_id": number, **r} for r in more), replace=True)

    def _set_aside(self) -> None:
        """Write what the database does not take to one beside it, from where the next store takes it in."""
        self._disconnect()
        waiting = sum(len(kept._values) for kept in self._waiting)
        try:
            self._db = open_writer(self.aside, self._busy_seconds)
            while together := self._next():
                self._write(together)
        except Exception as error:
            log.error("runs that wait for %s are lost: %d: %s", self.path, waiting, explain(error, self.aside))
        else:
            log.warning("runs that wait for %s are set aside in %s: %d", self.path, self.aside, waiting)

    def _take_back(self) -> None:
        """Take in what an earlier store had to set aside."""
        if not self.aside.exists():
            return
        try:
            take_in(self.path, self.aside)
            self.aside.unlink()
        except (StorageError, OSError) as error:
            log.warning("runs that were set aside wait in %s: %s", self.aside, error)

    def _note(self, cause: str | None) -> None:
        with self._changed:
            new, self._cause = cause != self._cause, cause
            self._changed.notify_all()
        if new and cause:
            log.warning(cause)


def _concerns_database(error: Exception) -> bool:
    """Whether the file is at fault, so that trying again makes sense, rather than this one run's values."""
    return isinstance(error, (sqlite3.OperationalError, OSError, StorageError)) or type(error) is sqlite3.DatabaseError
