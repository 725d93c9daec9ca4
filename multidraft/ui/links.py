"""Addresses into the page: ``?tab=lab`` opens a tab; what else stands there is for the tab itself."""

from __future__ import annotations

from pathlib import Path

from gradio.events import Dependency

ADDRESS = Path(__file__).with_name("address.js").read_text(encoding="utf-8")
"""Functions for scripts of the page that read or change its address."""


def open_tab(after: Dependency) -> None:
    """Follow the address once ``after``, an event of the page's loading, is done: tabs bring themselves up to date when
    they are opened, by what that event has restored."""
    after.then(None, None, None, js=f"() => {{ {ADDRESS} openTab(); }}", api_visibility="private")
