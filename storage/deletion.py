"""Deletion of runs, for good.

Of each remains a row of ``deleted``, without its texts, by which copies and backups lose it too instead of bringing it
back.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path

from sqlite_utils import Database

from storage.connection import open_writer, read_rows, writing
from storage.filters import Filter
from storage.problems import explained

SAME = "r.policy = o.policy AND r.created_at = o.created_at AND r.prompt_hash = o.prompt_hash"
"""When the rows ``r`` and ``o`` are of one run: its time has microseconds."""


def delete(path: str | Path, filter: Filter) -> int:
    """Delete the runs that the filter lets through, with all that is told of batches that have no other run; returns
    how many. Others may be writing meanwhile. Their content is overwritten in the file, as soon as nobody reads an
    older state of it.

    Raises:
        StorageError: the history cannot be written; it is as it was then.
    """
    path = Path(path).absolute()
    where, values = filter.where()
    with open_writer(path, busy_seconds=10.0) as db, explained(path):
        with writing(db):
            chosen = f"SELECT policy, created_at, prompt_hash, batch_id, id FROM runs {where or 'WHERE true'}"
            highest = "UPDATE SET id = max(coalesce(id, 0), excluded.id)"  # old imports may share all of the key
            db.execute(f"INSERT INTO deleted {chosen} ON CONFLICT DO {highest}", values)
            gone = db.execute(f"DELETE FROM runs {where}", values).rowcount
            _forget_batches(db)
        with suppress(sqlite3.Error):  # the log still has them
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return gone


def drop_deleted(db: Database) -> None:
    """Remove the runs that were deleted in a copy, inside a transaction."""
    db.execute(f"UPDATE deleted AS r SET id = (SELECT max(o.id) FROM runs AS o WHERE {SAME}) WHERE id IS NULL")
    db.execute(f"DELETE FROM runs WHERE id IN (SELECT o.id FROM deleted AS r JOIN runs AS o ON {SAME})")
    _forget_batches(db)


def _forget_batches(db: Database) -> None:
    """Remove what is told of batches of which no run is left, and what would have them go on."""
    for table, id in (("notes", "batch_id"), ("endings", "batch_id"), ("unfinished", "id")):
        db.execute(
            f"DELETE FROM {table} WHERE {id} IN (SELECT batch_id FROM deleted) "
            f"AND {id} NOT IN (SELECT batch_id FROM runs WHERE batch_id IS NOT NULL)"
        )


def deleted(path: str | Path) -> set[tuple[str, str, int]]:
    """Of the runs that were deleted, policy, time and the hash of the prompt."""
    return set(read_rows(path, "SELECT policy, created_at, prompt_hash FROM deleted"))


def next_id(db: Database) -> int:
    """The number of the next run: one that no run has had, for links must not lead to another run."""
    highest = "(SELECT coalesce(max(id), 0) FROM {})"
    sql = f"SELECT 1 + max({highest.format('runs')}, {highest.format('deleted')})"
    return int(db.execute(sql).fetchone()[0])
