"""``streaming``: what a page that watches costs a run."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import multidraft as md
from multidraft.commands.options import add_decoding, add_pool, load_pool, sampling_params
from multidraft.hardware import describe

PROMPT = "Count on and on."
"""No task of the pocket pool's: sampled hot, its answer hardly ever ends by itself."""


def add(sub: argparse.ArgumentParser) -> None:
    """Its arguments."""
    add_pool(sub)
    sub.add_argument("--prompt", default=PROMPT)
    sub.add_argument("--policy", default="ucb", help="as the other commands take it")
    add_decoding(sub)
    sub.set_defaults(max_new_tokens=1000, temperature=2.0)
    sub.add_argument("--repeat", type=int, default=3, help="pairs of runs, one watched and one not")
    sub.add_argument("--browser", type=Path, help="a Chromium (default: Playwright's own)")
    sub.add_argument("--json", action="store_true")


def run(options: argparse.Namespace) -> int:
    """Measure and print the speeds and the cost."""
    from multidraft.ui.streaming_cost import streaming_cost
    from multidraft.ui.worker import Request

    if options.repeat < 1:
        raise md.UserError("--repeat must be at least 1")
    pool = load_pool(options.pool)
    request = Request(options.prompt, options.policy, sampling_params(options, pool.draft_length), options.seed)
    measured = streaming_cost(pool, request, options.repeat, options.browser)
    if options.json:
        print(json.dumps({**asdict(measured), "cost": measured.cost, "hardware": describe(pool.device)}))
        return 0
    print("| run | tokens/s alone | tokens/s watched | ratio |\n|---|---|---|---|")
    for n, (alone, watched) in enumerate(zip(measured.alone, measured.watched, strict=True), start=1):
        print(f"| {n} | {alone:.1f} | {watched:.1f} | {watched / alone:.3f} |")
    print(f"\nwatching costs {measured.cost:.1%} of the speed; {measured.tokens} tokens, {describe(pool.device)}")
    return 0
