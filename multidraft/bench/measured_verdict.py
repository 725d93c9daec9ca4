"""What measured runs say by themselves: the verdict on a report, an experiment, or the runs of a history."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from drafters.errors import UserError
from multidraft.bench.summary import Row, compared, grouped, mean, prompts_of
from multidraft.replay.advice import Advice, Live, usable
from multidraft.replay.options import Option
from storage import experiments
from storage.aggregates import SETTINGS
from storage.figures import FEWEST_TOKENS, at_different_times, at_one_speed, too_noisy
from storage.filters import Filter
from storage.ranking import shared_prompts
from storage.records import PLAIN
from storage.rows import prompt_of
from storage.run import Run


def of_rows(rows: Sequence[Row], draft_length: int) -> Advice:
    """What measured runs say by themselves: which policy is the fastest, on the prompts that all of them ran.

    Raises:
        UserError: no policy beside autoregressive decoding was measured, or they have no prompt in common.
    """
    timed = [row for row in rows if row.finished and row.speedup is not None and row.policy != PLAIN]
    policies = list(dict.fromkeys(row.policy for row in timed))
    if not policies:
        raise UserError("no policy with drafters has a speed-up here, so there is nothing to compare")
    chosen = sorted(compared(timed), key=lambda row: row.prompt)
    if not chosen:
        raise UserError(f"the policies {', '.join(policies)} have no prompt in common; run all of them on the same")
    by_policy = grouped(chosen, "policy")
    taken = {spec: grouped(by_policy[spec], "prompt") for spec in policies}
    means = [_seconds(taken, part) for part in ("seconds", "request_seconds")]
    usual, own = zip(*map(at_one_speed, means), strict=True)
    counts = {prompt: mean(runs, "tokens") for prompt, runs in grouped(chosen, "prompt").items()}
    plain = [(prompt, usual[0][prompt], usual[1][prompt], tokens, tokens) for prompt, tokens in counts.items()]

    def option(spec: str) -> Option:
        runs = [
            (prompt, own[0][spec][prompt], own[1][spec][prompt], mean(rows, "tokens"), mean(rows, "rounds"))
            for prompt, rows in taken[spec].items()
        ]
        off = [row.speedup_uncertainty for row in by_policy[spec] if row.speedup_uncertainty]
        return replace(Option.of(spec, draft_length, runs), uncertainty=max(off, default=None))

    short = {row.prompt for row in rows if row.finished and row.tokens < FEWEST_TOKENS and row.policy != PLAIN}
    again = prompts_of([row for row in chosen if row.repeated])
    known = {
        "short": len(short - set(counts)),
        "apart": at_different_times(means[0]),
        "repeated": {spec: len(again[spec]) for spec in policies if spec in again},
        "cut": len({row.prompt for row in chosen if row.status == "completed"}),
        "looping": len({row.prompt for row in chosen if loops(row.output)}),
        "noisy": (sum(too_noisy(row.speedup_uncertainty) for row in chosen), len(chosen)),
    }
    return Advice.of(Option.of(PLAIN, 0, plain), [option(spec) for spec in policies], **known)


def _seconds(taken: Mapping[str, Mapping[int, Sequence[Row]]], part: str) -> dict[str, dict[int, tuple[float, float]]]:
    """Mean seconds of the baselines of each policy's runs of a prompt, and their own."""
    return {
        policy: {prompt: (mean(rows, f"baseline_{part}"), mean(rows, part)) for prompt, rows in prompts.items()}
        for policy, prompts in taken.items()
    }


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
    alike = replace(runs, card_hash=made_on.card_hash, hardware=made_on.hardware, dtype=made_on.dtype, **settings)
    found = experiments.figures(path, replace(alike, prompt_hash=tuple(sorted(prompts))), texts=False)
    return [row for row in map(Row.recorded, found) if row.finished and row.speedup is not None]


def measured(rows: Sequence[Row], texts: Sequence[Run]) -> Advice | None:
    """What live runs (:func:`ran_live`) say by themselves, on the prompts that the Dashboard ranks policies on
    (``storage.ranking.shared_prompts``); where policies have none in common, of those that ran on every prompt of
    the texts. ``None`` where there are none."""
    prompts, ran = {prompt_of(run.generation) for run in texts if usable(run)}, prompts_of(rows)
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
    taken = {policy: grouped(own, "prompt") for policy, own in grouped(rows, "policy").items()}
    decode, request = (_seconds(taken, part) for part in ("seconds", "request_seconds"))
    return {
        policy: {prompt: (*decode[policy][prompt], *request[policy][prompt]) for prompt in prompts}
        for policy, prompts in taken.items()
    }


END, FEWEST = 400, 200
"""Bytes at the end of a text that are looked at, and the fewest that tell."""

LOOP = 0.35
"""Text of which compression leaves less than this share repeats itself. Of 240 answers of the pocket target three do,
all of them loops; the next one has 0.42, most have 0.5 or more."""


def loops(text: str) -> bool:
    """Whether a text ends in a loop, which any drafter guesses: speed-ups on it say little of text that makes sense."""
    end = text.encode(errors="replace")[-END:]
    return len(end) >= FEWEST and len(zlib.compress(end)) < LOOP * len(end)
