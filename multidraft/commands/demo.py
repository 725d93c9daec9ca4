"""``demo``: serve the web app."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

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
    few_arenas()  # before there are threads
    from multidraft.ui.app import launch

    try:
        kept = launch(settings)
    except OSError as error:
        raise md.UserError(f"the page cannot be served: {error}") from None
    return 0 if kept else 1
