"""What the dashboard reads. Every function opens its own read-only connection, so any thread may call it.

A file that does not exist yet gives empty results (with their columns); one that cannot be read raises
``StorageError`` with a sentence for the user. Values reach SQL as parameters only.

Figures about speed and regret count finished runs only (completed, stopped, or at the context limit).
"""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

import pandas as pd

from storage.connection import open_reader
from storage.rows import utc_text

NO_TASK = "no task"
"""Stands for the task of runs that have none, where tasks are a chart's axis."""

_FINISHED = "status IN ('completed', 'stopped', 'context_limit')"


@dataclass(frozen=True)
class Filter:
    """Which runs; what is left out restricts nothing.

    Attributes:
        pool: the pool's name.
        policies: policy specs, any of them (a single one may be given as text).
        tasks: tasks, any of them (likewise).
        hardware: the device, in words.
        source: ``play``, ``batch``, ``bench`` or ``api``.
        since: earliest ``created_at``: a datetime (naive means UTC) or ISO 8601 text.
        until: the moment before which a run must have been created.
    """

    pool: str | None = None
    policies: Sequence[str] = ()
    tasks: Sequence[str] = ()
    hardware: str | None = None
    source: str | None = None
    since: datetime | str | None = None
    until: datetime | str | None = None

    def __post_init__(self) -> None:
        for name in ("policies", "tasks"):
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(value))

    def where(self, *conditions: str) -> tuple[str, list[str]]:
        """The WHERE clause, further ``conditions`` (SQL, not user text) included, and its parameters.

        Raises:
            ValueError: ``since`` or ``until`` is no ISO 8601 date or time.
        """
        parts, values = list(conditions), []
        for column, value in (("pool", self.pool), ("hardware", self.hardware), ("source", self.source)):
            if value is not None:
                parts.append(f"{column} = ?")
                values.append(value)
        for column, choices in (("policy", self.policies), ("task", self.tasks)):
            if choices:
                parts.append(f"{column} IN ({', '.join('?' * len(choices))})")
                values.extend(choices)
        for comparison, moment in ((">=", self.since), ("<", self.until)):
            if moment is not None:
                parts.append(f"created_at {comparison} ?")
                values.append(_moment(moment))
        return (f"WHERE {' AND '.join(parts)}" if parts else "", values)


ALL = Filter()
"""Every run."""


def filters(path: str | Path) -> dict[str, list[str]]:
    """What there is to filter by: the distinct values, sorted, under ``pools``, ``policies``, ``tasks``,
    ``hardware`` and ``versions``."""
    columns = {"pools": "pool", "policies": "policy", "tasks": "task", "hardware": "hardware", "versions": "version"}
    with open_reader(path) as connection:
        return {
            key: [v for (v,) in connection.execute(f"SELECT DISTINCT {c} FROM runs WHERE {c} IS NOT NULL ORDER BY {c}")]
            for key, c in columns.items()
        }


def count(path: str | Path, filter: Filter = ALL) -> int:
    """How many runs the filter lets through."""
    where, values = filter.where()
    with open_reader(path) as connection:
        return int(connection.execute(f"SELECT count(*) FROM runs {where}", values).fetchone()[0])


def runs(path: str | Path, filter: Filter = ALL, *, limit: int = 100, offset: int = 0) -> pd.DataFrame:
    """The runs, newest first, with all columns of the table."""
    where, values = filter.where()
    sql = f"SELECT * FROM runs {where} ORDER BY created_at DESC, id DESC LIMIT ? OFFSET ?"
    with open_reader(path) as connection:
        return _frame(connection, sql, [*values, int(limit), int(offset)])


def speedup_over_time(path: str | Path, filter: Filter = ALL) -> pd.DataFrame:
    """One row per finished run, oldest first: run_id, created_at (UTC), policy, task, speedup (NaN without a
    baseline), tokens_per_second."""
    where, values = filter.where(_FINISHED)
    sql = f"""
        SELECT id AS run_id, created_at, policy, task, speedup, tokens_per_second
        FROM runs {where} ORDER BY created_at, id
    """
    with open_reader(path) as connection:
        return _typed(_frame(connection, sql, values), numbers=["speedup", "tokens_per_second"])


def regret_over_time(path: str | Path, filter: Filter = ALL) -> pd.DataFrame:
    """Regret summed up per policy over its finished runs with a known regret, in time order.

    Columns: run_id, created_at (UTC), policy, run_number (from 1, per policy), regret_rounds (this run's),
    cumulative_regret. Stopping-time regret in rounds (MetaSD Def. 1, BanditSpec Eq. 1).
    """
    where, values = filter.where(_FINISHED, "regret_rounds IS NOT NULL")
    sql = f"""
        SELECT id AS run_id, created_at, policy, row_number() OVER so_far AS run_number, regret_rounds,
               sum(regret_rounds) OVER so_far AS cumulative_regret
        FROM runs {where}
        WINDOW so_far AS (PARTITION BY policy ORDER BY created_at, id ROWS UNBOUNDED PRECEDING)
        ORDER BY policy, run_number
    """
    with open_reader(path) as connection:
        return _typed(_frame(connection, sql, values), numbers=["regret_rounds", "cumulative_regret"])


def policy_summary(path: str | Path, filter: Filter = ALL) -> pd.DataFrame:
    """One row per policy over its finished runs, alphabetically.

    Columns: policy, runs, median_speedup, and the means over the runs of mean_accepted_tokens,
    acceptance_rate, regret_rounds and best_arm_ratio. Runs that lack a figure don't count in it; NaN where
    all do.
    """
    where, values = filter.where(_FINISHED)
    figures = ["speedup", "mean_accepted_tokens", "acceptance_rate", "regret_rounds", "best_arm_ratio"]
    with open_reader(path) as connection:
        frame = _typed(_frame(connection, f"SELECT policy, {', '.join(figures)} FROM runs {where}", values), figures)
    groups = frame.groupby("policy", sort=True)
    return groups.agg(
        runs=("policy", "size"),
        median_speedup=("speedup", "median"),
        **{figure: (figure, "mean") for figure in figures[1:]},
    ).reset_index()


def drafter_by_task(path: str | Path, filter: Filter = ALL) -> pd.DataFrame:
    """How well each drafter alone would have done on each task, whoever was chosen: over finished greedy runs.

    Columns: drafter, task (``NO_TASK`` for runs without one), runs, mean_accepted_tokens (tokens of these runs ÷
    rounds the drafter would have needed for them).
    """
    where, values = filter.where(_FINISHED, "drafter_rounds IS NOT NULL")
    sql = f"""
        SELECT key AS drafter, coalesce(task, ?) AS task, count(*) AS runs,
               1.0 * sum(output_tokens) / sum(value) AS mean_accepted_tokens
        FROM runs, json_each(runs.drafter_rounds) {where}
        GROUP BY 1, 2 ORDER BY 1, 2
    """
    with open_reader(path) as connection:
        return _typed(_frame(connection, sql, [NO_TASK, *values]), numbers=["mean_accepted_tokens"])


def run(path: str | Path, id: int) -> dict[str, Any] | None:
    """One run by its id: all columns, ``parameters`` as a dict, ``lossless`` as a bool; ``None`` if unknown."""
    with open_reader(path) as connection:
        cursor = connection.execute("SELECT * FROM runs WHERE id = ?", [id])
        row = cursor.fetchone()
        if row is None:
            return None
        record = dict(zip((column[0] for column in cursor.description), row, strict=True))
    record["parameters"] = json.loads(record["parameters"])
    record["lossless"] = None if record["lossless"] is None else bool(record["lossless"])
    return record


def timed_rounds(
    path: str | Path, card_hash: str, hardware: str, dtype: str, newest: int | None = None
) -> list[dict[str, Any]]:
    """Arm, lengths and seconds of every round on one pool and machine, in the order in which they were played.

    ``newest`` takes those of the newest so many runs only.
    """
    columns = "run_id arm draft_length drafted emitted draft_seconds verify_seconds evaluate_seconds".split()
    of_rounds = ", ".join(f"rounds.{column}" for column in columns)
    sql = f"""
        SELECT {of_rounds} FROM rounds WHERE run_id IN (
            SELECT id FROM runs WHERE card_hash = ? AND hardware = ? AND dtype = ? ORDER BY id DESC LIMIT ?
        ) ORDER BY run_id, round_index
    """
    values = [card_hash, hardware, dtype, -1 if newest is None else newest]
    with open_reader(path) as connection:
        return [dict(zip(columns, row, strict=True)) for row in connection.execute(sql, values)]


def rounds(path: str | Path, id: int) -> pd.DataFrame:
    """The rounds of one run in order: all columns, with drafted_ids, token_ids and probabilities as lists."""
    with open_reader(path) as connection:
        frame = _frame(connection, "SELECT * FROM rounds WHERE run_id = ? ORDER BY round_index", [id])
    for column in ("drafted_ids", "token_ids", "probabilities"):
        lists = [None if text is None else json.loads(text) for text in frame[column]]
        frame[column] = pd.Series(lists, dtype=object)
    return frame


def export_csv(path: str | Path, filter: Filter, file: str | Path | TextIO) -> int:
    """Write the runs, oldest first, with all columns and a header; returns how many.

    Args:
        path: the database.
        filter: which runs.
        file: a path, or a text file opened with ``newline=""``. Texts are written as they are stored: a
            spreadsheet may take a prompt that begins with ``=`` for a formula.
    """
    where, values = filter.where()
    # Closed by the with statement below, which a caller's own file must not be.
    opened = open(file, "w", encoding="utf-8", newline="") if isinstance(file, (str, Path)) else nullcontext(file)  # noqa: SIM115
    with open_reader(path) as connection, opened as out:
        cursor = connection.execute(f"SELECT * FROM runs {where} ORDER BY created_at, id", values)
        writer = csv.writer(out)
        writer.writerow(column[0] for column in cursor.description)
        written = 0
        for row in cursor:
            writer.writerow(row)
            written += 1
    return written


def _frame(connection: sqlite3.Connection, sql: str, values: Sequence[Any]) -> pd.DataFrame:
    cursor = connection.execute(sql, values)
    return pd.DataFrame(cursor.fetchall(), columns=[column[0] for column in cursor.description])


def _typed(frame: pd.DataFrame, numbers: list[str]) -> pd.DataFrame:
    """Columns of one type even where every value is missing or there is no row."""
    frame = frame.astype(dict.fromkeys(numbers, float))
    if "created_at" in frame:
        frame["created_at"] = pd.to_datetime(frame["created_at"], utc=True, format="ISO8601")
    return frame


def _moment(moment: datetime | str) -> str:
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment.replace("Z", "+00:00"))  # Python 3.10 does not read the Z
        except ValueError:
            raise ValueError(f"not an ISO 8601 date or time, such as 2026-01-31T12:00: {moment!r}") from None
    return utc_text(moment)
