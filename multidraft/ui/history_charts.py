"""Figures of many runs: frames of ``storage.figures`` in, Plotly figures out.

They have no legend of their own where colours stand for policies: the page shows one for all (``dashboard_tables``).
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from textwrap import wrap
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from multidraft.ui.charts import base_figure, message_figure, policy_style
from multidraft.ui.choices import policy_title, policy_titles
from multidraft.ui.tables import count
from multidraft.ui.theme import DRAFTER_COLOURS, TARGET_COLOUR, TEXT

PLAIN = {"line": {"dash": "dot", "color": TARGET_COLOUR, "width": 1.5}}
"""The line that stands for plain decoding."""

NO_SPEEDUP = "No run here has a speed-up."
NO_GREEDY_RUN = "Known of greedy runs with drafters: there is none here."

PHASES = (
    ("verify_seconds", "Target", TARGET_COLOUR),
    ("draft_seconds", "Drafting", DRAFTER_COLOURS[5]),
    ("evaluate_seconds", "Evaluating all drafters", DRAFTER_COLOURS[3]),
    ("policy_seconds", "Policy", DRAFTER_COLOURS[1]),
)

_HEAT = [[0, "rgba(0,114,178,0.06)"], [1, "rgba(0,114,178,0.72)"]]
"""Lets the page shine through, so that light and dark pages each keep their own text readable on it."""


def ranking_figure(summary: pd.DataFrame, drawn: Sequence[str]) -> go.Figure:
    """Speed-up of each policy with its confidence interval (``figures.policy_summary``), the fastest on top.

    Args:
        drawn: the policies that have a colour, in its order; others are grey.
    """
    rows = summary.dropna(subset=["speedup"])
    title = "Speed-up, mean and 95 % interval"
    if rows.empty:
        return message_figure(NO_SPEEDUP, title)
    figure = _by_policy(title, "times plain decoding", rows["policy"])
    figure.add_vline(x=1, **PLAIN)
    for row in rows.itertuples():
        style = _style(str(row.policy), drawn)
        certain = pd.notna(row.speedup_low)
        reach = _reach(row.speedup_low, row.speedup_high)
        figure.add_scatter(
            x=[row.speedup],
            y=[row.policy],
            mode="markers",
            marker={**style["marker"], "size": 10},
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [row.speedup_high - row.speedup if certain else 0],
                "arrayminus": [row.speedup - row.speedup_low if certain else 0],
                "color": style["marker"]["color"],
                "thickness": 2,
                "width": 5,
            },
            name=style["name"],
            hovertemplate=f"%{{x:.2f}}×, {reach}, {count(row.speedup_runs, 'run')}",
        )
    figure.update_xaxes(ticksuffix="×")
    return figure


def speedup_figure(frame: pd.DataFrame, drawn: Sequence[str]) -> go.Figure:
    """Speed-up over time, of every run (``figures.speedup_by_run``) or by period (``figures.speedup_by_period``)."""
    by_run = "run_id" in frame
    title = "Speed-up of every run" if by_run else "Speed-up over time, mean by period"
    if frame.empty:
        return message_figure(NO_SPEEDUP, title)
    figure = base_figure(title, "", "times plain decoding")
    figure.add_hline(y=1, **PLAIN)
    for policy in _present(frame, drawn):
        rows = frame[frame["policy"] == policy]
        style = _style(policy, drawn)
        shared = {"x": rows["created_at"].to_list(), "y": rows["speedup"].to_list(), **style}
        if by_run:
            about = rows.assign(task=[escape(str(task)) for task in rows["task"].fillna("no task")])
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
            reach = [_reach(low, high) for low, high in zip(rows["speedup_low"], rows["speedup_high"])]
            figure.add_scatter(
                mode="lines+markers",
                customdata=list(map(list, zip(rows["runs"].to_list(), reach))),
                hovertemplate=("%{y:.2f}×, mean of %{customdata[0]:,} runs around %{x|%d %b %Y}<br>%{customdata[1]}"),
                **_thin(shared),
            )
    figure.update_layout(showlegend=False)
    figure.update_yaxes(rangemode="tozero", ticksuffix="×")
    figure.update_xaxes(**_time_range(frame))
    return figure


def regret_figure(frame: pd.DataFrame, drawn: Sequence[str]) -> go.Figure:
    """Regret summed up over the runs of each policy (``figures.regret_over_time``)."""
    title = "Cumulative regret, run by run"
    if frame.empty:
        return message_figure(NO_GREEDY_RUN, title)
    figure = base_figure(title, "greedy runs of the policy", "rounds above the best drafter")
    figure.add_hline(y=0, **PLAIN)
    for policy in _present(frame, drawn):
        rows = frame[frame["policy"] == policy]
        few = len(rows) <= 40
        style = _style(policy, drawn)
        figure.add_scatter(
            x=rows["run_number"].to_list(),
            y=rows["cumulative_regret"].to_list(),
            mode="lines+markers" if few else "lines",
            customdata=(rows["cumulative_regret"] / rows["run_number"]).to_list(),
            hovertemplate="after %{x:,} runs %{y:+,.0f} rounds in all, %{customdata:+.2f} a run",
            **(style if few else _thin(style)),
        )
    if frame["run_number"].max() < 8:
        figure.update_xaxes(dtick=1)  # there are no half runs
    return figure.update_layout(showlegend=False)


def best_arm_figure(frame: pd.DataFrame, drawn: Sequence[str]) -> go.Figure:
    """How often the best drafter in hindsight was played in each round (``figures.best_arm_by_round``)."""
    title = "Best drafter played, by round of the run"
    if frame.empty:
        return message_figure(NO_GREEDY_RUN, title)
    figure = base_figure(title, "round", "share of the runs")
    for policy in _present(frame, drawn):
        rows = frame[frame["policy"] == policy]
        # The last rounds of the longest runs jump about. Rounds in which nobody drafted are gaps, no line across them.
        enough = rows[rows["runs"] >= max(1, rows["runs"].max() // 20)].set_index("round")
        whole = enough.reindex(range(enough.index.min(), enough.index.max() + 1))
        figure.add_scatter(
            x=whole.index.to_list(),
            y=whole["ratio"].astype(object).where(whole["ratio"].notna(), None).to_list(),
            mode="lines" if len(whole) == len(enough) else "lines+markers",  # a round between gaps has no line
            customdata=whole["runs"].fillna(0).to_list(),
            hovertemplate="round %{x}: %{y:.0%} of the %{customdata:,} runs that drafted in it",
            **_thin(_style(policy, drawn)),
        )
    figure.update_yaxes(range=[0, 1.02], tickformat=".0%")
    return figure.update_layout(showlegend=False)


def drafter_task_figure(frame: pd.DataFrame) -> go.Figure:
    """Tokens per round of each drafter alone, by task (``figures.drafter_by_task``)."""
    title = "Tokens a round, each drafter alone"
    if frame.empty:
        return message_figure(NO_GREEDY_RUN, title)
    figure = base_figure(title, "task", "", height=330)
    table = frame.pivot(index="drafter", columns="task", values="mean_accepted_tokens")
    counts = frame.pivot(index="drafter", columns="task", values="runs").fillna(0)
    figure.add_heatmap(
        z=table.astype(object).where(table.notna(), None).values.tolist(),
        x=[escape(str(task)) for task in table.columns],
        y=[escape(str(name)) for name in table.index],
        customdata=counts.values.tolist(),
        texttemplate="%{z:.1f}",
        hovertemplate="%{y} alone on %{x}: %{z:.2f} tokens a round, over %{customdata:,} runs<extra></extra>",
        colorscale=_HEAT,
        textfont={"color": TEXT},
        zmin=1,
        xgap=2,
        ygap=2,
        showscale=False,
    )
    figure.update_layout(showlegend=False)
    figure.update_xaxes(showgrid=False)
    figure.update_yaxes(showgrid=False, autorange="reversed")
    return figure


def phases_figure(frame: pd.DataFrame) -> go.Figure:
    """Where the decoding time of each policy goes (``figures.time_by_phase``)."""
    figure = _by_policy("Decoding time by phase", "share of the time", frame["policy"])
    total = frame[[column for column, _, _ in PHASES]].sum(axis=1)
    for column, name, colour in PHASES:
        figure.add_bar(
            x=(frame[column] / total).to_list(),
            y=frame["policy"].to_list(),
            orientation="h",
            name=name,
            marker={"color": colour},
            customdata=(1000 * frame[column] / frame["output_tokens"]).to_list(),
            hovertemplate="%{x:.1%}, %{customdata:.2f} ms a token",
        )
    figure.update_layout(
        barmode="stack",
        bargap=0.35,
        showlegend=True,
        legend={"traceorder": "normal", "yref": "container", "y": 0.01, "yanchor": "bottom"},
        margin={"b": 96},
        height=figure.layout.height + 52,
    )
    figure.update_xaxes(range=[0, 1], tickformat=".0%")
    return figure


def latency_figure(frame: pd.DataFrame, column: str, title: str) -> go.Figure:
    """Percentiles of a time by policy (``figures.latency``): ``column`` is ``token`` or ``first``."""
    figure = _by_policy(title, "milliseconds", frame["policy"])
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
    figure.update_layout(
        showlegend=True,
        legend={"yref": "container", "y": 0.01, "yanchor": "bottom"},
        margin={"b": 96},
        height=figure.layout.height + 52,
    )
    figure.update_xaxes(rangemode="tozero")
    return figure


def _by_policy(title: str, x: str, policies: Sequence[str]) -> go.Figure:
    """A figure with a line of its own for each policy, the first on top; a spec's place on the axis is the spec."""
    figure = base_figure(title, x, "", height=110 + 34 * max(3, len(policies)))
    titles = policy_titles(policies)
    figure.update_yaxes(
        type="category",
        categoryorder="array",
        categoryarray=list(titles),
        tickvals=list(titles),
        ticktext=[_label(title) for title in titles.values()],
        range=[len(titles) - 0.4, -0.6],
    )
    return figure.update_layout(showlegend=False)


def _reach(low: float, high: float) -> str:
    return "no interval of so few" if pd.isna(low) else f"95 % interval {low:.2f}–{high:.2f}"


def _label(title: str) -> str:
    return "<br>".join(escape(line) for line in wrap(title, 20, max_lines=3, placeholder=" …"))


def _present(frame: pd.DataFrame, drawn: Sequence[str]) -> list[str]:
    found = set(frame["policy"])
    return [policy for policy in drawn if policy in found]


def _style(policy: str, drawn: Sequence[str]) -> dict[str, Any]:
    if policy in drawn:
        return policy_style(drawn.index(policy), policy) | {"name": escape(policy_titles(drawn)[policy])}
    return {"name": escape(policy_title(policy)), "marker": {"color": TARGET_COLOUR, "symbol": "circle", "size": 9}}


def _thin(style: dict[str, Any]) -> dict[str, Any]:
    """For lines of many points: a thinner line, smaller markers."""
    return {**style, "line": {**style["line"], "width": 2}, "marker": {**style["marker"], "size": 5}}


def _time_range(frame: pd.DataFrame) -> dict[str, Any]:
    """A few minutes at least: around a single run the ticks would be milliseconds."""
    times = pd.to_datetime(frame["created_at"])
    if frame.empty or times.max() - times.min() > pd.Timedelta(minutes=5):
        return {}
    middle = times.min() + (times.max() - times.min()) / 2
    around = pd.Timedelta(minutes=3)
    return {"range": [(middle - around).isoformat(), (middle + around).isoformat()], "type": "date", "nticks": 5}
