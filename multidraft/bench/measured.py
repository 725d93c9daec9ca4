"""What measured runs say by themselves: the verdict on a report, an experiment, or the runs of a history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from drafters.errors import UserError
from multidraft.bench.baseline import BASELINE
from multidraft.bench.loops import loops
from multidraft.bench.summary import Row, compared
from multidraft.replay.advice import Advice, Live, usable
from multidraft.replay.options import Option
from storage import experiments
from storage.aggregates import SETTINGS
from storage.figures import FEWEST_TOKENS, at_different_times, at_one_speed, too_noisy
from storage.filters import Filter
from storage.ranking import shared_prompts
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
    taken: dict[str, dict[int, list[Row]]] = {spec: {} for spec in policies}
    for row in chosen:
        taken[row.policy].setdefault(row.prompt, []).append(row)
    means = [_seconds(taken, part) for part in ("seconds", "request_seconds")]
    usual, own = zip(*map(at_one_speed, means), strict=True)
    counts = {prompt: _mean([row for runs in taken.values() for row in runs[prompt]], "tokens") for prompt in usual[0]}
    plain = [(prompt, usual[0][prompt], usual[1][prompt], tokens, tokens) for prompt, tokens in counts.items()]

    def option(spec: str) -> Option:
        runs = [
            (prompt, own[0][spec][prompt], own[1][spec][prompt], _mean(rows, "tokens"), _mean(rows, "rounds"))
            for prompt, rows in taken[spec].items()
        ]
        off = [row.speedup_uncertainty for rows in taken[spec].values() for row in rows if row.speedup_uncertainty]
        return replace(Option.of(spec, draft_length, runs), uncertainty=max(off, default=None))

    short = {row.prompt for row in rows if row.finished and row.tokens < FEWEST_TOKENS and row.policy != BASELINE}
    plain_option = Option.of(BASELINE, 0, plain)
    again = {
        spec: len({row.prompt for rows in of_prompt.values() for row in rows if row.repeated})
        for spec, of_prompt in taken.items()
    }
    known = {
        "short": len(short - set(counts)),
        "apart": at_different_times(means[0]),
        "repeated": {spec: prompts for spec, prompts in again.items() if prompts},
        "cut": len({row.prompt for row in chosen if row.status == "completed"}),
        "looping": len({row.prompt for row in chosen if loops(row.output)}),
        "noisy": (sum(too_noisy(row.speedup_uncertainty) for row in chosen), len(chosen)),
    }
    return Advice.of(plain_option, [option(spec) for spec in policies], **known)


def _seconds(taken: Mapping[str, Mapping[int, Sequence[Row]]], part: str) -> dict[str, dict[int, tuple[float, float]]]:
    """Mean seconds of the baselines of each policy's runs of a prompt, and their own."""
    return {
        policy: {prompt: (_mean(rows, f"baseline_{part}"), _mean(rows, part)) for prompt, rows in prompts.items()}
        for policy, prompts in taken.items()
    }


def _mean(rows: Sequence[Row], name: str) -> float:
    return float(np.mean([getattr(row, name) for row in rows]))


def leader(rows: Sequence[Row]) -> str | None:
    """The policy that the verdict on runs calls the fastest, if there is one (``Advice.leader``)."""
    try:
        return of_rows(rows, 0).leader
    except UserError:
        return None


def ran_live(path: Path, texts: Sequence[Run], runs: Filter) -> list[Row]:
    """The runs of a filter that came to their end on the prompts of some texts, timed, on the same pool and machine,
    with the settings of the first."""
    prompts, made_on = {prompt_of(run.generation) for run in texts if usable(run)}, texts[0].conditions
    settings: dict[str, Any] = {name: str(getattr(texts[0].params, name)) for name in SETTINGS}
    if not prompts:
        return []
    alike = replace(runs, card=made_on.card_hash, hardware=made_on.hardware, dtype=made_on.dtype, **settings)
    found = experiments.figures(path, replace(alike, prompts=tuple(sorted(prompts))), texts=False)
    return [row for row in map(Row.recorded, found) if row.finished and row.speedup is not None]


def measured(rows: Sequence[Row], texts: Sequence[Run]) -> Advice | None:
    """What live runs (:func:`ran_live`) say by themselves, on the prompts that the Dashboard ranks policies on
    (``storage.ranking.shared_prompts``); where policies have none in common, of those that ran on every prompt of
    the texts. ``None`` where there are none."""
    prompts, ran = {prompt_of(run.generation) for run in texts if usable(run)}, dict[str, set[int]]()
    for row in rows:
        ran.setdefault(row.policy, set()).add(row.prompt)
    policies, common = shared_prompts(ran)
    if common is None:
        policies, common = [policy for policy in ran if ran[policy] == prompts], prompts
    try:
        whole = [row for row in rows if row.policy in policies and row.prompt in common]
        return of_rows(whole, max(run.params.draft_length for run in texts))
    except UserError:
        return None


def decoded(rows: Sequence[Row]) -> Live:
    """The seconds of live runs beside their baselines', which replays are checked against."""
    found: dict[str, dict[int, list[tuple[float, ...]]]] = {}
    names = "baseline_seconds", "seconds", "baseline_request_seconds", "request_seconds"
    for row in rows:
        of_prompt = found.setdefault(row.policy, {}).setdefault(row.prompt, [])
        of_prompt.append(tuple(getattr(row, name) or 0.0 for name in names))
    return {
        policy: {prompt: tuple(np.mean(runs, axis=0).tolist()) for prompt, runs in of_prompts.items()}
        for policy, of_prompts in found.items()
    }
