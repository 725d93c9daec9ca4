"""``replay``: try policies on recorded runs."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from drafters.card import pool_names
from drafters.errors import UserError
from multidraft.commands.options import REPLAY_POLICIES, split_specs
from multidraft.policies import start_of
from multidraft.replay.outcomes import Outcome
from multidraft.replay.recorded import Recorded, Route, is_estimate, recorded_runs, route_of, without_divergence
from storage.texts import TextFilter


def add(sub: argparse.ArgumentParser) -> None:
    """Its arguments."""
    sub.add_argument("--db", type=Path, required=True, help="history database, as bench and the app write it")
    sub.add_argument("--run", type=int, dest="run_id", help="only the run with this id")
    sub.add_argument("--policies", default=REPLAY_POLICIES, help=f"comma-separated (default: {REPLAY_POLICIES})")
    sub.add_argument("--pool", help="card whose router the policies use (default: that of each run's pool, if bundled)")
    sub.add_argument("--json", action="store_true")


def run(options: argparse.Namespace) -> int:
    """Replay policies on the texts of recorded greedy runs: exact rounds, times from the costs measured in them."""
    specs = [without_divergence(spec) for spec in split_specs(options.policies)]
    if not specs:
        raise UserError("no policy is chosen; choose at least one")
    runs = list(recorded_runs(options.db, TextFilter(id=options.run_id)))
    routes = _Routes(options.pool)
    routed = [routes.of(r) for r in runs]
    best = Outcome.of([r.best_fixed() for r in runs])
    rows = []
    for spec in specs:
        outcome = Outcome.of([r.replay(spec, route) for r, route in zip(runs, routed, strict=True)])
        rows.append(
            {
                "policy": spec,
                "exact_rounds": not is_estimate(spec),
                "mean_accepted_tokens": outcome.mean_accepted_tokens,
                "regret_rounds": outcome.regret,
                "best_arm_ratio": outcome.best_arm_ratio,
                "tokens_per_second": outcome.tokens_per_second,
            }
        )
    cold = routed.count(None)
    if cold and (asking := [spec for spec in specs if start_of(spec) == "router"]):
        print(
            f"multidraft: {cold} of the {len(runs)} texts have no router, so policies that start from it "
            f"({', '.join(asking)}) start cold on them; name the card of their pool with --pool",
            file=sys.stderr,
        )
    if options.json:
        found = {"runs": best.texts, "tokens": best.tokens, "best_fixed_tokens_per_second": best.tokens_per_second}
        print(json.dumps({**found, "policies": rows}))
        return 0
    print(f"{best.texts} recorded texts, {best.tokens:,} tokens; tokens/s from the costs measured in these runs.")
    print(
        f"The best single drafter and draft length of each text, in hindsight: {best.tokens_per_second:.0f} tokens/s.\n"
    )
    print("| policy | MAT | regret, rounds per text | best arm | tokens/s |\n|---|---|---|---|---|")
    for row in rows:
        mark = "" if row["exact_rounds"] else " ≈"
        share = "–" if row["best_arm_ratio"] is None else f"{row['best_arm_ratio']:.0%}"
        print(
            f"| {row['policy']}{mark} | {row['mean_accepted_tokens']:.2f} | {row['regret_rounds']:+.1f} "
            f"| {share} | {row['tokens_per_second']:.0f} |"
        )
    if not all(row["exact_rounds"] for row in rows):
        print("\n≈ This policy decides by time or by the previous query: its rounds are estimates.")
    return 0


class _Routes:
    """Routers for recorded texts: that of ``source`` for all of them, otherwise that of each run's bundled pool."""

    def __init__(self, source: str | None):
        self._source, self._found = source, dict[tuple[str, ...], Route | None]()

    def of(self, recorded: Recorded) -> Route | None:
        pool, drafters = self._source or recorded.run.conditions.pool, recorded.drafters
        if (key := (pool, *drafters)) not in self._found:
            known = self._source or pool in pool_names()
            self._found[key] = route_of(pool, drafters) if known else None
        return self._found[key]
