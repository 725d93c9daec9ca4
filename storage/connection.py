"""Opening the database: for the one writer, for any number of readers; and reading the rows of a query."""

from __future__ import annotations

import filecmp
import logging
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd
from sqlite_utils import Database

from storage.problems import explained
from storage.schema import MIGRATIONS, applied, check_owner, upgrade

log = logging.getLogger(__name__)

BUSY_SECONDS = 5.0
"""How long SQLite waits for another program's lock."""


def open_writer(path: Path, busy_seconds: float = BUSY_SECONDS, keeps: bool = True) -> Database:
    """Open for writing, and create (but not the folder) or upgrade it first.

    Args:
        keeps: whether a history of an earlier version is first copied beside it; not where it is a copy itself.

    Raises:
        StorageError: the file cannot be opened or written, or is no database of ours; it is unchanged then.
    """
    with explained(path):
        db = Database(sqlite3.connect(path, timeout=busy_seconds), execute_plugins=False)
        try:
            with writing(db):  # takes the write lock even if there is nothing to upgrade: a read-only file shows now
                if keeps and (pending := _pending(db)):
                    _keep(path, min(pending))
                upgrade(db)
            db.enable_wal()
            db.execute("PRAGMA synchronous = NORMAL")  # with WAL a power cut may cost the last runs, never the file
            db.execute("PRAGMA foreign_keys = ON")
            db.execute("PRAGMA secure_delete = ON")  # what is deleted is overwritten
            return db
        except BaseException:
            db.close()
            raise


def check_writable(path: str | Path) -> None:
    """Raise :class:`StorageError` where the database, created if it is missing, cannot be written."""
    open_writer(Path(path).absolute()).close()


@contextmanager
def writing(db: Database) -> Iterator[None]:
    """A transaction that takes the write lock at its start.

    ``Database.atomic`` takes it at the first write, where SQLite refuses at once, without the busy timeout,
    if another program wrote in between.
    """
    db.conn.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.commit()
    except BaseException:
        db.rollback()
        raise


def outdated(path: Path) -> bool:
    """Whether an earlier version of this program has written the database."""
    with closing(read_only(path)) as connection:
        return bool(_pending(Database(connection, execute_plugins=False)))


def _pending(db: Database) -> frozenset[str]:
    """The migrations that a history lacks; none where it is no history."""
    found = applied(db)
    return MIGRATIONS - found if found else frozenset()


def _keep(path: Path, migration: str) -> None:
    """Copy the history to a file beside it, named for the first migration that it lacks, unless that has been done."""
    name = f"{path.name}-before-{migration.partition('_')[0]}"
    part = path.with_name(f"{name}.part")
    part.unlink(missing_ok=True)  # of a copy that a kill has cut off
    try:
        with closing(read_only(path)) as source, closing(sqlite3.connect(part)) as copy:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, that can be moved about
        kept = (path.with_name(f"{name}{f'-{number}' if number else ''}") for number in count())
        while (file := next(kept)).exists():
            if filecmp.cmp(part, file, shallow=False):  # as where the disk was full after the copy
                return
        part.rename(file)
        log.warning("%s is brought up to date; as it was before it is kept in %s", path, file)
    finally:
        part.unlink(missing_ok=True)


def is_database(file: Path) -> bool:
    """Whether a file is an SQLite database, by how it begins; raises ``OSError`` for one that cannot be read."""
    with file.open("rb") as content:
        return content.read(16) == b"SQLite format 3\0"


def read_only(path: Path, *, immutable: bool = False) -> sqlite3.Connection:
    """A connection to the file at an absolute path, which must be there, as it is; nobody writes an ``immutable``
    one."""
    uri = f"{path.as_uri()}?mode=ro{'&immutable=1' if immutable else ''}"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS)


@contextmanager
def open_reader(path: str | Path) -> Iterator[sqlite3.Connection]:
    """A read-only connection; of an empty database in memory where the file, or its tables, don't exist yet.

    Raises:
        StorageError: the file cannot be read, or is another program's; the message says why and what to do.
    """
    path = Path(path).absolute()
    with explained(path):
        if path.exists():
            if outdated(path):
                check_writable(path)  # brings it up to date
            with closing(read_only(path)) as connection:
                db = Database(connection, execute_plugins=False)
                if applied(db):
                    yield connection
                    return
                check_owner(db)
        with Database(memory=True, execute_plugins=False) as empty:
            upgrade(empty)
            yield empty.conn


def read_rows(path: str | Path, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """The rows of one query to the database at ``path`` (:func:`open_reader`)."""
    with open_reader(path) as connection:
        return connection.execute(sql, values).fetchall()


def read_column(path: str | Path, sql: str, values: Sequence[Any] = ()) -> list[Any]:
    """The values of a query of one column."""
    return [value for (value,) in read_rows(path, sql, values)]


def read_dicts(path: str | Path, sql: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
    """The rows of a query, each by the names of its columns."""
    with open_reader(path) as connection:
        return dicts_of(connection.execute(sql, values))


def dicts_of(cursor: sqlite3.Cursor) -> list[dict[str, Any]]:
    """The rows that a cursor has found, likewise."""
    cursor.row_factory = sqlite3.Row
    return [dict(row) for row in cursor]


def read_frame(path: str | Path, sql: str, values: Sequence[Any] = (), numbers: Sequence[str] = ()) -> pd.DataFrame:
    """The rows of a query as a data frame.

    Args:
        numbers: columns that are float64 even where every value is missing or there is no row; with them, a column
            ``created_at`` becomes UTC times.
    """
    with open_reader(path) as connection:
        cursor = connection.execute(sql, values)
        frame = pd.DataFrame(cursor.fetchall(), columns=[column[0] for column in cursor.description])
    frame = frame.astype(dict.fromkeys(numbers, float))
    if numbers and "created_at" in frame:
        frame["created_at"] = pd.to_datetime(frame["created_at"], utc=True, format="ISO8601")
    return frame
