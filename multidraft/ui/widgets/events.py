"""What the events of the page's controls have in common, and addresses into the page.

Handlers return the components that change with their updates: what is not named stays as it is. In the address
``?tab=lab`` opens a tab; what else stands there is for the tab itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import gradio as gr

from drafters.errors import quoted

Updates = dict[Any, Any]
"""Components, each with its new value or update."""

PRIVATE: dict[str, Any] = {"api_visibility": "private"}
"""Settings of an event that is the page's own affair: no endpoint for programs."""

HIDDEN: dict[str, Any] = {"show_progress": "hidden", "show_progress_on": [], **PRIVATE}
"""Likewise, where what it changes shows its own progress: Gradio's sign of work would cover it.

It is put on no output at all. With each message of any event the page would bring up to date the signs of all
components that ever had one, hidden or not, and look for each in the whole page: nearly half of its work during a run.
"""

QUICK: dict[str, Any] = {"queue": False, **HIDDEN}
"""Likewise, of what is done at once and need not wait in line."""

LAST: dict[str, Any] = {**HIDDEN, "trigger_mode": "always_last"}
"""For what shows the fields' present values: asked for while it is under way, it is done once more."""


def changes(before: Updates, after: Updates) -> Updates:
    """``after`` without what components already show: that would cost network and page for nothing."""
    return {component: value for component, value in after.items() if before.get(component) != value}


def forget_refusal(fields: Sequence[Any], status: gr.HTML, idle: str, event: str = "change") -> None:
    """As soon as one of ``fields`` has the ``event``, ``status`` says ``idle`` if it said why nothing was started
    (``markup.refused_html``): the reason may be gone. With ``"input"`` only what a visitor changes counts: the page
    changes fields too, and on a slow machine after the refusal."""
    names = {field: (event,) if hasattr(field, event) else ("upload", "clear") for field in fields}
    told = f"(said) => said?.includes('md-refused') ? {json.dumps(str(idle))} : said"
    gr.on([getattr(field, name) for field in fields for name in names[field]], None, status, status, js=told, **PRIVATE)


LONGEST_NUMBER = 100
"""Digits of a number in the address: Python itself refuses to read one of thousands."""


def linked_run(request: gr.Request) -> int | None:
    """The run that the page's address names, if any; whether there is such a run is for the history to say."""
    return run_number(request.query_params.get("run", ""))


def run_number(text: str) -> int | None:
    """The number of a run as an address spells it, if it is one."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= LONGEST_NUMBER else None


def clicked(event: gr.EventData, name: str) -> str:
    """What a script of the page says of a click; empty where it says nothing, as programs that call the event do."""
    try:
        value = getattr(event, name, None)
    except TypeError:  # Gradio's, where there are no data, or no object
        value = None
    return value if isinstance(value, str) else "" if value is None else quoted(value)
