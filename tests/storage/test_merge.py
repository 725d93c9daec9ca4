from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from storage import queries
from storage.connection import read_rows
from storage.problems import StorageError
from storage.run import Scores
from storage.store import Store
from storage.sync import Backup, Folder, snapshot, take_in
from tests.history import add, prompts
from tests.runs import make_round, make_run


def test_a_snapshot_is_whole_while_the_store_is_writing(tmp_path: Path) -> None:
    path, copy = tmp_path / "runs.db", tmp_path / "copy.db"
    with Store(path) as store:
        for number in range(20):
            store.add(make_run(prompt=str(number)))
            assert store.flush() if number == 0 else True
            snapshot(path, copy)
            for run in queries.listed(copy, limit=100)["id"]:
                assert len(queries.run(copy, run).generation.rounds) == 2
    snapshot(path, copy)
    assert prompts(copy) == prompts(path) and queries.count(copy) == 20
    assert not list(tmp_path.glob("copy.db?*")), "no write-ahead log"


def test_histories_are_united_and_no_run_comes_twice(tmp_path: Path) -> None:
    here = add(tmp_path / "here.db", "a", "b")
    there = tmp_path / "there.db"
    snapshot(here, there)
    add(here, "c")
    add(there, "d", "e")
    copy = tmp_path / "copy.db"
    snapshot(there, copy)
    take_in(here, copy)
    assert prompts(here) == ["a", "b", "c", "d", "e"]
    for run in queries.listed(here)["id"]:
        assert len(queries.run(here, run).generation.rounds) == 2
    take_in(here, copy)
    assert queries.count(here) == 5
    snapshot(here, copy)
    take_in(there, copy)
    assert prompts(there) == prompts(here)


def test_late_scores_and_rounds_replace_what_a_copy_has_and_are_not_replaced_by_it(tmp_path: Path) -> None:
    here, there, copy = tmp_path / "here.db", tmp_path / "there.db", tmp_path / "copy.db"
    run = make_run(prompt="late", rounds=[make_round(0)])
    add(there, "first")
    with Store(here) as store:
        kept = store.add(run)
        assert kept.wait()
        snapshot(here, copy)
        take_in(there, copy)
        run.generation.rounds.append(make_round(1))
        run.scores = Scores(lossless=True, regret_rounds=3.0)
        store.add(run, anew=kept)
        assert store.flush()
    for path, other in ((there, here), (here, copy)):
        snapshot(other, tmp_path / "other.db")
        take_in(path, tmp_path / "other.db")
        assert read_rows(path, "SELECT regret_rounds, round_count FROM runs WHERE prompt = 'late'") == [(3.0, 2)]
    add(there, "last")
    found = {number: queries.run(there, number) for number in (1, 2, 3)}
    assert [run.generation.prompt for run in found.values()] == ["first", "late", "last"]
    assert replace(found[2], id=1) == queries.run(here, 1) and queries.count(there) == 3


def test_an_error_that_came_after_a_run_was_written_reaches_the_copies(tmp_path: Path) -> None:
    here, there, folder = tmp_path / "here.db", tmp_path / "there.db", Folder(tmp_path / "copies")
    run = make_run(prompt="late")
    with Store(here) as store, Backup(here, [folder]) as backup:
        kept = store.add(run)
        assert kept.wait()
        backup.exchange()
        with Backup(there, [folder]):  # takes it in
            pass
        run.generation.status, run.generation.error = "cancelled", "no room"
        assert store.add(run, anew=kept).wait()
        backup.exchange()
        with Backup(there, [folder]):
            pass
    for path in (here, there):
        assert read_rows(path, "SELECT status, error FROM runs") == [("cancelled", "no room")]


def test_of_two_rows_that_know_different_things_each_history_keeps_its_own(tmp_path: Path) -> None:
    here, there = tmp_path / "here.db", tmp_path / "there.db"
    run = make_run(prompt="late")
    for path, scores in ((here, Scores(regret_rounds=3.0)), (there, Scores(lossless=True, expected_regret=1.0))):
        run.scores = scores
        with Store(path) as store:
            assert store.add(run).wait()
    take_in(here, there)
    assert read_rows(here, "SELECT regret_rounds, lossless, expected_regret FROM runs") == [(3.0, None, None)]


def test_a_missing_history_is_restored_with_its_numbers(tmp_path: Path) -> None:
    there = add(tmp_path / "there.db", "a", "b")
    copy, here = tmp_path / "copy.db", tmp_path / "here.db"
    snapshot(there, copy)
    (tmp_path / "here.db-wal").write_bytes(b"of a database that is gone")
    take_in(here, copy)
    add(here, "c")
    assert prompts(here) == ["a", "b", "c"] and queries.run(here, 1) == queries.run(there, 1)


def test_a_copy_that_is_damaged_or_newer_changes_nothing(tmp_path: Path) -> None:
    here = add(tmp_path / "here.db", "a")
    damaged, newer, missing = tmp_path / "damaged.db", tmp_path / "newer.db", tmp_path / "missing.db"
    damaged.write_bytes(bytes(range(256)) * 8)
    snapshot(here, newer)
    connection = sqlite3.connect(newer)
    connection.execute(
        "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('multidraft', 'm999', '2030')"
    )
    connection.commit()
    connection.close()
    for copy, why in ((damaged, "damaged or not a SQLite database"), (newer, "newer version")):
        for path in (here, missing):
            with pytest.raises(StorageError, match=why):
                take_in(path, copy)
    assert prompts(here) == ["a"] and not missing.exists()
    with pytest.raises(StorageError, match="damaged"):
        snapshot(damaged, tmp_path / "x.db")
