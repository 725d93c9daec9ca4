"""``restore``: the runs of a backup, back in a history."""

from __future__ import annotations

import argparse
from pathlib import Path

from multidraft.bench.table import count
from storage.sync import restore


def add(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("backup", type=Path, help="the file of a history, of this version or an earlier one")
    sub.add_argument("--db", type=Path, required=True, help="history database; created if missing")


def run(options: argparse.Namespace) -> int:
    """Add what the history lacks, also under a running server, and print how many runs that were."""
    print(f"{options.db}: {count(restore(options.db.absolute(), options.backup), 'run')} added")
    return 0
