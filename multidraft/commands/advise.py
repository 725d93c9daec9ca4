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
from drafters.errors import fault_message, unreadable
from multidraft.bench.measured_verdict import decoded, measured, of_rows, ran_live
from multidraft.bench.summary import Row
from multidraft.bench.table import markdown
from multidraft.bench.verdict import sentences
from multidraft.bench.verdict_json import as_json
from multidraft.bench.verdict_tables import tables
from multidraft.commands.options import add_runs, card_of, chosen_runs, split_specs
from multidraft.policies.specs import check_specs, without_divergence
from multidraft.replay.advice import NEWEST, Advice, advise, candidates, most_replays
from multidraft.replay.recorded import (
    memory_of,
    of_newest_bench,
    of_usual_setting,
    recorded_texts,
    route_of,
    texts_with_costs,
)
from storage.texts import TextFilter, groups


def add(sub: argparse.ArgumentParser) -> None:
    source = sub.add_mutually_exclusive_group(required=True)
    source.add_argument("report", nargs="?", type=Path, help="a report of bench --out: compares its measured runs")
    source.add_argument("--db", type=Path, help="history database: replays every policy on its texts")
    sub.add_argument("--suite", help="only texts of this suite")
    add_runs(sub)
    sub.add_argument("--newest", type=int, help=f"at most so many texts (default: {NEWEST})")
    sub.add_argument("--policies", default="", help="comma-separated: try these too")
    sub.add_argument("--json", action="store_true")


def run(options: argparse.Namespace) -> int:
    advice = _of_history(options) if options.db else _of_report(options)
    if options.json:
        print(json.dumps(as_json(advice)))
        return 0
    print("\n".join(sentences(advice)))
    for table in tables(advice):
        print(f"\n{table.title}:\n\n{markdown(table.columns, table.rows)}")
    return 0


def _of_history(options: argparse.Namespace) -> Advice:
    newest = NEWEST if options.newest is None else options.newest
    if newest < 1:
        raise md.UserError(f"--newest must be at least 1, got {newest}")
    more = split_specs(options.policies)
    if more:
        check_specs(more)
    chosen = TextFilter(chosen_runs(options), suite=options.suite, newest=newest)
    if options.suite and options.suite not in (suites := groups(options.db)["suites"]):
        raise md.UserError(
            f"no text in {options.db} has the suite {options.suite!r}; suites there: {', '.join(suites) or 'none'}"
        )
    found = recorded_texts(options.db, chosen)
    runs = of_usual_setting(of_newest_bench(found))
    texts = texts_with_costs(runs, options.db)
    drafters, made_on = runs[0].generation.drafters, runs[0].conditions
    card = card_of(options, made_on.pool)
    route = route_of(card, drafters) if card else None
    for spec in more:  # of all others those that cannot be replayed are left out
        texts[0].replay(without_divergence(spec), route)
    memory = memory_of(card, drafters, made_on.hardware) if card else {}
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


def _of_report(options: argparse.Namespace) -> Advice:
    path: Path = options.report
    given = options.pool, options.batch, options.tasks, options.suite, options.policies
    if any(given) or options.draft_length is not None or options.newest is not None:
        raise md.UserError(
            "a report is compared whole: --pool, --batch, --tasks, --draft-length, --suite, --policies and --newest "
            "need --db"
        )
    try:
        report: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise md.UserError(f"{path} cannot be read ({error.strerror}); name a report of bench --out") from None
    except (ValueError, RecursionError) as error:
        raise md.UserError(f"{path} is not JSON ({unreadable(error)}); name a report of bench --out") from None
    if not isinstance(report, dict) or "rows" not in report:
        raise md.UserError(f"{path} has no results by prompt (rows); create it again with bench --out")
    try:
        rows = TypeAdapter(list[Row]).validate_python(report["rows"])
    except ValidationError as error:
        fault = fault_message(error.errors()[0])
        raise md.UserError(f"{path}: rows.{fault}; create it again with bench --out") from None
    settings = report.get("settings") or report.get("parameters") or {}
    length = settings.get("draft_length", 0) if isinstance(settings, dict) else None
    if not isinstance(length, int):
        raise md.UserError(f"{path}: settings.draft_length is no whole number; create it again with bench --out")
    return of_rows(rows, length)
