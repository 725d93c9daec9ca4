"""Tabs laid out as on the page, what their handlers show, and a browser of results."""

import inspect
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import gradio as gr
from starlette.applications import Starlette
from starlette.testclient import TestClient

from drafters.errors import BusyError
from multidraft.service.lab import LabWork, Verdicts
from multidraft.service.limits import Limits
from multidraft.service.pool_loading import PoolLoader
from multidraft.service.unfamiliar import Fits, assume_fits
from multidraft.service.workbench import Workbench
from multidraft.ui.pool_line import PoolLine
from multidraft.ui.result_pages.pages import ResultPages
from multidraft.ui.tabs.dashboard.tab import Dashboard
from multidraft.ui.tabs.play.recorded import recorded_runs
from storage.store import Store

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


def dashboard_of(store: Store, pool: str = "", hardware: str = "") -> Dashboard:
    """The dashboard of a history, where no more is known of the pool that is loaded than its name and its machine."""
    known = {"store": store, "recorded_costs": None, "pool": SimpleNamespace(name=pool), "hardware": hardware}
    return Dashboard(LabWork(SimpleNamespace(**known, jobs=SimpleNamespace(listed=[]))))  # type: ignore[arg-type]


def results_of(path: Path, fits: Fits = assume_fits) -> ResultPages:
    """The results in a history that no server writes, with no verdicts on its batches."""

    def refuse(job: Any) -> None:
        raise BusyError("nothing is replayed here")

    pool = SimpleNamespace(target=SimpleNamespace(window=2048), draft_length=6)
    known = {"pool": pool, "limits": Limits(), "fits": fits, "recorded_costs": None}
    jobs, store = (
        SimpleNamespace(find=lambda *_: None, submit=refuse),
        SimpleNamespace(path=path, flush=lambda *_: True),
    )
    work = LabWork(SimpleNamespace(**known, jobs=jobs, store=store))  # type: ignore[arg-type]
    return ResultPages(Verdicts(work), lambda: recorded_runs()[-1])


def after(updates: Iterable[dict[Any, Any]]) -> dict[Any, Any]:
    """What stands on the page after all of them: the last update of each component."""
    shown: dict[Any, Any] = {}
    for update in updates:
        assert update, "Gradio takes an empty answer for a value"
        shown |= update
    return shown


def opened(results: ResultPages) -> TestClient:
    """A browser of the pages of results."""
    return TestClient(Starlette(routes=results.routes()))
