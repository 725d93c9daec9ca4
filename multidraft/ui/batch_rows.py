"""A batch's results: one row per prompt and policy, their summary, and both as HTML, CSV, JSON and Parquet."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from html import escape
from pathlib import Path

import pandas as pd

from multidraft.bench.suites import Suite, SuiteItem
from multidraft.records import FINISHED, Generation
from multidraft.ui import tables
from multidraft.ui.choices import policy_title
from multidraft.ui.tables import count, number, table_start, times
from multidraft.ui.worker import Baseline
from storage.rows import FEWEST_TOKENS, speedup

NO_TASK = "no task"
TOO_LONG = "too long"
"""Status of a prompt that does not fit the target's context window."""

FIGURES = 4
"""Columns of figures at the right of the table of results."""

_STATUS_TITLES = {"completed": "completed", "stopped": "completed", "context_limit": "window full"}


@dataclass(frozen=True)
class Row:
    """One prompt under one policy.

    Attributes:
        id, task: as the suite gives them.
        policy: its spec.
        status: a ``multidraft.records.Status``, or ``"too long"``.
        tokens: emitted tokens.
        tokens_per_second, mean_accepted_tokens: ``None`` where nothing was decoded.
        speedup: likewise, and where too little was (``storage.rows.speedup``).
        error: why nothing, or not all, was decoded.
        output: the text.
    """

    id: str
    task: str
    policy: str
    status: str
    tokens: int = 0
    tokens_per_second: float | None = None
    speedup: float | None = None
    mean_accepted_tokens: float | None = None
    error: str | None = None
    output: str = ""

    @classmethod
    def of(cls, item: SuiteItem, policy: str, generation: Generation, baseline: Baseline | None) -> Row:
        """The row of a generation that ended."""
        rate = generation.tokens_per_second or None
        return cls(
            item.id,
            item.task or NO_TASK,
            policy,
            generation.status,
            len(generation.token_ids),
            rate,
            speedup(len(generation.token_ids), rate, baseline.tokens_per_second if baseline else None),
            generation.mean_accepted_tokens or None,
            generation.error,
            generation.text,
        )


COLUMNS = [field.name for field in fields(Row)]


def summarise(rows: Sequence[Row]) -> pd.DataFrame:
    """One line per task and policy: prompts, finished, too_long, and over the finished ones median tokens_per_second,
    median speedup, mean mean_accepted_tokens (NaN where none finished)."""
    frame = pd.DataFrame([asdict(row) for row in rows], columns=COLUMNS)
    frame["finished"] = frame["status"].isin(FINISHED)
    frame["too_long"] = frame["status"] == TOO_LONG
    figures = ["tokens_per_second", "speedup", "mean_accepted_tokens"]
    frame[figures] = frame[figures].astype(float).where(frame["finished"])
    groups = frame.groupby(["task", "policy"], sort=True)
    return groups.agg(
        prompts=("id", "size"),
        finished=("finished", "sum"),
        too_long=("too_long", "sum"),
        tokens_per_second=("tokens_per_second", "median"),
        speedup=("speedup", "median"),
        mean_accepted_tokens=("mean_accepted_tokens", "mean"),
    ).reset_index()


def short_rows(rows: Sequence[Row]) -> int:
    """How many finished runs are too short for a speed-up."""
    return sum(row.status in FINISHED and row.tokens < FEWEST_TOKENS for row in rows)


def rows_start() -> str:
    """Head of the table of results; see ``tables.table_start``."""
    columns = ("Prompt", "Task", "Policy", "Status", "Note", "Tokens", "Tokens/s", "Speed-up", "MAT")
    return table_start(columns, FIGURES, "md-rows", "Runs of the batch")


def row_html(row: Row, item: int) -> str:
    """One line of the table of results; its button opens the prompt, ``item`` of the batch."""
    opener = f'<button type="button" class="md-open" data-item="{item}">{escape(row.id)}</button>'
    figures = [
        str(row.tokens),
        number(row.tokens_per_second, 1),
        times(row.speedup, row.tokens if row.status in FINISHED else None),
        number(row.mean_accepted_tokens, 2),
    ]
    texts = [opener, escape(row.task), escape(policy_title(row.policy)), status_html(row), note_html(row)]
    return tables.row_html([*texts, *figures], FIGURES)


def status_html(row: Row) -> str:
    """How a run ended, in a word."""
    kind = "md-good" if row.status in FINISHED else "md-bad"
    return f'<span class="{kind}">{escape(_STATUS_TITLES.get(row.status, row.status))}</span>'


def note_html(row: Row) -> str:
    """Why nothing, or not all, was decoded, in lines of a width that leaves the figures in sight."""
    return f'<div class="md-why">{escape(row.error)}</div>' if row.error else ""


def summary_html(summary: pd.DataFrame) -> str:
    """The summary as a table."""
    columns = (
        "Task",
        "Policy",
        "Prompts",
        "Finished",
        "Too long",
        "Tokens/s (median)",
        "Speed-up (median)",
        "MAT (mean)",
    )
    rows = (
        [
            escape(str(line.task)),
            escape(policy_title(str(line.policy))),
            str(line.prompts),
            str(line.finished),
            str(line.too_long),
            number(line.tokens_per_second, 1),
            number(line.speedup, 2, "×"),
            number(line.mean_accepted_tokens, 2),
        ]
        for line in summary.itertuples()
    )
    return tables.table_html(columns, rows, figures=6, label="All figures by task and policy")


def suite_html(suite: Suite) -> str:
    """What was read of a suite: prompts by task, and the lines that could not be read, by number."""
    tasks = pd.Series([item.task or NO_TASK for item in suite.items]).value_counts(sort=False)
    found = ", ".join(f"{task} {prompts}" for task, prompts in tasks.items())
    text = f'<p class="md-status md-done" role="status">{count(len(suite.items), "prompt")}: {escape(found)}.</p>'
    if suite.problems:
        lines = "".join(f"<li>{escape(str(problem)[:1].upper() + str(problem)[1:])}</li>" for problem in suite.problems)
        left_out = count(len(suite.problems), "line")
        lines = f'<ul class="md-problems">{lines}</ul>'
        text += f'<div class="md-status md-error" role="alert">{left_out} left out:{lines}</div>'
    return text


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """All rows with all columns, the output included."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def write_parquet(path: Path, rows: Sequence[Row]) -> None:
    """The same as Parquet."""
    frame = pd.DataFrame([asdict(row) for row in rows], columns=COLUMNS)
    numbers = ["tokens_per_second", "speedup", "mean_accepted_tokens"]  # of that type even if all are missing
    frame.astype(dict.fromkeys(numbers, float)).to_parquet(path, index=False)


def write_json(path: Path, suite: str, rows: Sequence[Row], summary: pd.DataFrame, about: dict[str, object]) -> None:
    """Rows, summary, and what they were measured on."""
    report = {**about, "suite": suite, "summary": records(summary), "rows": [asdict(row) for row in rows]}
    path.write_text(json.dumps(report, ensure_ascii=False, indent=1), encoding="utf-8")


def records(summary: pd.DataFrame) -> list[dict[str, object]]:
    """The summary's lines for JSON, ``None`` for what is unknown."""
    return summary.astype(object).where(summary.notna(), None).to_dict(orient="records")
