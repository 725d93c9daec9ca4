"""Tables as HTML that scroll by themselves, so that the page never does sideways."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

import pandas as pd

from storage.rows import FEWEST_TOKENS


def table_start(columns: Sequence[str], figures: int = 0, kind: str = "", label: str = "Table") -> str:
    """Head of a table whose rows are appended; left open, browsers close it, and a value that only grows at its end
    lets Gradio send nothing but the new rows.

    Args:
        columns: titles, as HTML.
        figures: how many columns at the right are figures.
        kind: a further CSS class.
        label: what the table is called where it is reached by keyboard, to be scrolled.
    """
    first = len(columns) - figures
    head = "".join(f'<th scope="col"{_aligned(i >= first)}>{title}</th>' for i, title in enumerate(columns))
    scroll = f'<div class="md-scroll {kind}" tabindex="0" role="group" aria-label="{escape(label)}">'
    return f"{scroll}<table><thead><tr>{head}</tr></thead><tbody>"


def row_html(cells: Sequence[str], figures: int = 0) -> str:
    """One row; the cells are HTML, so texts in them must be escaped."""
    first = len(cells) - figures
    return "<tr>" + "".join(f"<td{_aligned(i >= first)}>{cell}</td>" for i, cell in enumerate(cells)) + "</tr>"


def table_html(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    figures: int = 0,
    kind: str = "",
    label: str = "Table",
) -> str:
    """A whole table; see :func:`table_start` and :func:`row_html`."""
    body = "".join(row_html(cells, figures) for cells in rows)
    return f"{table_start(columns, figures, kind, label)}{body}</tbody></table></div>"


def number(value: float | None, digits: int, unit: str = "") -> str:
    """A figure for the eye; a dash for ``None`` and NaN."""
    return "–" if value is None or pd.isna(value) else f"{value:,.{digits}f}{unit}"


def percent(share: float | None) -> str:
    """A share as whole percent, likewise."""
    return number(None if share is None else 100 * share, 0, " %")


def times(speedup: float | None, tokens: float | None) -> str:
    """The HTML of an answer's speed-up; a dash that says why where the answer is too short for one."""
    if tokens is not None and tokens < FEWEST_TOKENS:
        return f'<span title="Too short to say: fewer than {FEWEST_TOKENS} tokens">{number(None, 2)}</span>'
    return number(speedup, 2, "×")


def left_out(runs: int) -> str:
    """A sentence on finished runs that are too short for a speed-up; empty where there are none."""
    are = "is" if runs == 1 else "are"
    of = f"{count(runs, 'run')} of fewer than {FEWEST_TOKENS} tokens"
    return f"{of} {are} left out of speed-ups: too short to say." if runs else ""


def best(cell: str) -> str:
    """A cell's HTML, marked as the best of its kind."""
    return f'<b class="md-best" title="The best">{cell}</b>'


def count(number: int, noun: str) -> str:
    """``1 round``, ``2 rounds``, ``1,000 rounds``."""
    return f"{number} {noun}" if number == 1 else f"{number:,} {noun}s"


def _aligned(figure: bool) -> str:
    return ' class="md-figure"' if figure else ""
