"""What the dashboard shows for a filter: queries of ``storage`` made into tables and figures, section by section."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go

from multidraft.ui import dashboard_tables as tables
from multidraft.ui import history_charts
from multidraft.ui.theme import DRAFTER_COLOURS
from storage import figures, queries
from storage.filters import Filter

MOST_DRAWN = len(DRAFTER_COLOURS)
"""Policies in charts whose lines are told apart by colour; those with the most runs."""

MOST_LINES = 20
"""Policies in charts where each has a line of its own; likewise."""

MOST_POINTS = 1500
"""Runs that are drawn one by one; more are averaged by period."""

PAGE = 20
"""Runs on a page of the list."""


@dataclass(frozen=True)
class Overview:
    """The section on speed, and what the others need of it.

    Attributes:
        drawn: the policies that have a colour, fastest first.
        listed: those with a line of their own in charts by policy, fastest first.
        mixture: says what forbids a comparison; empty where nothing does.
        usual: the runs under the most frequent conditions, and how many they are.
    """

    drawn: list[str]
    listed: list[str]
    summary: str
    legend: str
    ranking: go.Figure
    speedup: go.Figure
    mixture: str
    usual: pd.Series


def overview(path: Path, filter: Filter) -> Overview | None:
    """How fast each policy is; ``None`` where no finished run fits.

    Raises:
        StorageError: the database cannot be read.
    """
    summary = figures.policy_summary(path, filter)
    if summary.empty:
        return None
    drawn, listed = _most_run(summary, MOST_DRAWN), _most_run(summary, MOST_LINES)
    conditions = figures.conditions(path, filter)
    return Overview(
        drawn=drawn,
        listed=listed,
        summary=tables.summary_html(summary, drawn),
        legend=tables.legend_html(drawn, len(summary) - len(drawn)),
        ranking=history_charts.ranking_figure(summary[summary["policy"].isin(listed)], drawn),
        speedup=history_charts.speedup_figure(_speedups(path, replace(filter, policies=drawn), summary, drawn), drawn),
        mixture=tables.mixture_html(conditions),
        usual=conditions.iloc[0],
    )


def learning(path: Path, filter: Filter, drawn: list[str]) -> tuple[go.Figure, go.Figure, go.Figure]:
    """How well each policy chooses: regret over runs, best-arm ratio over rounds; drafters by task."""
    shown = replace(filter, policies=drawn)
    return (
        history_charts.regret_figure(figures.regret_over_time(path, shown), drawn),
        history_charts.best_arm_figure(figures.best_arm_by_round(path, shown), drawn),
        history_charts.drafter_task_figure(figures.drafter_by_task(path, filter)),
    )


def timing(path: Path, filter: Filter, listed: list[str]) -> tuple[go.Figure, go.Figure, go.Figure]:
    """Where the time goes: by phase, a token's, the first token's."""
    shown = replace(filter, policies=listed)
    phases, latency = (
        frame.set_index("policy").reindex(listed).dropna(subset=["runs"]).reset_index()
        for frame in (figures.time_by_phase(path, shown), figures.latency(path, shown))
    )
    return (
        history_charts.phases_figure(phases),
        history_charts.latency_figure(latency, "token", "Time of an output token"),
        history_charts.latency_figure(latency, "first", "Prefill, before the first token"),
    )


def run_list(path: Path, filter: Filter, page: int) -> tuple[str, str, int, int]:
    """A page of the list of runs: table, the line below it, the page it is (the last one if ``page`` lies beyond),
    and the number of pages."""
    total = queries.count(path, filter)
    pages = max(1, -(-total // PAGE))
    page = min(max(0, page), pages - 1)
    runs = queries.listed(path, filter, limit=PAGE, offset=page * PAGE)
    return tables.list_html(runs), tables.page_html(page, PAGE, total), page, pages


def _most_run(summary: pd.DataFrame, most: int) -> list[str]:
    """The policies with the most runs, in the order of the summary."""
    kept = set(summary.nlargest(most, "runs")["policy"])
    return [str(policy) for policy in summary["policy"] if policy in kept]


def _speedups(path: Path, filter: Filter, summary: pd.DataFrame, drawn: list[str]) -> pd.DataFrame:
    timed = summary.loc[summary["policy"].isin(drawn), "speedup_runs"].sum()
    if timed <= MOST_POINTS:
        return figures.speedup_by_run(path, filter)
    return figures.speedup_by_period(path, filter, periods=min(40, max(8, int(timed) // (20 * len(drawn)))))
