"""``import``: results from the files of other tools, into a history."""

from __future__ import annotations

import argparse
from pathlib import Path

from multidraft.bench.table import count
from multidraft.commands.options import warn, written_files
from storage.imports import KNOWN, ImportedBefore, import_file
from storage.store import Store


def add(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("files", nargs="+", type=Path, metavar="FILE", help=KNOWN)
    sub.add_argument("--db", type=Path, required=True, help="history database; created if it is missing")
    sub.add_argument("--name", default="", help="what decoded, in place of a policy (default: from the file)")


def run(options: argparse.Namespace) -> int:
    """Import each file and print how many runs it had; those that were imported before are skipped."""
    with written_files(options.db), Store(options.db) as store:
        for file in options.files:
            try:
                print(f"{file}: {count(import_file(file, store, options.name), 'run')}")
            except ImportedBefore as error:
                warn(f"skipped: {error}")
    return 0
