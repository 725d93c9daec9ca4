"""What rounds have cost on each pool and machine of a history."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from drafters.costs import NEXT_TO_NOTHING, Costs, Unread
from storage import queries
from storage.clock import fit
from storage.records import PLAIN
from storage.run import Run

NEWEST = 2000
"""Costs are estimated from the rounds of so many runs, the newest."""

FEWEST_READ = 5
"""Runs whose prefill tells what drafters take to read, at the least."""

AT_ONCE = 20
"""Runs that are read in one step, in a few hundredths of a second."""

Rows = list[tuple[float, ...]]
Told = tuple[str, str, str, int, str | None]
"""Whose runs tell costs: hash of the pool's card, hardware, dtype, number of drafters, and id of the batch."""


class RecordedCosts:
    """Costs estimated from recorded rounds, all of which count alike, however old.

    Each part of a round is linear in its work, fitted by least squares: drafting in the tokens drafted and those read
    first, for each drafter; verification in the nodes; evaluation in the tokens that were read. What drafters take to
    read is told by the prefill, by how much longer it is than the baseline's, and taken for proportional to what they
    take to draft: rounds in which one had much to read are few, and what disturbs them is longer than the reading.
    What does not grow with the prompt is each policy's own, its start; so is what it takes in a round.
    Verification without a draft is measured by itself, since a single token may take another way through the kernels:
    by the baselines of the runs, where they have one, since policies verify without a draft where something is amiss.

    Args:
        drafters: how many there are.
    """

    def __init__(self, drafters: int):
        self.drafting: list[Rows] = [[] for _ in range(drafters)]
        """By drafter ``(1, tokens drafted, unread tokens, seconds, depth, nodes, tokens in vain, chances of one more)``
        of each round; where a drafter found nothing to draft, the depth is 0 and one token counts as drafted."""
        self.verification: Rows = []
        """``(1, nodes, seconds)`` with a draft; ``plain`` are the ``(1, seconds)`` without."""
        self.reading: list[tuple[str, Sequence[int], int, float]] = []
        """Of each run its policy, who read the prompt during prefill, its tokens, and by how much longer than the
        baseline's that took."""
        self.baselines: Rows = []
        """``(1, seconds per token)`` of each run's."""
        self.plain: Rows = []
        self.evaluation: Rows = []
        """``(1, tokens read, seconds)``."""
        self.overhead: dict[str, Rows] = {}
        """``(1, seconds)``, by policy."""
        self.newest = 0
        """Id of the last run that counts."""
        self._fitted: Costs | None = None

    def add(self, rounds: Iterable[Mapping[str, Any]]) -> None:
        """Count the rounds of one run, as of ``storage.queries.timed_rounds``."""
        self._fitted = None
        rounds = list(rounds)
        for row in rounds[:1]:
            policy = row["policy"].partition(":")[0]
            if per_token := row["baseline_seconds_per_token"]:
                self.baselines.append((1.0, per_token))
                if row["readers"]:
                    longer = row["prefill_seconds"] - row["baseline_prefill_seconds"]
                    self.reading.append((policy, row["readers"], row["prompt_tokens"], longer))
        for row, arms, unread in with_unread(rounds, len(self.drafting)):
            depth, nodes = row["depth"], row["nodes"]
            if len(arms) == 1:
                work = (1.0, max(depth, 1), unread[arms[0]], row["draft_seconds"])
                vain = max(depth - row["accepted"], 0)
                chances = min(vain + 1, row["draft_length"] - depth + vain) if depth else 0
                self.drafting[arms[0]].append((*work, depth, nodes, vain, chances))
            if nodes:
                self.verification.append((1.0, nodes, row["verify_seconds"]))
            else:
                self.plain.append((1.0, row["verify_seconds"]))
            if row["evaluated"]:
                self.evaluation.append((1.0, row["evaluated"], row["evaluate_seconds"]))
            self.overhead.setdefault(policy, []).append((1.0, row["policy_seconds"]))

    def costs(self, length: int) -> Costs:
        """The estimates, with those of verification for at least ``length`` nodes; 0 for what was never measured.

        A drafter that never drafted is taken for an average one, and an evaluation, where there was none, for a draft
        of one token by each: a replay charges for them, and must not hold them for free, as
        :class:`~drafters.costs.CostMeter` does until they have been tried.
        """
        if self._fitted is None or len(self._fitted.verify) <= max(length, 2):
            self._fitted = self._fit(max(length, 2))
        return self._fitted

    def _fit(self, length: int) -> Costs:
        (start, step, catch_up, read_start), starts = self._fit_drafting()
        fixed, each = fit(self.verification, 2)
        verify = fixed + each * np.arange(max([length, *(int(row[1]) for row in self.verification)]) + 1)
        overheads = {policy: float(fit(rows, 1)[0]) for policy, rows in self.overhead.items()}
        by_policy = {policy: (starts.get(policy, 0.0), overhead) for policy, overhead in overheads.items()}
        # Without drafters nothing is chosen: that takes no more than the least.
        by_policy.setdefault(PLAIN, (0.0, min(overheads.values(), default=0.0)))
        if self.baselines or self.plain:
            plain = fit(self.baselines, 1)[0] - by_policy[PLAIN][1] if self.baselines else fit(self.plain, 1)[0]
            verify[0] = max(plain, 0.0)
            verify[1:] = verify[1:] if self.verification else verify[0]
        evaluate, evaluate_token = fit(self.evaluation, 2)
        if not self.evaluation:
            evaluate, evaluate_token = start.sum() + step.sum(), catch_up.sum()
        sums = np.array([np.sum([row[4:] for row in rows] or [(0, 0, 0, 0)], axis=0) for rows in self.drafting])
        depth, nodes, vain, chances = sums.astype(np.float64).T
        return Costs(
            draft_step=step,
            catch_up=catch_up,
            verify=verify,
            evaluate=float(evaluate),
            evaluate_token=float(evaluate_token),
            overrun=np.divide(vain, chances, out=np.ones_like(vain), where=chances > 0),
            width=np.divide(nodes, depth, out=np.ones_like(depth), where=depth > 0),
            draft_start=start,
            read_start=read_start,
            overhead=_mean(overheads.values()),
            start=_mean(starts.values()),
            by_policy=by_policy,
        )

    def _fit_drafting(self) -> tuple[np.ndarray, dict[str, float]]:
        """Seconds of beginning a draft, of a drafted token, of a token to read and of having any to read, by drafter,
        ``(4, N)``; and of the start of each policy that was seen to read."""
        found = np.array([[*fit(rows, 3), 0.0] for rows in self.drafting])
        drafted = np.array([bool(rows) for rows in self.drafting])
        start, step, *_ = found.T
        work = np.where(step > 0.0, step, start)  # a head that drafts all at once has no step
        shares = [(policy, work[list(arms)].sum(), tokens, longer) for policy, arms, tokens, longer in self.reading]
        # Retrieval reads for nothing, and tells nothing of models.
        told = [(policy, share * tokens, longer) for policy, share, tokens, longer in shares if share > work.max() / 10]
        each, starts = _fit_reading(told) if len(told) >= FEWEST_READ else (0.0, {})
        if each:
            found[:, 2] = each * work
            for arm, rows in enumerate(self.drafting):
                told_of = [(*row[:2], row[3] - found[arm, 2] * row[2], row[2] > NEXT_TO_NOTHING) for row in rows]
                if idle := [row[:3] for row in told_of if not row[3]]:
                    start, step = found[arm, :2] = fit(idle, 2)
                    found[arm, 3] = fit([(1.0, r[2] - start - step * r[1]) for r in told_of if r[3]], 1)[0]
        if drafted.any():
            found[~drafted] = found[drafted].mean(axis=0)
        return found.T, starts


def _fit_reading(told: Sequence[tuple[str, float, float]]) -> tuple[float, dict[str, float]]:
    """What each unit of reading takes, and each policy's start: of its name, units and seconds of runs."""
    policies = sorted({policy for policy, *_ in told})
    own = dict(zip(policies, np.eye(len(policies)).tolist(), strict=True))
    # As if each had been seen once to start in no time: where all prompts are of one length, all of it is reading.
    rows = [(0.0, *own[policy], 0.0) for policy in policies]
    rows += [(units, *own[policy], seconds) for policy, units, seconds in told]
    each, *starts = fit(rows, 1 + len(policies)).tolist()
    return each, dict(zip(policies, starts, strict=True))


def _mean(seconds: Collection[float]) -> float:
    return sum(seconds) / len(seconds) if seconds else 0.0


def with_unread(
    rounds: Iterable[Mapping[str, Any]], drafters: int
) -> Iterator[tuple[Mapping[str, Any], Sequence[int], list[int]]]:
    """The rounds of one run, each with the drafters that drafted in it and what every drafter had to read before: the
    prompt too, if it did not read it during prefill. Where the history does not know who did, all are taken to have."""
    unread: Unread | None = None
    for row in rounds:
        unread = unread or Unread(drafters, row["prompt_tokens"], row["readers"])
        arms: Sequence[int] = range(drafters) if row["together"] else () if row["arm"] is None else (row["arm"],)
        yield row, arms, unread.tokens
        unread.emitted(row["emitted"], arms)
        if row["evaluated"]:
            unread.evaluated()


class MachineCosts:
    """Measured costs by pool and machine; each run is read once, so asking again costs what is new only.

    A text of a batch or benchmark is priced by the runs of that alone: they met the machine as it did, and what they
    say does not change as other runs are recorded. For any other all runs on its pool and machine count.

    Steps of several :meth:`read` may alternate, as long as they are made in one thread.
    """

    def __init__(self, path: Path):
        self.path = path
        self._read: dict[Told, RecordedCosts] = {}

    def read(self, run: Run) -> Iterator[None]:
        """Count the runs that tell of ``run`` and are new, a few at each step."""
        (*machine, _, batch), costs = self._of(run)
        batches = (batch,) if batch else ()
        new = queries.ids_on(self.path, *machine, after=costs.newest, newest=NEWEST, experiments=batches)
        for begin in range(0, len(new), AT_ONCE):
            if ids := [id for id in new[begin : begin + AT_ONCE] if id > costs.newest]:
                for _, rounds in groupby(queries.timed_rounds(self.path, ids), key=itemgetter("run_id")):
                    costs.add(rounds)
                costs.newest = ids[-1]
            yield

    def costs(self, run: Run) -> Costs:
        """The present estimates for drafts as long as those of ``run``, as far as they were read."""
        return self._of(run)[1].costs(run.params.draft_length)

    def _of(self, run: Run) -> tuple[Told, RecordedCosts]:
        made_on, drafters, origin = run.conditions, len(run.generation.drafters), run.origin
        batch = origin.batch_id if origin.source != "race" else None  # a race is too few rounds
        key = (made_on.card_hash, made_on.hardware, made_on.dtype, drafters, batch)
        return key, self._read.setdefault(key, RecordedCosts(drafters))
