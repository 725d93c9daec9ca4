"""The tables, as an ordered list of migrations.

A database remembers in ``_sqlite_migrations`` which of them it has had, and is brought up to date when it is opened. To
change the schema of a released version, append a function. All pending migrations run in one transaction, so none may
need to stand outside of one.
"""

from __future__ import annotations

from sqlite_utils import Database, Migrations
from sqlite_utils.db import ForeignKey

from storage.problems import StorageError

migrations = Migrations("multidraft")

RUN_COLUMNS: dict[str, type] = {
    "id": int,
    "created_at": str,  # UTC, ISO 8601 of fixed width: the order of texts is that of time
    "source": str,
    "task": str,
    "suite": str,
    "batch_id": str,
    "prompt": str,
    "turns": str,  # JSON list of [prompt, answer]
    "prompt_hash": int,  # equal for equal prompts and turns
    "policy": str,  # the full spec
    "drafters": str,  # JSON list of names, by arm
    "max_new_tokens": int,
    "temperature": float,
    "top_p": float,
    "top_k": int,
    "draft_length": int,
    "seed": int,
    "pool": str,
    "card_hash": str,
    "hardware": str,
    "dtype": str,
    "version": str,
    "libraries": str,  # JSON object: versions by name
    "text": str,
    "status": str,
    "error": str,
    "prompt_tokens": int,
    "output_tokens": int,
    "round_count": int,
    "chosen_rounds": int,  # rounds with a drafter
    "drafted_tokens": int,
    "accepted_tokens": int,
    "prefill_seconds": float,
    "decode_seconds": float,  # the sum of the four that follow
    "draft_seconds": float,
    "verify_seconds": float,
    "policy_seconds": float,
    "evaluate_seconds": float,
    "tokens_per_second": float,
    "mean_accepted_tokens": float,
    "acceptance_rate": float,
    "baseline_kind": str,
    "baseline_tokens": int,
    "baseline_seconds_per_token": float,
    "baseline_prefill_seconds": float,
    "speedup": float,
    "request_speedup": float,
    "lossless": int,
    "near_tie_gap": float,  # between logits
    "regret_rounds": float,
    "expected_regret": float,
    "best_drafter": str,
    "best_arm_ratio": float,
    "best_arm_rounds": str,  # a character per round: 1 played the best drafter, 0 another, - none
    "drafter_rounds": str,  # JSON object: rounds that each drafter alone would have needed, by name
    "acceptance": bytes,  # tables (drafters, output positions), see rows.pack_tables
}

ROUND_COLUMNS: dict[str, type] = {
    "run_id": int,
    "index": int,
    "arm": int,
    "drafter": str,
    "drafted": str,  # JSON list of token ids
    "accepted": int,
    "tokens": str,  # JSON list of token ids
    "own": int,
    "pieces": str,  # JSON list: the text, token by token
    "draft_length": int,
    "nodes": int,
    "depth": int,
    "together": int,
    "reward": float,
    "block_divergence": float,
    "probabilities": str,  # JSON list, one number per arm
    "draft_seconds": float,
    "verify_seconds": float,
    "policy_seconds": float,
    "evaluate_seconds": float,
    "evaluated": int,
}

DASHBOARD_COLUMNS = """
    policy created_at task pool card_hash hardware dtype version source baseline_kind status prompt_hash
    output_tokens round_count chosen_rounds drafted_tokens accepted_tokens
    speedup request_speedup tokens_per_second regret_rounds best_arm_ratio
    baseline_seconds_per_token baseline_prefill_seconds
    prefill_seconds decode_seconds draft_seconds verify_seconds policy_seconds evaluate_seconds
    drafter_rounds best_arm_rounds
""".split()
"""What queries over many runs may read without leaving the index."""

COUNTED = "policy task pool card_hash hardware dtype version source baseline_kind status".split()
"""What ``run_counts`` tells runs apart by."""


@migrations()
def m001_runs_and_rounds(db: Database) -> None:
    """One row per run and per round; what charts over many runs need in one index; counts of runs, by triggers."""
    required = {"created_at", "source", "prompt", "prompt_hash", "pool", "policy", "text", "status", "round_count"}
    db.create_table("runs", RUN_COLUMNS, pk="id", not_null=required)
    db.create_table(
        "rounds",
        ROUND_COLUMNS,
        pk=("run_id", "index"),  # its own index begins with run_id, so it is the foreign key's index too
        foreign_keys=[ForeignKey("rounds", "run_id", "runs", "id", on_delete="CASCADE")],
        not_null={"drafted", "accepted", "tokens", "pieces"},
    )
    db.table("runs").create_index(DASHBOARD_COLUMNS, index_name="idx_runs_dashboard")
    _count_runs(db)


def _count_runs(db: Database) -> None:
    """``run_counts``, by which the choices of the dashboard's filters are found without reading the runs."""
    listed = ", ".join(COUNTED)
    db.execute(f"CREATE TABLE run_counts ({', '.join(f'{column} TEXT' for column in COUNTED)}, runs INTEGER NOT NULL)")
    db.execute("CREATE INDEX idx_run_counts ON run_counts (policy, task, version)")
    same = {row: " AND ".join(f"{column} IS {row}.{column}" for column in COUNTED) for row in ("OLD", "NEW")}
    more = f"""
        UPDATE run_counts SET runs = runs + 1 WHERE {same["NEW"]};
        INSERT INTO run_counts SELECT {", ".join(f"NEW.{column}" for column in COUNTED)}, 1 WHERE changes() = 0;
    """
    less = f"""
        UPDATE run_counts SET runs = runs - 1 WHERE {same["OLD"]};
        DELETE FROM run_counts WHERE {same["OLD"]} AND runs = 0;
    """
    for event, body in (("INSERT", more), ("DELETE", less), (f"UPDATE OF {listed}", less + more)):
        name = f"runs_counted_at_{event.split()[0].lower()}"
        db.execute(f"CREATE TRIGGER {name} AFTER {event} ON runs BEGIN {body} END")


def upgrade(db: Database) -> None:
    """Bring an empty or older database to the newest schema; call it inside a transaction.

    Raises:
        StorageError: the tables are another program's, or a newer version's; nothing is changed then.
    """
    applied = {migration.name for migration in migrations.applied(db)}
    with Database(memory=True, execute_plugins=False) as fresh:
        known = {migration.name for migration in migrations.pending(fresh)}
    others = sorted(set(db.table_names()) - {Migrations.migrations_table})
    if others and not applied:
        raise StorageError(
            f"{_file(db)} is another program's database (it has the table {others[0]!r}); it was left as it is: "
            "name another file with MULTIDRAFT_DB or --db."
        )
    if newer := sorted(applied - known):
        raise StorageError(
            f"{_file(db)} was written by a newer version of this program ({newer[-1]}): update the program, "
            "or name another file with MULTIDRAFT_DB or --db."
        )
    migrations.apply(db)


def _file(db: Database) -> str:
    return str(db.execute("SELECT file FROM pragma_database_list WHERE name = 'main'").fetchone()[0])
