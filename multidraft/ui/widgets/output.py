"""The box with the output of a run, and the timeline of its rounds below it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from multidraft.ui.widgets.tokens import OUTPUT_START

_FRAME = Path(__file__).with_name("output.html").read_text(encoding="utf-8")
_SCRIPT = Path(__file__).with_name("output.js").read_text(encoding="utf-8")


def output_box(longest: int, value: str = "", **settings: Any) -> gr.HTML:
    """A component whose value is what ``tokens.rounds_html`` makes of the rounds.

    The value never becomes part of a template: the script appends what is new to what is there. So a value that grows
    at its end costs the network and the page no more than its new part, however long the output is.

    Args:
        longest: most tokens of a draft; a bar of so many has the full height.
        settings: those of ``gr.HTML``, e.g. ``elem_id``.
    """
    frame = _FRAME.replace("@output@", f"{OUTPUT_START}</div>").replace("@longest@", str(longest))
    return gr.HTML(value, html_template=frame, js_on_load=_SCRIPT, apply_default_css=False, **settings)
