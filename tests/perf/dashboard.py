"""What the dashboard costs on a large history: the time of all it does when it is opened, filtered or paged through.

python -m tests.perf.dashboard --runs 100000
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gradio as gr
import plotly.graph_objects as go

from multidraft.bench.table import markdown
from multidraft.ui.tabs.dashboard import views as dashboard_views
from multidraft.ui.tabs.dashboard.filters import Chosen
from storage import queries
from storage.store import Store
from tests.multidraft.ui.building import built, dashboard_of
from tests.multidraft.ui.tabs.visits import click
from tests.perf.made_up_history import build_history


def view_milliseconds(store: Store) -> Iterator[tuple[str, float, float]]:
    """Each view's name with the milliseconds that its handler takes at the first and at the second call, including
    the charts' serialisation. The history must hold runs."""
    dashboard = built(dashboard_of(store))
    everything, opened = Chosen().values(), click()
    newest = queries.listed(store.path, limit=1).iloc[0]
    some = Chosen(policy=[str(newest["policy"])], task=[str(newest["task"])]).values()
    middle = queries.count(store.path) // dashboard_views.PAGE // 2
    views: dict[str, Callable[[], Any]] = {"filters and ranking": lambda: dashboard.refreshed(opened, {}, *everything)}
    for chart in dashboard.places:
        views[chart.title] = lambda chart=chart: dashboard.charts([chart], *everything)  # type: ignore[misc]
    views |= {
        "list, first page": lambda: dashboard.run_list(0, *everything),
        "list, middle page": lambda: dashboard.run_list(middle, *everything),
        "ranking of one policy and task": lambda: dashboard.refreshed(opened, {}, *some),
        "list of one policy and task": lambda: dashboard.run_list(0, *some),
        "one run": lambda: dashboard.run.show(int(newest["id"])),
    }
    for name, view in views.items():
        yield name, _milliseconds(view), _milliseconds(view)


def _milliseconds(view: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    for part in view().values():
        if isinstance(part, gr.Plot):
            part = part.value
        if isinstance(part, go.Figure):
            part.to_json()
    return 1000 * (time.perf_counter() - begun)


def main(arguments: Sequence[str] | None = None) -> None:
    """Make up a history and print the time of every view of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.perf.dashboard", description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=100_000, help="runs in the history (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=50, help="mean rounds per run (default: %(default)s)")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="write the history to this new file and keep it")
    parser.add_argument("--json", action="store_true", help="print the times as JSON")
    options = parser.parse_args(arguments)
    if options.keep and options.keep.exists():
        parser.error(f"--keep: {options.keep} exists; name a new file")
    with tempfile.TemporaryDirectory() as folder:
        path = options.keep or Path(folder) / "runs.db"
        begun = time.perf_counter()
        build_history(path, options.runs, options.rounds)
        seconds, size = time.perf_counter() - begun, path.stat().st_size
        with Store(path) as store:
            store.flush()
            views = list(view_milliseconds(store))
    if options.json:
        times = {name: {"first": first, "again": again} for name, first, again in views}
        print(json.dumps({"runs": options.runs, "bytes": size, "milliseconds": times}))
        return
    print(f"{options.runs:,} runs of about {options.rounds} rounds: {size / 1e6:,.0f} MB, written in {seconds:.0f} s\n")
    rows = ((name, f"{first:.0f}", f"{again:.0f}") for name, first, again in views)
    print(markdown(["view", "ms", "again, ms"], rows))


if __name__ == "__main__":
    main()
