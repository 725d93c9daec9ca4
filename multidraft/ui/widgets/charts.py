"""What charts share: their look, the styles of policies, the place on the page, and the chart of drafters by task.

Texts and grid lines take their colour from the page's style sheet, so that one figure serves light and dark. Plotly
takes some tags in texts for its own, so all texts are escaped.
"""

from __future__ import annotations

from html import escape
from typing import Any

import gradio as gr
import pandas as pd
import plotly.graph_objects as go

from multidraft.policies.titles import policy_title
from multidraft.ui.widgets.round_charts import base_layout
from multidraft.ui.widgets.theme import DRAFTER_COLOURS, TARGET_COLOUR, TEXT, drafter_colour

REFERENCE = {"line": {"dash": "dot", "color": TARGET_COLOUR, "width": 1.5}}
"""The line that stands for autoregressive decoding, or for what else a chart compares with."""

NO_GREEDY_RUN = "Known of greedy runs with drafters: there is none here."

_DASHES = ("solid", "dash", "dot", "dashdot")
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "x", "star")

_HEAT = [[0, "rgba(0,114,178,0.06)"], [1, "rgba(0,114,178,0.72)"]]
"""Lets the page shine through, so that light and dark pages each keep their own text readable on it."""


def plot(id: str, visible: bool = True, kind: str = "") -> gr.Plot:
    """A place for a chart, which says so until the chart is known; ``kind`` is a further CSS class."""
    # Not without a value: what Gradio shows in its place has a label that screen readers cannot use.
    blank = message_figure("Reading the history …") if visible else None
    classes = ["md-chart", kind] if kind else "md-chart"
    return gr.Plot(blank, show_label=False, visible=visible, min_width=320, elem_id=id, elem_classes=classes)


def base_figure(title: str, x: str, y: str, height: int = 330) -> go.Figure:
    """An empty figure in the page's look; ``x`` and ``y`` are the titles of the axes."""
    return go.Figure(layout={"template": "none", **base_layout(title, x, y, height)})


def message_figure(text: str, title: str = "") -> go.Figure:
    """A sentence in place of a chart that is not there yet, or has nothing to draw: axes would run from -1 to 6."""
    figure = base_figure(title, "", "").update_xaxes(visible=False).update_yaxes(visible=False)
    return figure.add_annotation(text=text, x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False)


def speedup_figure(title: str, x: str) -> go.Figure:
    """An empty figure whose y is a speed-up."""
    figure = base_figure(title, x, "speed-up")
    figure.add_hline(y=1, **REFERENCE)
    return figure.update_yaxes(rangemode="tozero", ticksuffix="×")


def policy_style(index: int, policy: str) -> dict[str, Any]:
    """Policies differ in colour, marker and dash, so that colour is not needed."""
    colour, again = drafter_colour(index), index // len(DRAFTER_COLOURS)
    return {
        "name": escape(policy_title(policy)),
        "line": {"color": colour, "width": 2.5, "dash": _DASHES[(index + again) % len(_DASHES)]},
        "marker": {"color": colour, "symbol": _SYMBOLS[index % len(_SYMBOLS)], "size": 9},
    }


def drafter_task_figure(frame: pd.DataFrame) -> go.Figure:
    """Tokens per round of each drafter alone, by task (``aggregates.drafter_by_task``)."""
    title = "Tokens per round of each drafter alone"
    if frame.empty:
        return message_figure(NO_GREEDY_RUN, title)
    figure = base_figure(title, "task", "")
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
        textfont={"color": TEXT},
        zmin=1,
        xgap=2,
        ygap=2,
        showscale=False,
    )
    figure.update_layout(showlegend=False)
    figure.update_xaxes(showgrid=False)
    return figure.update_yaxes(showgrid=False, autorange="reversed")
