"""The autoregressive run of a prompt as the baseline of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from multidraft.policies.specs import is_plain
from storage.records import FINISHED, Generation
from storage.run import Baseline, Run


def settle_baseline(runs: Sequence[Run]) -> None:
    """Make the autoregressive one of the runs of a prompt the baseline of them all, if it is there and ended well.

    A greedy output that differs from it without a near-tie, such as one that ends too early, is not lossless.
    """
    plain = (run for run in runs if is_plain(run.generation.policy))
    answer = next((run for run in plain if finished(run.generation)), None)
    if answer is None:
        return
    for run in runs:
        run.baseline = Baseline.of(answer.generation, "answer")
        if run.scores.lossless and run.generation.status in FINISHED and not _agree(run, answer):
            run.scores = replace(run.scores, lossless=False)


def _agree(run: Run, answer: Run) -> bool:
    """Whether two outputs of the same prompt are equal, or rounding can explain the token at which they diverge."""
    one, other = run.generation.token_ids, answer.generation.token_ids
    shared = min(len(one), len(other))
    if one[:shared] == other[:shared]:
        return len(one) == len(other)
    return any(r.scores.near_tie_gap is not None for r in (run, answer))


def finished(generation: Generation) -> bool:
    """Whether it emitted something and came to an end of its own."""
    return bool(generation.rounds) and generation.status in FINISHED
