"""Addresses into the page: ``?tab=lab`` opens a tab; what else stands there is for the tab itself."""

from __future__ import annotations

from pathlib import Path

import gradio as gr
from gradio.events import Dependency

ADDRESS = Path(__file__).with_name("address.js").read_text(encoding="utf-8")
"""Functions for scripts of the page that read or change its address."""

LONGEST_NUMBER = 100
"""Digits of a number in the address: Python itself refuses to read one of thousands."""


def linked_run(request: gr.Request) -> int | None:
    """The run that the page's address names, if any; whether there is such a run is for the history to say."""
    return run_number(request.query_params.get("run", ""))


def run_number(text: str) -> int | None:
    """The number of a run as an address spells it, if it is one."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= LONGEST_NUMBER else None


def name_what_is_shown(tab: str) -> str:
    """Script of an event that has what was started now, if anything, and what was shown before: the page's address
    names it under ``tab``'s own name, so that a reload, or another browser, finds it again; returns what is shown."""
    return f"""(asked, shown) => {{
      {ADDRESS}
      if (asked) address({{ tab: "{tab}", {tab}: asked }});
      return asked || shown;
    }}"""


def open_tab(after: Dependency) -> None:
    """Follow the address once ``after``, an event of the page's loading, is done: tabs bring themselves up to date when
    they are opened, by what that event has restored."""
    after.then(None, None, None, js=f"() => {{ {ADDRESS} openTab(); }}", api_visibility="private")
