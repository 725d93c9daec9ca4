"""The recorded example history: benchmarks that a new server shows until it has runs of its own.

``python -m multidraft.ui.example HISTORY.db`` packs the benchmarks of a history anew, and without a history those that
are packed, in today's tables; `docs/tour.md` says how they are measured. It is a database of its own: nothing of it
counts among the runs of the server.
"""

from __future__ import annotations

import argparse
import atexit
import lzma
import shutil
import sys
import tempfile
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from sqlite_utils import Database

from drafters.errors import UserError
from drafters.files import replacing
from storage.connection import open_writer
from storage.problems import StorageError
from storage.records import PLAIN
from storage.sync import snapshot

FILE = Path(__file__).with_name("example.db.xz")

FIRST = 10**9
"""The numbers of its runs begin here, so that an address means the same run whatever else the history holds."""

NOTE = "Recorded example"

POLICIES = (PLAIN, "fixed:general", "rate-hedge", "normal-hedge")
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
    """Pack the benchmarks of a history, such as an unpacked one with some more, without what only the stepper needs;
    returns how many runs.

    Raises:
        UserError: the history has no benchmark of all ``POLICIES``; ``file`` is unchanged then.
        StorageError: it cannot be read.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "example.db")
        snapshot(history, copy)
        with open_writer(copy, keeps=False) as db:
            marks = ", ".join("?" * len(POLICIES))
            db.execute(f"DELETE FROM runs WHERE source <> 'bench' OR policy NOT IN ({marks})", POLICIES)
            db.execute("UPDATE rounds SET choices = '[]', siblings = '[]', texts = '{}', probabilities = NULL")
            benched = {policy for (policy,) in db.execute("SELECT DISTINCT policy FROM runs")}
            if lacking := [policy for policy in POLICIES if policy not in benched]:
                raise UserError(f"{history} holds no benchmark of {', '.join(lacking)}: make one with bench --db")
            _renumber(db)
            db.execute("DELETE FROM notes")
            db.execute("DELETE FROM endings")
            db.execute("INSERT INTO notes SELECT DISTINCT batch_id, ? FROM runs WHERE batch_id IS NOT NULL", [NOTE])
            runs = int(db.execute("SELECT count(*) FROM runs").fetchone()[0])
            db.conn.commit()
            db.execute("PRAGMA journal_mode = DELETE")
            db.execute("VACUUM")
        with replacing(file) as part:  # whoever starts a server meanwhile finds a whole file
            part.write_bytes(lzma.compress(copy.read_bytes(), preset=9 | lzma.PRESET_EXTREME))
    return runs


def _renumber(db: Database) -> None:
    db.execute("PRAGMA foreign_keys = OFF")
    db.execute("UPDATE runs SET id = id + :first WHERE id < :first", {"first": FIRST})
    db.execute("UPDATE rounds SET run_id = run_id + :first WHERE run_id < :first", {"first": FIRST})


def main(arguments: Sequence[str] | None = None) -> int:
    """Pack what is asked for; the exit status."""
    parser = argparse.ArgumentParser(description="Pack the recorded examples anew.")
    parser.add_argument("history", type=Path, nargs="?", help="of bench --db; default: those that are packed")
    history = parser.parse_args(arguments).history
    try:
        runs = pack(history or path(), FILE)
    except (UserError, StorageError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{FILE}: {runs} runs, {FILE.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
