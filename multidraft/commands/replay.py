"""``replay``: try policies on recorded runs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import multidraft as md
from multidraft.bench.replays import recorded_runs, without_divergence
from multidraft.commands.options import REPLAY_POLICIES, split_specs


def add(sub: argparse.ArgumentParser) -> None:
    """Its arguments."""
    sub.add_argument("--db", type=Path, required=True, help="history database, as bench and the app write it")
    sub.add_argument("--run", type=int, dest="run_id", help="one run alone, by its id")
    sub.add_argument("--policies", default=REPLAY_POLICIES, help=f"comma-separated (default: {REPLAY_POLICIES})")
    sub.add_argument("--pool", help="take the router of this pool, for policies that ask it")
    sub.add_argument("--json", action="store_true")


def run(options: argparse.Namespace) -> int:
    """Replay policies on the texts of recorded greedy runs: exact rounds, seconds by the costs measured there."""
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
