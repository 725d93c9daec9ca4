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
_DASHES = ("solid", "dash", "dot", "dashdot")
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "x", "star")


def blank_figure() -> go.Figure:
    """What stands for :func:`policy_figure` before the first round."""
    figure = base_figure("The policy, round by round", "", "", height=POLICY_HEIGHT)
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
        return weights_figure(rounds, drafters)
    return arms_figure(rounds, drafters)


def weights_figure(rounds: Sequence[Round], drafters: Sequence[str]) -> go.Figure:
    """The probabilities over the drafters, stacked, round by round; rounds without them are left out."""
    figure = base_figure("Chance of each drafter, round by round", "round", "probability", height=POLICY_HEIGHT)
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


def arms_figure(rounds: Sequence[Round], drafters: Sequence[str]) -> go.Figure:
    """The drafter of each round, the larger the more of its draft was accepted."""
    figure = base_figure("Drafter played, round by round", "round", "", height=POLICY_HEIGHT)
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


def speedup_by_task_figure(summary: pd.DataFrame) -> go.Figure:
    """Median speed-up of a batch by task and policy (``batch_rows.summarise``)."""
    figure = base_figure("Median speed-up by task", "task", "times plain decoding")
    for index, (policy, rows) in enumerate(summary.dropna(subset=["speedup"]).groupby("policy", sort=True)):
        style = policy_style(index, str(policy))
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


def policy_style(index: int, policy: str) -> dict[str, Any]:
    """Colour, marker and dash together tell policies apart, so that colour is not needed for it."""
    colour = drafter_colour(index)
    return {
        "name": escape(policy_title(policy)),
        "line": {"color": colour, "width": 2.5, "dash": _DASHES[index % len(_DASHES)]},
        "marker": {"color": colour, "symbol": _SYMBOLS[index % len(_SYMBOLS)], "size": 9},
    }


def base_figure(title: str, x: str, y: str, height: int = 330) -> go.Figure:
    """An empty figure in the page's look; ``x`` and ``y`` are the titles of the axes."""
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
