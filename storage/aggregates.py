"""What the filtered runs say together, for charts: every query reads the dashboard's index only, or the counts of runs
beside them, never rounds or texts.

As in ``queries``, each function opens its own read-only connection and an absent file gives empty results. Only runs
that ended by themselves count (completed, stopped, or at the context limit). SQL adds up by policy and prompt; the
figures and their intervals are those of ``storage.figures``: ratios of totals over prompts, each with the mean of its
runs, bootstrapped over prompts.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from storage.connection import open_reader, read_frame, read_rows
from storage.figures import ratio_columns, ratio_of_totals
from storage.filters import ALL, CHOSEN, COMPARED, FINISHED, TIMED, Filter

NO_TASK = "no task"
"""Stands for the task of runs that have none, where tasks are a chart's axis."""

SETTINGS = {"draft_length": int, "temperature": float, "max_new_tokens": int}
"""What runs are set to, and how it is sorted."""

CONDITIONS = ("pool", "card_hash", "hardware", "dtype", "version", "baseline_kind", *SETTINGS)
"""What runs must have in common for their speeds and speed-ups to be comparable."""

_BASELINE = "output_tokens * baseline_seconds_per_token"

RATIOS = {
    "speedup": (_BASELINE, "decode_seconds", COMPARED),
    "request_speedup": (f"baseline_prefill_seconds + {_BASELINE}", "prefill_seconds + decode_seconds", COMPARED),
    "mean_accepted_tokens": ("output_tokens", "round_count", "round_count > 0"),
    "acceptance_rate": ("accepted_tokens", "drafted_tokens", "drafted_tokens + accepted_tokens IS NOT NULL"),
    "regret_rounds": ("regret_rounds", "1", "regret_rounds IS NOT NULL"),
    "best_arm_ratio": ("best_arm_ratio * chosen_rounds", "chosen_rounds", "best_arm_ratio IS NOT NULL"),
}
"""Figures of several runs as ratios of totals: numerator, denominator, and which runs count."""


def filters(path: str | Path) -> dict[str, list[str]]:
    """What there is to filter by: of each column of ``CHOSEN`` the distinct values, as text, sorted."""
    found = read_frame(path, f"SELECT {', '.join(CHOSEN)} FROM run_counts")
    return {column: sorted(found[column].dropna().unique(), key=SETTINGS.get(column)) for column in CHOSEN}


def conditions(path: str | Path, filter: Filter = ALL) -> pd.DataFrame:
    """How many finished ``runs`` were made under which ``CONDITIONS``, as text, the most frequent first."""
    where, values = filter.where(FINISHED)
    columns = ", ".join(CONDITIONS)
    counted = "count(*) AS runs FROM runs" if filter.by_run else "sum(runs) AS runs FROM run_counts"
    texts = ", ".join(f"CAST({column} AS TEXT) AS {column}" for column in CONDITIONS)
    sql = f"SELECT {texts}, {counted} {where} GROUP BY {columns} ORDER BY runs DESC, {columns}"
    return read_frame(path, sql, values)


def speedup_by_run(path: str | Path, filter: Filter = ALL) -> pd.DataFrame:
    """One row per finished run with a speed-up, oldest first: run_id, created_at (UTC), policy, task, speedup,
    speedup_uncertainty (``storage.run.Run``), tokens_per_second."""
    where, values = filter.where(FINISHED, COMPARED)
    uncertainty = "(SELECT speedup_uncertainty FROM runs AS own WHERE own.id = runs.id)"  # not in the index
    columns = (
        f"id AS run_id, created_at, policy, task, speedup, {uncertainty} AS speedup_uncertainty, tokens_per_second"
    )
    sql = f"SELECT {columns} FROM runs {where} ORDER BY created_at, id"
    return read_frame(path, sql, values, numbers=["speedup", "speedup_uncertainty", "tokens_per_second"])


def speedup_by_period(path: str | Path, filter: Filter = ALL, periods: int = 40) -> pd.DataFrame:
    """One row per policy and period of time: policy, created_at (UTC, mean of its runs), speedup, speedup_low,
    speedup_high (decoding), runs.

    Args:
        periods: into so many equal ones the time from first to last run is divided.
    """
    where, values = filter.where(FINISHED, COMPARED)
    above, below, _ = RATIOS["speedup"]
    span = f"SELECT julianday(min(created_at)), julianday(max(created_at)) FROM runs {where}"
    ((first, last),) = read_rows(path, span, values)
    length = max(((last or 0) - (first or 0)) / periods, 1e-6)
    sql = f"""
        SELECT policy, min({periods - 1}, CAST((day - ?) / ? AS INTEGER)) AS period, sum(day) AS days,
               count(*) AS runs, sum(above) AS above, sum(below) AS below
        FROM (SELECT policy, prompt_hash, julianday(created_at) AS day, {above} AS above, {below} AS below
              FROM runs {where})
        GROUP BY policy, period, prompt_hash ORDER BY policy, period, prompt_hash
    """
    by_prompt = read_frame(path, sql, [first or 0, length, *values])
    rows = [
        {
            "policy": policy,
            "created_at": prompts["days"].sum() / prompts["runs"].sum(),
            "runs": int(prompts["runs"].sum()),
            **ratio_columns(
                "speedup", ratio_of_totals(*(prompts[part] / prompts["runs"] for part in ("above", "below")))
            ),
        }
        for (policy, _), prompts in by_prompt.groupby(["policy", "period"], sort=True)
    ]
    columns = ["policy", "created_at", "speedup", "speedup_low", "speedup_high", "runs"]
    frame = pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(columns[1:5], float))
    frame["created_at"] = pd.to_datetime(frame["created_at"], unit="D", origin="julian", utc=True).dt.floor("ms")
    return frame


def regret_over_time(path: str | Path, filter: Filter = ALL, points: int = 250) -> pd.DataFrame:
    """Regret summed up per policy over its finished runs with a known regret, in time order; of a policy with more than
    ``points`` runs about so many rows, evenly spaced, the last run's among them.

    Columns: policy, run_number (from 1, per policy), regret_rounds (this run's), cumulative_regret, created_at (UTC).
    Stopping-time regret in rounds (MetaSD Def. 1, BanditSpec Eq. 1).
    """
    columns = ["policy", "run_number", "regret_rounds", "cumulative_regret", "created_at"]
    parts = [pd.DataFrame(columns=columns)]
    order = "ORDER BY created_at"  # that of the index
    for policy, found in _by_policy(path, filter, "regret_rounds, created_at", "regret_rounds IS NOT NULL", order):
        regret, numbers = np.array([rounds for rounds, _ in found], float), np.arange(1, len(found) + 1)
        shown = (numbers % max(1, -(-len(found) // points)) == 0) | (numbers == len(found))
        times = [found[number - 1][1] for number in numbers[shown]]
        values = (policy, numbers[shown], regret[shown], np.cumsum(regret)[shown], times)
        parts.append(pd.DataFrame(dict(zip(columns, values, strict=True))))
    return pd.concat(parts[1:] or parts, ignore_index=True)


def best_arm_by_round(path: str | Path, filter: Filter = ALL, rounds: int = 200) -> pd.DataFrame:
    """In what share of the finished greedy runs that drafted in a round it was by the best single drafter in hindsight;
    of the first ``rounds`` rounds.

    Columns: policy, round (from 1), ratio, runs (how many drafted in this round).
    """
    parts = [pd.DataFrame(columns=["policy", "round", "ratio", "runs"])]
    played = f"substr(best_arm_rounds, 1, {int(rounds)})"
    for policy, found in _by_policy(path, filter, played, "best_arm_rounds <> ''"):
        longest = max(len(text) for (text,) in found)
        marks = np.frombuffer("".join(text.ljust(longest) for (text,) in found).encode("ascii"), dtype=np.uint8)
        best, other = ((marks.reshape(-1, longest) == ord(mark)).sum(axis=0) for mark in "10")
        runs = best + other
        frame = pd.DataFrame({"policy": policy, "round": np.arange(1, longest + 1), "runs": runs})
        parts.append(frame.assign(ratio=best / np.maximum(runs, 1))[runs > 0][parts[0].columns])
    return pd.concat(parts[1:] or parts, ignore_index=True)


def drafter_by_task(path: str | Path, filter: Filter = ALL) -> pd.DataFrame:
    """How well each drafter alone would have done on each task, whoever was chosen: over finished greedy runs.

    Columns: drafter, task (``NO_TASK`` for runs without one), runs, mean_accepted_tokens (tokens ÷ rounds the drafter
    would have needed for them, each prompt with the means of its runs).
    """
    where, values = filter.where(FINISHED, "drafter_rounds IS NOT NULL")
    found: list[tuple[Any, ...]] = []
    with open_reader(path) as connection:
        for card in _kinds(connection, "card_hash", filter):
            of_card, asked = f"{where} AND card_hash IS ?", [*values, card]
            row = connection.execute(f"SELECT drafter_rounds FROM runs {of_card} LIMIT 1", asked).fetchone()
            names = list(json.loads(row[0])) if row else []  # runs of one card have the same drafters
            means = "".join(f", avg(json_extract(drafter_rounds, ?)) AS rounds{i}" for i in range(len(names)))
            sums = "".join(f", total(rounds{i})" for i in range(len(names)))
            sql = f"""
                SELECT task, sum(runs), total(tokens){sums} FROM (
                    SELECT coalesce(task, ?) AS task, count(*) AS runs, avg(output_tokens) AS tokens{means}
                    FROM runs {of_card} GROUP BY 1, prompt_hash
                ) GROUP BY 1
            """
            paths = [f'$."{name}"' for name in names]
            for task, runs, tokens, *needed in connection.execute(sql, [NO_TASK, *paths, *asked]):
                found += [(name, task, runs, tokens, rounds) for name, rounds in zip(names, needed, strict=True)]
    frame = pd.DataFrame(found, columns=["drafter", "task", "runs", "tokens", "rounds"])
    frame = frame.groupby(["drafter", "task"], as_index=False).sum()
    frame["mean_accepted_tokens"] = (frame["tokens"] / frame["rounds"]).astype(float)
    return frame[["drafter", "task", "runs", "mean_accepted_tokens"]]


def time_by_phase(path: str | Path, filter: Filter = ALL) -> pd.DataFrame:
    """Where the decoding time of each policy's finished, timed runs went: policy, runs, output_tokens, draft_seconds,
    verify_seconds, policy_seconds and evaluate_seconds, each the sum over prompts of the mean of their runs."""
    where, values = filter.where(FINISHED, TIMED)
    names = ("draft_seconds", "verify_seconds", "policy_seconds", "evaluate_seconds")
    counted = ("output_tokens", *names)
    sums, means = (", ".join(f"{of}({name}) AS {name}" for name in counted) for of in ("total", "avg"))
    each = f"SELECT policy, count(*) AS runs, {means} FROM runs {where} GROUP BY policy, prompt_hash"
    sql = f"SELECT policy, sum(runs) AS runs, {sums} FROM ({each}) GROUP BY policy ORDER BY policy"
    return read_frame(path, sql, values, numbers=names)


def latency(path: str | Path, filter: Filter = ALL) -> pd.DataFrame:
    """Percentiles over the finished, timed runs of each policy: policy, runs, and ``token_p50`` … (seconds per output
    token, decoding only) and ``first_p50`` … (seconds of the prefill, which the first token waits for)."""
    percentiles = (50, 90, 99)
    names = [f"{column}_p{p}" for column in ("token", "first") for p in percentiles]
    rows: list[list[Any]] = []
    seconds = "decode_seconds / output_tokens, prefill_seconds"
    for policy, found in _by_policy(path, filter, seconds, f"output_tokens > 0 AND {TIMED}"):
        rows.append([policy, len(found), *np.nanpercentile(np.array(found, float), percentiles, axis=0).T.ravel()])
    return pd.DataFrame(rows, columns=["policy", "runs", *names])


def _kinds(connection: sqlite3.Connection, column: str, filter: Filter) -> list[Any]:
    """The distinct values, sorted, of the finished runs that the filter lets through, as far as their counts tell."""
    where, values = replace(filter, since=None, until=None, id=(), prompt_hash=(), batch_id=()).where(FINISHED)
    sql = f"SELECT DISTINCT {column} FROM run_counts {where} ORDER BY 1"
    return [value for (value,) in connection.execute(sql, values)]


def _by_policy(
    path: str | Path, filter: Filter, columns: str, condition: str, order: str = ""
) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    """Columns of the finished runs that meet a condition, policy by policy, as the index has them."""
    where, values = filter.where(FINISHED, condition)
    sql = f"SELECT {columns} FROM runs {where} AND policy = ? {order}"
    with open_reader(path) as connection:
        for policy in _kinds(connection, "policy", filter):
            if found := connection.execute(sql, [*values, policy]).fetchall():
                yield policy, found
