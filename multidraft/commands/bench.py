"""``bench``: compare policies on suites of prompts."""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from pathlib import Path
from typing import Any

import multidraft as md
from multidraft.bench.report import best_drafters, make_report, render_table
from multidraft.bench.runner import BASELINE, BenchRun, run_suite
from multidraft.bench.suites import load_suite
from multidraft.commands.options import add_decoding, add_pool, limited, load_pool, sampling_params, split_specs
from multidraft.hardware import describe

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
    """Run suites under policies, print the table, write the report."""
    if options.repeat < 1:
        raise md.UserError("--repeat must be at least 1")
    if options.out and not options.out.absolute().parent.is_dir():
        raise md.UserError(f"--out: the folder {options.out.absolute().parent} does not exist; create it first")
    if options.out:
        try:  # before anything is measured, not after
            options.out.open("a", encoding="utf-8").close()
        except OSError as error:
            raise md.UserError(
                f"--out: {options.out} cannot be written ({error.strerror}); name another file"
            ) from None
    suites = [limited(load_suite(name), options.limit) for name in options.suites]
    for suite in suites:
        for problem in suite.problems:
            print(f"multidraft: {suite.name}: {problem} (left out)", file=sys.stderr)
    items = [item for suite in suites for item in suite.items]
    pool = load_pool(options.pool)
    params = sampling_params(options, pool.draft_length)
    policies = split_specs(options.policies)
    keep = _History(options, pool, params) if options.db else None
    runs: list[BenchRun] = []
    total = len(items) * options.repeat * len({BASELINE, *policies})
    interrupted = False
    try:
        for one in run_suite(pool, items, policies, params, repeat=options.repeat, seed=options.seed):
            runs.append(one)
            if keep:
                keep.add(one)
            if sys.stderr.isatty() or len(runs) % 50 == 0 or len(runs) == total:
                print(f"\r{len(runs)}/{total} runs", end="", file=sys.stderr, flush=True)
    except KeyboardInterrupt:  # what is measured so far is not lost
        interrupted = True
    print(file=sys.stderr)
    report = make_report(pool, " + ".join(s.name for s in suites), runs, describe(pool.device), md.version())
    print(render_table(report))
    if best := best_drafters(report):
        named = ", ".join(f"{drafter} for {task or 'all'}" for task, drafter in best["drafters"].items())
        print(
            f"\nThe best single drafter of each task ({named}): {best['tokens_per_second']:.0f} tokens/s, "
            f"{best['speedup']:.2f}x."
        )
    if failures := report["failures"]:
        print(f"\n{len(failures)} runs failed, e.g. prompt {failures[0]['id']}: {failures[0]['error']}")
    if keep:
        keep.close()
    if options.out:
        options.out.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if interrupted:
        print(f"multidraft: interrupted after {len(runs)} of {total} runs", file=sys.stderr)
    return 130 if interrupted else 0


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

    def close(self) -> None:
        if not self.store.close(timeout=60) or self.store.problem:
            print(f"multidraft: the history is incomplete: {self.store.problem}", file=sys.stderr)
