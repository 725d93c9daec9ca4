"""Policies on a table of mean accepted tokens: a laboratory that needs no model.

Each drafter accepts every token of a task independently with the probability that gives it the table's MAT. That is
all the papers' tables tell; real acceptances come in bursts, which helps long drafts.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq

from drafters.costs import Costs
from drafters.errors import SuiteError
from multidraft.bench.separators import csv_mark
from multidraft.policies.specs import make_policy, spec_list
from multidraft.replay.walk import replay

MIXED = "mixed"
"""Name of the stream whose task changes between and inside responses."""


def read_table(path: Path) -> pd.DataFrame:
    """Mean accepted tokens of drafters (rows) on tasks (columns), from a CSV file.

    It has a header ``drafter,task,…``, then a row for each drafter; semicolons or tabs may take the commas' place.

    Raises:
        SuiteError: no such file, or a cell that is no number of at least 1; the message says where.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SuiteError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SuiteError(f"{path.name} is not UTF-8 text; save it as UTF-8") from None
    mark, told = csv_mark(text)
    try:
        rows = [row for row in csv.reader(text.splitlines()[told:], delimiter=mark) if row]
    except csv.Error as error:
        raise SuiteError(f"{path.name} is not valid CSV ({error})") from None
    if len(rows) < 2 or len(rows[0]) < 2:
        raise SuiteError(f"{path.name} needs a header 'drafter,TASK,…' and a row for each drafter")
    tasks, seen = [name.strip() for name in rows[0][1:]], set[str]()
    if twice := next((name for name in tasks if tasks.count(name) > 1), None):
        raise SuiteError(f"{path.name}, row 1: there are two columns {twice!r}")
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(tasks) + 1:
            raise SuiteError(f"{path.name}, row {number}: {len(row)} cells where the header has {len(tasks) + 1}")
        if (name := row[0].strip()) in seen:
            raise SuiteError(f"{path.name}, row {number}: there is a drafter {name!r} already")
        if "." in name and name.replace(".", "", 1).isdecimal():  # else a task would be taken for the drafters
            raise SuiteError(f"{path.name}, row {number}: the first column holds the drafters' names, not {name}")
        seen.add(name)
    values = pd.DataFrame([row[1:] for row in rows[1:]]).apply(pd.to_numeric, errors="coerce").to_numpy(float)
    for drafter, column in np.argwhere(~((values >= 1) & np.isfinite(values))):
        raise SuiteError(
            f"{path.name}, row {drafter + 2}, column {tasks[column]!r}: {rows[drafter + 1][column + 1]!r} is not a "
            "value of mean accepted tokens (a number of at least 1: the target's own token counts)"
        )
    return pd.DataFrame(values, [row[0].strip() for row in rows[1:]], tasks)


def acceptance_probability(mat: float, draft_length: int) -> float:
    """The γ with ``1 + γ + … + γ^K = mat``: HedgeSpec Thm 3 for a constant γ."""
    if mat >= draft_length + 1:
        return 1.0
    return float(brentq(lambda gamma: np.polyval(np.ones(draft_length + 1), gamma) - mat, 0.0, 1.0))


def draw_table(gamma: np.ndarray, draft_length: int, rng: np.random.Generator) -> np.ndarray:
    """An acceptance table ``(drafters, positions)`` of independent hits with probabilities ``gamma`` of that shape."""
    positions = np.arange(gamma.shape[1])
    misses = np.where(rng.random(gamma.shape) < gamma, gamma.shape[1], positions)
    next_miss = np.minimum.accumulate(misses[:, ::-1], axis=1)[:, ::-1]
    return np.minimum(next_miss - positions, draft_length)


def simulate(
    table: pd.DataFrame,
    policies: Sequence[str],
    *,
    tokens: tuple[int, int] = (250, 250),
    draft_length: int = 8,
    seeds: int = 20,
    costs: Costs | None = None,
    mixed: bool = False,
) -> dict[str, Any]:
    """Every policy on the same ``seeds`` responses of every task, beginning afresh with each response.

    Args:
        table: see :func:`read_table`.
        tokens: shortest and longest response; lengths are drawn uniformly.
        costs: to tell tokens per second.
        mixed: in place of the tasks one stream of responses, each of which changes from one task to another at a
            point drawn uniformly (MetaSD App. H.2).

    Returns:
        ``{"policies": {SPEC: {"mean_accepted_tokens", "by_task": {TASK: MAT}, "tokens_per_second"}}}``; the mean is
        over tasks, as in the papers' tables.

    Raises:
        PolicyError: a bad spec, or a policy that cannot be replayed.
    """
    gamma = table.map(lambda mat: acceptance_probability(mat, draft_length)).to_numpy()
    drafters, tasks, policies = list(table.index), list(table.columns), spec_list(policies)
    for spec in policies:
        make_policy(spec, drafters)
    streams = [MIXED] if mixed else tasks
    sums = {spec: {stream: np.zeros(3) for stream in streams} for spec in policies}
    for column, stream in enumerate(streams):
        for seed in range(seeds):
            rng = np.random.default_rng((seed, column))
            length = int(rng.integers(tokens[0], tokens[1] + 1))
            if mixed:
                first, second = rng.choice(len(tasks), 2, replace=False)
                turn = int(rng.integers(1, length))
                chances = np.repeat(gamma[:, [first, second]], [turn, length - turn], axis=1)
            else:
                chances = np.repeat(gamma[:, [column]], length, axis=1)
            accepted = draw_table(chances, draft_length, rng)
            for spec in policies:
                played = replay(accepted, spec, seed, draft_length=draft_length, drafters=drafters, costs=costs)
                sums[spec][stream] += (length, played.rounds, played.seconds or 0.0)
    return {"policies": {spec: _figures(by_stream, timed=costs is not None) for spec, by_stream in sums.items()}}


def _figures(by_stream: dict[str, np.ndarray], *, timed: bool) -> dict[str, Any]:
    by_task = {stream: float(n / rounds) for stream, (n, rounds, _) in by_stream.items()}
    tokens, _, seconds = np.sum(list(by_stream.values()), axis=0)
    return {
        "mean_accepted_tokens": sum(by_task.values()) / len(by_task),
        "by_task": by_task,
        "tokens_per_second": float(tokens / seconds) if timed else None,
    }
