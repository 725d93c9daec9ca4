"""``generate``: answer one prompt."""

from __future__ import annotations

import argparse
import json
import sys

import multidraft as md
from multidraft.bench.measure import conditions_of
from multidraft.commands.options import add_decoding, add_pool, check_decoding, load_pool, sampling_params
from multidraft.policies.titles import DEFAULT_POLICY
from multidraft.service.unfamiliar import UNFAMILIAR
from storage.records import status_title
from storage.run import Origin, Run


def add(sub: argparse.ArgumentParser) -> None:
    add_pool(sub)
    sub.add_argument("prompt", help="the text to answer")
    policies = "e.g. ucb, ucb:beta=0.1,reward=be, fixed:math (default: %(default)s)"
    sub.add_argument("--policy", default=DEFAULT_POLICY, help=policies)
    add_decoding(sub)
    sub.add_argument("--json", action="store_true", help="print the run with all its rounds as JSON")


def run(options: argparse.Namespace) -> int:
    """Print the answer as it streams, then its figures."""
    check_decoding(options, [options.policy])
    pool = load_pool(options.pool)
    params = sampling_params(options, pool.draft_length)
    decoding = md.stream(pool, options.prompt, options.policy, params, options.seed)
    run = Run(decoding.generation, params, options.seed, conditions_of(pool), Origin("command"))
    try:
        for round_ in decoding:
            if not options.json:
                print(round_.text, end="", flush=True)
    except (md.UserError, KeyboardInterrupt):  # told of in a line of its own
        if decoding.generation.rounds and not options.json:
            print()
        raise
    out = decoding.generation
    if options.json:
        print(json.dumps(run.to_json()))
    else:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in out.drafter_shares.items())
        print(
            f"\n\n[{status_title(out.status)}: {len(out.token_ids)} tokens in {out.seconds:.2f} s = "
            f"{out.tokens_per_second:.0f} tokens/s; {out.mean_accepted_tokens:.2f} tokens per round; "
            f"written by {shares}]",
            file=sys.stderr,
        )
        if not pool.fits(options.prompt):
            print(f"[{UNFAMILIAR}]", file=sys.stderr)
        if out.benched:
            print(f"[{out.failures}]", file=sys.stderr)
    return 0
