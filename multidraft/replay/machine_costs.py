"""What rounds have cost on each pool and machine of a history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

from drafters.costs import Costs, Unread
from storage import queries
from storage.run import Run

NEWEST = 2000
"""Costs are estimated from the rounds of so many runs, the newest."""

AT_ONCE = 20
"""Runs that are read in one step, in a few hundredths of a second."""

OUTLIER = 3.0
"""A measurement of more than so many times what is expected counts as that much: a hiccup of the machine is not a
property of the model."""


class RecordedCosts:
    """Costs estimated from recorded rounds, all of which count alike, however old.

    Each part of a round is linear in its work, fitted by least squares: drafting in the tokens drafted and those read
    first, for each drafter; verification in the nodes; evaluation in the tokens that were read. Verification without a
    draft is measured by itself, since a single token may take another way through the kernels.

    Args:
        drafters: how many there are.
    """

    def __init__(self, drafters: int):
        self.drafting: list[list[tuple[float, ...]]] = [[] for _ in range(drafters)]
        """By drafter ``(1, tokens in depth, unread tokens, seconds)`` of each round."""
        self.lengths: list[list[tuple[float, ...]]] = [[] for _ in range(drafters)]
        """By drafter ``(tokens in depth, nodes, times the draft went on, times it could have)``."""
        self.verification: list[tuple[float, ...]] = []
        """``(1, nodes, seconds)``; ``plain`` are the seconds of those without nodes."""
        self.plain: list[float] = []
        self.evaluation: list[tuple[float, ...]] = []
        """``(1, tokens read, seconds)``."""
        self.overhead: list[float] = []
        self._fitted: Costs | None = None

    def add(self, rounds: Sequence[Mapping[str, Any]]) -> None:
        """Count the rounds of one run, as of ``storage.queries.timed_rounds``."""
        self._fitted = None
        for row, arms, unread in with_unread(rounds, len(self.drafting)):
            depth, nodes = row["depth"], row["nodes"]
            if len(arms) == 1:
                self.drafting[arms[0]].append((1.0, max(depth, 1), unread[arms[0]], row["draft_seconds"]))
                could = min(depth, row["draft_length"] - 1)
                self.lengths[arms[0]].append((depth, nodes, max(depth - 1, 0), could))
            if nodes:
                self.verification.append((1.0, nodes, row["verify_seconds"]))
            else:
                self.plain.append(row["verify_seconds"])
            if row["evaluated"]:
                self.evaluation.append((1.0, row["evaluated"], row["evaluate_seconds"]))
            self.overhead.append(row["policy_seconds"])

    def costs(self, length: int) -> Costs:
        """The estimates, with those of verification for at least ``length`` nodes; 0 for what was never measured.

        A drafter that never drafted is taken for an average one.
        """
        if self._fitted is None or len(self._fitted.verify) <= max(length, 2):
            self._fitted = self._fit(max(length, 2))
        return self._fitted

    def _fit(self, length: int) -> Costs:
        start, step, catch_up = _filled([fit(rows, 3) if rows else None for rows in self.drafting], 3).T
        fixed, each = fit(self.verification, 2)
        most = max([length, *(int(nodes) for _, nodes, _ in self.verification)])
        verify = fixed + each * np.arange(most + 1)
        if self.plain:
            verify[0] = fit([(1.0, seconds) for seconds in self.plain], 1)[0]
            verify[1:] = verify[1:] if self.verification else verify[0]
        evaluate, evaluate_token = fit(self.evaluation, 2)
        sums = np.array([np.sum(rows, axis=0, dtype=np.float64) if rows else np.zeros(4) for rows in self.lengths])
        depth, nodes, went_on, could = sums.T
        return Costs(
            draft_step=step,
            catch_up=catch_up,
            verify=verify,
            evaluate=float(evaluate),
            evaluate_token=float(evaluate_token),
            persistence=np.divide(went_on, could, out=np.ones_like(could), where=could > 0).clip(max=1.0),
            width=np.divide(nodes, depth, out=np.ones_like(depth), where=depth > 0),
            draft_start=start,
            overhead=float(fit([(1.0, seconds) for seconds in self.overhead], 1)[0]),
        )


def with_unread(
    rounds: Sequence[Mapping[str, Any]], drafters: int
) -> Iterator[tuple[Mapping[str, Any], Sequence[int], list[int]]]:
    """The rounds of one run, each with the drafters that drafted in it and what every drafter had to read before."""
    unread = Unread(drafters)
    for row in rounds:
        arms: Sequence[int] = range(drafters) if row["together"] else () if row["arm"] is None else (row["arm"],)
        yield row, arms, unread.tokens
        unread.emitted(row["emitted"], arms)
        if row["evaluated"]:
            unread.evaluated()


def priced(rounds: Sequence[Mapping[str, Any]], costs: Costs, drafters: int) -> float:
    """Seconds that the recorded rounds of one run take by ``costs``. (Those of rounds in which all drafters draft are
    too low: of the drafts only the accepted one's size is recorded.)"""
    seconds = 0.0
    for row, arms, unread in with_unread(rounds, drafters):
        seconds += sum(costs.drafting(arm, row["depth"], unread[arm]) for arm in arms)
        seconds += costs.overhead + costs.verification(row["nodes"])
        seconds += costs.evaluation_seconds(row["evaluated"]) if row["evaluated"] else 0.0
    return seconds


def fit(rows: Sequence[tuple[float, ...]], units: int) -> np.ndarray:
    """Non-negative coefficients ``(units,)`` by which the last number of each row follows from those before it.

    By least squares in which outliers (``OUTLIER``) are cut; zeros where there are no rows.
    """
    if not rows:
        return np.zeros(units)
    table = np.asarray(rows, dtype=np.float64)
    work, seconds = table[:, :units], table[:, units]
    allowed = np.minimum(seconds, OUTLIER * 10 * np.median(seconds))
    for _ in range(10):
        coefficients: np.ndarray = nnls(work, allowed)[0]
        cut = np.minimum(seconds, OUTLIER * (work @ coefficients))
        if np.array_equal(cut, allowed):
            break
        allowed = cut
    return coefficients


def _filled(found: Sequence[np.ndarray | None], units: int) -> np.ndarray:
    """Rows ``(drafters, units)``; where nothing was found the mean of the others."""
    known = [row for row in found if row is not None]
    mean = np.mean(known, axis=0) if known else np.zeros(units)
    return np.array([mean if row is None else row for row in found]).reshape(len(found), units)


class MachineCosts:
    """Measured costs by pool and machine; each run is read once, so asking again costs what is new only.

    Steps of several :meth:`read` may alternate, as long as they are made in one thread.
    """

    def __init__(self, path: Path):
        self.path = path
        self._machines: dict[tuple[str, str, str, int], RecordedCosts] = {}
        self._newest: dict[tuple[str, str, str, int], int] = {}

    def read(self, run: Run) -> Iterator[None]:
        """Count the runs on the pool and machine of ``run`` that are new, a few at each step."""
        key, costs = self._key(run), self._of(run)
        new = queries.ids_on(self.path, *key[:3], after=self._newest.get(key, 0), newest=NEWEST)
        for begin in range(0, len(new), AT_ONCE):
            ids = [id for id in new[begin : begin + AT_ONCE] if id > self._newest.get(key, 0)]
            if ids:
                rounds: dict[int, list[dict[str, Any]]] = {}
                for row in queries.timed_rounds(self.path, ids):
                    rounds.setdefault(row["run_id"], []).append(row)
                for of_one in rounds.values():
                    costs.add(of_one)
                self._newest[key] = ids[-1]
            yield

    def costs(self, run: Run) -> Costs:
        """The present estimates for drafts as long as those of ``run``, as far as they were read."""
        return self._of(run).costs(run.params.draft_length)

    def _key(self, run: Run) -> tuple[str, str, str, int]:
        made_on = run.conditions
        return made_on.card_hash, made_on.hardware, made_on.dtype, len(run.generation.drafters)

    def _of(self, run: Run) -> RecordedCosts:
        return self._machines.setdefault(self._key(run), RecordedCosts(len(run.generation.drafters)))
