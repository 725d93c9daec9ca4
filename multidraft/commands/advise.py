"""``advise``: which policy, draft length and drafters for the traffic that some runs stand for."""

from __future__ import annotations

import argparse
import json
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from tqdm import tqdm

import multidraft as md
from drafters.card import is_bundled
from drafters.errors import fault_told
from multidraft.bench.measured import decoded, measured, of_rows, ran_live
from multidraft.bench.summary import Row
from multidraft.bench.table import markdown
from multidraft.bench.verdict import sentences
from multidraft.bench.verdict_json import as_json
from multidraft.bench.verdict_tables import tables
from multidraft.commands.options import split_specs, split_tasks
from multidraft.policies import check_specs
from multidraft.replay.advice import NEWEST, Advice, advise, candidates, most_replays
from multidraft.replay.recorded import (
    memory_of,
    of_newest_bench,
    of_usual_setting,
    recorded_texts,
    route_of,
    texts_with_costs,
)
from storage.filters import Filter
from storage.texts import TextFilter


def add(sub: argparse.ArgumentParser) -> None:
    source = sub.add_mutually_exclusive_group(required=True)
    source.add_argument("report", nargs="?", type=Path, help="a report of bench --out: compares its measured runs")
    source.add_argument("--db", type=Path, help="history database: replays every policy on its texts")
    sub.add_argument("--suite", help="only texts of this suite")
    sub.add_argument("--batch", default="", help="only texts of this batch or benchmark, by the id in its address")
    sub.add_argument("--draft-length", type=int, help="only texts of runs with this draft length")
    sub.add_argument("--tasks", default="", help="comma-separated: only texts of these tasks")
    sub.add_argument("--newest", type=int, default=NEWEST, help="at most so many texts (default: %(default)s)")
    sub.add_argument("--policies", default="", help="comma-separated: try these too")
    sub.add_argument(
        "--pool", help="card to take the router and the drafters' memory from (default: the texts' pool, if bundled)"
    )
    sub.add_argument("--json", action="store_true")


def run(options: argparse.Namespace) -> int:
    advice = _of_history(options) if options.db else _of_report(options.report)
    if options.json:
        print(json.dumps(as_json(advice), ensure_ascii=False))
        return 0
    print("\n".join(sentences(advice)))
    for table in tables(advice):
        print(f"\n{table.title}:\n\n{markdown(table.columns, table.rows)}")
    return 0


def _of_history(options: argparse.Namespace) -> Advice:
    if options.newest < 1:
        raise md.UserError(f"--newest must be at least 1, got {options.newest}")
    more = split_specs(options.policies)
    if more:
        check_specs(more)
    length = None if options.draft_length is None else str(options.draft_length)
    batches = (options.batch,) if options.batch else ()
    runs_of = Filter(tasks=split_tasks(options.tasks), experiments=batches, draft_length=length)
    chosen = TextFilter(runs_of, suite=options.suite, newest=options.newest)
    found = recorded_texts(options.db, chosen)
    runs = of_usual_setting(of_newest_bench(found))
    texts = texts_with_costs(runs, options.db)
    drafters, made_on = runs[0].generation.drafters, runs[0].conditions
    pool = options.pool or made_on.pool
    known = options.pool or is_bundled(pool)
    route = route_of(pool, drafters) if known else None
    memory = memory_of(pool, drafters, made_on.hardware) if known else {}
    live = ran_live(options.db, runs, chosen.runs)
    specs = candidates(drafters, route, [*more, *decoded(live)])
    steps = advise(texts, specs, route, memory, measured(live, runs), decoded(live))
    advice = _result(steps, most_replays(len(texts), len(specs), len(drafters)))
    return replace(advice, left_out=len(found) - len(runs))


def _result(steps: Generator[None, None, Advice], most: int) -> Advice:
    """What the steps return, with a bar on standard error where that is a terminal."""
    with tqdm(total=most, unit=" replays", leave=False, disable=None) as bar:
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found: Advice = end.value
                return found
            bar.update()


def _of_report(path: Path) -> Advice:
    try:
        report: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise md.UserError(f"{path} cannot be read ({error.strerror}); name a report of bench --out") from None
    except ValueError as error:
        raise md.UserError(f"{path} is not JSON ({error}); name a report of bench --out") from None
    if not isinstance(report, dict) or "rows" not in report:
        raise md.UserError(f"{path} has no results by prompt (rows); create it again with bench --out")
    try:
        rows = TypeAdapter(list[Row]).validate_python(report["rows"])
    except ValidationError as error:
        raise md.UserError(f"{path}: rows.{fault_told(error.errors()[0])}; create it again with bench --out") from None
    settings = report.get("settings") or report.get("parameters") or {}
    return of_rows(rows, int(settings.get("draft_length", 0)))
