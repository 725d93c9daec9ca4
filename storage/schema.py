"""The tables, as an ordered list of migrations.

A database remembers in ``_sqlite_migrations`` which of them it has had, so a file written by any earlier
version is brought up to date when it is opened. To change the schema, append a function; never edit one
that was released. All pending migrations run in one transaction, so none may need to stand outside of one.
"""

from __future__ import annotations

from sqlite_utils import Database, Migrations
from sqlite_utils.db import ForeignKey

from storage.problems import StorageError

migrations = Migrations("multidraft")

DASHBOARD_COLUMNS = """
    policy created_at task pool card_hash hardware dtype version source status output_tokens rounds
    speedup tokens_per_second mean_accepted_tokens acceptance_rate regret_rounds best_arm_ratio
    prefill_seconds decode_seconds draft_seconds verify_seconds policy_seconds evaluate_seconds
    drafter_rounds best_arm_rounds
""".split()
"""What queries over many runs may read without leaving the index (of m005: a change needs a new migration)."""


@migrations()
def m001_runs_and_rounds(db: Database) -> None:
    """One row per generation, and one per round of it."""
    db.create_table(
        "runs",
        {
            "id": int,
            "created_at": str,  # UTC, ISO 8601 of fixed width: text order is time order
            "source": str,  # play, batch, bench or api
            "batch_id": str,
            "suite": str,
            "prompt": str,
            "task": str,
            "pool": str,
            "card_hash": str,
            "policy": str,  # the full spec, as given
            "parameters": str,  # JSON object: all sampling parameters
            "temperature": float,
            "max_new_tokens": int,
            "draft_length": int,
            "seed": int,
            "hardware": str,
            "dtype": str,
            "version": str,
            "output": str,
            "status": str,
            "error": str,
            "prompt_tokens": int,
            "output_tokens": int,
            "rounds": int,
            "prefill_seconds": float,
            "decode_seconds": float,  # the sum of the four that follow
            "draft_seconds": float,
            "verify_seconds": float,
            "policy_seconds": float,
            "evaluate_seconds": float,
            "tokens_per_second": float,
            "mean_accepted_tokens": float,
            "acceptance_rate": float,
            "baseline_tokens_per_second": float,
            "speedup": float,
            "regret_rounds": float,
            "best_arm": str,  # the best fixed drafter's name
            "best_arm_ratio": float,
            "lossless": int,
        },
        pk="id",
        not_null={"created_at", "source", "prompt", "pool", "policy", "parameters", "output", "status", "rounds"},
    )
    db.create_table(
        "rounds",
        {
            "run_id": int,
            "round_index": int,
            "arm": int,
            "drafter": str,
            "drafted": int,
            "accepted": int,
            "emitted": int,
            "own_token": int,
            "drafted_ids": str,  # JSON list
            "token_ids": str,  # JSON list
            "draft_length": int,
            "reward": float,
            "block_divergence": float,
            "probabilities": str,  # JSON list, one number per arm
            "draft_seconds": float,
            "verify_seconds": float,
            "policy_seconds": float,
            "evaluate_seconds": float,
        },
        # The key's own index begins with run_id, so it is the foreign key's index too.
        pk=("run_id", "round_index"),
        foreign_keys=[ForeignKey("rounds", "run_id", "runs", "id", on_delete="CASCADE")],
        not_null={"drafted", "accepted", "emitted", "drafted_ids", "token_ids"},
    )


@migrations()
def m002_filter_indexes(db: Database) -> None:
    """What the dashboard filters and sorts by."""
    for column in ("pool", "policy", "task", "created_at"):
        db.table("runs").create_index([column])


@migrations()
def m003_acceptance(db: Database) -> None:
    """How every drafter would have done on the same text, whoever was chosen: by rounds, and in full for replay."""
    db.table("runs").add_column("drafter_rounds", str)  # JSON object: rounds each drafter alone would have needed
    db.table("runs").add_column("acceptance", bytes)  # zlib of uint8 (drafters, output positions), row by row


@migrations()
def m004_expected_regret(db: Database) -> None:
    """Regret of sampled runs, whose rounds another drafter would not have repeated: expected losses."""
    db.table("runs").add_column("expected_regret", float)


@migrations()
def m005_dashboard(db: Database) -> None:
    """What charts over many runs need is kept with each run, and in one index: none of them reads rounds or texts.

    The indexes that it replaces would lure SQLite into looking up the whole run for every match.
    """
    runs = db.table("runs")
    runs.add_column("best_arm_rounds", str)  # a character per round: 1 played the best arm, 0 another, - none
    runs.add_column("piece_lengths", str)  # JSON list: by how many characters each token made the output longer
    played = "CASE WHEN drafter IS NULL THEN '-' WHEN drafter = runs.best_arm THEN '1' ELSE '0' END"
    in_order = "SELECT drafter FROM rounds WHERE run_id = runs.id ORDER BY round_index"
    db.execute(
        f"UPDATE runs SET best_arm_rounds = (SELECT group_concat({played}, '') FROM ({in_order})) "
        "WHERE best_arm IS NOT NULL"
    )
    for column in ("pool", "policy", "task", "created_at"):
        db.execute(f"DROP INDEX IF EXISTS idx_runs_{column}")
    runs.create_index(DASHBOARD_COLUMNS, index_name="idx_runs_dashboard")


COUNTED = "policy task pool card_hash hardware dtype version source status".split()
"""What ``run_counts`` tells runs apart by (of m006)."""


@migrations()
def m006_counts(db: Database) -> None:
    """How many runs there are of each kind, kept by triggers: what there is to filter by is told without the runs.

    Plain decoding, of which nothing was drafted, no longer has a rate of acceptance.
    """
    listed = ", ".join(COUNTED)
    db.execute(f"CREATE TABLE run_counts ({', '.join(f'{column} TEXT' for column in COUNTED)}, runs INTEGER NOT NULL)")
    db.execute(f"INSERT INTO run_counts SELECT {listed}, count(*) FROM runs GROUP BY {listed}")
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
    db.execute(
        "UPDATE runs SET acceptance_rate = NULL WHERE acceptance_rate = 0 "
        "AND NOT EXISTS (SELECT 1 FROM rounds WHERE run_id = runs.id AND drafted > 0)"
    )


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
