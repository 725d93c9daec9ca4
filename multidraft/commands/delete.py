"""``delete``: runs out of a history, for good."""

from __future__ import annotations

import argparse
from dataclasses import replace
from datetime import date
from pathlib import Path

import multidraft as md
from multidraft.bench.table import count as of
from multidraft.commands.options import add_runs, check_known, chosen_runs, split_specs
from storage.deletion import delete
from storage.filters import ALL, Filter, run_id
from storage.queries import count


def add(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("runs", nargs="*", type=int, metavar="RUN", help="numbers of runs")
    sub.add_argument("--db", type=Path, required=True, help="history database; a server may be writing to it")
    sub.add_argument("--policies", default="", help="comma-separated: only runs of these")
    add_runs(sub)
    sub.add_argument("--before", type=_day, metavar="DAY", help="only runs before this day, in UTC")
    sub.add_argument("--yes", action="store_true", help="delete them; without it they are only counted")


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a day such as 2026-01-31, got {text!r:.40}") from None


def run(options: argparse.Namespace) -> int:
    """Delete the runs that meet all that is asked for, or print how many there are."""
    chosen = replace(
        chosen_runs(options),
        id=tuple(map(run_id, options.runs)),
        policy=tuple(split_specs(options.policies)),
        until=options.before and options.before.isoformat(),
    )
    check_known(options.db, policy=chosen.policy)
    if chosen == ALL:
        raise md.UserError("name the runs to delete, by their numbers or with options such as --batch or --before")
    for id in options.runs:
        if not count(options.db, Filter(id=(run_id(id),))):
            raise md.UserError(f"no run in {options.db} has the number {id}; nothing was deleted")
    if options.yes:
        print(f"{options.db}: {of(delete(options.db, chosen), 'run')} deleted")
    else:
        print(f"{options.db}: {of(count(options.db, chosen), 'run')} to delete; with --yes that is done, for good")
    return 0
