"""What the filtered runs differ in that forbids comparing their speeds, and the most frequent kind among them."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
from markupsafe import Markup

from multidraft.ui.tabs.dashboard.filters import BASELINES
from multidraft.ui.tabs.dashboard.tables import template
from multidraft.ui.widgets.formats import count
from storage.aggregates import CONDITIONS

_NAMES = {
    "pool": "Pools",
    "card_hash": "Cards",
    "hardware": "Hardware",
    "dtype": "Dtypes",
    "version": "Code versions",
    "baseline_kind": "Speed-up over autoregressive",
}
_FIELDS = {"card_hash": "card", "baseline_kind": "baseline"}
"""Fields of ``filters.Chosen`` that are not called as the column."""

_LISTED_VALUES = 4


@dataclass(frozen=True)
class Usual:
    """The most frequent conditions.

    Attributes:
        runs: how many runs were made under them.
        chosen: the fields of ``dashboard_filters.Chosen`` that leave just these.
    """

    runs: int
    chosen: dict[str, str]


def mixture_html(conditions: pd.DataFrame) -> Markup:
    """A note on the conditions (``aggregates.conditions``), with how many runs there are of each; empty where all have
    the same."""
    frame = conditions.replace({"baseline_kind": BASELINES})
    parts = []
    for column, name in _NAMES.items():
        unknown = "no baseline" if column == "baseline_kind" else "unknown"
        counts = frame.fillna({column: unknown}).groupby(column)["runs"].sum().sort_values(ascending=False)
        if len(counts) > 1:
            shown = [f"{value} ({count(n, 'run')})" for value, n in counts[:_LISTED_VALUES].items()]
            if rest := len(counts) - len(shown):
                shown.append(f"{rest} more")
            parts.append((name, shown))
    return template.mixture(parts) if parts else Markup()


def usual(conditions: pd.DataFrame) -> Usual:
    """The most frequent of them, of at least one run."""
    most = conditions.loc[conditions["runs"].idxmax()].fillna("")  # what is unknown cannot be chosen
    fields = {column: _FIELDS.get(column, column) for column in CONDITIONS}
    return Usual(int(most["runs"]), {field: str(most[column]) for column, field in fields.items()})
