"""What the dashboard shows for a filter: queries of ``storage`` made into tables and figures, section by section."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go

from multidraft.ui import dashboard_tables as tables
from multidraft.ui import history_charts
from multidraft.ui.dashboard_mixture import Usual, mixture_html, usual
from multidraft.ui.theme import DRAFTER_COLOURS
from storage import figures, queries
from storage.filters import Filter
from storage.kept import kept

MOST_DRAWN = len(DRAFTER_COLOURS)
"""Policies in charts whose lines are told apart by colour; those with the most runs."""

MOST_LINES = 20
"""Policies in charts where each has a line of its own; likewise."""

MOST_POINTS = 1500
"""Runs that are drawn one by one; more are averaged by period."""

PAGE = 20
"""Runs on a page of the list."""


@dataclass(frozen=True)
class Ranked:
    """The policies of the finished runs.

    Attributes:
        summary: their figures (``figures.policy_summary``).
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
        usual: the most frequent conditions among the runs.
    """

    summary: str
    legend: str
    ranking: go.Figure
    mixture: str
    usual: Usual


@kept
def ranked(path: Path, filter: Filter) -> Ranked:
    """The policies, from which every view takes whom it shows."""
    summary = figures.policy_summary(path, filter)
    return Ranked(summary, _most_run(summary, MOST_DRAWN), _most_run(summary, MOST_LINES))


def any_fits(path: Path, filter: Filter) -> bool:
    """Whether there is a finished run to show."""
    return not ranked(path, filter).summary.empty


@kept
def overview(path: Path, filter: Filter) -> Overview | None:
    """How fast each policy is; ``None`` where no finished run fits.

    Raises:
        StorageError: the database cannot be read.
    """
    policies = ranked(path, filter)
    summary, drawn = policies.summary, policies.drawn
    if summary.empty:
        return None
    conditions = figures.conditions(path, filter)
    return Overview(
        summary=tables.summary_html(summary, drawn),
        legend=tables.legend_html(drawn, len(summary) - len(drawn)),
        ranking=history_charts.ranking_figure(summary[summary["policy"].isin(policies.listed)], drawn),
        mixture=mixture_html(conditions),
        usual=usual(conditions),
    )


@kept
def speedup(path: Path, filter: Filter) -> tuple[go.Figure]:
    """Speed-up over time; of many runs by period."""
    policies = ranked(path, filter)
    drawn, summary = policies.drawn, policies.summary
    shown = replace(filter, policies=drawn)
    timed = int(summary.loc[summary["policy"].isin(drawn), "speedup_runs"].sum())
    if timed <= MOST_POINTS:
        found = figures.speedup_by_run(path, shown)
    else:
        found = figures.speedup_by_period(path, shown, periods=min(40, max(8, timed // (20 * len(drawn)))))
    return (history_charts.speedup_figure(found, drawn),)


@kept
def regret(path: Path, filter: Filter) -> tuple[go.Figure, str]:
    """Regret run by run, and in figures."""
    drawn = ranked(path, filter).drawn
    found = figures.regret_over_time(path, replace(filter, policies=drawn))
    return history_charts.regret_figure(found, drawn), tables.regret_html(found, drawn)


@kept
def best_arm(path: Path, filter: Filter) -> tuple[go.Figure]:
    """How often the best drafter is played, round by round."""
    drawn = ranked(path, filter).drawn
    return (history_charts.best_arm_figure(figures.best_arm_by_round(path, replace(filter, policies=drawn)), drawn),)


@kept
def matrix(path: Path, filter: Filter) -> tuple[go.Figure]:
    """Drafters by task."""
    return (history_charts.drafter_task_figure(figures.drafter_by_task(path, filter)),)


@kept
def phases(path: Path, filter: Filter) -> tuple[go.Figure, str]:
    """Where the decoding time goes, and in figures."""
    listed = ranked(path, filter).listed
    found = _in_order(figures.time_by_phase(path, replace(filter, policies=listed)), listed)
    return history_charts.phases_figure(found), tables.phases_html(found)


@kept
def latency(path: Path, filter: Filter) -> tuple[go.Figure, go.Figure, str]:
    """The times of a token and of the prefill, and in figures."""
    listed = ranked(path, filter).listed
    found = _in_order(figures.latency(path, replace(filter, policies=listed)), listed)
    return (
        history_charts.latency_figure(found, "token", "Time of an output token"),
        history_charts.latency_figure(found, "first", "Prefill, before the first token"),
        tables.latency_html(found),
    )


CHARTS: dict[str, Callable[[Path, Filter], tuple[go.Figure | str, ...]]] = {
    "speedup": speedup,
    "regret": regret,
    "best_arm": best_arm,
    "matrix": matrix,
    "phases": phases,
    "latency": latency,
}
"""The views beside the overview, in the order in which they are made; for filters that some finished run fits."""


@kept
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
    shown = set(summary.astype({"runs": int}).nlargest(most, "runs")["policy"])
    return [str(policy) for policy in summary["policy"] if policy in shown]


def _in_order(frame: pd.DataFrame, policies: list[str]) -> pd.DataFrame:
    """The rows of these policies, in their order."""
    return frame.set_index("policy").reindex(policies).dropna(subset=["runs"]).rename_axis("policy").reset_index()
