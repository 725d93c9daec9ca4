"""``learn``: what pools have learnt from their traffic: shown, exported, or forgotten."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import multidraft as md
from drafters.card import is_bundled
from drafters.files import replacing
from drafters.traffic import Lesson, Prior, stretches_of
from multidraft.bench.table import count, markdown
from multidraft.commands.options import check_database, check_not_over
from multidraft.engine.experience import traffic_with
from multidraft.replay.recorded import route_of
from storage import lessons
from storage.lessons import Taught


def add(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--db", type=Path, required=True, help="history database")
    sub.add_argument("--pool", help="only the pool of this name")
    sub.add_argument("--prompt", help="also print what is expected of the drafters for this prompt")
    what = sub.add_mutually_exclusive_group()
    what.add_argument("--show", action="store_true", help="print what was learnt (the default)")
    what.add_argument("--reset", action="store_true", help="count the lessons that --reset --yes has the pools forget")
    what.add_argument("--export", type=Path, metavar="FILE", help="write the lessons to this JSON file")
    sub.add_argument("--yes", action="store_true", help="with --reset: learn from later runs only; the runs stay")


def run(options: argparse.Namespace) -> int:
    check_database(options.db)
    if options.export:
        check_not_over(options.export, options.db)
    taught = lessons.pools(options.db)
    found = [pool for pool in taught if options.pool in (None, pool.pool)]
    if not found:
        about = f"pool {options.pool!r}" if options.pool else "any pool"
        others = ", ".join(dict.fromkeys(pool.pool for pool in taught))
        why = "lessons come from finished, scored runs" + (f"; there are some for: {others}" if others else "")
        if lessons.forgotten(options.db, options.pool):
            why = "those that there were are forgotten (--reset); later runs will teach new ones"
        raise md.UserError(f"{options.db} has no lessons for {about}; {why}")
    if options.export:
        return _export(options.db, found, options.export)
    for pool in found:
        if options.reset:
            said = "to forget; with --yes that is done, for good, and the runs stay"
            if options.yes:
                lessons.forget(options.db, pool.card_hash)
                said = "forgotten; the runs stay, and a running server forgets them when it is restarted"
            print(f"{pool.pool} ({pool.card_hash}): {count(pool.lessons, 'lesson')} {said}")
        else:
            print(_shown(options.db, pool, options.prompt), end="\n\n")
    return 0


def _export(db: Path, found: list[Taught], file: Path) -> int:
    taught: list[dict[str, Any]] = []
    for pool in found:
        told = lessons.lessons(db, pool.card_hash, pool.lessons)
        taught.append({**pool._asdict(), "lessons": [{"prompt": prompt, "suitability": of} for prompt, of in told]})
    try:
        with replacing(file) as part:
            part.write_text(json.dumps(taught, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise md.UserError(f"--export: {file} cannot be written ({error.strerror})") from None
    print(f"{count(sum(pool.lessons for pool in found), 'lesson')} written to {file}")
    return 0


def _shown(db: Path, pool: Taught, prompt: str | None) -> str:
    """A pool's drafters, with their acceptance by token in the part of a text that suits them best."""
    told = lessons.lessons(db, pool.card_hash)
    best = np.array([stretches_of(of).max(axis=0) for _, of in told])
    of_all = [best.mean(axis=0), best.max(axis=0)]
    columns, figures = ["drafter", "acceptance, mean", "largest"], [[f"{value:.2f}" for value in of] for of in of_all]
    unlike = ""
    if prompt is not None and (expected := _expected(pool, told, prompt)) is None:
        unlike = "\n\nThis prompt is unlike any of them: a query would begin with the router's guess."
    elif prompt is not None and expected:
        columns += ["for this prompt", f"tokens of {pool.draft_length} accepted", "±"]
        tokens, doubt = expected.tokens(pool.draft_length)
        figures += [[f"{value:.2f}" for value in of] for of in (expected.acceptance, tokens, doubt)]
    prompts = count(len({asked for asked, _ in told}), "distinct prompt")
    known = f"{count(pool.lessons, 'lesson')} recorded; those of the last {prompts} are in use"
    return (
        f"{pool.pool} ({pool.card_hash}): {known}.\n\n"
        + markdown(columns, list(zip(pool.drafters, *figures, strict=True)))
        + unlike
    )


def _expected(pool: Taught, told: list[tuple[str, Lesson]], prompt: str) -> Prior | None:
    route = route_of(pool.pool, pool.drafters) if is_bundled(pool.pool) else None
    traffic = traffic_with(len(pool.drafters), pool.draft_length, route)
    traffic.learn(told)
    return traffic.prior(prompt)
