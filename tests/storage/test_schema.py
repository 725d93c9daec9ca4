"""The schema is pinned: a change needs a new migration, and old files must survive it."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from sqlite_utils import Database

from storage.problems import StorageError
from storage.schema import COUNTED, DASHBOARD_COLUMNS, migrations, upgrade
from storage.store import Store

SCHEMA = dedent("""\
    CREATE TABLE "runs" (
       "id" INTEGER PRIMARY KEY,
       "created_at" TEXT NOT NULL,
       "source" TEXT NOT NULL,
       "batch_id" TEXT,
       "suite" TEXT,
       "prompt" TEXT NOT NULL,
       "task" TEXT,
       "pool" TEXT NOT NULL,
       "card_hash" TEXT,
       "policy" TEXT NOT NULL,
       "parameters" TEXT NOT NULL,
       "temperature" REAL,
       "max_new_tokens" INTEGER,
       "draft_length" INTEGER,
       "seed" INTEGER,
       "hardware" TEXT,
       "dtype" TEXT,
       "version" TEXT,
       "output" TEXT NOT NULL,
       "status" TEXT NOT NULL,
       "error" TEXT,
       "prompt_tokens" INTEGER,
       "output_tokens" INTEGER,
       "rounds" INTEGER NOT NULL,
       "prefill_seconds" REAL,
       "decode_seconds" REAL,
       "draft_seconds" REAL,
       "verify_seconds" REAL,
       "policy_seconds" REAL,
       "evaluate_seconds" REAL,
       "tokens_per_second" REAL,
       "mean_accepted_tokens" REAL,
       "acceptance_rate" REAL,
       "baseline_tokens_per_second" REAL,
       "speedup" REAL,
       "regret_rounds" REAL,
       "best_arm" TEXT,
       "best_arm_ratio" REAL,
       "lossless" INTEGER
    , "drafter_rounds" TEXT, "acceptance" BLOB, "expected_regret" REAL, "best_arm_rounds" TEXT, "piece_lengths" TEXT);
    CREATE TABLE "rounds" (
       "run_id" INTEGER REFERENCES "runs"("id") ON DELETE CASCADE,
       "round_index" INTEGER,
       "arm" INTEGER,
       "drafter" TEXT,
       "drafted" INTEGER NOT NULL,
       "accepted" INTEGER NOT NULL,
       "emitted" INTEGER NOT NULL,
       "own_token" INTEGER,
       "drafted_ids" TEXT NOT NULL,
       "token_ids" TEXT NOT NULL,
       "draft_length" INTEGER,
       "reward" REAL,
       "block_divergence" REAL,
       "probabilities" TEXT,
       "draft_seconds" REAL,
       "verify_seconds" REAL,
       "policy_seconds" REAL,
       "evaluate_seconds" REAL,
       PRIMARY KEY ("run_id", "round_index")
    );
    CREATE INDEX "idx_runs_dashboard"
        ON "runs" (@);
    CREATE TABLE run_counts (%, runs INTEGER NOT NULL);
    CREATE INDEX idx_run_counts ON run_counts (policy, task, version);
""").replace("@", ", ".join(f'"{column}"' for column in DASHBOARD_COLUMNS))
SCHEMA = SCHEMA.replace("%", ", ".join(f"{column} TEXT" for column in COUNTED))


def schema(db: Database) -> str:
    statements = db.query(
        "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND type <> 'trigger' "
        "AND name NOT LIKE '%sqlite_migrations%'"
    )
    return "".join(f"{row['sql'].rstrip(';')};\n" for row in statements)


def test_schema_is_pinned() -> None:
    db = Database(memory=True)
    upgrade(db)
    assert schema(db) == SCHEMA


def test_upgrade_twice_changes_nothing() -> None:
    db = Database(memory=True)
    upgrade(db)
    upgrade(db)
    assert schema(db) == SCHEMA
    assert [m.name for m in migrations.applied(db)] == [
        "m001_runs_and_rounds",
        "m002_filter_indexes",
        "m003_acceptance",
        "m004_expected_regret",
        "m005_dashboard",
        "m006_counts",
    ]


def test_a_store_upgrades_a_version_1_file_and_keeps_its_data(path, generation, context) -> None:
    old = Database(path)
    migrations.apply(old, stop_before="m002_filter_indexes")
    assert not old["runs"].indexes
    texts = dict.fromkeys(("created_at", "source", "prompt", "pool", "policy", "output", "status"), "old")
    old["runs"].insert({"id": 41, "parameters": "{}", "rounds": 1, **texts})
    counts = {"drafted": 1, "accepted": 1, "emitted": 1}
    old["rounds"].insert({"run_id": 41, "round_index": 0, "drafted_ids": "[3]", "token_ids": "[3]", **counts})
    old.close()

    with Store(path) as store:
        store.add(generation(), context())
        assert store.flush()

    new = Database(path)
    assert schema(new) == SCHEMA
    assert [(row["id"], row["prompt"]) for row in new["runs"].rows] == [(41, "old"), (42, "What is 2 + 3?")]
    assert [row["run_id"] for row in new["rounds"].rows] == [41, 42, 42]
    new.close()


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


def test_runs_of_older_versions_get_what_charts_over_rounds_need() -> None:
    """Rounds were written in no particular order; a sampled run has no best arm."""
    db = Database(memory=True)
    migrations.apply(db, stop_before="m005_dashboard")
    texts = dict.fromkeys(("created_at", "source", "prompt", "pool", "policy", "output", "status"), "old")
    for id, best in ((1, "math"), (2, None), (3, "code")):
        db["runs"].insert({"id": id, "parameters": "{}", "rounds": 3, "best_arm": best, **texts})
    counts = {"drafted": 1, "accepted": 1, "emitted": 1, "drafted_ids": "[3]", "token_ids": "[3]"}
    for id in (1, 2):
        for index, drafter in ((2, "math"), (0, "math"), (1, "code"), (3, None)):
            db["rounds"].insert({"run_id": id, "round_index": index, "drafter": drafter, **counts})
    upgrade(db)
    assert [row["best_arm_rounds"] for row in db["runs"].rows] == ["101-", None, None]


def counted(db: Database) -> list[tuple[str, str | None, int]]:
    return list(db.execute("SELECT policy, task, runs FROM run_counts ORDER BY 1, 2"))


def test_runs_are_counted_whatever_becomes_of_them(store: Store, path: Path, generation, context) -> None:
    for policy, task in (("ucb", None), ("ucb", None), ("ucb", "math"), ("exp3", "math")):
        store.add(generation(policy=policy), context(task=task))
    assert store.close()
    db = Database(path)
    assert counted(db) == [("exp3", "math", 1), ("ucb", None, 2), ("ucb", "math", 1)]
    db.execute("UPDATE runs SET task = 'math' WHERE id = 1")
    db.execute("UPDATE runs SET output = ''")
    db.execute("DELETE FROM runs WHERE policy = 'exp3'")
    assert counted(db) == [("ucb", None, 1), ("ucb", "math", 2)]
    db.close()


def test_runs_of_older_versions_are_counted_and_plain_decoding_loses_its_acceptance() -> None:
    db = Database(memory=True)
    migrations.apply(db, stop_before="m006_counts")
    texts = dict.fromkeys(("created_at", "source", "prompt", "pool", "policy", "output", "status"), "old")
    counts = {"accepted": 0, "emitted": 1, "drafted_ids": "[]", "token_ids": "[3]"}
    for id, drafted in ((1, 0), (2, 3)):
        db["runs"].insert({"id": id, "parameters": "{}", "rounds": 1, "acceptance_rate": 0.0, **texts})
        db["rounds"].insert({"run_id": id, "round_index": 0, "drafted": drafted, **counts})
    upgrade(db)
    assert counted(db) == [("old", None, 2)]
    assert [row["acceptance_rate"] for row in db["runs"].rows] == [None, 0.0]


@pytest.mark.parametrize("order", ["", " ORDER BY created_at DESC"])
@pytest.mark.parametrize("column", ["pool", "policy", "task", "created_at", "version"])
def test_filters_are_answered_by_the_dashboards_index(column: str, order: str) -> None:
    db = Database(memory=True)
    upgrade(db)
    plan = next(db.query(f"EXPLAIN QUERY PLAN SELECT id, speedup FROM runs WHERE {column} = 'x'{order}"))
    assert "COVERING INDEX idx_runs_dashboard" in plan["detail"]


def test_rounds_of_a_run_are_found_by_index_and_go_with_it(store: Store, path: Path, generation, context) -> None:
    store.add(generation(), context())
    assert store.flush()
    connection = sqlite3.connect(path)
    plan = connection.execute("EXPLAIN QUERY PLAN SELECT * FROM rounds WHERE run_id = 1").fetchone()[-1]
    assert "USING INDEX" in plan
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("DELETE FROM runs")
    assert connection.execute("SELECT count(*) FROM rounds").fetchone() == (0,)
    connection.close()


def test_the_sqlite_utils_command_line_reads_it(store: Store, path: Path, generation, context) -> None:
    store.add(generation(), context())
    store.add(generation(prompt="second"), context())
    assert store.flush()
    command = [sys.executable, "-m", "sqlite_utils", "rows", str(path), "runs", "--limit", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    (row,) = json.loads(done.stdout)
    assert (row["id"], row["prompt"], row["policy"]) == (1, "What is 2 + 3?", "ucb:beta=0.1")
