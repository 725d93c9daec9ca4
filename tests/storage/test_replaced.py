"""A history that is replaced, with ``cp`` or ``mv``, while a store has it open: nothing of either is damaged."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from storage import queries
from storage.connection import open_reader
from storage.store import Store
from storage.sync import snapshot
from tests.runs import make_run
from tests.storage.test_store_problems import wait_until


@pytest.mark.parametrize("put", [shutil.copyfile, os.replace], ids=["cp", "mv"])
@pytest.mark.parametrize("whole", [False, True], ids=["file", "snapshot"])
def test_a_backup_may_take_the_place_of_an_open_history(
    store: Store, path: Path, tmp_path: Path, put: Callable[..., object], whole: bool, caplog
) -> None:
    """SQLite alone mixes the two into one damaged file."""
    backup = tmp_path / "backup.db"
    with Store(backup) as other:
        other.add(*(make_run(prompt=f"of the backup {i}") for i in range(20)))
    if whole:
        snapshot(backup, tmp_path / "snapshot.db")
        backup = tmp_path / "snapshot.db"
    store.add(*(make_run(prompt=f"replaced {i}") for i in range(5)))
    assert store.flush()
    put(backup, path)
    wait_until(lambda: "what is at" in caplog.text)  # also where nothing is written
    assert str(path) in caplog.text and "replaced while it was open" in caplog.text
    store.add(make_run(prompt="after"))
    assert store.flush() and store.problem is None
    assert sorted(queries.listed(path)["prompt"]) == sorted(["after", *(f"of the backup {i}" for i in range(20))])
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_while_another_program_has_a_replaced_history_open_runs_wait(store: Store, path: Path, tmp_path: Path) -> None:
    Store(tmp_path / "backup.db").close()
    assert store.add(make_run(prompt="replaced")).wait()
    with open_reader(path) as other:
        assert other.execute("SELECT count(*) FROM runs").fetchall() == [(1,)]
        shutil.copyfile(tmp_path / "backup.db", path)
        store.add(make_run(prompt="after"))
        wait_until(lambda: store.problem and "locked" in store.problem and "written: 1." in store.problem)
    assert store.flush() and list(queries.listed(path)["prompt"]) == ["after"]


def test_two_writers_of_one_history_do_not_take_each_other_for_a_replacement(path: Path, caplog) -> None:
    with Store(path, retry_seconds=0.01) as one, Store(path, retry_seconds=0.01) as two:
        for _ in range(50):
            for store in (one, two):
                store.add(make_run())
        assert one.flush() and two.flush()
    assert queries.count(path) == 100 and "replaced" not in caplog.text


def test_the_log_is_empty_between_transactions(store: Store, path: Path) -> None:
    """So that a backup that takes the place of the file after a kill meets no pages of the old one."""
    for _ in range(3):
        assert store.add(make_run()).wait()
        assert path.with_name("runs.db-wal").stat().st_size == 0
