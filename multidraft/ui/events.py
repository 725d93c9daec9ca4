"""What the events of the page's controls have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

PRIVATE: dict[str, Any] = {"api_visibility": "private"}
"""Settings of an event that is the page's own affair: no endpoint for programs."""

HIDDEN: dict[str, Any] = {"show_progress": "hidden", "show_progress_on": [], **PRIVATE}
"""Likewise, where what it changes tells by itself how far it is: Gradio's own sign of work would cover it.

It is put on no output at all. With each message of any event the page would bring up to date the signs of all
components that ever had one, hidden or not, and look for each in the whole page: nearly half of its work during a run.
"""

QUICK: dict[str, Any] = {"queue": False, **HIDDEN}
"""Likewise, of what is done at once and need not wait in line."""


def run_buttons(*, running: bool) -> tuple[gr.Button, gr.Button]:
    """Updates of the two buttons that start and end something: one of them is live."""
    return gr.Button(interactive=not running), gr.Button(interactive=running)


def skips(number: int) -> tuple[Any, ...]:
    """Updates that leave ``number`` components as they are."""
    return tuple(gr.skip() for _ in range(number))


def changes(before: Sequence[Any], after: Sequence[Any]) -> tuple[Any, ...]:
    """``after``, as updates of components that show ``before``: those that stay as they are cost nothing."""
    return tuple(gr.skip() if new == old else new for old, new in zip(before, after, strict=True))


def show_on_phone(selector: str) -> str:
    """Script that scrolls to ``selector`` on a phone, where what a run shows is below its controls."""
    scroll = f"document.querySelector('{selector}').scrollIntoView({{behavior: 'smooth'}})"
    return f"() => {{ if (innerWidth < 760) {scroll}; }}"
