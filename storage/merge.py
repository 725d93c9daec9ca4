"""Two histories become one: what the other has and this one lacks is added, nothing is changed or lost."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from sqlite_utils import Database

from storage.connection import open_reader, open_writer, writing
from storage.problems import StorageError, explained

BUSY_SECONDS = 10.0

_SAME = "r.created_at = o.created_at AND r.policy = o.policy AND r.seed IS o.seed AND r.prompt = o.prompt"
"""When two rows are one run: its time has microseconds, and it was made of one request."""


def snapshot(path: Path, to: Path) -> None:
    """Copy the database at ``path`` to the file ``to``, as it is at one moment, while others may be writing.

    The copy is one file without a write-ahead log, so that it can be moved about.

    Raises:
        StorageError: it cannot be read or is damaged, or ``to`` cannot be written.
    """
    to.unlink(missing_ok=True)
    with open_reader(path) as source, closing(sqlite3.connect(to)) as copy:
        source.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")
        found = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise StorageError(f"The database {path} is damaged ({found}); it was not copied.")


def take_in(path: Path, other: Path) -> int:
    """Add the runs of the history ``other`` to the one at ``path``; where that is missing, ``other`` is copied there.

    Args:
        other: a snapshot of one's own: a history of an earlier version is brought up to date in it.

    Returns:
        How many runs were added. Added to others they get new numbers.

    Raises:
        StorageError: one of the two is damaged, another program's, or a newer version's; ``path`` is as it was then.
    """
    with open_writer(other, BUSY_SECONDS) as db:
        db.execute("PRAGMA journal_mode = DELETE")
        count = int(db.execute("SELECT count(*) FROM runs").fetchone()[0])
    if not path.exists():
        _put_in_place(other, path)
        return count
    with open_writer(path, BUSY_SECONDS) as db, explained(path):
        db.execute("ATTACH DATABASE ? AS other", [str(other)])
        with writing(db):
            return _add_missing(db)


def _add_missing(db: Database) -> int:
    runs = ", ".join(column.name for column in db.table("runs").columns if column.name != "id")
    rounds = ", ".join(f'"{column.name}"' for column in db.table("rounds").columns if column.name != "run_id")
    missing = db.execute(
        f"SELECT id FROM other.runs AS o WHERE NOT EXISTS (SELECT 1 FROM runs AS r WHERE {_SAME}) ORDER BY created_at"
    ).fetchall()
    for (id,) in missing:
        new = db.execute(f"INSERT INTO runs ({runs}) SELECT {runs} FROM other.runs WHERE id = ?", [id]).lastrowid
        db.execute(
            f"INSERT INTO rounds (run_id, {rounds}) SELECT ?, {rounds} FROM other.rounds WHERE run_id = ?", [new, id]
        )
    return len(missing)


def _put_in_place(file: Path, path: Path) -> None:
    for left_over in ("-wal", "-shm"):  # of a database that is gone: SQLite would add it to the new one
        path.with_name(path.name + left_over).unlink(missing_ok=True)
    part = path.with_name(path.name + ".part")
    shutil.copyfile(file, part)
    os.replace(part, path)
