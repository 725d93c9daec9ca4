"""The machine's clock goes backwards while runs are recorded, copied and restored: none is lost, doubled or hidden."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from storage import queries
from storage import store as store_module
from storage.cache import cached
from storage.store import Store
from storage.sync import FILE, Backup, Folder, restore
from storage.unfinished import unfinished
from tests.runs import make_run

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def record(path: Path, numbers: range) -> None:
    """Runs, each of an hour before the one before it, in a store of its own."""
    with Store(path) as store:
        for number in numbers:
            store.add(make_run(prompt=f"p{number}", created_at=NOON - timedelta(hours=number)))


def test_every_run_is_there_once_and_copied_and_restored_once(tmp_path: Path) -> None:
    here, there, copies = tmp_path / "here.db", tmp_path / "there.db", tmp_path / "copies"
    counted = cached(queries.count)
    backups = [Backup(path, [Folder(copies)]) for path in (here, there)]
    for first in (0, 3, 6):  # the server is started again, on one machine and on another
        record(here, range(first, first + 3))
        assert counted(here) == first + 3, "what is cached is asked anew"
        for backup in backups:
            backup.exchange()
    assert restore(here, copies / FILE) == restore(there, copies / FILE) == 0
    for path in (here, there):
        assert list(queries.listed(path)["prompt"]) == [f"p{number}" for number in range(9)], "the newest time first"
        assert queries.count(path) == 9
    assert [backup.problem for backup in backups] == [None, None]


def test_jobs_that_began_later_than_now_are_taken_up(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "runs.db"

    class Clock(datetime):
        hours = 0

        @classmethod
        def now(cls, tz=None):
            cls.hours += 1
            return NOON - timedelta(hours=cls.hours)

    monkeypatch.setattr(store_module, "datetime", Clock)
    with Store(path) as store:
        for id in ("first", "second", "third"):
            store.add(begins=(id, {}))
        store.add(make_run(), ends="second")
    assert list(unfinished(path)) == ["third", "first"], "both, if in another order"
