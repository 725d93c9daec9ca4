"""``import``: results from the files of other tools, into a history."""

from __future__ import annotations

import argparse
from pathlib import Path

from multidraft.commands.options import written_files
from storage.imports import KNOWN, import_file
from storage.store import Store


def add(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("files", nargs="+", type=Path, metavar="FILE", help=KNOWN)
    sub.add_argument("--db", type=Path, required=True, help="history database; created if it is missing")
    sub.add_argument("--name", default="", help="what decoded, in place of a policy (default: from the file)")


def run(options: argparse.Namespace) -> int:
    """Import each file and print how many runs it had."""
    with written_files(options.db), Store(options.db) as store:
        for file in options.files:
            count = import_file(file, store, options.name)
            print(f"{file}: {count} run{'s' if count != 1 else ''}")
    return 0
