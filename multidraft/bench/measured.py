"""What measured runs say by themselves: the verdict on a report, an experiment, or the runs of a history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from drafters.errors import UserError
from multidraft.bench.measure import BASELINE
from multidraft.bench.summary import Row, compared
from multidraft.replay.advice import Advice, usable
from multidraft.replay.options import Option
from storage import experiments
from storage.filters import Filter
from storage.rows import prompt_of
from storage.run import Run


def of_rows(rows: Sequence[Row], draft_length: int) -> Advice:
    """What measured runs say by themselves: which policy is the fastest, on the prompts that all of them ran.

    Raises:
        UserError: no policy beside autoregressive decoding was measured, or they have no prompt in common.
    """
    timed = [row for row in rows if row.finished and row.speedup is not None and row.policy != BASELINE]
    policies = list(dict.fromkeys(row.policy for row in timed))
    if not policies:
        raise UserError("no policy with drafters has a speed-up here, so there is nothing to compare")
    chosen = sorted(compared(timed), key=lambda row: row.prompt)
    if not chosen:
        raise UserError(f"the policies {', '.join(policies)} have no prompt in common; run all of them on the same")

    def option(spec: str, length: int, own: Sequence[Row], prefix: str = "") -> Option:
        names = f"{prefix}seconds", f"{prefix}request_seconds", "tokens", "tokens" if prefix else "rounds"
        runs = [(row.prompt, *(getattr(row, name) for name in names)) for row in own]
        off = [row.speedup_uncertainty for row in own if not prefix and row.speedup_uncertainty is not None]
        return replace(Option.of(spec, length, runs), uncertainty=max(off, default=None))

    baseline = option(BASELINE, 0, [row for row in chosen if row.policy == policies[0]], "baseline_")
    found = [option(spec, draft_length, [row for row in chosen if row.policy == spec]) for spec in policies]
    return Advice.of(baseline, found)


def measured(path: Path, texts: Sequence[Run], runs: Filter) -> Advice | None:
    """What the runs of a filter say by themselves of the policies that ran live on every prompt of some texts, on the
    same pool and machine; ``None`` where there are none."""
    prompts, made_on = {prompt_of(run.generation) for run in texts if usable(run)}, texts[0].conditions
    if not prompts:
        return None
    alike = replace(runs, card=made_on.card_hash, hardware=made_on.hardware, dtype=made_on.dtype)
    found = experiments.figures(path, replace(alike, prompts=tuple(sorted(prompts))), texts=False)
    ran: dict[str, list[Row]] = {}
    for row in map(Row.recorded, found):
        if row.finished and row.speedup is not None:
            ran.setdefault(row.policy, []).append(row)
    rows = [row for own in ran.values() if {row.prompt for row in own} == prompts for row in own]
    try:
        return of_rows(rows, max(run.params.draft_length for run in texts))
    except UserError:
        return None
