"""What the dashboard shows for a filter: queries of ``storage`` made into tables and figures; and what a chart is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import plotly.graph_objects as go
from markupsafe import Markup

from drafters.errors import without_folders
from multidraft.service.batch import BatchJob
from multidraft.service.jobs import Job
from multidraft.ui.tabs.dashboard import tables
from multidraft.ui.tabs.dashboard.filters import BASELINES, CONTROLS, GREEDY
from multidraft.ui.widgets.charts import message_figure
from multidraft.ui.widgets.markup import caption_html, count, folded, listed_of, message_html, table_of
from multidraft.ui.widgets.theme import POLICY_COLOURS
from storage import aggregates, queries, ranking
from storage.cache import cached
from storage.filters import Filter
from storage.store import Store

MOST_DRAWN = len(POLICY_COLOURS)
"""Policies in charts whose lines are told apart by colour; those with the most runs."""

MOST_LINES = 20
"""Policies in charts where each has a line of its own; likewise."""

PAGE = 20
"""Runs on a page of the list."""


_NAMES = {control.column: control.label for control in CONTROLS if control.column in aggregates.CONDITIONS}

LISTED_VALUES = 4
"""Of a condition; the others are counted."""


Rows = Callable[[Path, Filter], pd.DataFrame]
Draw = Callable[[pd.DataFrame, Sequence[str]], go.Figure]


@dataclass(frozen=True)
class Section:
    """Charts that belong together, under a heading; ``hint`` says how to read them."""

    title: str
    hint: str


@dataclass(frozen=True)
class Chart:
    """A chart of the dashboard.

    Attributes:
        name: that of its function; the ids on the page begin with it.
        title: stands above it.
        section: where it stands; sections and charts come in the order in which they are defined.
        rows: the query for the rows of the filtered runs.
        draw: makes the figure of the rows, of which there are some, and of the policies that have a colour, in order.
        of: whose runs: of the few policies with a colour, of those that have a line of their own, or of all.
        missing: what stands in its place where there are no rows.
        table: the chart in figures, of the same.
        wide: whether it has a row for itself.
    """

    name: str
    title: str
    section: Section
    rows: Rows
    draw: Draw
    of: Literal["coloured", "listed", "all"] = "coloured"
    missing: str = "No run here has this figure."
    table: Callable[[pd.DataFrame, Sequence[str]], tables.Table] | None = None
    wide: bool = False

    @property
    def id(self) -> str:
        return self.name.replace("_", "-")

    def figure(self, rows: pd.DataFrame, policies: Sequence[str]) -> go.Figure:
        """The figure, or why there is none."""
        figure = message_figure(self.missing) if rows.empty else self.draw(rows, policies)
        return figure.update_layout(title_text=self.title)


CHARTS: list[Chart] = []
"""In the order in which they are made and shown."""


def chart(title: str, section: Section, rows: Rows, **settings: Any) -> Callable[[Draw], Draw]:
    """Put the decorated function on the page; ``settings`` are the attributes of :class:`Chart` with a default."""

    def register(draw: Draw) -> Draw:
        CHARTS.append(Chart(draw.__name__, title, section, rows, draw, **settings))
        return draw

    return register


@dataclass(frozen=True)
class Ranked:
    """The policies of the finished runs.

    Attributes:
        summary: their figures (``ranking.policy_summary``).
        drawn: those that have a colour, fastest first.
        listed: those with a line of their own in charts by policy, fastest first.
    """

    summary: pd.DataFrame
    drawn: list[str]
    listed: list[str]


@dataclass(frozen=True)
class Overview:
    """The policies ranked, and whether they compare.

    Attributes:
        mixture: says what forbids a comparison; empty where nothing does.
        usual: the fields of ``filters.Chosen`` that leave just the runs under the most frequent conditions.
        usual_title: what a button says that chooses them; empty where that changes nothing.
    """

    summary: Markup
    legend: Markup
    mixture: Markup
    usual: dict[str, str]
    usual_title: str


@cached
def ranked(path: Path, filter: Filter) -> Ranked:
    """The policies, from which every view takes whom it shows."""
    summary = ranking.policy_summary(path, filter)
    return Ranked(summary, _most_run(summary, MOST_DRAWN), _most_run(summary, MOST_LINES))


@cached
def overview(path: Path, filter: Filter) -> Overview | None:
    """How fast each policy is; ``None`` where no finished run fits.

    Raises:
        StorageError: the database cannot be read.
    """
    policies = ranked(path, filter)
    summary, drawn = policies.summary, policies.drawn
    if summary.empty:
        return None
    conditions = aggregates.conditions(path, filter)
    mixture = mixture_html(conditions)
    return Overview(
        summary=tables.summary_html(summary, drawn, mixed=bool(mixture)),
        legend=tables.legend_html(drawn, len(summary) - len(drawn)),
        mixture=mixture,
        usual=usual(conditions),
        usual_title=usual_title(conditions),
    )


def problems_html(store: Store) -> Markup:
    """Why the history, or a copy of it, is not being written, if it is not; the log says where they lie."""
    unwritten = f"The history is not being written. {store.problem}" if store.problem else ""
    problems = [unwritten, (store.backup and store.backup.problem) or ""]
    return Markup().join(message_html("error", without_folders(problem)) for problem in problems if problem)


def running_html(path: Path, filter: Filter, jobs: Sequence[Job[Any]]) -> Markup:
    """What is to be known of batches among the jobs under way whose runs are among those shown."""
    found = Markup()
    for job in jobs:
        if isinstance(job, BatchJob) and (done := queries.count(path, replace(filter, batch_id=(job.id,)))):
            said = f"A batch is still running: {done} of {count(job.total, 'run')} so far are among those below, so "
            said += "figures will change, and its policies have not run on the same prompts yet. Refresh shows more."
            found += message_html("busy", said)
    return found


def mixture_html(conditions: pd.DataFrame) -> Markup:
    """A note on the conditions (``aggregates.conditions``), with how many runs there are of each; empty where all have
    the same."""
    frame, parts = _in_words(conditions), []
    for column, name in _mixed(frame).items():
        counts = frame.groupby(column)["runs"].sum().sort_values(ascending=False)
        shown = [f"{value} ({count(n, 'run')})" for value, n in counts[:LISTED_VALUES].items()]
        if rest := len(counts) - len(shown):
            shown.append(f"{rest} more")
        parts.append((name, shown))
    return tables.template.mixture(parts) if parts else Markup()


def usual(conditions: pd.DataFrame) -> dict[str, str]:
    """The fields of ``filters.Chosen`` for the most frequent of them, of at least one run."""
    most = _most(conditions).fillna("")  # what is unknown cannot be chosen
    return {column: str(most[column]) for column in aggregates.CONDITIONS}


def usual_title(conditions: pd.DataFrame) -> str:
    """Which these are, of those that are mixed, and how many runs; empty where none of them can be chosen."""
    frame, known = _in_words(conditions), _most(conditions).notna()
    most = _most(frame)
    named = [f"{name.lower()} {most[column]}" for column, name in _mixed(frame).items() if known[column]]
    return f"Show only {count(int(most['runs']), 'run')}: {', '.join(named)}" if named else ""


def _most(conditions: pd.DataFrame) -> pd.Series:
    return conditions.loc[conditions["runs"].idxmax()]


def _mixed(frame: pd.DataFrame) -> dict[str, str]:
    """The conditions that differ, with their names."""
    return {column: name for column, name in _NAMES.items() if frame[column].nunique() > 1}


def _in_words(conditions: pd.DataFrame) -> pd.DataFrame:
    """The conditions as they are shown."""
    unknown = {column: "no baseline" if column == "baseline_kind" else "unknown" for column in _NAMES}
    return conditions.replace({"baseline_kind": BASELINES, "temperature": GREEDY}).fillna(unknown)


@cached
def drawn(path: Path, filter: Filter, chart: Chart) -> tuple[go.Figure, Markup]:
    """A chart, and its figures as a table to be opened, if it has one; for filters that some finished run fits."""
    policies = ranked(path, filter)
    shown = {"coloured": policies.drawn, "listed": policies.listed}.get(chart.of)
    rows = chart.rows(path, replace(filter, policy=tuple(shown)) if shown else filter)
    if chart.of == "listed":
        rows = rows.sort_values("policy", key=lambda column: column.map(policies.listed.index), ignore_index=True)
    table = Markup()
    if chart.table and not rows.empty:
        summary, lines = chart.table(rows, policies.drawn)
        table = folded(summary, table_of(lines, figures=len(lines[0]) - 1, label="The chart in figures"))
    return chart.figure(rows, policies.drawn), table


@cached
def run_list(path: Path, filter: Filter, page: int) -> tuple[Markup, Markup, int, int]:
    """A page of the list of runs: table, the line below it, the page it is (the last one if ``page`` lies beyond),
    and the number of pages."""
    total = queries.count(path, filter)
    pages = max(1, -(-total // PAGE))
    page = min(max(0, page), pages - 1)
    runs = queries.listed(path, filter, limit=PAGE, offset=page * PAGE)
    line = f"{listed_of('Run', page * PAGE + 1, len(runs), total)}, newest first"
    return tables.list_html(runs), caption_html(line) if total else Markup(), page, pages


def _most_run(summary: pd.DataFrame, most: int) -> list[str]:
    """The policies with the most runs, in the order of the summary."""
    shown = set(summary.astype({"runs": int}).nlargest(most, "runs")["policy"])
    return [str(policy) for policy in summary["policy"] if policy in shown]
