"""Keeps copies of the history elsewhere: in a folder that outlasts the machine, in a dataset on the Hugging Face Hub.

The live file stays on a local disk; elsewhere go whole snapshots. Before one is written, what the copy has and the live
file lacks is taken in, so several machines may share a copy: each ends up with all runs.
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, RepositoryNotFoundError
from sqlite_utils import Database

from drafters.errors import first_line
from drafters.files import replacing
from storage.connection import open_reader, open_writer, read_column, read_only, read_rows, writing
from storage.deletion import SAME, drop_deleted, next_id
from storage.problems import ANOTHER_FILE, StorageError, explained
from storage.run import IMPORTED

log = logging.getLogger(__name__)

FILE = "runs.db"
"""Name of a copy."""

LATE = ("lossless", "speedup", "regret_rounds", "expected_regret", "error")
"""What is found out about a run after it was written."""

SQUASH_EVERY = 50
"""After so many uploads a dataset's commits become one: else each keeps a whole copy of the history."""


class Changed(Exception):
    """Another machine has written the copy in the meantime."""


class Folder:
    """A folder on a disk that lasts, such as a mounted volume.

    Attributes:
        name: what users know the place by.
    """

    def __init__(self, folder: Path):
        self.name = f"folder {folder}"
        self._file = folder / FILE

    def version(self) -> str | None:
        """What changes with every change of the copy, time and size of the file; ``None`` while there is none."""
        try:
            status = self._file.stat()
        except FileNotFoundError:
            return None
        return f"{status.st_mtime_ns} {status.st_size}"

    def fetch(self, version: str, folder: Path) -> Path | None:
        """The file as it is by now, copied to ``folder``: a folder keeps one version."""
        return shutil.copyfile(self._file, folder / FILE)

    def put(self, file: Path, over: str | None) -> str | None:
        """Make ``file`` the copy, in place of the version ``over``; returns the new version.

        Raises:
            Changed: the copy is no longer of the version ``over``.
        """
        if self.version() != over:
            raise Changed("another machine keeps changing it")
        self._file.parent.mkdir(parents=True, exist_ok=True)
        _replace(self._file, file)
        return self.version()


class Dataset:
    """A dataset on the Hugging Face Hub; a private one is made where there is none.

    Args:
        id: ``user/name``.
        api: by default one with the token of this machine (``HF_TOKEN``).
    """

    def __init__(self, id: str, api: HfApi | None = None):
        self.name = f"dataset {id}"
        self._id, self._api = id, api or HfApi()
        self._uploads = 0

    def version(self) -> str | None:
        """The commit; ``None`` while there is no dataset."""
        try:
            return self._api.repo_info(self._id, repo_type="dataset").sha
        except RepositoryNotFoundError:
            return None

    def fetch(self, version: str, folder: Path) -> Path | None:
        download = self._api.hf_hub_download
        try:
            return Path(download(self._id, FILE, repo_type="dataset", revision=version, local_dir=str(folder)))
        except EntryNotFoundError:
            return None

    def put(self, file: Path, over: str | None) -> str | None:
        """As for a folder; after a squash the new version is not known, and ``None``."""
        if over is None:
            self._api.create_repo(self._id, repo_type="dataset", private=True, exist_ok=True)
        try:
            commit = self._api.upload_file(
                path_or_fileobj=str(file),
                path_in_repo=FILE,
                repo_id=self._id,
                repo_type="dataset",
                commit_message="History of runs",
                parent_commit=over,
            )
        except HfHubHTTPError as error:
            if error.response.status_code in (409, 412):
                raise Changed("another machine keeps changing it") from error
            raise
        self._uploads += 1
        if self._uploads % SQUASH_EVERY:
            return commit.oid
        self._api.super_squash_history(self._id, repo_type="dataset")
        return None  # its commit is not known: another machine may have added one by the time it could be asked for


Place = Folder | Dataset
"""Where a copy of the history lies."""

State = list[tuple[Any, ...]]
"""Of a history, by which one tells whether it has changed."""


class Backup:
    """Restores the history when it is entered, copies it every few minutes, and once more when it is left.

    Nothing that goes wrong is raised: :attr:`problem` says what, and the next round tries again.

    Args:
        path: the live file.
        minutes: between two rounds.
        close_seconds: how long leaving waits for the last round.
    """

    def __init__(self, path: Path, places: Sequence[Place] = (), minutes: float = 5.0, close_seconds: float = 25.0):
        self._path, self._places, self._seconds = path, places, 60 * minutes
        self._close_seconds = close_seconds
        self._taken: dict[Place, str | None] = {}  # the version whose runs the live file has
        self._sent: dict[Place, State] = {}  # the state of the live file that the copy has
        self._problems: dict[Place, str] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="history-backup", daemon=True)

    @property
    def problem(self) -> str | None:
        """Which copies are not up to date and why; ``None`` while all is well."""
        return " ".join(list(self._problems.values())) or None

    def restore(self) -> None:
        """Take in what the copies have and the live file lacks."""
        self._try(self._take)

    def exchange(self) -> None:
        """Take in what is new in the copies and bring them up to date."""
        self._try(self._take_and_put)

    def __enter__(self) -> Backup:
        self.restore()
        if self._places:
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closing.set()
        if self._places:
            self._thread.join(self._close_seconds)
            if self._thread.is_alive():
                log.warning("the last copy of the history was not finished within %.0f seconds", self._close_seconds)

    def _work(self) -> None:
        while not self._closing.wait(self._seconds):
            self.exchange()
        self.exchange()

    def _try(self, work: Callable[[Place], object]) -> None:
        """Do it for each place, once more where another machine came in between."""
        for place in self._places:
            try:
                try:
                    work(place)
                except Changed:
                    work(place)
            except Exception as error:  # of whatever library and network: the history goes on
                problem = f"The copy of the history in {place.name} is not up to date: {first_line(error)}."
                if self._problems.get(place) != problem:
                    log.warning(problem)
                self._problems[place] = problem
            else:
                if self._problems.pop(place, None):
                    log.warning("the copy of the history in %s is up to date again", place.name)

    def _take(self, place: Place) -> str | None:
        version = place.version()
        if version is not None and version != self._taken.get(place):
            with tempfile.TemporaryDirectory(prefix="multidraft-") as folder:
                if copy := place.fetch(version, Path(folder)):
                    self._path.parent.mkdir(parents=True, exist_ok=True)
                    take_in(self._path, copy)
                else:
                    self._sent.pop(place, None)
            self._taken[place] = version
        return version

    def _take_and_put(self, place: Place) -> None:
        version = self._take(place)
        state = _state(self._path)
        if state is None or (state == self._sent.get(place) and version is not None):
            return
        with tempfile.TemporaryDirectory(prefix="multidraft-") as folder:
            copy = Path(folder) / FILE
            snapshot(self._path, copy)
            self._taken[place] = place.put(copy, version)
        self._sent[place] = state


def _state(path: Path) -> State | None:
    """What changes with runs that are added, brought up to date or deleted, notes and endings; ``None`` of a history
    that never had a run."""
    known = ", ".join(f"count({name})" for name in LATE)
    runs = read_rows(path, f"SELECT count(*), max(id), total(output_tokens), {known} FROM runs")
    deleted = read_column(path, "SELECT count(*) FROM deleted")
    said = read_rows(path, "SELECT * FROM notes UNION ALL SELECT * FROM endings")
    return [*runs, *deleted, *said] if runs[0][0] or deleted[0] else None


def snapshot(path: Path, to: Path) -> None:
    """Copy the database at ``path`` to the file ``to``, as it is at one moment, while others may be writing.

    The copy is one file without a write-ahead log, so that it can be moved about.

    Raises:
        StorageError: it cannot be read or is damaged, or ``to`` cannot be written.
    """
    to.unlink(missing_ok=True)
    with open_reader(path) as source:
        _copy(source, path, to)


def _copy(source: sqlite3.Connection, path: Path, to: Path) -> None:
    """Copy the database at ``path``, which ``source`` reads, to one file, in which nothing is under way."""
    with closing(sqlite3.connect(to)) as copy:
        source.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")
        found = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found == "ok" and copy.execute("SELECT 1 FROM sqlite_master WHERE name = 'unfinished'").fetchone():
            copy.execute("DELETE FROM unfinished")
            copy.commit()
    if found != "ok":
        raise StorageError(f"The database {path} is damaged ({found}); it was not copied.")


def take_in(path: Path, other: Path) -> int:
    """Add the runs of the history ``other`` to the one at ``path``, with new numbers, but for those deleted in either;
    where that is missing, ``other`` is copied there. Returns how many were added.

    Args:
        other: a snapshot of one's own: a history of an earlier version is brought up to date in it.

    Raises:
        StorageError: one of the two is damaged, another program's, or a newer version's; ``path`` is as it was then.
    """
    with open_writer(other, busy_seconds=10.0, keeps=False) as db:
        db.execute("PRAGMA journal_mode = DELETE")
        runs = int(db.execute("SELECT count(*) FROM runs").fetchone()[0])
    if not path.exists():
        with explained(path):
            for left_over in ("-wal", "-shm"):  # of a database that is gone: SQLite would add it to the new one
                path.with_name(path.name + left_over).unlink(missing_ok=True)
            _replace(path, other)
        return runs
    with open_writer(path, busy_seconds=10.0) as db, explained(path):
        db.execute("ATTACH DATABASE ? AS other", [str(other)])
        with writing(db):
            return _add_missing(db)


def restore(path: Path, backup: Path) -> int:
    """Add the runs of a backup, which stays as it is, to the history at ``path``, also while that is being written;
    returns how many it lacked.

    Raises:
        StorageError: one of the two cannot be read, is damaged, another program's, or a newer version's; the history
            is as it was then.
    """
    if not backup.is_file():
        raise StorageError(f"There is no backup {backup}: name the file of a history.")
    if path.exists() and backup.samefile(path):
        raise StorageError(f"{backup} is the history itself: name a backup of it, or another history with --db.")
    with tempfile.TemporaryDirectory(prefix="multidraft-") as folder:
        copy = Path(folder) / FILE
        # SQLite would write a log beside a backup in which it finds none.
        file = backup.resolve()
        alone = not any(file.with_name(f"{file.name}-{log}").exists() for log in ("wal", "journal"))
        try:
            with explained(copy), closing(read_only(file, immutable=alone)) as source:
                _copy(source, copy, copy)
            return take_in(path, copy)
        except StorageError as error:
            if str(copy) not in str(error):
                raise
            said = str(error).replace(str(copy), str(backup)).replace(ANOTHER_FILE, "name another backup")
            raise StorageError(said) from error


def _add_missing(db: Database) -> int:
    """Add what ``other`` has and this history lacks: runs, later scores and errors, notes, endings. Counts the runs."""
    others = "policy, created_at, prompt_hash, batch_id"
    db.execute(f"INSERT OR IGNORE INTO deleted ({others}) SELECT {others} FROM other.deleted")
    for table in ("notes", "endings"):
        db.execute(f"INSERT OR IGNORE INTO {table} SELECT * FROM other.{table}")
    copies = list[str]()
    for table, key in (("runs", "id"), ("rounds", "run_id")):
        columns = ", ".join(f'"{column.name}"' for column in db.table(table).columns if column.name != key)
        copies.append(f"INSERT INTO {table} ({key}, {columns}) SELECT ?, {columns} FROM other.{table} WHERE {key} = ?")
    known = ["{0}.round_count", *(f"({{0}}.{name} NOTNULL)" for name in LATE)]
    less, more = (" OR ".join(f"{one.format('r')} {than} {one.format('o')}" for one in known) for than in "<>")
    lacking = f"r.id IS NULL AND NOT EXISTS (SELECT 1 FROM deleted AS r WHERE {SAME})"
    outdated = f"r.id NOTNULL AND ({less}) AND NOT ({more}) AND o.source NOT IN {IMPORTED}"  # which may share the key
    found = db.execute(
        f"SELECT o.id, r.id FROM other.runs AS o LEFT JOIN runs AS r ON {SAME} "
        f"WHERE {lacking} OR {outdated} ORDER BY o.created_at"
    ).fetchall()
    for id, old in found:
        db.execute("DELETE FROM runs WHERE id = ?", [old])
        new = old or next_id(db)
        for copy in copies:
            db.execute(copy, [new, id])
    drop_deleted(db)
    return sum(old is None for _, old in found)


def _replace(path: Path, by: Path) -> None:
    with replacing(path) as part:
        shutil.copyfile(by, part)  # in one go: volumes of objects take nothing else
