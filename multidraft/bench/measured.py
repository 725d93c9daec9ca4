"""What measured runs say by themselves: the verdict on a report, an experiment, or the runs of a history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np

from drafters.errors import UserError
from multidraft.bench.measure import BASELINE
from multidraft.bench.summary import Row, compared
from multidraft.replay.advice import Advice, Live, usable
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

    chosen = _at_one_speed(chosen)
    baseline = option(BASELINE, 0, chosen, "baseline_")
    found = [option(spec, draft_length, [row for row in chosen if row.policy == spec]) for spec in policies]
    return Advice.of(baseline, found)


def _at_one_speed(rows: Sequence[Row]) -> list[Row]:
    """Runs in seconds of one baseline for each prompt: where policies ran on different days, each has its own, and the
    machine's speed on that day is not to tell them apart (likewise ``storage.aggregates``)."""
    found = list[Row]()
    for _, same in groupby(rows, key=lambda row: row.prompt):
        policies: dict[str, list[Row]] = {}
        for row in same:
            policies.setdefault(row.policy, []).append(row)
        for name in ("seconds", "request_seconds"):
            of = f"baseline_{name}"
            own = {policy: float(np.mean([getattr(row, of) for row in runs])) for policy, runs in policies.items()}
            usual = float(np.mean(list(own.values())))
            for policy, runs in policies.items():
                to = usual / own[policy]
                policies[policy] = [replace(row, **{name: getattr(row, name) * to, of: usual}) for row in runs]
        found += [row for runs in policies.values() for row in runs]
    return found


def leader(rows: Sequence[Row]) -> str | None:
    """The policy that the verdict on runs calls the fastest, if there is one (``Advice.leader``)."""
    try:
        return of_rows(rows, 0).leader
    except UserError:
        return None


def ran_live(path: Path, texts: Sequence[Run], runs: Filter) -> list[Row]:
    """The runs of a filter that came to their end on the prompts of some texts, timed, on the same pool and machine."""
    prompts, made_on = {prompt_of(run.generation) for run in texts if usable(run)}, texts[0].conditions
    if not prompts:
        return []
    alike = replace(runs, card=made_on.card_hash, hardware=made_on.hardware, dtype=made_on.dtype)
    found = experiments.figures(path, replace(alike, prompts=tuple(sorted(prompts))), texts=False)
    return [row for row in map(Row.recorded, found) if row.finished and row.speedup is not None]


def measured(rows: Sequence[Row], texts: Sequence[Run]) -> Advice | None:
    """What live runs (:func:`ran_live`) say by themselves of the policies that ran on every prompt of the texts;
    ``None`` where there are none."""
    prompts, ran = {prompt_of(run.generation) for run in texts if usable(run)}, dict[str, set[int]]()
    for row in rows:
        ran.setdefault(row.policy, set()).add(row.prompt)
    try:
        whole = [row for row in rows if ran[row.policy] == prompts]
        return of_rows(whole, max(run.params.draft_length for run in texts))
    except UserError:
        return None


def decoded(rows: Sequence[Row]) -> Live:
    """The decode seconds of live runs beside their baselines', which replays are checked against."""
    found: dict[str, dict[int, list[tuple[float, float]]]] = {}
    for row in rows:
        of_prompt = found.setdefault(row.policy, {}).setdefault(row.prompt, [])
        of_prompt.append((row.baseline_seconds or 0.0, row.seconds or 0.0))
    return {
        policy: {prompt: tuple(np.mean(runs, axis=0).tolist()) for prompt, runs in of_prompts.items()}
        for policy, of_prompts in found.items()
    }
