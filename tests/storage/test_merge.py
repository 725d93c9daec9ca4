from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from storage import queries
from storage.merge import snapshot, take_in
from storage.problems import StorageError
from storage.store import Store


def history(path: Path, generation, context, *prompts: str) -> Path:
    with Store(path) as store:
        for prompt in prompts:
            store.add(generation(prompt=prompt), context())
    return path


def prompts(path: Path) -> list[str]:
    return sorted(queries.runs(path)["prompt"])


def test_a_snapshot_is_whole_while_the_store_is_writing(tmp_path: Path, generation, context) -> None:
    path, copy = tmp_path / "runs.db", tmp_path / "copy.db"
    with Store(path) as store:
        for number in range(20):
            store.add(generation(prompt=str(number)), context())
            assert store.flush() if number == 0 else True
            snapshot(path, copy)
            for run in queries.runs(copy, limit=100)["id"]:
                assert len(queries.rounds(copy, int(run))) == 2
    snapshot(path, copy)
    assert prompts(copy) == prompts(path) and queries.count(copy) == 20
    assert not list(tmp_path.glob("copy.db?*")), "no write-ahead log"


def test_histories_are_united_and_no_run_comes_twice(tmp_path: Path, generation, context) -> None:
    here = history(tmp_path / "here.db", generation, context, "a", "b")
    there = tmp_path / "there.db"
    snapshot(here, there)
    history(here, generation, context, "c")
    history(there, generation, context, "d", "e")
    copy = tmp_path / "copy.db"
    snapshot(there, copy)
    assert take_in(here, copy) == 2
    assert prompts(here) == ["a", "b", "c", "d", "e"]
    for run in queries.runs(here)["id"]:
        assert len(queries.rounds(here, int(run))) == 2
    assert take_in(here, copy) == 0
    snapshot(here, copy)
    assert take_in(there, copy) == 1 and prompts(there) == prompts(here)


def test_a_missing_history_is_restored_with_its_numbers(tmp_path: Path, generation, context) -> None:
    there = history(tmp_path / "there.db", generation, context, "a", "b")
    copy, here = tmp_path / "copy.db", tmp_path / "here.db"
    snapshot(there, copy)
    (tmp_path / "here.db-wal").write_bytes(b"of a database that is gone")
    assert take_in(here, copy) == 2
    history(here, generation, context, "c")
    assert prompts(here) == ["a", "b", "c"] and queries.run(here, 1)["prompt"] == queries.run(there, 1)["prompt"]


def test_a_copy_that_is_damaged_or_newer_changes_nothing(tmp_path: Path, generation, context) -> None:
    here = history(tmp_path / "here.db", generation, context, "a")
    damaged, newer, missing = tmp_path / "damaged.db", tmp_path / "newer.db", tmp_path / "missing.db"
    damaged.write_bytes(bytes(range(256)) * 8)
    snapshot(here, newer)
    connection = sqlite3.connect(newer)
    connection.execute(
        "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('multidraft', 'm999', '2030')"
    )
    connection.commit()
    connection.close()
    for copy, why in ((damaged, "damaged or no SQLite database"), (newer, "newer version")):
        for path in (here, missing):
            with pytest.raises(StorageError, match=why):
                take_in(path, copy)
    assert prompts(here) == ["a"] and not missing.exists()
    with pytest.raises(StorageError, match="damaged"):
        snapshot(damaged, tmp_path / "x.db")
