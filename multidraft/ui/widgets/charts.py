"""What charts share: their look, the styles of policies, the place on the page; the charts of a run's rounds, and of
drafters by task.

Texts and grid lines take their colour from the page's style sheet, so that one figure serves light and dark. Plotly
takes some tags in texts for its own, so all texts are escaped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from math import floor, lcm, log10
from typing import Any

import gradio as gr
import pandas as pd
import plotly.graph_objects as go
from gradio.components.plot import PlotData

from multidraft.policies.titles import policy_title
from multidraft.ui.widgets import theme
from storage.records import Round

POLICY_HEIGHT = 270
NAME_HEIGHT = 17
"""What a drafter's line takes at least, so that names do not touch."""

NO_DRAFT = "no draft"

Chart = dict[str, Any]
"""``data``, a list of traces, and ``layout``: the plain data of Plotly. A page that follows a run gets its charts again
and again, and Plotly's own figures check every value, which takes far longer than all the rest of an update."""

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
    places = theme.drafter_places(drafters)
    traces = [
        {
            "type": "scatter",
            "x": numbers,
            "y": [probabilities[arm] for _, probabilities in known],
            "name": escape(name),
            "mode": "lines",
            "stackgroup": "weights",
            "line": {"color": theme.drafter_colour(places[arm]), "width": 0.5, "shape": "hvh"},
            "fillcolor": theme.drafter_colour(places[arm]),
            "fillpattern": theme.drafter_pattern(places[arm]),
            "hovertemplate": "%{y:.0%}",
        }
        for arm, name in enumerate(drafters)
    ]
    layout = base_layout("Selection probability by round", "round", "probability", POLICY_HEIGHT)
    layout["hovermode"] = "x unified"
    layout["xaxis"] |= {"range": [1, max(2, len(rounds))], "unifiedhovertitle": {"text": "Round %{x}"}}
    layout["xaxis"] |= whole(len(rounds))
    layout["yaxis"] |= {"range": [0, 1], "tickformat": ".0%"}
    return {"data": traces, "layout": layout}


def arms_chart(rounds: Sequence[Round], drafters: Sequence[str]) -> Chart:
    """The drafter of each round, the larger the more of its draft was accepted."""
    lines: list[tuple[str | None, str, str]] = [
        (name, theme.drafter_colour(place), theme.drafter_symbol(place))
        for name, place in zip(drafters, theme.drafter_places(drafters), strict=True)
    ]
    lines.append((None, theme.TARGET_COLOUR, "circle"))
    names = [escape(name or NO_DRAFT) for name, *_ in lines]
    traces = []
    for shown, (name, colour, symbol) in zip(names, lines, strict=True):
        played = [r for r in rounds if r.drafter == name]
        traces.append(
            {
                "type": "scatter",
                "x": [r.index + 1 for r in played],
                "y": [shown] * len(played),
                "name": shown,
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
    height = max(POLICY_HEIGHT, 88 + NAME_HEIGHT * len(lines))
    layout = base_layout("Selected drafter by round", "round (larger dot: more accepted)", "", height)
    layout["xaxis"]["range"] = [0, max(10, len(rounds)) * 1.03]
    layout["yaxis"] |= {"type": "category", "categoryarray": names, "tickvals": names}
    layout["yaxis"]["range"] = [len(lines) - 0.4, -0.6]
    layout["meta"] = {"x": "round", "y": "drafter"}  # in its CSV
    return {"data": traces, "layout": layout}


def base_layout(title: str, x: str, y: str, height: int) -> dict[str, Any]:
    """The layout of a chart in the page's look; ``x`` and ``y`` are the titles of the axes."""
    return {
        "title": {"text": title, "x": 0.012, "xref": "container", "font": {"size": 15}, "y": 0.96, "yanchor": "top"},
        "height": height,
        "margin": {"l": 56, "r": 16, "t": 44, "b": 44},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": ", ".join(theme.SANS), "size": 13, "color": theme.TEXT},
        "hoverlabel": {"bgcolor": "#23282f", "bordercolor": "#4d545e", "font": {"color": "#ffffff"}},
        "legend": {"orientation": "h", "yanchor": "top", "y": -0.22, "x": 0},
        "showlegend": False,
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


REFERENCE = {"line": {"dash": "dot", "color": theme.TARGET_COLOUR, "width": 1.5}}
"""The line that stands for autoregressive decoding, or for what else a chart compares with."""

NO_GREEDY_RUN = "Known only for greedy runs with drafters; there are none here."

LONGEST_NAME = 15
"""Characters of a task's name that are shown below a chart."""

_DASHES = ("solid", "dash", "dot", "dashdot")
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "x", "star")

_BOTH = lcm(len(_DASHES), len(_SYMBOLS))
"""So many times both change together; then the symbol goes one on, and all pairs come before one comes again."""

_HEAT = [[0, "rgba(0,114,178,0.06)"], [1, "rgba(0,114,178,0.72)"]]
"""Lets the page shine through, so that light and dark pages each keep their own text readable on it."""


def plot(id: str, visible: bool = True) -> gr.Plot:
    """A place for a chart; until that is known, charts.css says so in it, which need not be drawn as a figure would."""
    return gr.Plot(show_label=False, visible=visible, min_width=320, elem_id=id, elem_classes="md-chart")


def base_figure(title: str, x: str, y: str, height: int = 330) -> go.Figure:
    """An empty figure in the page's look; ``x`` and ``y`` are the titles of the axes."""
    return go.Figure(layout={"template": "none", **base_layout(title, x, y, height)})


def whole(most: int) -> dict[str, int]:
    """What keeps an axis of numbers up to ``most`` to whole ones: there are no half rounds."""
    return {"dtick": 1} if most < 8 else {}


def message_figure(text: str) -> go.Figure:
    """A sentence in place of a chart that is not there yet, or has nothing to draw: axes would run from -1 to 6."""
    figure = base_figure("", "", "").update_xaxes(visible=False).update_yaxes(visible=False)
    return figure.add_annotation(text=text, x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False)


def speedup_figure(title: str, x: str) -> go.Figure:
    """An empty figure whose y is a speed-up."""
    figure = base_figure(title, x, "speed-up")
    figure.add_hline(y=1, **REFERENCE)
    return figure.update_yaxes(rangemode="tozero", ticksuffix="×")


def on_log_scale(figure: go.Figure, speedups: Iterable[float]) -> go.Figure:
    """A figure of single speed-ups, where twice and half as fast are equally far from 1 and an outlier leaves room for
    the rest; 1× and 2× are always on it."""
    known = [speedup for speedup in speedups if speedup > 0]
    low, high = log10(min([0.8, *known])), log10(max([2.5, *known]))
    ticks = [digit * 10.0**power for power in range(floor(low), floor(high) + 1) for digit in (1, 2, 5)]
    labels = [f"{tick:,g}×" for tick in ticks]
    return figure.update_yaxes(type="log", range=[low - 0.05, high + 0.05], tickvals=ticks, ticktext=labels)


def policy_style(policy: str, among: Sequence[str]) -> dict[str, Any]:
    """Policies that are shown together differ in colour or in dash and marker, the usual ones in both."""
    hue, again = theme.policy_place(policy, among)
    colour, dash = theme.POLICY_COLOURS[hue], hue + hue // len(_DASHES) + again  # of like hues not the same
    return {
        "name": escape(policy_title(policy)),
        "line": {"color": colour, "width": 2.5, "dash": _DASHES[dash % len(_DASHES)]},
        "marker": {"color": colour, "symbol": _SYMBOLS[(hue + again + again // _BOTH) % len(_SYMBOLS)], "size": 9},
    }


def bar_marker(policy: str, among: Sequence[str]) -> dict[str, Any]:
    """Likewise for bars, which are hatched where the colours repeat."""
    hue, again = theme.policy_place(policy, among)
    colour = theme.POLICY_COLOURS[hue]
    return {"color": colour, "pattern": theme.pattern(colour, again)}


def drafter_task_figure(frame: pd.DataFrame) -> go.Figure:
    """Tokens per round of each drafter alone, by task (``aggregates.drafter_by_task``)."""
    figure = base_figure("MAT of each drafter alone", "task", "").update_layout(meta={"y": "drafter"})  # in its CSV
    table = frame.pivot(index="drafter", columns="task", values="mean_accepted_tokens")
    counts = frame.pivot(index="drafter", columns="task", values="runs").fillna(0)
    figure.add_heatmap(
        z=table.astype(object).where(table.notna(), None).values.tolist(),
        x=[escape(str(task)) for task in table.columns],
        y=[escape(str(name)) for name in table.index],
        customdata=counts.values.tolist(),
        texttemplate="%{z:.1f}",
        hovertemplate="%{y} alone on %{x}: %{z:.2f} tokens per round, over %{customdata:,} runs<extra></extra>",
        colorscale=_HEAT,
        textfont={"color": theme.TEXT},
        zmin=1,
        xgap=2,
        ygap=2,
        showscale=False,
    )
    named_tasks(figure, map(str, table.columns)).update_xaxes(showgrid=False)
    return figure.update_yaxes(showgrid=False, autorange="reversed", dtick=1)  # all names, however low the rows


def named_tasks(figure: go.Figure, tasks: Iterable[str]) -> go.Figure:
    """``figure``, of whose x these are, with long names cut below it: turned, they would take the chart's room."""
    names = {escape(task): escape(task if len(task) <= LONGEST_NAME else f"{task[:LONGEST_NAME]}…") for task in tasks}
    return figure.update_xaxes(tickvals=list(names), ticktext=list(names.values()))
