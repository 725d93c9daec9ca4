"""A batch's results: one row per prompt and policy, their summary, and both as HTML, CSV, JSON and Parquet."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from markupsafe import Markup

from multidraft.bench.suites import Suite
from multidraft.bench.summary import COLUMNS, NO_TASK, NUMBERS, Row, records, row_records
from multidraft.policies.titles import policy_title
from multidraft.ui.widgets import tables
from multidraft.ui.widgets.formats import count, number
from multidraft.ui.widgets.tables import times
from multidraft.ui.widgets.templates import macros

SHOWN_TASKS = 20
"""Tasks of a suite that are counted one by one where it is read."""

FIGURES = 5
"""Columns of figures at the right of the table of results."""

_template = macros("tabs/batch/batch.html")

_STATUS_TITLES = {"completed": "completed", "stopped": "completed", "context_limit": "window full"}


def rows_start() -> Markup:
    """Head of the table of results; see ``tables.table_start``."""
    columns = ("Prompt", "Task", "Policy", "Status", "Note", "Tokens", "Tokens/s", "Speed-up", "Request", "MAT")
    return tables.table_start(columns, FIGURES, "md-rows", "Runs of the batch")


def row_html(row: Row, item: int) -> Markup:
    """One line of the table of results; its button opens the prompt, ``item`` of the batch."""
    figures = [
        str(row.tokens),
        number(row.tokens_per_second, 1),
        times(row.speedup, row.tokens if row.finished else None),
        number(row.request_speedup, 2, "×"),
        number(row.mean_accepted_tokens, 2),
    ]
    note = _template.note(row.error) if row.error else ""
    texts = [_template.opener(item, row.id), row.task, policy_title(row.policy), status_html(row), note]
    return tables.row_html([*texts, *figures], FIGURES)


def status_html(row: Row) -> Markup:
    """How a run ended, in a word."""
    return _template.status(_STATUS_TITLES.get(row.status, row.status), row.finished)


def summary_html(summary: pd.DataFrame) -> Markup:
    """The summary as a table."""
    columns = (
        "Task",
        "Policy",
        "Prompts",
        "Finished",
        "Too long",
        "Tokens/s",
        "Speed-up of decoding",
        "95 %",
        "Of the whole request",
        "MAT",
    )
    rows = (
        [
            line.task,
            policy_title(str(line.policy)),
            line.prompts,
            line.finished,
            line.too_long,
            number(line.tokens_per_second, 1),
            number(line.speedup, 2, "×"),
            f"{number(line.speedup_low, 2)}–{number(line.speedup_high, 2)}",
            number(line.request_speedup, 2, "×"),
            number(line.mean_accepted_tokens, 2),
        ]
        for line in summary.itertuples()
    )
    return tables.table_html(columns, rows, figures=8, label="All figures by task and policy")


def suite_html(suite: Suite) -> Markup:
    """What was read of a suite: prompts by task, and the lines that could not be read, by number."""
    tasks = pd.Series([item.task or NO_TASK for item in suite.items]).value_counts(sort=False)
    shown, more = list(tasks[:SHOWN_TASKS].items()), len(tasks) - SHOWN_TASKS
    return _template.suite(count(len(suite.items), "prompt"), shown, more, suite.problems, suite.more_problems)


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """All rows with all columns, the output included."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(row_records(rows))


def write_parquet(path: Path, rows: Sequence[Row]) -> None:
    """The same as Parquet."""
    frame = pd.DataFrame(row_records(rows), columns=COLUMNS)
    types = {**dict.fromkeys(NUMBERS, float), "lossless": "boolean"}  # even if all are missing
    frame.astype(types).to_parquet(path, index=False)


def write_json(path: Path, suite: str, rows: Sequence[Row], summary: pd.DataFrame, about: dict[str, object]) -> None:
    """Rows, summary, and what they were measured on."""
    report = {**about, "suite": suite, "summary": records(summary), "rows": row_records(rows)}
    path.write_text(json.dumps(report, ensure_ascii=False, indent=1), encoding="utf-8")
