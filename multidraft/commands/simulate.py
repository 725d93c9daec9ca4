"""``simulate``: policies on a table of mean accepted tokens."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import multidraft as md
from drafters.costs import Costs
from drafters.errors import quoted
from drafters.sampling import MAX_NEW_TOKENS
from multidraft.bench.simulate import read_table, simulate
from multidraft.bench.table import count, markdown
from multidraft.commands.options import add_replay_policies, finite, replay_policies, sampling_params, warn
from multidraft.policies.specs import read_spec


def add(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("table", type=Path, metavar="TABLE.csv", help="rows drafters, columns tasks")
    add_replay_policies(sub)
    sub.add_argument("--tokens", default="250", help="length of a response, e.g. 250 or 200-300")
    sub.add_argument("--draft-length", type=int, default=8, help="(default: %(default)s)")
    sub.add_argument("--seeds", type=int, default=20, help="responses per task (default: %(default)s)")
    sub.add_argument("--mixed", action="store_true", help="only responses whose task changes midway")
    target_help = "time of a target forward (default: %(default)s, HedgeSpec's Llama)"
    sub.add_argument("--target-ms", type=finite, default=75.7, help=target_help)
    drafter_help = "time of a drafter step, and of an evaluation (default: %(default)s)"
    sub.add_argument("--drafter-ms", type=finite, default=2.5, help=drafter_help)
    sub.add_argument("--json", action="store_true")


def run(options: argparse.Namespace) -> int:
    """Simulate policies on a table of mean accepted tokens, each drafter's tokens accepted independently."""
    low, _, high = options.tokens.partition("-")
    shortest, longest = (int(part) if part.isdecimal() and len(part) < 8 else 0 for part in (low, high or low))
    if not 1 <= shortest <= longest <= MAX_NEW_TOKENS:
        most = f"a number from 1 to {MAX_NEW_TOKENS:,}"
        raise md.UserError(f"--tokens must be {most}, or a range such as 200-300, got {quoted(options.tokens)}")
    if options.seeds < 1 or min(options.target_ms, options.drafter_ms) <= 0:
        raise md.UserError("--seeds must be at least 1, --target-ms and --drafter-ms positive")
    sampling_params(options, options.draft_length)
    specs = replay_policies(options)
    if routed := next((spec for spec in specs if read_spec(spec)[0].needs_route), None):
        raise md.UserError(f"{routed!r} needs a router, which has no prompts to read in a simulation; leave it out")
    table = read_table(options.table)
    if options.mixed and (len(table.columns) < 2 or shortest < 2):
        raise md.UserError("--mixed needs at least two tasks, and responses of at least two tokens")
    step, verify = options.drafter_ms / 1000, options.target_ms / 1000
    found = simulate(
        table,
        specs,
        tokens=(shortest, longest),
        draft_length=options.draft_length,
        seeds=options.seeds,
        costs=Costs.uniform(len(table), options.draft_length, step=step, verify=verify, evaluate=step),
        mixed=options.mixed,
    )
    if beyond := int((table > options.draft_length + 1).to_numpy().sum()):
        drafts = f"drafts of {count(options.draft_length, 'token')}"
        warn(
            f"{beyond} of {table.size} MATs in {options.table.name} are more than {drafts} yield and count as "
            f"{options.draft_length + 1}: give the --draft-length of their measurement"
        )
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    streams = list(next(iter(found["policies"].values()))["by_task"])
    cells = []
    for spec, row in found["policies"].items():
        mats = [*row["by_task"].values(), row["mean_accepted_tokens"]]
        cells.append([spec, *(f"{mat:.2f}" for mat in mats), f"{row['tokens_per_second']:.1f}"])
    print(markdown(["policy", *streams, "mean MAT", "tokens/s"], cells))
    return 0
