"""The two ways to open the database: the one writer, and any number of readers."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlite_utils import Database

from storage.problems import StorageError, explain
from storage.schema import COUNTED, upgrade

READ_BUSY_SECONDS = 5.0


def open_writer(path: Path, busy_seconds: float) -> Database:
    """Open for writing, create or upgrade the tables, and switch to write-ahead logging.

    Args:
        path: the file; created if missing (its folder is not).
        busy_seconds: how long SQLite waits for another program's lock.

    Raises:
        sqlite3.Error: the file cannot be opened or written, or is no database; it is unchanged then.
        StorageError: it is another program's database.
    """
    connection = sqlite3.connect(path, timeout=busy_seconds)
    try:
        db = Database(connection, execute_plugins=False)
        with writing(db):  # takes the write lock even if there is nothing to upgrade: a read-only file shows now
            upgrade(db)
        db.enable_wal()
        db.execute("PRAGMA synchronous = NORMAL")  # with WAL a power cut may cost the last runs, never the file
        db.execute("PRAGMA foreign_keys = ON")
        return db
    except BaseException:
        connection.close()
        raise


def check_writable(path: str | Path, busy_seconds: float = 5.0) -> None:
    """Open the database as one that is written to, creating it if it is missing, and close it again.

    Raises:
        StorageError: it could not be written; the message says why and what to do.
    """
    path = Path(path).absolute()
    try:
        open_writer(path, busy_seconds).close()
    except (sqlite3.Error, OSError) as error:
        raise StorageError(explain(error, path)) from error


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


@contextmanager
def open_reader(path: str | Path) -> Iterator[sqlite3.Connection]:
    """A read-only connection; of an empty database in memory where the file, or its tables, don't exist yet.

    Raises:
        StorageError: the file cannot be read; the message says why and what to do.
    """
    path = Path(path).absolute()
    try:
        with closing(_connect_to_read(path)) as connection:
            yield connection
    except sqlite3.Error as error:
        raise StorageError(explain(error, path)) from error


def _connect_to_read(path: Path) -> sqlite3.Connection:
    if path.exists():
        connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=READ_BUSY_SECONDS)
        try:
            tables = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN ('runs', 'rounds')"
            if connection.execute(tables).fetchone()[0] == 2:
                _count_where_nobody_has(connection)
                return connection
        except BaseException:
            connection.close()
            raise
        connection.close()
    empty = Database(memory=True, execute_plugins=False)
    upgrade(empty)
    return empty.conn


def _count_where_nobody_has(connection: sqlite3.Connection) -> None:
    """Stand in for the counts that a history of an earlier version lacks until it is brought up to date."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'run_counts'").fetchone():
        listed = ", ".join(COUNTED)
        connection.execute(
            f"CREATE TEMP VIEW run_counts AS SELECT {listed}, count(*) AS runs FROM runs GROUP BY {listed}"
        )
