"""``replay``: try policies on recorded runs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import multidraft as md
from multidraft.bench.outcomes import Outcome
from multidraft.bench.replays import recorded_runs, without_divergence
from multidraft.commands.options import REPLAY_POLICIES, split_specs
from multidraft.policies import check_specs
from storage.texts import TextFilter


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
    check_specs(specs, live=False)
    route = md.load_pool(options.pool).route if options.pool else None
    runs = list(recorded_runs(options.db, TextFilter(id=options.run_id)))
    best = Outcome.of([r.best_fixed() for r in runs])
    rows = []
    for spec in specs:
        outcome = Outcome.of([r.replay(spec, route) for r in runs])
        rows.append(
            {
                "policy": spec,
                "mean_accepted_tokens": outcome.mean_accepted_tokens,
                "regret_rounds": outcome.regret,
                "best_arm_ratio": outcome.best_arm_ratio,
                "tokens_per_second": outcome.tokens_per_second,
            }
        )
    if options.json:
        found = {"runs": best.texts, "tokens": best.tokens, "best_fixed_tokens_per_second": best.tokens_per_second}
        print(json.dumps({**found, "policies": rows}))
        return 0
    print(f"{best.texts} recorded texts, {best.tokens:,} tokens; tokens/s by the costs measured there.")
    print(
        f"The best single drafter and draft length of each text, in hindsight: {best.tokens_per_second:.0f} tokens/s.\n"
    )
    print("| policy | MAT | regret, rounds a text | best arm | tokens/s |\n|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['policy']} | {row['mean_accepted_tokens']:.2f} | {row['regret_rounds']:+.1f} "
            f"| {row['best_arm_ratio']:.0%} | {row['tokens_per_second']:.0f} |"
        )
    return 0
