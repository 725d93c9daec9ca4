"""The line that says how something stands, and lists of figures and facts."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from multidraft.ui.widgets.templates import macros

_macros = macros("widgets/status.html")


def message_html(kind: str, text: str, now: str = "") -> Markup:
    """A status line: ``kind`` is ``idle``, ``busy``, ``done``, ``cancelled`` or ``error``.

    Args:
        text: screen readers say it whenever it changes.
        now: what follows it and changes all the time, e.g. the number of a round; they don't say that unasked.
    """
    return _macros.line(kind, text, now)


def progress_html(text: str, done: float, total: float, label: str, now: str = "") -> Markup:
    """A status line with a bar; ``label`` tells screen readers what the bar is about. See :func:`message_html`."""
    return _macros.line("busy", text, now, _macros.bar(done, total, label))


def tiles_html(tiles: Sequence[tuple[str, str, str, str]], kind: str = "") -> Markup:
    """Figures in boxes: name, value, unit, and what it means, shown where it is pointed at."""
    return _macros.tiles(tiles, kind)


def facts_html(facts: Sequence[tuple[str, str]], kind: str = "") -> Markup:
    """Names with their values, one a line."""
    return _macros.facts(facts, kind)


def empty_html(title: str, text: str | Markup) -> Markup:
    """What to do where there is nothing to show yet."""
    return _macros.empty(title, text)
