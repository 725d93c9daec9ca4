"""Tabs laid out as on the page, and what their handlers show."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, TypeVar

import gradio as gr

from multidraft.service.pool_loading import PoolLoader
from multidraft.service.workbench import Workbench
from multidraft.ui.pool_line import PoolLine

T = TypeVar("T", bound=Any)


def built(tab: T, workbench: Workbench) -> T:
    """The tab with its components."""
    line = PoolLine(PoolLoader(workbench))
    with gr.Blocks() as page:
        line.build()
        with gr.Tab("A tab") as place:
            known = {"page": page, "tab": place, "line": line}
            tab.build(**{name: known[name] for name in inspect.signature(tab.build).parameters})
        line.build_learn()
    return tab


def after(updates: Iterable[dict[Any, Any]]) -> dict[Any, Any]:
    """What stands on the page after all of them: the last update of each component."""
    shown: dict[Any, Any] = {}
    for update in updates:
        assert update, "Gradio takes an empty answer for a value"
        shown |= update
    return shown
