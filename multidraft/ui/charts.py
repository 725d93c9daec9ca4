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
from multidraft.ui.round_charts import NO_DRAFT, POLICY_HEIGHT, arms_chart, base_layout, weights_chart
from multidraft.ui.theme import DRAFTER_COLOURS, TARGET_COLOUR, drafter_colour, drafter_pattern

__all__ = [
    "NO_DRAFT",
    "POLICY_HEIGHT",
    "arms_figure",
    "base_figure",
    "policy_style",
    "speedup_by_task_figure",
    "weights_figure",
]

_DASHES = ("solid", "dash", "dot", "dashdot")
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "x", "star")


def weights_figure(rounds: Sequence[Round], drafters: Sequence[str]) -> go.Figure:
    """The probabilities over the drafters; see :func:`~multidraft.ui.round_charts.weights_chart`."""
    return go.Figure(weights_chart(rounds, drafters)).update_layout(template="none")


def arms_figure(rounds: Sequence[Round], drafters: Sequence[str]) -> go.Figure:
    """The drafter of each round; see :func:`~multidraft.ui.round_charts.arms_chart`."""
    return go.Figure(arms_chart(rounds, drafters)).update_layout(template="none")


def speedup_by_task_figure(summary: pd.DataFrame) -> go.Figure:
    """Median speed-up of a batch by task and policy (``batch_rows.summarise``)."""
    figure = base_figure("Median speed-up by task", "task", "times plain decoding")
    for index, (policy, rows) in enumerate(summary.dropna(subset=["speedup"]).groupby("policy", sort=True)):
        style = policy_style(index, str(policy))
        figure.add_bar(
            x=[escape(str(task)) for task in rows["task"]],
            y=rows["speedup"].to_list(),
            name=style["name"],
            marker={"color": style["marker"]["color"], "pattern": drafter_pattern(index)},
            hovertemplate="%{x}: %{y:.2f}×",
        )
    figure.add_hline(y=1, line={"dash": "dot", "color": TARGET_COLOUR, "width": 1.5})
    figure.update_layout(barmode="group")
    figure.update_yaxes(rangemode="tozero", ticksuffix="×")
    return figure


def policy_style(index: int, policy: str) -> dict[str, Any]:
    """Colour, marker and dash together tell policies apart, so that colour is not needed for it."""
    colour, again = drafter_colour(index), index // len(DRAFTER_COLOURS)
    return {
        "name": escape(policy_title(policy)),
        "line": {"color": colour, "width": 2.5, "dash": _DASHES[(index + again) % len(_DASHES)]},
        "marker": {"color": colour, "symbol": _SYMBOLS[index % len(_SYMBOLS)], "size": 9},
    }


def message_figure(text: str, title: str = "") -> go.Figure:
    """A sentence in place of a chart that is not there yet, or has nothing to draw: axes would run from -1 to 6."""
    figure = base_figure(title, "", "").update_xaxes(visible=False).update_yaxes(visible=False)
    return figure.add_annotation(text=text, x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False)


def base_figure(title: str, x: str, y: str, height: int = 330) -> go.Figure:
    """An empty figure in the page's look; ``x`` and ``y`` are the titles of the axes."""
    return go.Figure(layout={"template": "none", **base_layout(title, x, y, height)})
