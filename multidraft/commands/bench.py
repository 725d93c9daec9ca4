"""``bench``: compare policies on suites of prompts."""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import multidraft as md
from multidraft.bench.report import Asked, make_report
from multidraft.bench.runner import BenchRun, run_suite
from multidraft.bench.suites import load_suite
from multidraft.bench.table import notes, render_table
from multidraft.commands.options import (
    add_decoding,
    add_pool,
    check_decoding,
    limited,
    load_pool,
    sampling_params,
    split_specs,
)
from multidraft.hardware import describe
from storage.connection import check_writable

DEFAULT_POLICIES = "autoregressive,ucb,normal-hedge"


def add(sub: argparse.ArgumentParser) -> None:
    """Its arguments."""
    add_pool(sub)
    sub.add_argument("suites", nargs="+", metavar="SUITE", help="a bundled suite's name or a .jsonl, .csv or text file")
    sub.add_argument("--policies", default=DEFAULT_POLICIES, help=f"comma-separated (default: {DEFAULT_POLICIES})")
    sub.add_argument("--limit", type=int, help="run so many prompts of each suite, evenly spread over it")
    sub.add_argument("--repeat", type=int, default=1, help="run every prompt so many times")
    sub.add_argument("--out", type=Path, help="write the report to this JSON file")
    sub.add_argument("--db", type=Path, help="also keep every run in this history database")
    add_decoding(sub)


def run(options: argparse.Namespace) -> int:
    """Run suites under policies, print the table, write the report; 1 where a policy failed or a run was not kept."""
    specs = split_specs(options.policies)
    check_decoding(options, specs)
    if options.repeat < 1:
        raise md.UserError("--repeat must be at least 1")
    suites = [limited(load_suite(name), options.limit) for name in options.suites]
    for suite in suites:
        for problem in suite.problems:
            print(f"multidraft: {suite.name}: {problem} (left out)", file=sys.stderr)
    items = [item for suite in suites for item in suite.items]
    _check_files(options)
    pool = load_pool(options.pool)
    asked = Asked(
        suite=" + ".join(suite.name for suite in suites),
        prompts=len(items),
        policies=tuple(specs),
        params=sampling_params(options, pool.draft_length),
        begun=datetime.now(UTC),
        seed=options.seed,
        repeat=options.repeat,
        limit=options.limit,
    )
    keep = _History(options, pool, asked.params) if options.db else None
    runs: list[BenchRun] = []
    interrupted = False
    try:
        for one in run_suite(pool, items, specs, asked.params, repeat=asked.repeat, seed=asked.seed):
            runs.append(one)
            if keep:
                keep.add(one)
            if sys.stderr.isatty() or len(runs) % 50 == 0 or len(runs) == asked.runs:
                print(f"\r{len(runs)}/{asked.runs} runs", end="", file=sys.stderr, flush=True)
    except KeyboardInterrupt:  # what is measured so far is not lost
        interrupted = True
    print(file=sys.stderr)
    report = make_report(
        pool, asked, runs, hardware=describe(pool.device), version=md.version(), interrupted=interrupted
    )
    print("\n\n".join([render_table(report), *notes(report)]))
    if options.out:
        options.out.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    kept = keep.close() if keep else True
    if interrupted:
        done = f"interrupted after {len(runs)} of {asked.runs} runs"
        print(f"multidraft: {done}. {_left(options, runs)}", file=sys.stderr)
        return 130
    well = all(policy["speedup"] and not policy["failed"] for policy in report["policies"].values())
    return 0 if well and kept else 1


def _check_files(options: argparse.Namespace) -> None:
    """Refuse files that cannot be written, before anything is measured and not after."""
    if options.out:
        folder = options.out.absolute().parent
        if not folder.is_dir():
            raise md.UserError(f"--out: the folder {folder} does not exist; create it first")
        try:
            options.out.open("a", encoding="utf-8").close()
        except OSError as error:
            raise md.UserError(
                f"--out: {options.out} cannot be written ({error.strerror}); name another file"
            ) from None
    if options.db:
        check_writable(options.db)


def _left(options: argparse.Namespace, runs: Sequence[BenchRun]) -> str:
    """What remains of a benchmark that was interrupted."""
    if not runs:
        return "Nothing was measured yet."
    places = ["the table above"]
    if options.out:
        places.append(f"the report {options.out}")
    if options.db:
        places.append(f"the runs in {options.db}")
    return f"What was measured is kept: {', '.join(places)}. The same command begins anew."


class _History:
    """Keeps benchmark runs in the history database, off the timed path."""

    def __init__(self, options: argparse.Namespace, pool: Any, params: md.SamplingParams):
        from storage.store import Store

        self.store, self.pool, self.params = Store(options.db), pool, params
        self.suite = " + ".join(Path(name).stem for name in options.suites)
        self.id = uuid.uuid4().hex

    def add(self, run: BenchRun) -> None:
        from multidraft.bench.history import run_context

        context = run_context(
            self.pool,
            self.params,
            source="bench",
            seed=run.seed,
            task=run.item.task or None,
            suite=self.suite,
            batch_id=self.id,
            baseline_tokens_per_second=run.baseline.tokens_per_second if run.baseline else None,
            regret=run.regret,
            expected_regret=run.expected_regret,
            table=run.table,
            lossless=run.lossless,
        )
        self.store.add(run.generation, context)

    def close(self) -> bool:
        """Write what waits; returns whether every run is in the history."""
        if self.store.close() and not self.store.problem:
            return True
        print(f"multidraft: the history is incomplete: {self.store.problem}", file=sys.stderr)
        return False
