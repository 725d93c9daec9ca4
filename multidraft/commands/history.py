"""Which runs of a history a command reads: options that several share."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from pathlib import Path

import multidraft as md
from multidraft.commands.options import check_database, split_tasks
from storage.aggregates import filters
from storage.filters import Filter
from storage.queries import count


def add_runs(sub: argparse.ArgumentParser) -> None:
    """The options that choose runs."""
    sub.add_argument("--pool", help="only runs of this pool: its name in the history, or the path of its card")
    sub.add_argument("--batch", default="", help="only runs of this batch or benchmark, by the id in its address")
    sub.add_argument("--tasks", default="", help="comma-separated: only runs on these")
    sub.add_argument("--draft-length", type=int, help="only runs with this draft length")


def chosen_runs(options: argparse.Namespace) -> Filter:
    """The runs that the options of :func:`add_runs` choose.

    Raises:
        UserError: there is no history, or no run in it of one of the choices; or the card is not valid.
    """
    check_database(options.db)
    pool = options.pool
    if card := _card_given(options):
        from drafters.card import load_card  # takes seconds, which commands without a card need not wait for

        pool = load_card(card)[0].name
    length = None if options.draft_length is None else str(options.draft_length)
    chosen = Filter(
        pool=pool,
        task=split_tasks(options.tasks),
        batch_id=(options.batch,) if options.batch else (),
        draft_length=length,
    )
    check_known(options.db, pool=[pool] if pool else [], task=chosen.task, draft_length=[length] if length else [])
    if options.batch and not count(options.db, Filter(batch_id=chosen.batch_id)):
        raise md.UserError(f"no run in {options.db} is of the batch {options.batch!r}")
    return chosen


def check_known(db: Path, **asked: Iterable[str]) -> None:
    """Refuse values that no run of a history has in a column; the message lists what there is."""
    known = filters(db)
    for column, values in asked.items():
        for value in values:
            if value not in known[column]:
                there, name = ", ".join(known[column]) or "none", column.replace("_", " ")
                many = {"policy": "policies", "hardware": name}.get(column, f"{name}s")
                raise md.UserError(f"no run in {db} has the {name} {value!r}; {many} there: {there}")


def card_of(options: argparse.Namespace, pool: str) -> str | None:
    """Where the card of ``pool``, whose runs these are, lies: as ``--pool`` says, or as a bundled one."""
    from drafters.card import is_bundled  # likewise

    return _card_given(options) or (pool if is_bundled(pool) else None)


def _card_given(options: argparse.Namespace) -> str | None:
    """``--pool`` if that is the path of a card, not the name of a pool in the history."""
    pool: str | None = options.pool
    if not pool or pool in filters(options.db)["pool"]:
        return None
    file = pool.partition(":without=")[0]  # as of ``drafters.card``
    is_path = os.path.exists(file) or os.path.dirname(file) or file.endswith((".yaml", ".yml"))
    return pool if is_path else None
