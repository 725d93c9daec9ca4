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
    from multidraft.bench.history_cost import build_history, view_milliseconds

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
        views = list(view_milliseconds(path))
    if options.json:
        print(json.dumps({"runs": options.runs, "bytes": size, "milliseconds": dict(views)}, ensure_ascii=False))
        return 0
    print(f"{options.runs:,} runs of about {options.rounds} rounds: {size / 1e6:,.0f} MB, written in {made:.0f} s\n")
    print("| view | ms |\n|---|---|")
    for name, milliseconds in views:
        print(f"| {name} | {milliseconds:.0f} |")
    return 0
