"""How well replays tell the time: recorded rounds priced by the costs estimated from them, and runs played again.

    python -m multidraft bench pocket --pool pocket --policies fixed:general,ucb,rate-hedge --db runs.db
    python -m tests.perf.replay_clock runs.db

For each pool and policy of finished greedy runs it prints the measured tokens per second, by how much priced seconds of
the very rounds recorded differ from the measured ones, by how much those of a replay do, and whether its rounds are the
recorded ones. The exit status is 1 where the priced seconds are off by more than 5 % for a fixed drafter or by more
than 7 % for another policy, or where a policy that does not look at the clock has other rounds. Run it on a machine
that does nothing else.
"""

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from drafters.costs import Costs
from drafters.errors import PolicyError
from multidraft.bench.table import markdown
from multidraft.replay.machine_costs import with_unread
from multidraft.replay.recorded import Recorded, Route, is_estimate, route_of, texts_with_costs
from storage import queries

FIXED, OTHERS = 0.05, 0.07
"""By how much priced seconds may differ from measured ones, over all runs of a policy."""


@dataclass
class Line:
    """Sums over the runs of one policy on one pool."""

    runs: int = 0
    tokens: int = 0
    measured: float = 0.0
    priced: float = 0.0
    replayed: float = 0.0
    same: int = 0


def measure(path: Path) -> dict[tuple[str, str], Line]:
    """The sums of every pool and policy of a database."""
    lines: dict[tuple[str, str], Line] = defaultdict(Line)
    runs = (queries.run(path, int(id)) for id in queries.listed(path, limit=100_000)["id"].tolist())
    # The others were sampled, decoded without drafters, or did not finish.
    scored = [run for run in runs if run is not None and run.scores.acceptance is not None]
    route = cache(route_of)
    for text in texts_with_costs(scored, path):
        pool = text.run.conditions.pool
        _add(lines[pool, text.run.generation.policy], path, text, route(pool, text.drafters))
    return lines


def _add(line: Line, path: Path, recorded: Recorded, route: Route | None) -> None:
    run = recorded.run
    generation = run.generation
    line.runs += 1
    line.tokens += len(generation.token_ids)
    line.measured += generation.seconds
    line.priced += priced(queries.timed_rounds(path, [run.id or 0]), recorded.costs, len(recorded.drafters))
    try:
        played = recorded.replay(generation.policy, route)
    except PolicyError:  # it learns from what a text does not hold
        return
    line.replayed += played.seconds or 0.0
    arms = [-1 if r.arm is None else r.arm for r in generation.rounds]
    line.same += (played.arms, played.emitted) == (arms, [r.emitted for r in generation.rounds])


def priced(rounds: Sequence[Mapping[str, Any]], costs: Costs, drafters: int) -> float:
    """Seconds that the recorded rounds of one run take by ``costs``. (Those of rounds in which all drafters draft are
    too low: of the drafts only the accepted one's size is recorded.)"""
    seconds = 0.0
    for row, arms, unread in with_unread(rounds, drafters):
        seconds += sum(costs.drafting(arm, row["depth"], unread[arm]) for arm in arms)
        seconds += costs.choosing(row["policy"].partition(":")[0])[1] + costs.verification(row["nodes"])
        seconds += costs.evaluation_seconds(row["evaluated"]) if row["evaluated"] else 0.0
    return seconds


def main(path: Path) -> int:
    """Print the table; the exit status."""
    failed, rows = False, []
    for (pool, policy), line in sorted(measure(path).items()):
        off = line.priced / line.measured - 1
        replayed = f"{line.replayed / line.measured - 1:+.1%}" if line.replayed else "–"
        rate = f"{line.tokens / line.measured:.0f}"
        rows.append((pool, policy, str(line.runs), rate, f"{off:+.1%}", replayed, str(line.same)))
        failed |= abs(off) > (FIXED if policy.startswith("fixed") else OTHERS)
        failed |= bool(line.replayed) and not is_estimate(policy) and line.same < line.runs
    print(markdown(["pool", "policy", "runs", "tokens/s", "priced", "replayed", "same rounds"], rows))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
