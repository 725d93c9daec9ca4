"""``history``: how long the dashboard takes over a large history."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import multidraft as md


def add(sub: argparse.ArgumentParser) -> None:
    """Its arguments."""
    sub.add_argument("--runs", type=int, default=100_000, help="runs of the history that is made up")
    sub.add_argument("--rounds", type=int, default=50, help="rounds of a run, on average")
    sub.add_argument("--keep", type=Path, metavar="FILE", help="write the history here and leave it, e.g. to browse it")
    sub.add_argument("--json", action="store_true")


def run(options: argparse.Namespace) -> int:
    """Make up a history and print the time of every view of it."""
    from multidraft.bench.history_cost import build_history
    from multidraft.ui.dashboard_cost import view_milliseconds
    from storage.store import Store

    if options.runs < 1 or options.rounds < 1:
        raise md.UserError("--runs and --rounds must be at least 1")
    if options.keep and options.keep.exists():
        raise md.UserError(f"{options.keep} exists; name a new file")
    with tempfile.TemporaryDirectory() as folder:
        path = options.keep or Path(folder) / "runs.db"
        begun = time.perf_counter()
        build_history(path, options.runs, options.rounds)
        made = time.perf_counter() - begun
        size = path.stat().st_size
        with Store(path) as store:
            store.flush()
            views = list(view_milliseconds(store))
    if options.json:
        times = {name: {"first": first, "again": again} for name, first, again in views}
        print(json.dumps({"runs": options.runs, "bytes": size, "milliseconds": times}, ensure_ascii=False))
        return 0
    print(f"{options.runs:,} runs of about {options.rounds} rounds: {size / 1e6:,.0f} MB, written in {made:.0f} s\n")
    print("| view | ms | again, ms |\n|---|---|---|")
    for name, first, again in views:
        print(f"| {name} | {first:.0f} | {again:.0f} |")
    return 0
