"""The schema is pinned: a change needs a new migration, and old files must survive it."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from sqlite_utils import Database

from storage import connection as connection_module
from storage.connection import open_reader, open_writer
from storage.problems import StorageError
from storage.schema import migrations, upgrade
from storage.store import Store
from tests.runs import make_run

CHECKSUM = "d7691e65f4ad45d2"
"""Of the statements: a new migration changes it."""


def schema(db: Database) -> str:
    """The statements without comments, quotes and layout."""
    statements = db.query("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE '%sqlite_migrations%'")
    sql = re.sub(r"--.*|\"", "", ";\n".join(row["sql"] for row in statements))
    return re.sub(r"\s*([(),;])\s*", r"\1", " ".join(sql.split()))


def test_schema_is_pinned_and_upgrading_twice_changes_nothing() -> None:
    db = Database(memory=True)
    for _ in range(2):
        upgrade(db)
        assert hashlib.sha256(schema(db).encode()).hexdigest()[:16] == CHECKSUM, schema(db)
    assert [m.name for m in migrations.applied(db)] == [
        "m001_runs_and_rounds",
        "m002_texts_at_once",
        "m003_what_was_rejected",
        "m004_readers_of_the_prompt",
        "m005_what_was_learnt",
        "m006_uncertainty",
        "m007_notes_on_experiments",
        "m008_unfinished",
        "m009_traffic",
        "m010_seconds_of_requests",
        "m011_benched_drafters",
        "m012_settings_in_dashboard",
        "m013_endings",
        "m014_deleted",
        "m015_prompt_ids",
    ]


def test_a_newer_version_s_file_is_refused() -> None:
    db = Database(memory=True)
    upgrade(db)
    db["_sqlite_migrations"].insert({"migration_set": "multidraft", "name": "m999_from_the_future"})
    with pytest.raises(StorageError, match=r"newer version.*m999_from_the_future.*update"):
        upgrade(db)


def test_another_programs_database_is_refused() -> None:
    db = Database(memory=True)
    db["recipes"].insert({"name": "soup"})
    with pytest.raises(StorageError, match=r"another program's database.*'recipes'"):
        upgrade(db)
    assert db.table_names() == ["recipes"]


def counted(db: Database) -> list[tuple[str, str | None, int]]:
    return list(db.execute("SELECT policy, task, runs FROM run_counts ORDER BY 1, 2"))


def test_runs_are_counted_whatever_becomes_of_them(store: Store, path: Path) -> None:
    for policy, task in (("ucb", None), ("ucb", None), ("ucb", "math"), ("exp3", "math")):
        store.add(make_run(policy=policy, task=task))
    assert store.close()
    db = Database(path)
    assert counted(db) == [("exp3", "math", 1), ("ucb", None, 2), ("ucb", "math", 1)]
    db.execute("UPDATE runs SET task = 'math' WHERE id = 1")
    db.execute("UPDATE runs SET text = ''")
    db.execute("DELETE FROM runs WHERE policy = 'exp3'")
    assert counted(db) == [("ucb", None, 1), ("ucb", "math", 2)]
    db.close()


@pytest.mark.parametrize("order", ["", " ORDER BY created_at DESC"])
@pytest.mark.parametrize("column", ["pool", "policy", "task", "created_at", "version"])
def test_filters_are_answered_by_the_dashboards_index(column: str, order: str) -> None:
    db = Database(memory=True)
    upgrade(db)
    plan = next(db.query(f"EXPLAIN QUERY PLAN SELECT id, speedup FROM runs WHERE {column} = 'x'{order}"))
    assert "COVERING INDEX idx_runs_dashboard" in plan["detail"]


def test_rounds_of_a_run_are_found_by_index_and_go_with_it(store: Store, path: Path) -> None:
    store.add(make_run())
    assert store.flush()
    connection = sqlite3.connect(path)
    plan = connection.execute("EXPLAIN QUERY PLAN SELECT * FROM rounds WHERE run_id = 1").fetchone()[-1]
    assert "USING INDEX" in plan
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("DELETE FROM runs")
    assert connection.execute("SELECT count(*) FROM rounds").fetchone() == (0,)
    connection.close()


def test_the_sqlite_utils_command_line_reads_it(store: Store, path: Path) -> None:
    store.add(make_run())
    store.add(make_run(prompt="second"))
    assert store.flush()
    command = [sys.executable, "-m", "sqlite_utils", "rows", str(path), "runs", "--limit", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    (row,) = json.loads(done.stdout)
    assert (row["id"], row["prompt"], row["policy"]) == (1, "What is 2 + 3?", "ucb:beta=0.1")


def write_old(path: Path, prompt: str = "p") -> None:
    """A history of the first version, with one run."""
    db = Database(path)
    migrations.apply(db, stop_before="m002_texts_at_once")
    db.execute("INSERT INTO runs (id, created_at, source, prompt, prompt_hash, policy, pool, text, status, round_count)"
               " VALUES (1, '2026', 'play', ?, 0, 'ucb', 'pocket', '', 'completed', 0)", [prompt])  # fmt: skip
    db.conn.commit()
    db.close()


def test_an_older_file_is_brought_up_to_date_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    write_old(path)
    with open_reader(path) as connection:
        assert connection.execute("SELECT id, streams, readers, versions, learn FROM runs").fetchall() == [
            (1, 1, None, "{}", 1)
        ]


def test_a_copy_of_an_older_file_is_kept_beside_it(tmp_path: Path, caplog) -> None:
    path, kept = tmp_path / "runs.db", tmp_path / "runs.db-before-m002"
    write_old(path)
    for _ in range(2):
        with Store(path) as store:
            assert store.add(make_run()).wait(5)
    assert caplog.text.count(str(kept)) == 1, "once, and told"
    assert sorted(tmp_path.glob("*before*")) == [kept]
    old = Database(kept)
    assert [m.name for m in migrations.applied(old)] == ["m001_runs_and_rounds"]
    assert list(old.execute("SELECT id, prompt FROM runs")) == [(1, "p")]
    old.close()


def test_no_older_copy_is_replaced_and_none_is_made_twice(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "runs.db"
    contents = []
    for prompt in ("p", "another"):
        write_old(path, prompt)
        contents.append(path.read_bytes())
        path.unlink()
    for before in (*contents, contents[0]):
        path.write_bytes(before)
        with monkeypatch.context() as patched:
            patched.setattr(connection_module, "upgrade", lambda db: db.execute("INSERT INTO full VALUES (1)"))
            for _ in range(2):
                with pytest.raises(StorageError):
                    open_writer(path, 1.0)
        assert path.read_bytes() == before, "a migration that fails changes nothing"
        open_writer(path, 1.0).close()
    assert len(list(tmp_path.glob("*before*"))) == 2
