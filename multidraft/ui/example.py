"""The recorded example history: benchmarks that a new server shows until it has runs of its own.

``python -m multidraft.ui.example HISTORY.db`` packs the benchmarks of a history anew; `docs/tour.md` says how they are
measured. It is a database of its own: nothing of it counts among the runs of the server.
"""

from __future__ import annotations

import atexit
import lzma
import shutil
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path

from sqlite_utils import Database

from storage.connection import BUSY_SECONDS, open_writer
from storage.sync import snapshot

FILE = Path(__file__).with_name("example.db.xz")

FIRST = 10**9
"""The numbers of its runs begin here, so that an address means the same run whatever else the history holds."""

NOTE = "Recorded example"

POLICIES = ("autoregressive", "fixed:general", "rate-hedge", "normal-hedge")
"""Those that are packed."""


_unpacking = threading.Lock()


def path() -> Path:
    """The unpacked database; it goes when the program ends."""
    with _unpacking:  # visitors come at the same time
        return _unpacked()


@cache
def _unpacked() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="multidraft-example-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = folder / "example.db"
    file.write_bytes(lzma.decompress(FILE.read_bytes()))
    return file


def pack(history: Path, file: Path) -> int:
    """Pack the benchmarks of a history, such as an unpacked one with some more, without what only replays and the
    stepper need; returns how many runs."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "example.db")
        snapshot(history, copy)
        with open_writer(copy, BUSY_SECONDS) as db:
            marks = ", ".join("?" * len(POLICIES))
            db.execute(f"DELETE FROM runs WHERE source <> 'bench' OR policy NOT IN ({marks})", POLICIES)
            db.execute("UPDATE runs SET acceptance = NULL")
            db.execute("UPDATE rounds SET choices = '[]', siblings = '[]', texts = '{}', probabilities = NULL")
            _renumber(db)
            db.execute("DELETE FROM notes")
            db.execute("INSERT INTO notes SELECT DISTINCT batch_id, ? FROM runs WHERE batch_id IS NOT NULL", [NOTE])
            runs = int(db.execute("SELECT count(*) FROM runs").fetchone()[0])
            db.conn.commit()
            db.execute("PRAGMA journal_mode = DELETE")
            db.execute("VACUUM")
        file.write_bytes(lzma.compress(copy.read_bytes(), preset=9 | lzma.PRESET_EXTREME))
    return runs


def _renumber(db: Database) -> None:
    db.execute("PRAGMA foreign_keys = OFF")
    db.execute("UPDATE runs SET id = id + :first WHERE id < :first", {"first": FIRST})
    db.execute("UPDATE rounds SET run_id = run_id + :first WHERE run_id < :first", {"first": FIRST})


if __name__ == "__main__":
    print(f"{FILE}: {pack(Path(sys.argv[1]), FILE)} runs, {FILE.stat().st_size:,} bytes")
