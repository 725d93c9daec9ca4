"""What looking back costs: the time of all that the dashboard does when it is opened, filtered, or leafed through."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr
import plotly.graph_objects as go

from multidraft.ui import dashboard_views
from multidraft.ui.dashboard import Dashboard
from multidraft.ui.dashboard_filters import Chosen
from storage import queries
from storage.store import Store


def view_milliseconds(store: Store) -> Iterator[tuple[str, float, float]]:
    """Every view of a history that holds runs: its name, and the milliseconds of its handler, figures made ready to be
    sent included, when it is asked for the first time and then once more."""
    dashboard = Dashboard(store)
    with gr.Blocks() as page, gr.Tab("Dashboard") as tab:
        dashboard.build(page, tab)
    everything = Chosen().values()
    newest = queries.listed(store.path, limit=1).iloc[0]
    some = Chosen(policy=[str(newest["policy"])], task=[str(newest["task"])]).values()
    middle = queries.count(store.path) // dashboard_views.PAGE // 2
    views: dict[str, Callable[[], Any]] = {"filters and ranking": lambda: dashboard.refreshed({}, *everything)}
    for name in dashboard_views.CHARTS:
        views[name.replace("_", " ")] = lambda name=name: dashboard.chart(name, *everything)  # type: ignore[misc]
    views |= {
        "list, first page": lambda: dashboard.first_page(*everything),
        "list, middle page": lambda: dashboard.run_list(middle, *everything),
        "ranking of one policy and task": lambda: dashboard.refreshed({}, *some),
        "list of one policy and task": lambda: dashboard.first_page(*some),
        "one run": lambda: dashboard.run.show(int(newest["id"])),
    }
    for name, view in views.items():
        yield name, _milliseconds(view), _milliseconds(view)


def _milliseconds(view: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    parts = view()
    for part in parts if isinstance(parts, (list, tuple)) else [parts]:
        if isinstance(part, gr.Plot):
            part = part.value
        if isinstance(part, go.Figure):
            part.to_json()
    return 1000 * (time.perf_counter() - begun)
