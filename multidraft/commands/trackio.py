"""``trackio``: recorded runs as traces in Trackio."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import multidraft as md
from multidraft.bench.table import count
from multidraft.commands.options import check_database
from storage import queries
from storage.run import Run
from storage.traces import FIGURES, trace_of

READ = 200
"""Runs that are sent together."""

PAUSE = 2.0
"""Seconds until new runs are looked for."""

Figures = Mapping[int, Mapping[str, Any]]

WATCHED = 500
"""So many of the newest runs are watched for figures that come later: runs are scored when there is nothing else to
do."""


def add(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--db", type=Path, required=True, help="history database, as the app, bench and vLLM write it")
    sub.add_argument("--project", default="multidraft", help="Trackio's project (default: %(default)s)")
    sub.add_argument("--after", type=int, default=0, metavar="ID", help="only runs after this one")
    sub.add_argument("--follow", action="store_true", help="keep sending new runs until Ctrl-C")


def run(options: argparse.Namespace) -> int:
    """Send the runs, those of each policy as one run of Trackio, and print up to which it was."""
    try:
        import trackio
    except ImportError:
        raise md.UserError("Trackio is not installed: pip install -r requirements-trackio.txt") from None
    check_database(options.db)
    last, sent, known = options.after, 0, dict[int, dict[str, Any]]()
    try:
        while True:
            ids = queries.ids_after(options.db, last, READ)
            figures = queries.columns_of(options.db, [*known, *ids], FIGURES)
            changed = [id for id in figures if figures[id] != known.get(id)]
            runs = [found for id in changed if (found := queries.run(options.db, id))]
            _send(trackio, options.project, runs, figures, known)
            known = dict(list(figures.items())[-WATCHED:])
            last, sent = max([last, *ids]), sent + len(set(ids) & set(figures))
            if not ids:
                if not options.follow:
                    break
                time.sleep(PAUSE)
    except KeyboardInterrupt:  # how following ends
        pass
    print(f"{count(sent, 'run')}, up to run {last}; go on with --after {last}")
    return 0


def _send(trackio: Any, project: str, runs: list[Run], figures: Figures, known: Figures) -> None:
    """Log runs, oldest first: of each a trace and its figures, at the step that its number is; of those that are
    ``known`` already only the figures that are new."""
    by_policy = sorted(runs, key=lambda run: run.generation.policy)  # stable
    for policy, group in groupby(by_policy, key=lambda run: run.generation.policy):
        alone = {"embed": False, "auto_log_cpu": False, "auto_log_gpu": False}
        log = trackio.init(project=project, name=policy, resume="allow", **alone)
        for run in group:
            before = known.get(run.id or 0, {})
            new = {name: value for name, value in figures[run.id or 0].items() if value not in (None, before.get(name))}
            values = new if before else {"trace": trackio.Trace(**trace_of(run)), **new}
            if values:
                log.log(values, step=run.id)
        log.finish()
