"""What rounds have cost on each pool and machine of a history."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multidraft.costs import CostMeter, Costs
from storage import queries

NEWEST = 2000
"""Costs are told by the rounds of so many runs: older ones have faded from the averages."""

AT_ONCE = 20
"""Runs that are read in one step, in a few hundredths of a second."""


@dataclass
class _Machine:
    """A meter, and the newest run that it has counted."""

    meter: CostMeter
    newest: int = 0


class MachineCosts:
    """Measured costs by pool and machine; each run is read once, so asking again costs what is new only.

    Steps of several :meth:`read` may alternate, as long as they are made in one thread.
    """

    def __init__(self, path: Path):
        self.path = path
        self._machines: dict[tuple[str, str, str, int], _Machine] = {}

    def read(self, run: dict[str, Any]) -> Iterator[None]:
        """Count the runs on the pool and machine of ``run`` that are new, a few at each step."""
        machine = self._of(run)
        where = run["card_hash"], run["hardware"], run["dtype"]
        new = queries.ids_on(self.path, *where, after=machine.newest, newest=NEWEST)
        for begin in range(0, len(new), AT_ONCE):
            ids = [id for id in new[begin : begin + AT_ONCE] if id > machine.newest]
            if ids:
                _count(machine.meter, queries.timed_rounds(self.path, ids))
                machine.newest = ids[-1]
            yield

    def costs(self, run: dict[str, Any]) -> Costs:
        """The present estimates for drafts as long as those of ``run``, as far as they were read."""
        return self._of(run).meter.costs(run["draft_length"])

    def _of(self, run: dict[str, Any]) -> _Machine:
        key = run["card_hash"], run["hardware"], run["dtype"], len(run["drafters"])
        if key not in self._machines:
            self._machines[key] = _Machine(CostMeter(len(run["drafters"])))
        return self._machines[key]


def _count(meter: CostMeter, rounds: list[dict[str, Any]]) -> None:
    last, unseen = None, 0
    for row in rounds:
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
