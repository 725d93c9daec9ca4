"""``replay``: try policies on recorded runs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from multidraft.bench.action import listed
from multidraft.bench.table import count, markdown, shown
from multidraft.commands.options import add_replay_policies, add_runs, card_of, chosen_runs, replay_policies, warn
from multidraft.policies.specs import start_of
from multidraft.replay.outcomes import Outcome
from multidraft.replay.recorded import is_estimate, of_newest_bench, recorded_texts, route_of, texts_with_costs
from storage.texts import TextFilter


def add(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--db", type=Path, required=True, help="history database, as bench and the app write it")
    sub.add_argument("--run", type=int, dest="run_id", help="only the run with this id")
    add_runs(sub)
    add_replay_policies(sub)
    sub.add_argument("--json", action="store_true")


def run(options: argparse.Namespace) -> int:
    """Replay policies on the texts of recorded greedy runs: exact rounds, times from the costs measured in them."""
    specs = replay_policies(options)
    written = recorded_texts(options.db, TextFilter(chosen_runs(options), id=options.run_id))
    runs = texts_with_costs(of_newest_bench(written), options.db)
    made_on, drafters = runs[0].run.conditions, runs[0].drafters
    if left := len(written) - len(runs):
        warn(
            f"these are the texts of {made_on.pool} on {made_on.hardware}; left out: {count(left, 'text')} of other "
            "pools or machines (choose with --pool or --batch)"
        )
    card = card_of(options, made_on.pool)
    route = route_of(card, drafters) if card else None
    best = Outcome.of([r.best_fixed() for r in runs])
    outcomes = [Outcome.of([r.replay(spec, route) for r in runs]) for spec in specs]
    rows: list[dict[str, Any]] = [
        {
            "policy": spec,
            "exact_rounds": not is_estimate(spec),
            "mean_accepted_tokens": outcome.mean_accepted_tokens,
            "regret_rounds": outcome.regret,
            "best_arm_ratio": outcome.best_arm_ratio,
            "tokens_per_second": outcome.tokens_per_second,
        }
        for spec, outcome in zip(specs, outcomes, strict=True)
    ]
    asking, said = list[str](), ""
    cold = 0 if route else sum(text.run.generation.prior is None for text in runs)
    if cold and (asking := [spec for spec in specs if start_of(spec) in ("router", "traffic")]):
        given = "the card has other drafters than they, or no router"
        asked = "give the path of their pool's card with --pool"
        known = given if options.pool and card == options.pool else asked
        said = f"No router is known for {cold} of the {len(runs)} texts, on which these policies start cold: {known}."
    if options.json:
        if said:
            warn(said)
        found = {"runs": best.texts, "tokens": best.tokens, "best_fixed_tokens_per_second": best.tokens_per_second}
        print(json.dumps({**found, "policies": rows}))
        return 0
    lengths = sorted({text.run.params.draft_length for text in runs})
    at = f"recorded with draft length{'s' if lengths[1:] else ''} {listed(list(map(str, lengths)))}"
    texts = count(best.texts, "recorded text")
    print(f"{texts}, {best.tokens:,} tokens, {at}; tokens/s from the costs measured in these runs.")
    fastest = shown(best.tokens_per_second, "{:.0f}")
    print(f"The best single drafter and draft length of each text, in hindsight: {fastest} tokens/s.\n")
    cells = [
        (
            f"{row['policy']}{'' if row['exact_rounds'] else ' ≈'}{' *' if row['policy'] in asking else ''}",
            f"{row['mean_accepted_tokens']:.2f}",
            f"{row['regret_rounds']:+.1f}",
            shown(row["best_arm_ratio"], "{:.0%}"),
            shown(row["tokens_per_second"], "{:.0f}"),
        )
        for row in rows
    ]
    print(markdown(["policy", "MAT", "regret, rounds per text", "best arm", "tokens/s"], cells))
    if not all(row["exact_rounds"] for row in rows):
        print("\n≈ This policy decides by time or by the previous query: its rounds are estimates.")
    if said:
        print(f"\n\\* {said}")
    return 0
