"""``demo``: serve the web app."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

import multidraft as md
from drafters.hardware import few_arenas
from multidraft.commands.options import add_pool
from multidraft.service.settings import read_settings


def add(sub: argparse.ArgumentParser) -> None:
    add_pool(sub)
    sub.set_defaults(pool=None)  # then MULTIDRAFT_POOL decides
    sub.add_argument("--port", type=int, help="port to serve on (default: the first free one from 7860)")
    sub.add_argument("--db", type=Path, help="history database (default: $MULTIDRAFT_DB, else runs.db)")


def run(options: argparse.Namespace) -> int:
    """Serve the app until it is stopped; exit status 1 if runs could not be written."""
    given = {name: value for name in ("pool", "port", "db") if (value := getattr(options, name)) is not None}
    settings = replace(read_settings(), **given)  # before Gradio is imported, which fails on some bad values
    share_free_memory()  # before Gradio makes threads
    from multidraft.ui.app import launch

    try:
        kept = launch(settings)
    except OSError as error:
        raise md.UserError(f"the page cannot be served: {error}") from None
    return 0 if kept else 1


def share_free_memory() -> None:
    """Have free memory kept where all threads find it, unless the environment asks for something else. Arrow, which
    holds the texts of data frames, keeps it by thread otherwise, and a server has many threads."""
    few_arenas()
    if "ARROW_DEFAULT_MEMORY_POOL" not in os.environ:
        pa.set_memory_pool(pa.system_memory_pool())
