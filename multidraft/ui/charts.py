"""Figures: frames and rounds in, Plotly figures out. Colours are those of the page's legend.

Texts and grid lines take their colour from the page's style sheet, so that one figure serves light and dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from multidraft.records import Round
from multidraft.ui.choices import policy_title
from multidraft.ui.theme import SANS, TARGET_COLOUR, TEXT, drafter_colour

POLICY_HEIGHT = 270
NO_DRAFT = "no draft"

_GRID = "rgba(128,134,142,0.25)"
_HEAT = [[0, "#f3f8fc"], [1, "#56a8dc"]]
"""Light enough throughout for dark figures on it."""

_DASHES = ("solid", "dash", "dot", "dashdot")
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "x", "star")


def blank_figure() -> go.Figure:
    """What stands for :func:`policy_figure` before the first round."""
    figure = _figure("The policy, round by round", "", "", height=POLICY_HEIGHT)
    figure.add_annotation(
        text="No rounds yet.",
        x=0.5,
        y=0.5,
        xref="paper",
        yref="paper",
        showarrow=False,
    )
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    return figure


def policy_figure(rounds: Sequence[Round], drafters: Sequence[str]) -> go.Figure:
    """What the policy thought: the drafters' probabilities by round, or for a deterministic one the arms it played."""
    if not rounds:
        return blank_figure()
    if any(r.probabilities is not None for r in rounds):
        return _weights_figure(rounds, drafters)
    return _arms_figure(rounds, drafters)


def _weights_figure(rounds: Sequence[Round], drafters: Sequence[str]) -> go.Figure:
    figure = _figure("Chance of each drafter, round by round", "round", "probability", height=POLICY_HEIGHT)
    known = [r for r in rounds if r.probabilities is not None]
    numbers = [r.index + 1 for r in known]
    for arm, name in enumerate(drafters):
        colour = drafter_colour(arm)
        figure.add_scatter(
            x=numbers,
            y=[r.probabilities[arm] for r in known if r.probabilities],
            name=escape(name),
            mode="lines",
            stackgroup="weights",
            line={"color": colour, "width": 0.5, "shape": "hvh"},
            fillcolor=colour,
            hovertemplate="%{y:.0%}",
        )
    figure.update_layout(showlegend=False, hovermode="x unified")
    figure.update_xaxes(range=[1, max(2, len(rounds))], unifiedhovertitle={"text": "Round %{x}"})
    figure.update_yaxes(range=[0, 1], tickformat=".0%")
    return figure


def _arms_figure(rounds: Sequence[Round], drafters: Sequence[str]) -> go.Figure:
    figure = _figure("Drafter played, round by round", "round", "", height=POLICY_HEIGHT)
    lines: list[tuple[str | None, str]] = [(name, drafter_colour(arm)) for arm, name in enumerate(drafters)]
    lines.append((None, TARGET_COLOUR))
    for line, (name, colour) in enumerate(lines):
        played = [r for r in rounds if r.drafter == name]
        figure.add_scatter(
            x=[r.index + 1 for r in played],
            y=[line] * len(played),
            name=escape(name or NO_DRAFT),
            mode="markers",
            marker={"color": colour, "size": [7 + 1.2 * r.accepted for r in played], "line": {"width": 0}},
            customdata=[[r.accepted, len(r.drafted)] for r in played],
            hovertemplate="Round %{x}: accepted %{customdata[0]} of %{customdata[1]}<extra>%{fullData.name}</extra>",
        )
    figure.update_layout(showlegend=False)
    figure.update_xaxes(range=[0, max(10, len(rounds)) * 1.03])
    figure.update_yaxes(
        tickvals=list(range(len(lines))),
        ticktext=[escape(name or NO_DRAFT) for name, _ in lines],
        range=[len(lines) - 0.4, -0.6],
    )
    return figure


def speedup_figure(frame: pd.DataFrame, policies: Sequence[str]) -> go.Figure:
    """Speed-up of each run by the time it was made (``queries.speedup_over_time``).

    ``policies`` gives each its colour: the same list for charts that are seen together.
    """
    figure = _figure("Speed-up of every run", "", "times plain decoding")
    for policy, runs in frame.dropna(subset=["speedup"]).groupby("policy", sort=True):
        figure.add_scatter(
            x=runs["created_at"].to_list(),
            y=runs["speedup"].to_list(),
            mode="markers",
            customdata=runs[["task", "tokens_per_second"]].fillna({"task": "no task"}).values.tolist(),
            hovertemplate="%{y:.2f}× on %{customdata[0]}, %{customdata[1]:.1f} tokens/s<br>%{x|%d %b %Y %H:%M:%S} UTC",
            **_policy_style(policies.index(str(policy)), str(policy)),
        )
    figure.add_hline(y=1, line={"dash": "dot", "color": TARGET_COLOUR, "width": 1.5})
    figure.update_yaxes(rangemode="tozero", ticksuffix="×")
    figure.update_xaxes(**_time_range(frame))
    return _with_room_for_legend(figure, columns=3)


def _time_range(frame: pd.DataFrame) -> dict[str, Any]:
    """A few minutes at least: around a single run the ticks would be milliseconds."""
    times = pd.to_datetime(frame["created_at"])
    if frame.empty or times.max() - times.min() > pd.Timedelta(minutes=5):
        return {}
    middle = times.min() + (times.max() - times.min()) / 2
    around = pd.Timedelta(minutes=3)
    return {"range": [(middle - around).isoformat(), (middle + around).isoformat()], "type": "date", "nticks": 5}


def regret_figure(frame: pd.DataFrame, policies: Sequence[str]) -> go.Figure:
    """Regret summed up over the runs of each policy (``queries.regret_over_time``); colours as in the chart above."""
    figure = _figure("Cumulative regret", "greedy runs of the policy", "rounds above the best drafter")
    for policy, runs in frame.groupby("policy", sort=True):
        figure.add_scatter(
            x=runs["run_number"].to_list(),
            y=runs["cumulative_regret"].to_list(),
            mode="lines+markers",
            customdata=runs[["regret_rounds"]].values.tolist(),
            hovertemplate="run %{x}: %{y:+.0f} rounds in all, this run %{customdata[0]:+.0f}",
            **_policy_style(policies.index(str(policy)), str(policy)),
        )
    if frame.empty or frame["run_number"].max() < 8:
        figure.update_xaxes(dtick=1)  # there are no half runs
    return _with_room_for_legend(figure, columns=1)


def drafter_task_figure(frame: pd.DataFrame) -> go.Figure:
    """Tokens per round of each drafter alone, by task (``queries.drafter_by_task``)."""
    figure = _figure("Tokens a round, each drafter alone", "task", "", height=340)
    table = frame.pivot(index="drafter", columns="task", values="mean_accepted_tokens")
    counts = frame.pivot(index="drafter", columns="task", values="runs").fillna(0)
    figure.add_heatmap(
        z=table.astype(object).where(table.notna(), None).values.tolist(),
        x=[escape(str(task)) for task in table.columns],
        y=[escape(str(name)) for name in table.index],
        customdata=counts.values.tolist(),
        texttemplate="%{z:.1f}",
        hovertemplate="%{y} alone on %{x}: %{z:.2f} tokens a round, over %{customdata} runs<extra></extra>",
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


def speedup_by_task_figure(summary: pd.DataFrame) -> go.Figure:
    """Median speed-up of a batch by task and policy (``batch_rows.summarise``)."""
    figure = _figure("Median speed-up by task", "task", "times plain decoding")
    for index, (policy, rows) in enumerate(summary.dropna(subset=["speedup"]).groupby("policy", sort=True)):
        style = _policy_style(index, str(policy))
        figure.add_bar(
            x=[escape(str(task)) for task in rows["task"]],
            y=rows["speedup"].to_list(),
            name=style["name"],
            marker={"color": style["marker"]["color"]},
            hovertemplate="%{x}: %{y:.2f}×",
        )
    figure.add_hline(y=1, line={"dash": "dot", "color": TARGET_COLOUR, "width": 1.5})
    figure.update_layout(barmode="group")
    figure.update_yaxes(rangemode="tozero", ticksuffix="×")
    return figure


def _policy_style(index: int, policy: str) -> dict[str, Any]:
    """Colour, marker and dash together tell policies apart, so that colour is not needed for it."""
    colour = drafter_colour(index)
    return {
        "name": escape(policy_title(policy)),
        "line": {"color": colour, "width": 2.5, "dash": _DASHES[index % len(_DASHES)]},
        "marker": {"color": colour, "symbol": _SYMBOLS[index % len(_SYMBOLS)], "size": 9},
    }


def _with_room_for_legend(figure: go.Figure, columns: int) -> go.Figure:
    """As high as it needs to be for a legend of so many columns on a wide screen to leave the plot its height."""
    rows = -(-len(figure.data) // columns)
    return figure.update_layout(height=figure.layout.height + 20 * max(0, rows - 3))


def _figure(title: str, x: str, y: str, height: int = 330) -> go.Figure:
    figure = go.Figure()
    figure.update_layout(
        template="none",
        title={"text": title, "x": 0.012, "xref": "container", "font": {"size": 15}, "y": 0.96, "yanchor": "top"},
        height=height,
        margin={"l": 56, "r": 16, "t": 44, "b": 44},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": ", ".join(SANS), "size": 13, "color": TEXT},
        hoverlabel={"bgcolor": "#23282f", "bordercolor": "#4d545e", "font": {"color": "#ffffff"}},
        legend={"orientation": "h", "yanchor": "top", "y": -0.22, "x": 0},
        showlegend=True,
        dragmode=False,
    )
    figure.update_xaxes(
        title={"text": x, "standoff": 8, "font": {"size": 13}}, gridcolor=_GRID, zeroline=False, automargin=True
    )
    figure.update_yaxes(
        title={"text": y, "standoff": 8, "font": {"size": 13}}, gridcolor=_GRID, zeroline=False, automargin=True
    )
    return figure
