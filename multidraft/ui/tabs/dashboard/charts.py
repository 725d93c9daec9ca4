"""The dashboard's charts: each is one function that is handed its rows, and the decorator puts it on the page.

They have no legend of their own where colours stand for policies: the page shows one for all (``tables.legend_html``).
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from multidraft.policies.titles import policy_title, policy_titles
from multidraft.ui.tabs.dashboard import tables
from multidraft.ui.tabs.dashboard.views import Section, chart, ranked
from multidraft.ui.widgets import charts as look
from multidraft.ui.widgets.markup import count, noisy_runs
from multidraft.ui.widgets.theme import DRAFTER_COLOURS, TARGET_COLOUR
from storage import aggregates
from storage.cache import cached
from storage.figures import TOO_NOISY, timed_interval
from storage.filters import Filter
from storage.ranking import policy_summary

MOST_POINTS = 1500
"""Runs that are drawn one by one; more are averaged by period."""

AROUND = 2
"""Rounds on either side over which a rate by round is a mean: of few runs it jumps from round to round."""

NO_SPEEDUP = "No run here has a speed-up."

FAST = Section(
    "Speed",
    "Speed-up is tokens per second divided by those of autoregressive decoding of the same prompt on the same machine. "
    "A figure of several runs is a ratio of totals in which each prompt counts once.",
)
LEARNING = Section(
    "Quality of the choices",
    "Regret counts the rounds beyond those that the best single drafter would have needed for the same text: a flat "
    "line has converged, a falling one beats every single drafter. It is known for greedy runs only; of sampled ones "
    "the best drafter is that with the least expected loss.",
)
TIME = Section(
    "Time",
    "Decoding time is drafting, verification by the target, and the overhead of choosing. The first token also waits "
    "for the prefill.",
)


def _speedups(path: Path, filter: Filter) -> pd.DataFrame:
    """Of single runs; of many runs by period."""
    summary = policy_summary(path, filter)
    timed, policies = int(summary["speedup_runs"].sum()), max(1, len(summary))
    if timed <= MOST_POINTS:
        return aggregates.speedup_by_run(path, filter)
    return aggregates.speedup_by_period(path, filter, periods=min(40, max(8, timed // (20 * policies))))


def _ranking(path: Path, filter: Filter) -> pd.DataFrame:
    """The policies with a line of their own and a speed-up, as the table ranks them."""
    policies = ranked(path, filter)
    return policies.summary[policies.summary["policy"].isin(policies.listed)].dropna(subset=["speedup"])


@chart("Speed-up by policy", FAST, _ranking, of="all", missing=NO_SPEEDUP)
def ranking(rows: pd.DataFrame, policies: Sequence[str]) -> go.Figure:
    """Decode speed-up of each policy with its 95 % interval, the fastest on top, and of the whole request; policies
    without a colour are grey."""
    figure = _by_policy("decode ●, request ○", rows["policy"]).update_layout(meta={"x": "speed-up", "y": "policy"})
    figure.add_vline(x=1, **look.REFERENCE)
    for row in rows.itertuples():
        style = _style(str(row.policy), policies)
        marker = {**style["marker"], "size": 10}
        low, high = row.speedup_low, row.speedup_high
        if pd.isna(low):  # of few prompts the interval of their timings, NaN where that is unknown
            low, high = timed_interval(row.speedup, row.speedup_uncertainty)
        certain = pd.notna(high)
        reach = _reach(low, high)
        shared = {"y": [row.policy], "mode": "markers", "name": style["name"]}
        figure.add_scatter(
            x=[row.speedup],
            marker=marker,
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [high - row.speedup if certain else 0],
                "arrayminus": [row.speedup - low if certain else 0],
                "color": marker["color"],
                "thickness": 2,
                "width": 5,
            },
            hovertemplate=f"decoding %{{x:.2f}}×, {reach}, {count(row.speedup_runs, 'run')}",
            **shared,
        )
        figure.add_scatter(
            x=[row.request_speedup],
            marker={**marker, "symbol": f"{marker['symbol']}-open"},
            hovertemplate="whole request %{x:.2f}×",
            **shared | {"name": f"{style['name']}, whole request"},
        )
    return figure.update_xaxes(ticksuffix="×")


@chart("Decode speed-up over time", FAST, _speedups, missing=NO_SPEEDUP)
def speedup(rows: pd.DataFrame, policies: Sequence[str]) -> go.Figure:
    """Speed-up of every run (``aggregates.speedup_by_run``), or by period (``aggregates.speedup_by_period``)."""
    noisy = rows.get("speedup_uncertainty", pd.Series(index=rows.index, dtype=float)) > TOO_NOISY
    figure = look.speedup_figure("", noisy_runs(int(noisy.sum()), len(rows))).update_layout(meta={"x": "time"})
    for policy, own in _of_each(rows, policies):
        style = _style(policy, policies)
        shared = {"x": own["created_at"].to_list(), "y": own["speedup"].to_list(), **style}
        if "run_id" in rows:
            about = own.assign(task=[escape(str(task)) for task in own["task"].fillna("no task")])
            figure.add_scatter(
                mode="markers",
                customdata=about[["task", "tokens_per_second", "run_id"]].values.tolist(),
                hovertemplate=(
                    "%{y:.2f}× on %{customdata[0]}, %{customdata[1]:.1f} tokens/s<br>"
                    "run %{customdata[2]}, %{x|%d %b %Y %H:%M:%S} UTC"
                ),
                **shared,
            )
        else:
            reach = [_reach(low, high) for low, high in zip(own["speedup_low"], own["speedup_high"])]
            figure.add_scatter(
                mode="lines+markers",
                customdata=list(map(list, zip(own["runs"].to_list(), reach))),
                hovertemplate="%{y:.2f}× over %{customdata[0]:,} runs around %{x|%d %b %Y}<br>%{customdata[1]}",
                **_thin(shared),
            )
    return look.on_log_scale(figure, rows["speedup"]).update_xaxes(**_time_range(rows))


@cached
def _regret(path: Path, filter: Filter) -> pd.DataFrame:
    """For both charts of it."""
    return aggregates.regret_over_time(path, filter)


@chart("Cumulative regret, run by run", LEARNING, _regret, missing=look.NO_GREEDY_RUN, table=tables.regret)
def regret(rows: pd.DataFrame, policies: Sequence[str]) -> go.Figure:
    """Regret summed up over the runs of each policy."""
    figure = look.base_figure("", "greedy runs of the policy", "regret (rounds)")
    figure.add_hline(y=0, **look.REFERENCE)
    for policy, own in _of_each(rows, policies):
        few = len(own) <= 40
        style = _style(policy, policies)
        figure.add_scatter(
            x=own["run_number"].to_list(),
            y=own["cumulative_regret"].to_list(),
            mode="lines+markers" if few else "lines",
            customdata=(own["cumulative_regret"] / own["run_number"]).to_list(),
            hovertemplate="after %{x:,} runs %{y:+,.0f} rounds in all, %{customdata:+.2f} per run",
            **(style if few else _thin(style)),
        )
    return figure.update_xaxes(look.whole(rows["run_number"].max()))


@chart("Regret by date", LEARNING, _regret, missing=look.NO_GREEDY_RUN)
def regret_by_date(rows: pd.DataFrame, policies: Sequence[str]) -> go.Figure:
    """Regret of each run, or of many the mean of those since the point before."""
    figure = look.base_figure("", "", "regret, rounds per run").update_layout(meta={"x": "time"})
    figure.add_hline(y=0, **look.REFERENCE)
    for policy, own in _of_each(rows, policies):
        ends = own[["run_number", "cumulative_regret"]].astype(float)
        since = ends.diff().fillna(ends)
        figure.add_scatter(
            x=own["created_at"].to_list(),
            y=(since["cumulative_regret"] / since["run_number"]).to_list(),
            mode="markers" if since["run_number"].max() == 1 else "lines+markers",
            customdata=since["run_number"].to_list(),
            hovertemplate="%{x|%d %b %Y %H:%M} UTC: %{y:+.2f} rounds, mean of %{customdata:,} runs",
            **_thin(_style(policy, policies)),
        )
    return figure.update_xaxes(**_time_range(rows))


@chart("Best-arm selection rate by round", LEARNING, aggregates.best_arm_by_round, missing=look.NO_GREEDY_RUN)
def best_arm(rows: pd.DataFrame, policies: Sequence[str]) -> go.Figure:
    """How often the best drafter in hindsight was played around each round: a mean over ``AROUND`` rounds before and
    after it too, up to the last round in which a fifth of the runs drafted."""
    figure = look.base_figure("", f"round (mean of ± {AROUND} rounds)", "share of the runs")
    figure.update_layout(meta={"x": "round"}).update_xaxes(look.whole(rows["round"].max()))
    for policy, own in _of_each(rows, policies):
        own = own.set_index("round")
        known = own.loc[: own.index[own["runs"] >= own["runs"].max() / 5].max()]
        runs = known["runs"].reindex(range(known.index.min(), known.index.max() + 1), fill_value=0)
        around = {"window": 2 * AROUND + 1, "center": True, "min_periods": 1}
        counted = runs.rolling(**around).sum()
        share = (known["ratio"] * known["runs"]).reindex(runs.index, fill_value=0).rolling(**around).sum() / counted
        figure.add_scatter(
            x=share.index.to_list(),
            y=share.astype(object).where(counted > 0, None).to_list(),  # a gap where nobody drafted
            mode="lines" if len(share) > 1 else "markers",
            customdata=runs.to_list(),
            hovertemplate="around round %{x}: %{y:.0%}; %{customdata:,} runs drafted in it",
            **_thin(_style(policy, policies)),
        )
    return figure.update_yaxes(range=[0, 1.02], tickformat=".0%")


@chart(
    "MAT of each drafter alone", LEARNING, aggregates.drafter_by_task, of="all", missing=look.NO_GREEDY_RUN, wide=True
)
def matrix(rows: pd.DataFrame, policies: Sequence[str]) -> go.Figure:
    """Drafters by task, whoever was played."""
    return look.drafter_task_figure(rows)


@chart("Decoding time by phase", TIME, aggregates.time_by_phase, of="listed", table=tables.phases)
def phases(rows: pd.DataFrame, policies: Sequence[str]) -> go.Figure:
    """Where the decoding time of each policy goes."""
    figure = _by_policy("share of the time", rows["policy"], legend=len(tables.PHASES))
    colours = (TARGET_COLOUR, *(DRAFTER_COLOURS[i] for i in (5, 3, 1)))
    total = rows[[column for column, _ in tables.PHASES]].sum(axis=1)
    for (column, name), colour in zip(tables.PHASES, colours, strict=True):
        figure.add_bar(
            x=(rows[column] / total).to_list(),
            y=rows["policy"].to_list(),
            orientation="h",
            name=name,
            marker={"color": colour},
            customdata=(1000 * rows[column] / rows["output_tokens"]).to_list(),
            hovertemplate="%{x:.1%}, %{customdata:.2f} ms per token",
        )
    figure.update_layout(barmode="stack", bargap=0.35, legend_traceorder="normal")
    return figure.update_xaxes(range=[0, 1], tickformat=".0%")


@chart("Time per output token (TPOT)", TIME, aggregates.latency, of="listed")
def token(rows: pd.DataFrame, policies: Sequence[str]) -> go.Figure:
    """Percentiles of the time of a token."""
    return _latency(rows, "token")


@chart("Prefill latency", TIME, aggregates.latency, of="listed", table=tables.latency)
def first(rows: pd.DataFrame, policies: Sequence[str]) -> go.Figure:
    """Percentiles of the time of the prefill."""
    return _latency(rows, "first")


def _latency(frame: pd.DataFrame, column: str) -> go.Figure:
    figure = _by_policy("milliseconds", frame["policy"], legend=3)
    policies = frame["policy"].to_list()
    spans = [[low, high, None] for low, high in zip(1000 * frame[f"{column}_p50"], 1000 * frame[f"{column}_p99"])]
    figure.add_scatter(
        x=[x for span in spans for x in span],
        y=[policy for policy in policies for _ in range(3)],
        mode="lines",
        line={"color": TARGET_COLOUR, "width": 2},
        hoverinfo="skip",
        showlegend=False,
    )
    kinds = ((50, "median", "circle", 0), (90, "p90", "diamond", 1), (99, "p99", "square", 4))
    for percentile, name, symbol, colour in kinds:
        figure.add_scatter(
            x=(1000 * frame[f"{column}_p{percentile}"]).to_list(),
            y=policies,
            mode="markers",
            name=name,
            marker={"color": DRAFTER_COLOURS[colour], "symbol": symbol, "size": 10},
            customdata=frame["runs"].to_list(),
            hovertemplate=f"{percentile} % of %{{customdata:,}} runs: at most %{{x:.2f}} ms",
        )
    return figure.update_xaxes(rangemode="tozero")


def _by_policy(x: str, policies: Sequence[str], legend: int = 0) -> go.Figure:
    """A figure with a line of its own for each policy, the first on top; a spec's place on the axis is the spec.
    ``legend`` is its number of entries: where it is narrow they stand below each other, under the axis."""
    titles = policy_titles(policies)
    labels = [_label(title) for title in titles.values()]
    line = look.NAME_HEIGHT * max([2, *(label.count("<br>") + 1 for label in labels)])
    below = 54 + 20 * legend if legend else 44
    figure = look.base_figure("", x, "", height=66 + below + line * max(3, len(policies)))
    figure.update_yaxes(
        type="category",
        categoryorder="array",
        categoryarray=list(titles),
        tickvals=list(titles),
        ticktext=labels,
        range=[len(titles) - 0.4, -0.6],
    )
    if legend:
        figure.update_layout(legend={"yref": "container", "y": 0.01, "yanchor": "bottom"}, margin={"b": below})
    return figure.update_layout(showlegend=bool(legend), meta={"y": "policy"})  # in its CSV


def _reach(low: float, high: float) -> str:
    return "too few for an interval" if pd.isna(high) else f"95 % interval {low:.2f}–{high:.2f}"


def _label(title: str) -> str:
    return "<br>".join(escape(line) for line in wrap(title, 20, max_lines=3, placeholder=" …"))


def _of_each(rows: pd.DataFrame, policies: Sequence[str]) -> list[tuple[str, pd.DataFrame]]:
    groups = dict(list(rows.groupby("policy", sort=False)))
    return [(policy, groups[policy]) for policy in policies if policy in groups]


def _style(policy: str, coloured: Sequence[str]) -> dict[str, Any]:
    if policy in coloured:
        return look.policy_style(policy, coloured) | {"name": escape(policy_titles(coloured)[policy])}
    return {"name": escape(policy_title(policy)), "marker": {"color": TARGET_COLOUR, "symbol": "circle", "size": 9}}


def _thin(style: dict[str, Any]) -> dict[str, Any]:
    """For lines of many points: a thinner line, smaller markers."""
    return {**style, "line": {**style["line"], "width": 2}, "marker": {**style["marker"], "size": 5}}


def _time_range(rows: pd.DataFrame) -> dict[str, Any]:
    """A few minutes at least: around a single run the ticks would be milliseconds."""
    times = pd.to_datetime(rows["created_at"])
    if times.max() - times.min() > pd.Timedelta(minutes=5):
        return {"nticks": 4}  # more would be turned on a phone
    middle = times.min() + (times.max() - times.min()) / 2
    around = pd.Timedelta(minutes=3)
    return {"range": [(middle - around).isoformat(), (middle + around).isoformat()], "type": "date", "nticks": 5}
