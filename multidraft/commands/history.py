"""Which runs of a history a command reads: options that several share."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import multidraft as md
from multidraft.commands.options import split_tasks
from storage.aggregates import filters
from storage.filters import Filter


def add_runs(sub: argparse.ArgumentParser) -> None:
    """The options that choose runs."""
    sub.add_argument(
        "--pool",
        help="only runs of this pool, by its name in the history or the path of its card; that of a pool which is not "
        "bundled tells its router and its drafters' memory",
    )
    sub.add_argument("--batch", default="", help="only runs of this batch or benchmark, by the id in its address")
    sub.add_argument("--tasks", default="", help="comma-separated: only runs on these")
    sub.add_argument("--draft-length", type=int, help="only runs with this draft length")


def chosen_runs(options: argparse.Namespace) -> Filter:
    """The runs that the options of :func:`add_runs` choose.

    Raises:
        UserError: there is no history, or no run in it of one of the choices; or the card is not valid.
    """
    if not options.db.exists():
        raise md.UserError(f"there is no database {options.db}; bench --db and the app write one")
    pool = _name_of_pool(options.pool) if options.pool else None
    tasks = split_tasks(options.tasks)
    length = None if options.draft_length is None else str(options.draft_length)
    check_known(
        options.db, {"pools": [pool] if pool else [], "tasks": tasks, "draft_lengths": [length] if length else []}
    )
    return Filter(pool=pool, tasks=tasks, experiments=(options.batch,) if options.batch else (), draft_length=length)


def check_known(db: Path, asked: Mapping[str, Iterable[str]]) -> None:
    """Refuse what no run of a history has, by the keys of ``aggregates.FILTERS``; the message lists what there is."""
    known = filters(db)
    for key, values in asked.items():
        for value in values:
            if value not in known[key]:
                there = ", ".join(known[key]) or "none"
                raise md.UserError(f"{db} has no run of {value!r}; its {key.replace('_', ' ')}: {there}")


def card_of(options: argparse.Namespace, pool: str) -> str | None:
    """Where the card of ``pool``, whose runs these are, lies: as ``--pool`` says, or as a bundled one."""
    from drafters.card import is_bundled  # takes seconds, which commands without a card need not wait for

    if options.pool and _is_path(options.pool):
        return str(options.pool)
    return pool if is_bundled(pool) else None


def _name_of_pool(given: str) -> str:
    if not _is_path(given):
        return given
    from drafters.card import load_card

    return load_card(given)[0].name


def _is_path(pool: str) -> bool:
    return bool(os.path.exists(pool) or os.path.dirname(pool) or pool.endswith((".yaml", ".yml")))
