"""What the filtered runs differ in that forbids comparing their speeds, and the most frequent kind among them."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import pandas as pd

from multidraft.ui.tables import count
from multidraft.ui.worker import BASELINE_TOKENS
from storage.figures import CONDITIONS

WHOLE = "the whole answer (bench)"
SHORT = f"its first {BASELINE_TOKENS} tokens, their median (all others, but for races with a lane that decodes plainly)"
"""What a speed-up is over: plain decoding of so much of the answer."""

_NAMES = {
    "pool": "Pools",
    "card_hash": "Cards",
    "hardware": "Hardware",
    "dtype": "Number types",
    "version": "Versions of the code",
    "baseline": "Plain decoding measured over",
}
_LISTED_VALUES = 4


@dataclass(frozen=True)
class Usual:
    """The most frequent conditions.

    Attributes:
        runs: how many runs were made under them.
        chosen: the fields of ``dashboard_filters.Chosen`` that leave just these.
    """

    runs: int
    chosen: dict[str, str | list[str]]


def mixture_html(conditions: pd.DataFrame) -> str:
    """A note on the conditions (``figures.conditions``), with how many runs there are of each; empty where all have
    the same."""
    frame = _with_baseline(conditions)
    parts = []
    for column, name in _NAMES.items():
        counts = frame.fillna({column: "unknown"}).groupby(column)["runs"].sum().sort_values(ascending=False)
        if len(counts) > 1:
            shown = [f"{escape(str(value))} ({count(n, 'run')})" for value, n in counts[:_LISTED_VALUES].items()]
            if rest := len(counts) - len(shown):
                shown.append(f"{rest} more")
            parts.append(f"<li><b>{name}:</b> {', '.join(shown)}</li>")
    if not parts:
        return ""
    return (
        '<div class="md-status md-mixed" role="note"><b>These runs were made under different conditions, so their '
        f"speeds do not compare.</b><ul>{''.join(parts)}</ul></div>"
    )


def usual(conditions: pd.DataFrame) -> Usual:
    """The most frequent of them, of at least one run."""
    frame = _with_baseline(conditions).fillna(dict.fromkeys(CONDITIONS, ""))  # what is unknown cannot be chosen
    sums = frame.groupby([*CONDITIONS, "baseline"], sort=False)["runs"].transform("sum")
    most = frame[sums == sums.max()]
    first = most.iloc[0]
    most = most[(most[[*CONDITIONS, "baseline"]] == first[[*CONDITIONS, "baseline"]]).all(axis=1)]
    chosen: dict[str, str | list[str]] = {
        "card" if column == "card_hash" else column: str(first[column]) for column in CONDITIONS
    }
    chosen["source"] = sorted(most["source"].unique()) if frame["baseline"].nunique() > 1 else []
    return Usual(int(most["runs"].sum()), chosen)


def _with_baseline(conditions: pd.DataFrame) -> pd.DataFrame:
    return conditions.assign(baseline=conditions["source"].map(lambda source: WHOLE if source == "bench" else SHORT))
