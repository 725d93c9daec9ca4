"""Tables as HTML that scroll by themselves, so that the page never does sideways. Cells are escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from markupsafe import Markup

from multidraft.ui.widgets.formats import UNKNOWN, count, number
from multidraft.ui.widgets.templates import macros
from storage.figures import FEWEST_TOKENS

_macros = macros("widgets/tables.html")


def table_start(columns: Sequence[str], figures: int = 0, kind: str = "", label: str = "Table") -> Markup:
    """Head of a table whose rows are appended; left open, browsers close it, and a value that only grows at its end
    lets Gradio send nothing but the new rows.

    Args:
        columns: titles.
        figures: how many columns at the right are figures.
        kind: a further CSS class.
        label: what the table is called where it is reached by keyboard, to be scrolled.
    """
    return _macros.start(columns, figures, kind, label)


def row_html(cells: Sequence[Any], figures: int = 0) -> Markup:
    """One row."""
    return _macros.row(cells, figures)


def table_html(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], figures: int = 0, kind: str = "", label: str = "Table"
) -> Markup:
    """A whole table; see :func:`table_start` and :func:`row_html`."""
    return _macros.table(columns, rows, figures, kind, label)


def folded(summary: str, body: Markup, after: Markup | str = "") -> Markup:
    """Something that is opened by its summary."""
    return _macros.folded(summary, body, after)


def tip(cell: str, title: str) -> Markup:
    """A cell, or a column's title, explained where it is pointed at."""
    return _macros.tip(cell, title)


def best(cell: str) -> Markup:
    """A cell marked as the best of its kind."""
    return _macros.best(cell)


def times(speedup: float | None, tokens: float | None) -> str:
    """An answer's speed-up; a dash that says why where the answer is too short for one."""
    if tokens is not None and tokens < FEWEST_TOKENS:
        return tip(UNKNOWN, f"Too short to say: fewer than {FEWEST_TOKENS} tokens")
    return number(speedup, 2, "×")


def left_out(runs: int) -> str:
    """A sentence on finished runs that are too short for a speed-up; empty where there are none."""
    are = "is" if runs == 1 else "are"
    of = f"{count(runs, 'run')} of fewer than {FEWEST_TOKENS} tokens"
    return f"{of} {are} left out of speed-ups: too short to say." if runs else ""
