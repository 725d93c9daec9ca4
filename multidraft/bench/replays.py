"""Policies on the recorded runs of a history: what would have happened had another one chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multidraft.bench.history import read_table
from multidraft.costs import CostMeter, Costs
from multidraft.errors import UserError
from multidraft.policies import make_policy, parse_spec
from multidraft.replay import Replayed, best_fixed_rate, replay
from storage import queries


@dataclass(frozen=True)
class Recorded:
    """A recorded greedy run, ready to be replayed, and the costs that were measured on its hardware."""

    run: dict[str, Any]
    costs: Costs

    def replay(self, policy: str, route: Callable[[str], Sequence[float] | None] | None = None) -> Replayed:
        """The rounds of ``policy`` on this run's text."""
        run = self.run
        return replay(
            read_table(run["acceptance"], len(run["drafters"])),
            policy,
            run["seed"],
            draft_length=run["draft_length"],
            max_new_tokens=max(run["max_new_tokens"], run["output_tokens"]) if run["status"] == "stopped" else None,
            drafters=run["drafters"],
            prompt=run["prompt"],
            costs=self.costs,
            route=route,
        )

    def best_fixed(self) -> float:
        """Tokens per second of the best single drafter and draft length in hindsight."""
        table = read_table(self.run["acceptance"], len(self.run["drafters"]))
        return best_fixed_rate(table, self.costs, range(self.run["draft_length"] + 1))[0]


def recorded_runs(path: Path, run: int | None = None) -> Iterator[Recorded]:
    """The runs of a history that can be replayed: each greedy text once, newest first.

    Raises:
        UserError: there is none, or none with the number ``run``.
    """
    if not path.exists():
        raise UserError(f"there is no database {path}; bench --db and the app write one")
    found = queries.replayable(path, run)
    if not found:
        which = f"run {run} cannot be replayed, or does not exist" if run is not None else "no run can be replayed"
        raise UserError(f"{which}: {path} must hold finished greedy runs by a policy with drafters")
    costs: dict[tuple[Any, ...], Costs] = {}
    for row in found:
        machine = (row["card_hash"], row["hardware"], row["dtype"], row["draft_length"])
        if machine not in costs:
            costs[machine] = measured_costs(path, row)
        yield Recorded(row, costs[machine])


def measured_costs(path: Path, run: dict[str, Any]) -> Costs:
    """What rounds have cost on the pool and machine of ``run``, by all rounds recorded of them."""
    meter, last = CostMeter(len(run["drafters"])), None
    unseen = 0
    for row in queries.timed_rounds(path, run["card_hash"], run["hardware"], run["dtype"]):
        if row["run_id"] != last:
            meter.begin()
            last, unseen = row["run_id"], 0
        unseen += row["emitted"]
        meter.played(
            row["arm"],
            row["draft_length"],
            row["drafted"],
            row["draft_seconds"],
            row["verify_seconds"],
            row["emitted"],
        )
        if row["evaluate_seconds"] > 1e-5:  # below that nothing was evaluated: the clock was read
            meter.evaluated(unseen, row["evaluate_seconds"])
            unseen = 0
    return meter.costs(run["draft_length"])


def without_divergence(spec: str) -> str:
    """``spec`` with ``reward=be`` where it would learn from block divergence, which a recorded text does not hold."""
    if parse_spec(spec)[0] != "fixed" and make_policy(spec, 2).uses_block_divergence:
        return f"{spec}{',' if ':' in spec else ':'}reward=be"
    return spec
