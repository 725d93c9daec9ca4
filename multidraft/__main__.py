"""The command line: ``python -m multidraft generate | bench | replay | simulate | pool | demo``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import multidraft as md
from multidraft.bench.inspect import accepted_by_task, compare_plain_decoding, describe_pool, render_matrix
from multidraft.bench.report import make_report, render_table
from multidraft.bench.runner import BASELINE, BenchRun, run_suite
from multidraft.bench.suites import Suite, load_suite, spread
from multidraft.hardware import describe

DEFAULT_POLICIES = "autoregressive,ucb,normal-hedge"
REPLAY_POLICIES = "ucb,exp3,ucbspec,exp3spec,normal-hedge,rate-hedge"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 on success, 2 with one clear line on bad input."""
    options = _parser().parse_args(arguments)
    _quiet_progress_bars()
    try:
        return int(options.run(options))
    except md.UserError as error:
        print(f"multidraft: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("multidraft: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m multidraft", description="Multi-drafter speculative decoding with online policies."
    )
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(run=run)
        sub.add_argument("--pool", default="pocket", help="a bundled card's name or a path to a card")
        return sub

    sub = command("generate", generate, "Answer one prompt.")
    sub.add_argument("prompt")
    sub.add_argument("--policy", default="normal-hedge", help="e.g. ucb, ucb:beta=0.1,reward=be, fixed:math")
    _decoding_options(sub)
    sub.add_argument("--json", action="store_true", help="print the run with all its rounds as JSON")

    sub = command("bench", bench, "Compare policies on suites of prompts.")
    sub.add_argument("suites", nargs="+", metavar="SUITE", help="a bundled suite's name or a .jsonl, .csv or text file")
    sub.add_argument("--policies", default=DEFAULT_POLICIES, help=f"comma-separated (default: {DEFAULT_POLICIES})")
    sub.add_argument("--limit", type=int, help="run so many prompts of each suite, evenly spread over it")
    sub.add_argument("--repeat", type=int, default=1, help="run every prompt so many times")
    sub.add_argument("--out", type=Path, help="write the report to this JSON file")
    sub.add_argument("--db", type=Path, help="also keep every run in this history database")
    _decoding_options(sub)

    sub = commands.add_parser("replay", help="Try policies on recorded runs.", description=replay_runs.__doc__)
    sub.set_defaults(run=replay_runs)
    sub.add_argument("--db", type=Path, required=True, help="history database, as bench and the app write it")
    sub.add_argument("--run", type=int, dest="run_id", help="one run alone, by its id")
    sub.add_argument("--policies", default=REPLAY_POLICIES, help=f"comma-separated (default: {REPLAY_POLICIES})")
    sub.add_argument("--pool", help="take the router of this pool, for policies that ask it")
    sub.add_argument("--json", action="store_true")

    sub = commands.add_parser("simulate", help="Policies on a table of MATs.", description=simulate_table.__doc__)
    sub.set_defaults(run=simulate_table)
    sub.add_argument("table", type=Path, metavar="TABLE.csv", help="rows drafters, columns tasks")
    sub.add_argument("--policies", default=REPLAY_POLICIES, help=f"comma-separated (default: {REPLAY_POLICIES})")
    sub.add_argument("--tokens", default="250", help="length of a response, e.g. 250 or 200-300")
    sub.add_argument("--draft-length", type=int, default=8)
    sub.add_argument("--seeds", type=int, default=20, help="responses of each task")
    sub.add_argument("--mixed", action="store_true", help="responses whose task changes midway, in place of the tasks")
    sub.add_argument("--target-ms", type=float, default=75.7, help="a target forward (default: HedgeSpec's Llama)")
    sub.add_argument("--drafter-ms", type=float, default=2.5, help="a drafter step; an evaluation costs as much")
    sub.add_argument("--json", action="store_true")

    sub = commands.add_parser("pool", help="Show what is in a pool.", description="Show what is in a pool.")
    sub.set_defaults(run=show_pool)
    sub.add_argument("pool", nargs="?", default="pocket", help="a bundled card's name or a path to a card")
    sub.add_argument("--matrix", action="store_true", help="accepted tokens by drafter and task")
    sub.add_argument("--plain", action="store_true", help="plain decoding by this engine and by transformers")
    sub.add_argument("--suite", default="pocket", help="prompts for --matrix")
    sub.add_argument("--limit", type=int, help="prompts for --matrix, evenly spread over the suite")
    sub.add_argument("--max-new-tokens", type=int, default=200)
    sub.add_argument("--draft-length", type=int, help="default: the pool's")
    sub.add_argument("--json", action="store_true")

    sub = command("demo", demo, "Serve the web app.")
    sub.add_argument("--port", type=int, help="port to serve on (default: the first free one from 7860)")
    sub.add_argument("--db", type=Path, help="history database (default: $MULTIDRAFT_DB or runs.db)")
    return parser


def _decoding_options(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--max-new-tokens", type=int, default=128)
    sub.add_argument("--temperature", type=float, default=0.0)
    sub.add_argument("--top-p", type=float, default=1.0)
    sub.add_argument("--top-k", type=int, default=0)
    sub.add_argument("--draft-length", type=int, help="default: the pool's")
    sub.add_argument("--seed", type=int, default=0)


def _params(options: argparse.Namespace, draft_length: int) -> md.SamplingParams:
    asked = {name: getattr(options, name, None) for name in md.SamplingParams.__dataclass_fields__}
    given = {name: value for name, value in asked.items() if value is not None}
    try:
        return md.SamplingParams(**{"draft_length": draft_length, **given})
    except ValueError as error:
        raise md.UserError(str(error)) from None


def generate(options: argparse.Namespace) -> int:
    """``generate``: print the answer as it streams, then its figures."""
    pool = md.load_pool(options.pool)
    decoding = md.stream(pool, options.prompt, options.policy, _params(options, pool.draft_length), options.seed)
    for round_ in decoding:
        if not options.json:
            print(round_.text, end="", flush=True)
    out = decoding.generation
    figures = {
        "tokens_per_second": out.tokens_per_second,
        "mean_accepted_tokens": out.mean_accepted_tokens,
        "acceptance_rate": out.acceptance_rate,
        "seconds": out.seconds,
        "drafter_shares": out.drafter_shares,
    }
    if options.json:
        print(json.dumps({**asdict(out), **figures}, ensure_ascii=False))
    else:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in out.drafter_shares.items())
        print(
            f"\n\n[{out.status}: {len(out.token_ids)} tokens in {out.seconds:.2f} s = {out.tokens_per_second:.0f} "
            f"tokens/s; {out.mean_accepted_tokens:.2f} tokens per round; written by {shares}]",
            file=sys.stderr,
        )
    return 0


def bench(options: argparse.Namespace) -> int:
    """``bench``: run suites under policies, print the table, write the report."""
    if options.repeat < 1:
        raise md.UserError("--repeat must be at least 1")
    if options.out and not options.out.absolute().parent.is_dir():
        raise md.UserError(f"--out: the folder {options.out.absolute().parent} does not exist; create it first")
    suites = [_limited(load_suite(name), options.limit) for name in options.suites]
    for suite in suites:
        for problem in suite.problems:
            print(f"multidraft: {suite.name}: {problem} (left out)", file=sys.stderr)
    items = [item for suite in suites for item in suite.items]
    pool = md.load_pool(options.pool)
    params = _params(options, pool.draft_length)
    policies = split_specs(options.policies)
    keep = _History(options, pool, params) if options.db else None
    runs: list[BenchRun] = []
    total = len(items) * options.repeat * len({BASELINE, *policies})
    interrupted = False
    try:
        for run in run_suite(pool, items, policies, params, repeat=options.repeat, seed=options.seed):
            runs.append(run)
            if keep:
                keep.add(run)
            if sys.stderr.isatty() or len(runs) % 50 == 0 or len(runs) == total:
                print(f"\r{len(runs)}/{total} runs", end="", file=sys.stderr, flush=True)
    except KeyboardInterrupt:  # what is measured so far is not lost
        interrupted = True
    print(file=sys.stderr)
    report = make_report(pool, " + ".join(s.name for s in suites), runs, describe(pool.device), md.version())
    print(render_table(report))
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
            table=run.table,
            lossless=run.lossless,
        )
        self.store.add(run.generation, context)

    def close(self) -> None:
        if not self.store.close(timeout=60) or self.store.problem:
            print(f"multidraft: the history is incomplete: {self.store.problem}", file=sys.stderr)


def replay_runs(options: argparse.Namespace) -> int:
    """Replay policies on the texts of recorded greedy runs: exact rounds, seconds by the costs measured there."""
    from multidraft.bench.replays import recorded_runs, without_divergence

    specs = [without_divergence(spec) for spec in split_specs(options.policies)]
    route = md.load_pool(options.pool).route if options.pool else None
    runs = list(recorded_runs(options.db, options.run_id))
    tokens = sum(r.run["output_tokens"] for r in runs)
    best = tokens / sum(r.run["output_tokens"] / r.best_fixed() for r in runs)
    rows = []
    for spec in specs:
        played = [r.replay(spec, route) for r in runs]
        rounds = sum(p.rounds for p in played)
        rows.append(
            {
                "policy": spec,
                "mean_accepted_tokens": tokens / rounds,
                "regret_rounds": sum(p.regret for p in played) / len(played),
                "best_arm_ratio": sum(p.best_arm_ratio * p.rounds for p in played) / rounds,
                "tokens_per_second": tokens / sum(p.seconds or 0.0 for p in played),
            }
        )
    if options.json:
        print(json.dumps({"runs": len(runs), "tokens": tokens, "best_fixed_tokens_per_second": best, "policies": rows}))
        return 0
    print(f"{len(runs)} recorded texts, {tokens:,} tokens; tokens/s by the costs measured there.")
    print(f"The best single drafter and draft length of each text, in hindsight: {best:.0f} tokens/s.\n")
    print("| policy | MAT | regret, rounds a text | best arm | tokens/s |\n|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['policy']} | {row['mean_accepted_tokens']:.2f} | {row['regret_rounds']:+.1f} "
            f"| {row['best_arm_ratio']:.0%} | {row['tokens_per_second']:.0f} |"
        )
    return 0


def simulate_table(options: argparse.Namespace) -> int:
    """Simulate policies on a table of mean accepted tokens, each drafter's tokens accepted independently."""
    from multidraft.bench.replays import without_divergence
    from multidraft.bench.simulate import read_table, simulate
    from multidraft.costs import Costs

    low, _, high = options.tokens.partition("-")
    if not (low.isdigit() and (high or low).isdigit() and 1 <= int(low) <= int(high or low)):
        raise md.UserError(
            f"--tokens must be a number of at least 1 or a range such as 200-300, got {options.tokens!r}"
        )
    if options.seeds < 1 or options.draft_length < 1 or min(options.target_ms, options.drafter_ms) <= 0:
        raise md.UserError("--seeds and --draft-length must be at least 1, --target-ms and --drafter-ms positive")
    table = read_table(options.table)
    step, verify = options.drafter_ms / 1000, options.target_ms / 1000
    found = simulate(
        table,
        [without_divergence(spec) for spec in split_specs(options.policies)],
        tokens=(int(low), int(high or low)),
        draft_length=options.draft_length,
        seeds=options.seeds,
        costs=Costs.uniform(len(table.drafters), options.draft_length, step=step, verify=verify, evaluate=step),
        mixed=options.mixed,
    )
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    streams = list(next(iter(found["policies"].values()))["by_task"])
    print(f"| policy | {' | '.join(streams)} | mean MAT | tokens/s |")
    print("|---" * (len(streams) + 3) + "|")
    for spec, row in found["policies"].items():
        cells = " | ".join(f"{row['by_task'][stream]:.2f}" for stream in streams)
        print(f"| {spec} | {cells} | {row['mean_accepted_tokens']:.2f} | {row['tokens_per_second']:.1f} |")
    return 0


def show_pool(options: argparse.Namespace) -> int:
    """``pool``: parameters and costs, and with ``--matrix`` accepted tokens by drafter and task."""
    pool = md.load_pool(options.pool)
    content = describe_pool(pool)
    if options.matrix:
        suite = _limited(load_suite(options.suite), options.limit)
        params = _params(options, pool.draft_length)
        content["matrix"] = accepted_by_task(pool, suite.items, params)
    if options.plain:
        prompt = pool.examples[0][1] if pool.examples else "Hello"
        content["plain_tokens_per_second"] = compare_plain_decoding(pool, prompt)
    if options.json:
        print(json.dumps(content, indent=2, ensure_ascii=False))
        return 0
    target = content["target"]
    print(f"{content['title']} ({content['pool']}, {content['dtype']} on {content['device']})")
    print(
        f"target: {target['parameters'] / 1e6:.1f}M parameters, {target['step_ms']:.2f} ms a token, "
        f"{target['verify_ms']:.2f} ms to verify {target['draft_length']} drafted tokens\n"
    )
    print("| drafter | kind | parameters | ms per drafted token |\n|---|---|---|---|")
    for d in content["drafters"]:
        size = f"{d['parameters'] / 1e6:.2f}M" if d["parameters"] else "–"
        print(f"| {d['name']} | {d['kind']} | {size} | {d['draft_step_ms']:.3f} |")
    if options.plain:
        ours, theirs = content["plain_tokens_per_second"].values()
        print(f"\nPlain decoding, prefill included: {ours:.0f} tokens/s, by transformers' own generate {theirs:.0f}.")
    if options.matrix:
        print("\nAccepted tokens per round (own token counted), by drafter and task:\n")
        print(render_matrix(content["matrix"]))
    return 0


def demo(options: argparse.Namespace) -> int:
    """``demo``: serve the web app."""
    from multidraft.ui.app import launch

    try:
        launch(pool=options.pool, port=options.port, db=options.db)
    except OSError as error:
        raise md.UserError(f"the page cannot be served: {error}") from None
    return 0


def split_specs(text: str) -> list[str]:
    """Split comma-separated policy specs; ``key=value`` parts belong to the spec before them."""
    specs: list[str] = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        if specs and "=" in part and ":" not in part:
            specs[-1] += f",{part}"
        else:
            specs.append(part)
    return specs


def _limited(suite: Suite, limit: int | None) -> Suite:
    if limit is not None and limit < 1:
        raise md.UserError("--limit must be at least 1")
    return Suite(suite.name, spread(suite.items, limit), suite.problems)


def _quiet_progress_bars() -> None:
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    from transformers.utils import logging

    logging.disable_progress_bar()


if __name__ == "__main__":
    sys.exit(main())
