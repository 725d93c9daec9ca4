"""``export``: runs of a history as a file, also in the forms of other tools."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import get_args

import multidraft as md
from drafters.files import replacing
from multidraft.bench.table import count as of
from multidraft.commands.options import add_runs, check_known, check_not_over, chosen_runs, split_specs, split_tasks
from storage.export import EXPORTS
from storage.queries import count
from storage.run import Source


def add(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("format", choices=EXPORTS, help="what to write; a .zip has a file or a folder by pool and policy")
    sub.add_argument("out", type=Path, help="the file to write")
    sub.add_argument("--db", type=Path, required=True, help="history database")
    sub.add_argument("--policies", default="", help="comma-separated: only runs of these")
    add_runs(sub)
    sub.add_argument(
        "--sources", default="", help=f"comma-separated: only runs of these ({', '.join(get_args(Source))})"
    )
    sub.add_argument("--hardware", help="only runs on this, as the history calls it")


def run(options: argparse.Namespace) -> int:
    """Write the file and print how many runs it has."""
    chosen = replace(
        chosen_runs(options),
        policy=tuple(split_specs(options.policies)),
        source=split_tasks(options.sources),
        hardware=options.hardware,
    )
    hardware = [options.hardware] if options.hardware else []
    check_known(options.db, policy=chosen.policy, source=chosen.source, hardware=hardware)
    if not count(options.db, chosen):
        raise md.UserError(f"There is nothing to export: no run in {options.db} matches")
    check_not_over(options.out, options.db)
    try:
        with replacing(options.out) as part:
            written = EXPORTS[options.format](options.db, chosen, part)
    except OSError as error:
        raise md.UserError(f"{options.out} cannot be written ({error.strerror}); name another file") from None
    print(f"{options.out}: {of(written, 'run')}")
    return 0
