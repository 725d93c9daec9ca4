"""What a chart of the dashboard is, and the list of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import plotly.graph_objects as go

from multidraft.ui.tabs.dashboard.tables import Table
from multidraft.ui.widgets.charts import message_figure
from storage.filters import Filter

Rows = Callable[[Path, Filter], pd.DataFrame]
Draw = Callable[[pd.DataFrame, Sequence[str]], go.Figure]


@dataclass(frozen=True)
class Section:
    """Charts that belong together, under a heading; ``hint`` says how to read them."""

    title: str
    hint: str


@dataclass(frozen=True)
class Chart:
    """A chart of the dashboard.

    Attributes:
        name: that of its function; the ids on the page begin with it.
        title: stands above it.
        section: where it stands; sections and charts come in the order in which they are defined.
        rows: the query for the rows of the filtered runs.
        draw: makes the figure of the rows, of which there are some, and of the policies that have a colour, in order.
        of: whose runs: of the few policies with a colour, of those that have a line of their own, or of all.
        missing: what stands in its place where there are no rows.
        table: the chart in figures, of the same.
        wide: whether it has a row for itself.
    """

    name: str
    title: str
    section: Section
    rows: Rows
    draw: Draw
    of: Literal["coloured", "listed", "all"] = "coloured"
    missing: str = "No run here has it."
    table: Callable[[pd.DataFrame, Sequence[str]], Table] | None = None
    wide: bool = False

    @property
    def id(self) -> str:
        return self.name.replace("_", "-")

    def figure(self, rows: pd.DataFrame, policies: Sequence[str]) -> go.Figure:
        """The figure, or why there is none."""
        if rows.empty:
            return message_figure(self.missing, self.title)
        return self.draw(rows, policies).update_layout(title_text=self.title)


CHARTS: list[Chart] = []
"""In the order in which they are made and shown."""


def chart(title: str, section: Section, rows: Rows, **settings: Any) -> Callable[[Draw], Draw]:
    """Put the decorated function on the page; ``settings`` are the attributes of :class:`Chart` with a default."""

    def register(draw: Draw) -> Draw:
        CHARTS.append(Chart(draw.__name__, title, section, rows, draw, **settings))
        return draw

    return register
