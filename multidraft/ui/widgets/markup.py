"""Status lines, figures and tables as HTML: the macros of ``markup.html``, which says what each takes.

All arguments are escaped, unless they are :class:`markupsafe.Markup`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from multidraft.ui.widgets.formats import UNKNOWN, count, number
from multidraft.ui.widgets.templates import macros
from storage.figures import FEWEST_TOKENS

_macros = macros("widgets/markup.html")
message_html, progress_html = _macros.message, _macros.progress
tiles_html, facts_html, empty_html = _macros.tiles, _macros.facts, _macros.empty
heading_html, caption_html, note_html = _macros.heading, _macros.caption, _macros.note
table_start, row_html, table_html = _macros.table_start, _macros.row, _macros.table
folded, best, tip = _macros.folded, _macros.best, _macros.tip
refusal_html, explanation_html = _macros.refusal, _macros.explanation


def table_of(lines: Sequence[Mapping[str, Any]], **settings: Any) -> Markup:
    """A table of lines, each of which names its cells by their columns; ``settings`` are those of ``table_html``."""
    columns = list(lines[0]) if lines else []
    return table_html(columns, [line.values() for line in lines], **settings)


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
