"""The tables, as an ordered list of migrations.

A database remembers in ``_sqlite_migrations`` which of them it has had, and is brought up to date when it is opened. To
change the schema of a released version, append a function. All pending migrations run in one transaction, so none may
need to stand outside of one.
"""

from __future__ import annotations

from sqlite_utils import Database, Migrations

from storage.problems import ANOTHER_FILE, StorageError

migrations = Migrations("multidraft")

TABLES = """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    created_at TEXT NOT NULL,     -- UTC, ISO 8601 of fixed width: the order of texts is that of time
    source TEXT NOT NULL, task TEXT, suite TEXT, batch_id TEXT,
    prompt TEXT NOT NULL,
    turns TEXT,                   -- JSON list of [prompt, answer]
    prompt_hash INTEGER NOT NULL, -- equal for equal prompts and turns
    policy TEXT NOT NULL,         -- the full spec
    drafters TEXT,                -- JSON list of names, by arm
    max_new_tokens INTEGER, temperature REAL, top_p REAL, top_k INTEGER, draft_length INTEGER, seed INTEGER,
    pool TEXT NOT NULL, card_hash TEXT, hardware TEXT, dtype TEXT, version TEXT,
    libraries TEXT,               -- JSON object: versions by name
    text TEXT NOT NULL, status TEXT NOT NULL, error TEXT,
    prompt_tokens INTEGER, output_tokens INTEGER, round_count INTEGER NOT NULL,
    chosen_rounds INTEGER,        -- rounds with a drafter
    drafted_tokens INTEGER, accepted_tokens INTEGER, prefill_seconds REAL,
    decode_seconds REAL,          -- the sum of the four that follow
    draft_seconds REAL, verify_seconds REAL, policy_seconds REAL, evaluate_seconds REAL,
    tokens_per_second REAL, mean_accepted_tokens REAL, acceptance_rate REAL,
    baseline_kind TEXT, baseline_tokens INTEGER, baseline_seconds_per_token REAL, baseline_prefill_seconds REAL,
    speedup REAL, request_speedup REAL,
    lossless INTEGER,
    near_tie_gap REAL,            -- between logits
    regret_rounds REAL, expected_regret REAL, best_drafter TEXT, best_arm_ratio REAL,
    best_arm_rounds TEXT,         -- a character per round: 1 played the best drafter, 0 another, - none
    drafter_rounds TEXT,          -- JSON object: rounds that each drafter alone would have needed, by name
    acceptance BLOB               -- tables (drafters, output positions), see rows.pack_tables
);
CREATE TABLE rounds (             -- its primary key begins with run_id, so it is the foreign key's index too
    run_id INTEGER REFERENCES runs(id) ON DELETE CASCADE,
    "index" INTEGER, arm INTEGER, drafter TEXT,
    drafted TEXT NOT NULL,        -- JSON list of token ids
    accepted INTEGER NOT NULL,
    tokens TEXT NOT NULL,         -- JSON list of token ids
    own INTEGER,
    pieces TEXT NOT NULL,         -- JSON list: the text, token by token
    draft_length INTEGER, nodes INTEGER, depth INTEGER, together INTEGER, reward REAL, block_divergence REAL,
    probabilities TEXT,           -- JSON list, one number per arm
    draft_seconds REAL, verify_seconds REAL, policy_seconds REAL, evaluate_seconds REAL, evaluated INTEGER,
    PRIMARY KEY (run_id, "index")
);
"""

DASHBOARD_COLUMNS = """
    policy created_at task pool card_hash hardware dtype version source baseline_kind status prompt_hash
    draft_length temperature max_new_tokens output_tokens round_count chosen_rounds drafted_tokens accepted_tokens
    speedup request_speedup tokens_per_second regret_rounds best_arm_ratio
    baseline_seconds_per_token baseline_prefill_seconds
    prefill_seconds decode_seconds draft_seconds verify_seconds policy_seconds evaluate_seconds
    drafter_rounds best_arm_rounds
""".split()
"""What queries over many runs may read without leaving the index."""

EXPERIMENT_COLUMNS = """
    batch_id created_at source suite pool card_hash hardware dtype version policy prompt_hash status
    max_new_tokens temperature top_p top_k draft_length streams output_tokens round_count decode_seconds
    baseline_seconds_per_token speedup regret_rounds
""".split()
"""What the list of experiments reads without leaving its index."""

COUNTED = """
    policy task pool card_hash hardware dtype version source baseline_kind status
    draft_length temperature max_new_tokens
""".split()
"""What ``run_counts`` tells runs apart by."""


@migrations()
def m001_runs_and_rounds(db: Database) -> None:
    """One row per run and per round."""
    for table in filter(str.strip, TABLES.split(";")):
        db.execute(table)


@migrations()
def m002_texts_at_once(db: Database) -> None:
    """How many texts were decoded at once, at the most."""
    db.execute("ALTER TABLE runs ADD COLUMN streams INTEGER NOT NULL DEFAULT 1")


@migrations()
def m003_what_was_rejected(db: Database) -> None:
    """What the target chose at each place of a draft, a tree's other guesses, and the texts of what was not emitted."""
    for column, empty in (("choices", "[]"), ("siblings", "[]"), ("texts", "{}")):  # JSON
        db.execute(f"ALTER TABLE rounds ADD COLUMN {column} TEXT NOT NULL DEFAULT '{empty}'")


@migrations()
def m004_readers_of_the_prompt(db: Database) -> None:
    """The drafters that read the prompt during prefill, as a JSON list of arms; NULL where it was not recorded."""
    db.execute("ALTER TABLE runs ADD COLUMN readers TEXT")


@migrations()
def m005_what_was_learnt(db: Database) -> None:
    """With which versions drafters that learn drafted, and whether the run may be learnt from."""
    db.execute("ALTER TABLE runs ADD COLUMN versions TEXT NOT NULL DEFAULT '{}'")  # JSON
    db.execute("ALTER TABLE runs ADD COLUMN learn INTEGER NOT NULL DEFAULT 1")


@migrations()
def m006_uncertainty(db: Database) -> None:
    """By what share a baseline and a single run's speed-up may be off; NULL where it was not recorded."""
    for column in ("baseline_uncertainty", "speedup_uncertainty"):
        db.execute(f"ALTER TABLE runs ADD COLUMN {column} REAL")


@migrations()
def m007_notes_on_experiments(db: Database) -> None:
    """Notes on batches, races and benchmarks, by what their runs have in common."""
    db.execute("CREATE TABLE notes (batch_id TEXT PRIMARY KEY, note TEXT NOT NULL)")


@migrations()
def m008_unfinished(db: Database) -> None:
    """Jobs under way: they are here from their beginning until what came of them is written."""
    db.execute("CREATE TABLE unfinished (id TEXT PRIMARY KEY, begun_at TEXT NOT NULL, job TEXT NOT NULL)")  # JSON


@migrations()
def m009_traffic(db: Database) -> None:
    """What past queries had taught when a run began, and what it teaches, as JSON; since when each pool learns, where
    it was told to forget."""
    db.execute("ALTER TABLE runs ADD COLUMN prior TEXT")
    db.execute("ALTER TABLE runs ADD COLUMN suitability TEXT")
    db.execute("CREATE INDEX idx_runs_lessons ON runs (card_hash, id) WHERE suitability IS NOT NULL")
    db.execute("CREATE TABLE learning (card_hash TEXT PRIMARY KEY, since TEXT NOT NULL)")


@migrations()
def m010_seconds_of_requests(db: Database) -> None:
    """Seconds of the whole request: of imported runs often all that is known of their time."""
    db.execute("ALTER TABLE runs ADD COLUMN request_seconds REAL")
    db.execute("UPDATE runs SET request_seconds = prefill_seconds + decode_seconds")


@migrations()
def m011_benched_drafters(db: Database) -> None:
    """What happened to drafters that failed, by name."""
    db.execute("ALTER TABLE runs ADD COLUMN benched TEXT NOT NULL DEFAULT '{}'")  # JSON


@migrations()
def m012_settings_in_dashboard(db: Database) -> None:
    """What charts over many runs need in one index, settings among it; and counts of runs, kept by triggers, by which
    the choices of the dashboard's filters are found without reading the runs. Older files have other ones.
    """
    db.execute("DROP INDEX IF EXISTS idx_runs_dashboard")
    db.table("runs").create_index(DASHBOARD_COLUMNS, index_name="idx_runs_dashboard")
    for event in ("insert", "delete", "update"):
        db.execute(f"DROP TRIGGER IF EXISTS runs_counted_at_{event}")
    db.execute("DROP TABLE IF EXISTS run_counts")
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
    db.execute(f"INSERT INTO run_counts SELECT {listed}, count(*) FROM runs GROUP BY {listed}")


@migrations()
def m013_endings(db: Database) -> None:
    """How batches ended that ended before all their runs were done."""
    db.execute("CREATE TABLE endings (batch_id TEXT PRIMARY KEY, ending TEXT NOT NULL)")


@migrations()
def m014_deleted(db: Database) -> None:
    """Runs that were deleted, without their texts; ``id`` is the number that none of this history has from now on, NULL
    where it never had the run."""
    columns = "policy TEXT, created_at TEXT, prompt_hash INTEGER, batch_id TEXT, id INTEGER"
    db.execute(f"CREATE TABLE deleted ({columns}, PRIMARY KEY (policy, created_at, prompt_hash)) WITHOUT ROWID")
    db.execute("CREATE INDEX idx_deleted ON deleted (id)")


@migrations()
def m015_prompt_ids(db: Database) -> None:
    """What its suite or file calls a prompt; and an index that lists experiments, told apart by top-p and top-k too."""
    db.execute("ALTER TABLE runs ADD COLUMN prompt_id TEXT")
    db.execute("DROP INDEX IF EXISTS idx_runs_batch")
    db.execute(f"CREATE INDEX idx_runs_batch ON runs ({', '.join(EXPERIMENT_COLUMNS)}) WHERE batch_id IS NOT NULL")


with Database(memory=True, execute_plugins=False) as _fresh:
    MIGRATIONS = frozenset(migration.name for migration in migrations.pending(_fresh))
    """Names of all of them."""


def upgrade(db: Database) -> None:
    """Bring an empty or older database to the newest schema; call it inside a transaction.

    Raises:
        StorageError: the tables are another program's, or a newer version's; nothing is changed then.
    """
    check_owner(db)
    if newer := sorted(applied(db) - MIGRATIONS):
        raise StorageError(
            f"{_file(db)} was written by a newer version of this program ({newer[-1]}): update the program, "
            f"or {ANOTHER_FILE}."
        )
    migrations.apply(db)


def check_owner(db: Database) -> None:
    """Raise :class:`StorageError` where the tables are another program's."""
    others = sorted(set(db.table_names()) - {Migrations.migrations_table})
    if others and not applied(db):
        raise StorageError(
            f"{_file(db)} is another program's database (it has the table {others[0]!r}); it was left as it is: "
            f"{ANOTHER_FILE}."
        )


def applied(db: Database) -> set[str]:
    """Names of the migrations that a history has had; none where it is no history."""
    return {migration.name for migration in migrations.applied(db)}


def _file(db: Database) -> str:
    return str(db.execute("SELECT file FROM pragma_database_list WHERE name = 'main'").fetchone()[0])
