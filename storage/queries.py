"""Runs one by one: lists, a run with its rounds. (What runs say together is in ``figures``, files in ``export``.)

Every function opens its own read-only connection, so any thread may call it. A file that does not exist yet gives
empty results (with their columns); one that cannot be read raises ``StorageError`` with a sentence for the user.
Values reach SQL as parameters only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from storage.connection import open_reader
from storage.filters import ALL, COMPARED, Filter, run_id
from storage.frames import read_frame

__all__ = ["ALL", "Filter"]

PREVIEW = 160
"""Characters of a prompt that lists show."""

LISTED = (
    "id created_at policy task status source output_tokens rounds tokens_per_second mean_accepted_tokens regret_rounds"
).split()
"""Columns of a run in lists, beside its speed-up, if that says something, and the beginning of its prompt."""


def count(path: str | Path, filter: Filter = ALL) -> int:
    """How many runs the filter lets through."""
    where, values = filter.where()
    counted = "count(*) FROM runs" if filter.dated else "total(runs) FROM run_counts"
    with open_reader(path) as connection:
        return int(connection.execute(f"SELECT {counted} {where}", values).fetchone()[0])


def runs(path: str | Path, filter: Filter = ALL, *, limit: int = 100, offset: int = 0) -> pd.DataFrame:
    """The runs, newest first, with all columns of the table."""
    return _page(path, filter, "*", limit, offset)


def listed(path: str | Path, filter: Filter = ALL, *, limit: int = 25, offset: int = 0) -> pd.DataFrame:
    """The runs, newest first: the columns ``LISTED``, ``speedup``, and ``prompt``, its first ``PREVIEW`` characters."""
    told = f"CASE WHEN {COMPARED} THEN speedup END AS speedup, substr(prompt, 1, {PREVIEW}) AS prompt"
    return _page(path, filter, f"{', '.join(LISTED)}, {told}", limit, offset)


def run(path: str | Path, id: int) -> dict[str, Any] | None:
    """One run by its id: all columns, ``parameters`` as a dict, ``lossless`` as a bool; ``None`` if unknown."""
    with open_reader(path) as connection:
        cursor = connection.execute("SELECT * FROM runs WHERE id = ?", [run_id(id)])
        row = cursor.fetchone()
        if row is None:
            return None
        record = dict(zip((column[0] for column in cursor.description), row, strict=True))
    record["parameters"] = json.loads(record["parameters"])
    record["lossless"] = None if record["lossless"] is None else bool(record["lossless"])
    return record


def rounds(path: str | Path, id: int) -> pd.DataFrame:
    """The rounds of one run in order: all columns, with drafted_ids, token_ids and probabilities as lists."""
    with open_reader(path) as connection:
        frame = read_frame(connection, "SELECT * FROM rounds WHERE run_id = ? ORDER BY round_index", [run_id(id)])
    for column in ("drafted_ids", "token_ids", "probabilities"):
        lists = [json.loads(text) if isinstance(text, str) else None for text in frame[column]]
        frame[column] = pd.Series(lists, dtype=object)
    return frame


def ids_on(
    path: str | Path, card_hash: str, hardware: str, dtype: str, *, after: int = 0, newest: int = 1000
) -> list[int]:
    """The numbers of the newest runs on a pool and machine, oldest first; only those beyond ``after``."""
    sql = """
        SELECT id FROM runs WHERE card_hash = ? AND hardware = ? AND dtype = ? AND id > ? ORDER BY id DESC LIMIT ?
    """
    with open_reader(path) as connection:
        return [id for (id,) in connection.execute(sql, [card_hash, hardware, dtype, after, newest])][::-1]


def timed_rounds(path: str | Path, ids: Sequence[int]) -> list[dict[str, Any]]:
    """Arm, lengths and seconds of every round of some runs, in the order in which they were played."""
    columns = "run_id arm draft_length drafted emitted draft_seconds verify_seconds evaluate_seconds".split()
    marks = ", ".join("?" * len(ids))
    sql = f"SELECT {', '.join(columns)} FROM rounds WHERE run_id IN ({marks}) ORDER BY run_id, round_index"
    with open_reader(path) as connection:
        return [dict(zip(columns, row, strict=True)) for row in connection.execute(sql, list(ids))]


def _page(path: str | Path, filter: Filter, columns: str, limit: int, offset: int) -> pd.DataFrame:
    """Some of the runs, newest first; found by the dashboard's index before any of their texts is read."""
    where, values = filter.where()
    newest = "ORDER BY created_at DESC, id DESC"
    sql = f"SELECT {columns} FROM runs WHERE id IN (SELECT id FROM runs {where} {newest} LIMIT ? OFFSET ?) {newest}"
    with open_reader(path) as connection:
        return read_frame(connection, sql, [*values, int(limit), int(offset)])
