"""``streaming``: what a page that watches costs a run."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from statistics import median

import multidraft as md
from multidraft.commands.options import add_decoding, add_pool, check_decoding, load_pool, sampling_params
from multidraft.hardware import describe

PROMPT = "Count on and on."
"""No task of the pocket pool's: its answer does not end by itself."""


def add(sub: argparse.ArgumentParser) -> None:
    """Its arguments."""
    add_pool(sub)
    sub.add_argument("--prompt", default=PROMPT)
    sub.add_argument(
        "--policy", default="round-robin", help="as the other commands take it; one that does the same each time"
    )
    add_decoding(sub)
    sub.set_defaults(max_new_tokens=1000)
    sub.add_argument("--visits", type=int, default=6, help="how often the page is opened")
    sub.add_argument("--pairs", type=int, default=1, help="of runs in each visit, one watched and one not")
    sub.add_argument("--browser", type=Path, help="a Chromium (default: Playwright's own)")
    sub.add_argument("--json", action="store_true")


def run(options: argparse.Namespace) -> int:
    """Measure and print the speeds and the cost."""
    for name in ("visits", "pairs"):
        if getattr(options, name) < 1:
            raise md.UserError(f"--{name} must be at least 1")
    check_decoding(options, [options.policy])

    from multidraft.ui.streaming_cost import streaming_cost
    from multidraft.ui.worker import Request

    pool = load_pool(options.pool)
    request = Request(options.prompt, options.policy, sampling_params(options, pool.draft_length), options.seed)
    measured = streaming_cost(pool, request, options.visits, options.pairs, options.browser)
    if options.json:
        figures = {**asdict(measured), "cost": measured.cost, "interval": measured.interval}
        print(json.dumps({**figures, "hardware": describe(pool.device)}))
        return 0
    print("| run | tokens/s alone | tokens/s watched | ratio | CPU s alone | CPU s watched | first paint s |")
    print("|---|---|---|---|---|---|---|")
    columns = (measured.alone, measured.watched, measured.cpu_alone, measured.cpu_watched, measured.paints)
    for n, (alone, watched, *seconds) in enumerate(zip(*columns, strict=True), start=1):
        cells = (f"{value:.2f}" for value in seconds)
        print(f"| {n} | {alone:.1f} | {watched:.1f} | {watched / alone:.3f} | {' | '.join(cells)} |")
    spread = "" if measured.interval is None else " ({:.1%} to {:.1%})".format(*measured.interval)
    cpu = median(w / a for a, w in zip(measured.cpu_alone, measured.cpu_watched, strict=True)) - 1
    print(f"\nwatching costs {measured.cost:.1%}{spread} of the speed and {cpu:+.1%} processor time of the server;")
    print(f"{measured.tokens} tokens, {describe(pool.device)}")
    return 0
