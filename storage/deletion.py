"""Deletion of runs, for good.

Of each remains a row of ``deleted``, without its texts, by which copies and backups lose it too instead of bringing it
back.
"""

from __future__ import annotations

from pathlib import Path

from sqlite_utils import Database

from storage.connection import open_writer, writing
from storage.filters import Filter
from storage.problems import explained

SAME = "r.policy = o.policy AND r.created_at = o.created_at AND r.prompt_hash = o.prompt_hash"
"""When the rows ``r`` and ``o`` are of one run: its time has microseconds."""


def delete(path: str | Path, filter: Filter) -> int:
    """Delete the runs that the filter lets through, with what is noted on batches that have no other run; returns how
    many. Others may be writing meanwhile. Their content is overwritten in the file, not only unlinked.

    Raises:
        StorageError: the history cannot be written; it is as it was then.
    """
    path = Path(path).absolute()
    where, values = filter.where()
    with open_writer(path, busy_seconds=10.0) as db, explained(path):
        with writing(db):
            chosen = f"SELECT policy, created_at, prompt_hash, batch_id, id FROM runs {where}"
            db.execute(f"INSERT OR REPLACE INTO deleted {chosen}", values)
            gone = drop_deleted(db)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()  # the log still has them
    return gone


def drop_deleted(db: Database) -> int:
    """Remove what is left of the runs that ``deleted`` lists, inside a transaction; returns how many there were."""
    gone = db.execute(f"DELETE FROM runs WHERE id IN (SELECT o.id FROM deleted AS r JOIN runs AS o ON {SAME})").rowcount
    for table in ("notes", "endings"):
        db.execute(
            f"DELETE FROM {table} WHERE batch_id IN (SELECT batch_id FROM deleted) "
            "AND batch_id NOT IN (SELECT batch_id FROM runs WHERE batch_id IS NOT NULL)"
        )
    return gone


def next_id(db: Database) -> int:
    """The number of the next run: one that no run has had, for links must not lead to another run."""
    highest = "(SELECT coalesce(max(id), 0) FROM {})"
    sql = f"SELECT 1 + max({highest.format('runs')}, {highest.format('deleted')})"
    return int(db.execute(sql).fetchone()[0])
