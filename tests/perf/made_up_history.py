"""A large history made up from simulated runs."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from drafters.base import Acceptances
from drafters.sampling import SamplingParams
from multidraft.bench.simulate import draw_table
from multidraft.policies import NO_DRAFTER
from multidraft.policies.specs import without_divergence
from multidraft.replay.regret import regret_of
from multidraft.replay.walk import replay
from storage.records import Generation, Round
from storage.rows import round_rows, run_row
from storage.run import Baseline, Conditions, Origin, Run
from storage.store import Store

POLICIES = ("ucb", "exp3", "ucbspec", "normal-hedge", "rate-hedge", "random", "fixed:drafter0", "fixed:drafter1")
TASKS = ("arithmetic", "code", "json", "sql", "summary", "translation")
MACHINES = ("AMD EPYC, 2 cores", "NVIDIA A10G")
VERSIONS = tuple(f"0.1.0+{i:08x}" for i in range(12))
DRAFTERS = tuple(f"drafter{i}" for i in range(5))
DRAFT_LENGTH = 6
Rows = tuple[dict[str, Any], list[dict[str, Any]]]
"""A run's row, and those of its rounds."""

VARIANTS = 4
"""Simulated runs per policy and task; all others repeat one of them at another time and pace."""


def build_history(path: Path, runs: int, rounds: int) -> None:
    """Write a history of ``runs`` runs over a year, ``rounds`` rounds each on average, through the store's own schema.

    Every run repeats one of a few hundred simulated ones (a policy on a table of acceptances) at its own pace, so
    that the figures of a run and those of its rounds belong together.
    """
    Store(path).close()
    rng = np.random.default_rng(0)
    templates = [
        _simulate(policy, task, rounds, rng)
        for policy in POLICIES
        for task in range(len(TASKS))
        for _ in range(VARIANTS)
    ]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        with connection:
            _insert_runs(connection, templates, runs, rng)
            _insert_rounds(connection, templates)


def _simulate(policy: str, task: int, rounds: int, rng: np.random.Generator) -> Rows:
    """A run of ``policy``: a specialist and fair drafters on a text of about ``rounds`` rounds."""
    chances = rng.uniform(0.3, 0.6, size=len(DRAFTERS))
    chances[task % len(DRAFTERS)] = 0.8
    tokens = int(rng.uniform(0.7, 1.3) * rounds * 2.8)
    table = draw_table(np.repeat(chances[:, None], tokens, axis=1), DRAFT_LENGTH, rng)
    played = replay(
        table, without_divergence(policy), draft_length=DRAFT_LENGTH, drafters=DRAFTERS, max_new_tokens=tokens
    )
    generation = Generation(
        prompt=f"Prompt {rng.integers(10**9)} about {TASKS[task]}. " * 12,
        policy=policy,
        drafters=DRAFTERS,
        prompt_tokens=80,
        token_ids=[7] * tokens,
        text="word " * tokens,
        rounds=[_round(i, *choice, rng) for i, choice in enumerate(zip(played.arms, played.lengths, played.emitted))],
        status="completed",
        prefill_seconds=rng.gamma(20, 0.002),
    )
    scores = replace(regret_of(generation, table), lossless=True, acceptance=Acceptances(table, table, table))
    run = Run(
        generation,
        SamplingParams(max_new_tokens=tokens, draft_length=DRAFT_LENGTH),
        0,
        Conditions("pocket", "c0ffee", MACHINES[0], "float32", VERSIONS[0]),
        Origin("bench", TASKS[task]),
        Baseline("answer", tokens, 1 / 120, 0.03),
        scores,
    )
    values = run.to_json()
    return run_row(values), round_rows(values)


def _round(index: int, arm: int, length: int, emitted: int, rng: np.random.Generator) -> Round:
    drafts = arm != NO_DRAFTER
    return Round(
        index=index,
        arm=arm if drafts else None,
        drafter=DRAFTERS[arm] if drafts else None,
        drafted=(7,) * length,
        accepted=emitted - 1,
        tokens=(7,) * emitted,
        own=7,
        text="word " * emitted,
        pieces=("word ",) * emitted,
        draft_length=length,
        nodes=length,
        depth=length,
        reward=(emitted - 1) / DRAFT_LENGTH,
        probabilities=(1 / len(DRAFTERS),) * len(DRAFTERS),
        draft_seconds=length * 0.0008 * rng.gamma(20, 0.05),
        verify_seconds=0.008 * rng.gamma(40, 0.025),
        policy_seconds=0.00005,
        evaluate_seconds=0.0004,
        evaluated=emitted,
    )


def _insert_runs(connection: sqlite3.Connection, templates: list[Rows], runs: int, rng: np.random.Generator) -> None:
    first = datetime(2025, 1, 1, tzinfo=UTC)
    columns = list(templates[0][0])
    marks = ", ".join("?" * len(columns))
    moments = np.sort(rng.uniform(0, 365 * 86400, size=runs))
    paces = rng.lognormal(0, 0.12, size=runs)
    chosen = rng.integers(len(templates), size=runs)
    connection.execute("CREATE TEMP TABLE repeats (run_id INTEGER PRIMARY KEY, template INTEGER, pace REAL)")

    def rows() -> Iterator[list[Any]]:
        for i, (template, pace) in enumerate(zip(chosen.tolist(), paces.tolist())):
            run = dict(templates[template][0])
            run["created_at"] = (first + timedelta(seconds=float(moments[i]))).isoformat(timespec="microseconds")
            run["hardware"] = MACHINES[i % 7 == 0]
            run["version"] = VERSIONS[i * len(VERSIONS) // runs]
            for column in run:
                if column.endswith("_seconds"):
                    run[column] *= pace
            run["prompt_hash"] += i % 50
            for column in ("tokens_per_second", "speedup", "request_speedup"):
                run[column] /= pace
            yield list(run.values())

    connection.executemany(f"INSERT INTO runs ({', '.join(columns)}) VALUES ({marks})", rows())
    ids = range(1, runs + 1)
    connection.executemany("INSERT INTO repeats VALUES (?, ?, ?)", zip(ids, chosen.tolist(), paces.tolist()))


def _insert_rounds(connection: sqlite3.Connection, templates: list[Rows]) -> None:
    names = list(templates[0][1][0])
    columns = [f'"{name}"' for name in names]
    connection.execute(f"CREATE TEMP TABLE template_rounds (template, {', '.join(columns)})")
    marks = ", ".join("?" * (len(columns) + 1))
    rows = ([i, *row.values()] for i, template in enumerate(templates) for row in template[1])
    connection.executemany(f"INSERT INTO template_rounds VALUES ({marks})", rows)
    connection.execute('CREATE INDEX temp.by_template ON template_rounds (template, "index")')
    paced = ", ".join(f"{name} * pace" if "_seconds" in name else name for name in columns)
    connection.execute(
        f"INSERT INTO rounds (run_id, {', '.join(columns)}) SELECT run_id, {paced} "
        'FROM repeats CROSS JOIN template_rounds USING (template) ORDER BY run_id, "index"'
    )
