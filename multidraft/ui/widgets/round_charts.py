"""The charts of a run's rounds, as plain data of Plotly: a page that follows a run gets them again and again, and
Plotly's own figures check every value, which takes far longer than all the rest of an update."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any

from gradio.components.plot import PlotData

from multidraft.ui.widgets.theme import SANS, TARGET_COLOUR, TEXT, drafter_colour, drafter_pattern, drafter_symbol
from storage.records import Round

POLICY_HEIGHT = 270
NO_DRAFT = "no draft"

Chart = dict[str, Any]
"""``data``, a list of traces, and ``layout``."""

_GRID = "rgba(128,134,142,0.25)"


def plot_of(chart: Chart) -> PlotData:
    """A chart as ``gr.Plot`` sends it to the page."""
    return PlotData(type="plotly", plot=json.dumps(chart))


def policy_chart(rounds: Sequence[Round], drafters: Sequence[str]) -> Chart:
    """What the policy thought: the drafters' probabilities by round, or for a deterministic one the arms it played."""
    if any(r.probabilities is not None for r in rounds):
        return weights_chart(rounds, drafters)
    return arms_chart(rounds, drafters)


def weights_chart(rounds: Sequence[Round], drafters: Sequence[str]) -> Chart:
    """The probabilities over the drafters, stacked, round by round; rounds without them are left out."""
    known = [(r.index + 1, r.probabilities) for r in rounds if r.probabilities is not None]
    numbers = [number for number, _ in known]
    traces = [
        {
            "type": "scatter",
            "x": numbers,
            "y": [probabilities[arm] for _, probabilities in known],
            "name": escape(name),
            "mode": "lines",
            "stackgroup": "weights",
            "line": {"color": drafter_colour(arm), "width": 0.5, "shape": "hvh"},
            "fillcolor": drafter_colour(arm),
            "fillpattern": drafter_pattern(arm),
            "hovertemplate": "%{y:.0%}",
        }
        for arm, name in enumerate(drafters)
    ]
    layout = base_layout("Chance of each drafter, round by round", "round", "probability", POLICY_HEIGHT)
    layout |= {"showlegend": False, "hovermode": "x unified"}
    layout["xaxis"] |= {"range": [1, max(2, len(rounds))], "unifiedhovertitle": {"text": "Round %{x}"}}
    layout["yaxis"] |= {"range": [0, 1], "tickformat": ".0%"}
    return {"data": traces, "layout": layout}


def arms_chart(rounds: Sequence[Round], drafters: Sequence[str]) -> Chart:
    """The drafter of each round, the larger the more of its draft was accepted."""
    lines: list[tuple[str | None, str, str]] = [
        (name, drafter_colour(arm), drafter_symbol(arm)) for arm, name in enumerate(drafters)
    ]
    lines.append((None, TARGET_COLOUR, "circle"))
    traces = []
    for line, (name, colour, symbol) in enumerate(lines):
        played = [r for r in rounds if r.drafter == name]
        traces.append(
            {
                "type": "scatter",
                "x": [r.index + 1 for r in played],
                "y": [line] * len(played),
                "name": escape(name or NO_DRAFT),
                "mode": "markers",
                "marker": {
                    "color": colour,
                    "symbol": symbol,
                    "size": [7 + 1.2 * r.accepted for r in played],
                    "line": {"width": 0},
                },
                "customdata": [[r.accepted, len(r.drafted)] for r in played],
                "hovertemplate": "Round %{x}: accepted %{customdata[0]} of %{customdata[1]}"
                "<extra>%{fullData.name}</extra>",
            }
        )
    layout = base_layout("Drafter played, round by round", "round (larger dot: more accepted)", "", POLICY_HEIGHT)
    layout["showlegend"] = False
    layout["xaxis"]["range"] = [0, max(10, len(rounds)) * 1.03]
    layout["yaxis"] |= {
        "tickvals": list(range(len(lines))),
        "ticktext": [escape(name or NO_DRAFT) for name, *_ in lines],
        "range": [len(lines) - 0.4, -0.6],
    }
    return {"data": traces, "layout": layout}


def base_layout(title: str, x: str, y: str, height: int) -> dict[str, Any]:
    """The layout of a chart in the page's look; ``x`` and ``y`` are the titles of the axes."""
    return {
        "title": {"text": title, "x": 0.012, "xref": "container", "font": {"size": 15}, "y": 0.96, "yanchor": "top"},
        "height": height,
        "margin": {"l": 56, "r": 16, "t": 44, "b": 44},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": ", ".join(SANS), "size": 13, "color": TEXT},
        "hoverlabel": {"bgcolor": "#23282f", "bordercolor": "#4d545e", "font": {"color": "#ffffff"}},
        "legend": {"orientation": "h", "yanchor": "top", "y": -0.22, "x": 0},
        "showlegend": True,
        "dragmode": False,
        "xaxis": _axis(x),
        "yaxis": _axis(y),
    }


def _axis(title: str) -> dict[str, Any]:
    return {
        "title": {"text": title, "standoff": 8, "font": {"size": 13}},
        "gridcolor": _GRID,
        "zeroline": False,
        "automargin": True,
    }
