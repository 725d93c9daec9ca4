"""Addresses into the page: ``?tab=lab`` opens a tab; what else stands there is for the tab itself."""

from __future__ import annotations

import gradio as gr

OPEN_TAB = """
() => {
  const query = new URLSearchParams(location.search);
  const wanted = query.get('tab') ?? (query.has('batch') ? 'batch' : '');
  const tab = [...document.querySelectorAll('[role=tab]')].find(t => t.textContent.trim().toLowerCase() === wanted);
  tab?.click();
}
"""
"""By the tab's name in lower case; a click, so that the tab brings itself up to date as for a visitor."""


def build(page: gr.Blocks) -> None:
    """Follow the address when the page is opened; call it inside ``page``, after its tabs."""
    page.load(None, js=OPEN_TAB, api_visibility="private")
