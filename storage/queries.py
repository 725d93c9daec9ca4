"""Runs one by one: lists, and a run with its rounds. (Figures of many runs are in ``aggregates``, files in ``export``.)

Every function opens its own read-only connection, so any thread may call it. A file that does not exist yet gives
empty results (with their columns); one that cannot be read raises ``StorageError`` with a sentence for the user.
Values reach SQL as parameters only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from storage.connection import dicts_of, open_reader, read_column, read_dicts, read_frame, read_rows
from storage.filters import ALL, FINISHED, TIMED, Filter, run_id
from storage.rows import converted, run_of
from storage.run import Run

PREVIEW = 160
"""Characters of a prompt that lists show."""

LISTED = """
    id created_at policy task status source output_tokens round_count tokens_per_second mean_accepted_tokens
    regret_rounds speedup request_speedup speedup_uncertainty
""".split()
"""Columns of a run in lists, beside the beginning of its prompt."""

FEWEST_RUNS, RECENT = 4, 1000
"""Of a batch that is to tell how long another would take; and among so many of the newest runs."""

PAUSE = 20
"""So many times as long as usual after the run before: the server was down meanwhile."""


def count(path: str | Path, filter: Filter = ALL) -> int:
    """How many runs the filter lets through."""
    where, values = filter.where()
    counted = "count(*) FROM runs" if filter.by_run else "total(runs) FROM run_counts"
    (count,) = read_column(path, f"SELECT {counted} {where}", values)
    return int(count)


def listed(path: str | Path, filter: Filter = ALL, *, limit: int = 25, offset: int = 0) -> pd.DataFrame:
    """Some of the runs, newest first: the columns ``LISTED``, and ``prompt``, its first ``PREVIEW`` characters.

    They are found by the dashboard's index before any text is read.
    """
    where, values = filter.where()
    newest = "ORDER BY created_at DESC, id DESC"
    sql = f"""
        SELECT {", ".join(LISTED)}, substr(prompt, 1, {PREVIEW}) AS prompt FROM runs
        WHERE id IN (SELECT id FROM runs {where} {newest} LIMIT ? OFFSET ?) {newest}
    """
    return read_frame(path, sql, [*values, int(limit), int(offset)])


def run(path: str | Path, id: int) -> Run | None:
    """One run by its id, with all its rounds; ``None`` if unknown."""
    with open_reader(path) as connection:
        rows = dicts_of(connection.execute("SELECT * FROM runs WHERE id = ?", [run_id(id)]))
        rounds = dicts_of(connection.execute('SELECT * FROM rounds WHERE run_id = ? ORDER BY "index"', [run_id(id)]))
    return run_of(rows[0], rounds) if rows else None


def ids_after(path: str | Path, after: int, most: int) -> list[int]:
    """The ids of the runs that follow a run, in order, at most so many."""
    return read_column(path, "SELECT id FROM runs WHERE id > ? ORDER BY id LIMIT ?", [run_id(after), int(most)])


def columns_of(path: str | Path, ids: Sequence[int], columns: Sequence[str]) -> dict[int, dict[str, Any]]:
    """Some columns of some runs, by their ids in ascending order; ids of no run are left out."""
    sql = f"SELECT id, {', '.join(columns)} FROM runs WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id"
    return {row.pop("id"): row for row in read_dicts(path, sql, [json.dumps(list(ids))])}


def ids_on(
    path: str | Path,
    card_hash: str,
    hardware: str,
    dtype: str,
    *,
    after: int = 0,
    newest: int = 1000,
    experiments: Sequence[str] = (),
) -> list[int]:
    """The ids of the newest runs on a pool and machine, oldest first; only those beyond ``after``, and none that was
    decoded beside others or by another engine; of some experiments alone if any are named."""
    made_on = Filter(card_hash=card_hash, hardware=hardware, dtype=dtype, batch_id=tuple(experiments))
    where, values = made_on.where(TIMED, "source != 'vllm'", compared={"id >": after})
    return read_column(path, f"SELECT id FROM runs {where} ORDER BY id DESC LIMIT ?", [*values, newest])[::-1]


def seconds_per_run(
    path: str | Path, card_hash: str, hardware: str, dtype: str, max_new_tokens: float
) -> tuple[float, int] | None:
    """What a run of the newest batch or benchmark on a pool and machine took, by the times at which its runs began: the
    baseline, the scores and all that went on beside it included; and how many tokens it was allowed. One of as many as
    ``max_new_tokens`` is preferred. ``None`` is unknown."""
    made_on = Filter(card_hash=card_hash, hardware=hardware, dtype=dtype, source=("batch", "bench"))
    where, values = made_on.where("streams = 1", FINISHED)
    columns = "batch_id, max_new_tokens, 86400 * julianday(created_at)"
    sql = f"SELECT {columns} FROM runs {where} ORDER BY id DESC LIMIT {RECENT}"
    began: dict[tuple[str, int], list[float]] = {}
    for batch, tokens, at in read_rows(path, sql, values):
        began.setdefault((batch, tokens), []).append(at)
    found = list[tuple[float, int]]()
    for (_, tokens), times in began.items():
        gaps = -np.diff(times)
        if len(times) >= FEWEST_RUNS and (gaps > 0).any():
            found.append((float(gaps[gaps <= PAUSE * np.median(gaps[gaps > 0])].mean()), tokens))
    return next((took for took in found if took[1] == max_new_tokens), found[0] if found else None)


def timed_rounds(path: str | Path, ids: Sequence[int]) -> list[dict[str, Any]]:
    """What the rounds of some runs tell about costs, in the order in which they were played: the lengths of ``drafted``
    and ``tokens``, the other columns of the table that are numbers, and of the run ``policy``, ``prompt_tokens``,
    ``readers``, the arms that read the prompt during prefill, ``prefill_seconds``, ``baseline_prefill_seconds`` and
    ``baseline_seconds_per_token`` (``None`` is unknown)."""
    sql = f"""
        SELECT run_id, arm, rounds.draft_length, json_array_length(drafted) AS drafted, accepted,
               json_array_length(tokens) AS emitted, nodes, depth, together,
               rounds.draft_seconds, rounds.verify_seconds, rounds.policy_seconds, rounds.evaluate_seconds, evaluated,
               policy, prompt_tokens, readers, prefill_seconds, baseline_prefill_seconds, baseline_seconds_per_token
        FROM rounds JOIN runs ON runs.id = run_id WHERE run_id IN ({", ".join("?" * len(ids))})
        ORDER BY run_id, "index"
    """
    return [converted(row, ["readers"], json.loads) for row in read_dicts(path, sql, ids)]
