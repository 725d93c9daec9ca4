"""The schema is pinned: a change needs a new migration, and old files must survive it."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from sqlite_utils import Database

from storage import connection as connection_module
from storage.connection import open_reader, open_writer
from storage.problems import StorageError
from storage.schema import COUNTED, DASHBOARD_COLUMNS, EXPERIMENT_COLUMNS, migrations, upgrade
from storage.store import Store
from tests.runs import make_run

SCHEMA = dedent("""\
    CREATE TABLE "runs" (
       "id" INTEGER PRIMARY KEY,
       "created_at" TEXT NOT NULL,
       "source" TEXT NOT NULL,
       "task" TEXT,
       "suite" TEXT,
       "batch_id" TEXT,
       "prompt" TEXT NOT NULL,
       "turns" TEXT,
       "prompt_hash" INTEGER NOT NULL,
       "policy" TEXT NOT NULL,
       "drafters" TEXT,
       "max_new_tokens" INTEGER,
       "temperature" REAL,
       "top_p" REAL,
       "top_k" INTEGER,
       "draft_length" INTEGER,
       "seed" INTEGER,
       "pool" TEXT NOT NULL,
       "card_hash" TEXT,
       "hardware" TEXT,
       "dtype" TEXT,
       "version" TEXT,
       "libraries" TEXT,
       "text" TEXT NOT NULL,
       "status" TEXT NOT NULL,
       "error" TEXT,
       "prompt_tokens" INTEGER,
       "output_tokens" INTEGER,
       "round_count" INTEGER NOT NULL,
       "chosen_rounds" INTEGER,
       "drafted_tokens" INTEGER,
       "accepted_tokens" INTEGER,
       "prefill_seconds" REAL,
       "decode_seconds" REAL,
       "draft_seconds" REAL,
       "verify_seconds" REAL,
       "policy_seconds" REAL,
       "evaluate_seconds" REAL,
       "tokens_per_second" REAL,
       "mean_accepted_tokens" REAL,
       "acceptance_rate" REAL,
       "baseline_kind" TEXT,
       "baseline_tokens" INTEGER,
       "baseline_seconds_per_token" REAL,
       "baseline_prefill_seconds" REAL,
       "speedup" REAL,
       "request_speedup" REAL,
       "lossless" INTEGER,
       "near_tie_gap" REAL,
       "regret_rounds" REAL,
       "expected_regret" REAL,
       "best_drafter" TEXT,
       "best_arm_ratio" REAL,
       "best_arm_rounds" TEXT,
       "drafter_rounds" TEXT,
       "acceptance" BLOB,
       "streams" INTEGER NOT NULL DEFAULT 1,
       "readers" TEXT,
       "versions" TEXT NOT NULL DEFAULT '{}',
       "learn" INTEGER NOT NULL DEFAULT 1,
       "baseline_uncertainty" REAL,
       "speedup_uncertainty" REAL,
       "prior" TEXT,
       "suitability" TEXT,
       "request_seconds" REAL,
       "benched" TEXT NOT NULL DEFAULT '{}'
    );
    CREATE TABLE "rounds" (
       "run_id" INTEGER REFERENCES "runs"("id") ON DELETE CASCADE,
       "index" INTEGER,
       "arm" INTEGER,
       "drafter" TEXT,
       "drafted" TEXT NOT NULL,
       "accepted" INTEGER NOT NULL,
       "tokens" TEXT NOT NULL,
       "own" INTEGER,
       "pieces" TEXT NOT NULL,
       "draft_length" INTEGER,
       "nodes" INTEGER,
       "depth" INTEGER,
       "together" INTEGER,
       "reward" REAL,
       "block_divergence" REAL,
       "probabilities" TEXT,
       "draft_seconds" REAL,
       "verify_seconds" REAL,
       "policy_seconds" REAL,
       "evaluate_seconds" REAL,
       "evaluated" INTEGER,
       "choices" TEXT NOT NULL DEFAULT '[]',
       "siblings" TEXT NOT NULL DEFAULT '[]',
       "texts" TEXT NOT NULL DEFAULT '{}',
       PRIMARY KEY ("run_id", "index")
    );
    CREATE TABLE notes (batch_id TEXT PRIMARY KEY, note TEXT NOT NULL);
    CREATE INDEX idx_runs_batch ON runs (&) WHERE batch_id IS NOT NULL;
    CREATE TABLE unfinished (id TEXT PRIMARY KEY, begun_at TEXT NOT NULL, job TEXT NOT NULL);
    CREATE INDEX idx_runs_lessons ON runs (card_hash, id) WHERE suitability IS NOT NULL;
    CREATE TABLE learning (card_hash TEXT PRIMARY KEY, since TEXT NOT NULL);
    CREATE INDEX "idx_runs_dashboard"
        ON "runs" (@);
    CREATE TABLE run_counts (%, runs INTEGER NOT NULL);
    CREATE INDEX idx_run_counts ON run_counts (policy, task, version);
""").replace("@", ", ".join(f'"{column}"' for column in DASHBOARD_COLUMNS))
SCHEMA = SCHEMA.replace("%", ", ".join(f"{column} TEXT" for column in COUNTED))
SCHEMA = SCHEMA.replace("&", ", ".join(EXPERIMENT_COLUMNS))


def schema(db: Database) -> str:
    """The statements without comments, quotes and layout."""
    statements = db.query(
        "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND type <> 'trigger' "
        "AND name NOT LIKE '%sqlite_migrations%'"
    )
    return plain("; ".join(row["sql"] for row in statements))


def plain(sql: str) -> str:
    sql = re.sub(r"--.*|\"", "", sql)
    return re.sub(r"\s*([(),;])\s*", r"\1", " ".join(sql.split())).strip(";")


def test_schema_is_pinned() -> None:
    db = Database(memory=True)
    upgrade(db)
    assert schema(db) == plain(SCHEMA)


def test_upgrade_twice_changes_nothing() -> None:
    db = Database(memory=True)
    upgrade(db)
    upgrade(db)
    assert schema(db) == plain(SCHEMA)
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
