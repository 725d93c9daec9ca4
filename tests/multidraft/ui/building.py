"""Tabs laid out as on the page, what their handlers show, and a browser of results."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, TypeVar

import gradio as gr
from starlette.applications import Starlette
from starlette.testclient import TestClient

from multidraft.service.pool_loading import PoolLoader
from multidraft.service.workbench import Workbench
from multidraft.ui.pool_line import PoolLine
from multidraft.ui.results.pages import Results

T = TypeVar("T", bound=Any)


def laid_out(tab: Any, workbench: Workbench | None = None) -> tuple[gr.Blocks, gr.Tab]:
    """The page with the tab's components, and the place of the tab on it."""
    line = workbench and PoolLine(PoolLoader(workbench))
    with gr.Blocks() as page:
        if line:
            line.build()
        with gr.Tab("A tab") as place:
            known = {"page": page, "tab": place, "line": line}
            tab.build(**{name: known[name] for name in inspect.signature(tab.build).parameters})
        if line:
            line.learn.render()
    return page, place


def built(tab: T, workbench: Workbench | None = None) -> T:
    """The tab with its components."""
    laid_out(tab, workbench)
    return tab


def after(updates: Iterable[dict[Any, Any]]) -> dict[Any, Any]:
    """What stands on the page after all of them: the last update of each component."""
    shown: dict[Any, Any] = {}
    for update in updates:
        assert update, "Gradio takes an empty answer for a value"
        shown |= update
    return shown


def opened(results: Results) -> TestClient:
    """A browser of the pages of results."""
    return TestClient(Starlette(routes=results.routes()))
