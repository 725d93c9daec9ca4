"""``pool``: what is in a pool."""

from __future__ import annotations

import argparse
import json

import multidraft as md
from multidraft.bench.inspect import accepted_by_task, compare_plain_decoding, describe_pool, render_matrix
from multidraft.bench.suites import load_suite
from multidraft.commands.options import limited, sampling_params


def add(sub: argparse.ArgumentParser) -> None:
    """Its arguments."""
    sub.add_argument("pool", nargs="?", default="pocket", help="a bundled card's name or a path to a card")
    sub.add_argument("--matrix", action="store_true", help="accepted tokens by drafter and task")
    sub.add_argument("--plain", action="store_true", help="plain decoding by this engine and by transformers")
    sub.add_argument("--suite", default="pocket", help="prompts for --matrix")
    sub.add_argument("--limit", type=int, help="prompts for --matrix, evenly spread over the suite")
    sub.add_argument("--max-new-tokens", type=int, default=200)
    sub.add_argument("--draft-length", type=int, help="default: the pool's")
    sub.add_argument("--json", action="store_true")


def run(options: argparse.Namespace) -> int:
    """Print parameters and costs, and with ``--matrix`` accepted tokens by drafter and task."""
    pool = md.load_pool(options.pool)
    content = describe_pool(pool)
    if options.matrix:
        suite = limited(load_suite(options.suite), options.limit)
        params = sampling_params(options, pool.draft_length)
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
