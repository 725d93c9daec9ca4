"""Batches, races and benchmarks: runs that were started together, and so have one ``batch_id``; and notes on them.

What they were made with is read off their runs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.connection import read_column, read_dicts
from storage.filters import ALL, COMPARED, FINISHED, Filter
from storage.problems import StorageError
from storage.queries import PREVIEW, run
from storage.records import PLAIN
from storage.rows import converted
from storage.run import Run

MOST_RUNS = 20_000
"""Of an experiment, those that are read at most."""

LONGEST_NOTE = 500
"""Characters."""

ORDERS = {
    "newest": "created_at DESC",
    "oldest": "created_at",
    "runs": "runs DESC, created_at DESC",
    "suite": "suite NULLS LAST, created_at DESC",
    "version": "version DESC, created_at DESC",
}
"""What the list can be sorted by."""

SETTINGS = ("max_new_tokens", "temperature", "top_p", "top_k", "draft_length", "streams")
MADE_ON = ("pool", "card_hash", "hardware", "dtype", "version")

FIGURES = """
    output_tokens round_count decode_seconds prefill_seconds tokens_per_second mean_accepted_tokens speedup
    request_speedup speedup_uncertainty streams lossless near_tie_gap baseline_seconds_per_token
    baseline_prefill_seconds regret_rounds
""".split()

_SOUGHT = ("prompt", "suite", "policy", "task", "version", "'draft length ' || draft_length")


@dataclass(frozen=True)
class Sought:
    """Which experiments, and in which order.

    Attributes:
        words: each of them stands in a prompt, in the suite's name, a policy, a task, the version, the draft length or
            the note, or is the id.
        order: one of :data:`ORDERS`.
        titles: of policies, as pairs of spec and title: a word may stand in these too.
    """

    runs: Filter = ALL
    words: tuple[str, ...] = ()
    order: str = "newest"
    titles: tuple[tuple[str, str], ...] = ()

    def where(self) -> tuple[str, list[Any]]:
        """The WHERE clause over ``runs`` and its parameters."""
        conditions, more = ["batch_id IS NOT NULL"], list[Any]()
        for word in self.words:
            pattern = "%" + word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
            titled = [spec for spec, title in self.titles if word.lower() in title.lower()]
            found = " OR ".join(f"{column} LIKE ? ESCAPE '\\'" for column in _SOUGHT)
            found += f" OR policy IN ({', '.join('?' * len(titled))})"
            conditions.append(
                f"(batch_id = ? OR batch_id IN (SELECT batch_id FROM runs WHERE batch_id IS NOT NULL AND ({found})) "
                "OR batch_id IN (SELECT batch_id FROM notes WHERE note LIKE ? ESCAPE '\\'))"
            )
            more += [word, *[pattern] * len(_SOUGHT), *titled, pattern]
        where, values = self.runs.where(*conditions)
        return where, [*more, *values]  # the conditions stand first


def count(path: str | Path, sought: Sought = Sought()) -> int:
    """How many experiments are sought."""
    where, values = sought.where()
    (count,) = read_column(path, f"SELECT count(DISTINCT batch_id) FROM runs {where}", values)
    return int(count)


def listed(path: str | Path, sought: Sought = Sought(), *, limit: int = 20, offset: int = 0) -> list[dict[str, Any]]:
    """Some of the experiments, in the order that is sought.

    Keys: id, created_at (of the first run), source, suite, the columns ``MADE_ON`` and ``SETTINGS``, runs, finished,
    prompts, policies (a list), prompt (the beginning of the first run's), note, ending (how it ended, if before all its
    runs were done); timed, how many finished runs with drafters have a speed-up; ``None`` is unknown.
    """
    where, values = sought.where()
    first = ", ".join(f"max({column}) AS {column}" for column in ("source", "suite", *MADE_ON, *SETTINGS))
    sql = f"""
        WITH chosen AS (SELECT DISTINCT batch_id FROM runs {where}),
        experiments AS (
            SELECT batch_id AS id, min(created_at) AS created_at, {first}, count(*) AS runs,
                   sum({FINISHED}) AS finished, sum({FINISHED} AND {COMPARED} AND policy <> '{PLAIN}') AS timed,
                   count(DISTINCT prompt_hash) AS prompts, json_group_array(DISTINCT policy) AS policies
            FROM runs WHERE batch_id IN chosen GROUP BY batch_id
        )
        SELECT experiments.*, note, ending,
               (SELECT substr(prompt, 1, {PREVIEW}) FROM runs
                WHERE batch_id = experiments.id ORDER BY created_at, id LIMIT 1) AS prompt
        FROM experiments LEFT JOIN notes ON notes.batch_id = experiments.id
        LEFT JOIN endings ON endings.batch_id = experiments.id
        ORDER BY {ORDERS[sought.order]}, experiments.id LIMIT ? OFFSET ?
    """
    found = read_dicts(path, sql, [*values, int(limit), int(offset)])
    return [converted(row, ["policies"], json.loads) for row in found]


def experiment(path: str | Path, id: str) -> dict[str, Any] | None:
    """The one of an id, as :func:`listed` has it; ``None`` where the history holds no run of it."""
    return next(iter(listed(path, Sought(Filter(batch_id=(id,))), limit=1)), None)


def in_history(path: str | Path, id: str) -> bool:
    """Whether the history can be read and holds a run of an experiment."""
    try:
        return count(path, Sought(Filter(batch_id=(id,)))) > 0
    except StorageError:
        return False


def note(path: str | Path, id: str) -> str:
    """What is noted on an experiment, also before its first run."""
    return next(iter(read_column(path, "SELECT note FROM notes WHERE batch_id = ?", [id])), "")


def ending(path: str | Path, id: str) -> str | None:
    """How a batch ended early, also one that has no run."""
    return next(iter(read_column(path, "SELECT ending FROM endings WHERE batch_id = ?", [id])), None)


def figures(path: str | Path, of: str | Filter, *, texts: bool = True) -> list[dict[str, Any]]:
    """The runs of an experiment, or of a filter, in the order in which they were made, at most ``MOST_RUNS``, without
    rounds: the columns that a table of figures takes (``bench.summary.Row.recorded``). Reading no ``texts`` is
    faster."""
    where, values = (Filter(batch_id=(of,)) if isinstance(of, str) else of).where()
    written = ("error", "prompt", "text") if texts else ("NULL AS error", "'' AS prompt", "'' AS text")
    repeated = "coalesce(json_extract(prior, '$.repeated'), 0) AS repeated"
    columns = ["id", "created_at", "task", "policy", "status", *written, "prompt_hash", "prompt_id", *FIGURES, repeated]
    sql = f"SELECT {', '.join(columns)} FROM runs {where} ORDER BY created_at, id LIMIT {MOST_RUNS}"
    return read_dicts(path, sql, values)


def runs(path: str | Path, id: str, most: int = -1) -> list[Run]:
    """The first runs of an experiment, or all, with all their rounds."""
    ids = read_column(path, "SELECT id FROM runs WHERE batch_id = ? ORDER BY created_at, id LIMIT ?", [id, most])
    return [found for each in ids if (found := run(path, each))]
