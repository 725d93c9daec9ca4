"""From benchmark runs to one report: JSON for programs; :mod:`multidraft.bench.table` shows it to people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from multidraft.bench.runner import BASELINE, BenchRun
from multidraft.records import Generation
from multidraft.sampling import SamplingParams

if TYPE_CHECKING:
    from drafters.pool import Pool


@dataclass(frozen=True)
class Asked:
    """What a benchmark is asked to measure.

    Attributes:
        suite: names of its suites.
        prompts: how many they have, after ``limit``.
        policies: specs in their canonical spelling, each once.
        limit: most prompts of each suite; ``None`` for all.
        begun: when it began, in UTC.
    """

    suite: str
    prompts: int
    policies: tuple[str, ...]
    params: SamplingParams
    begun: datetime
    seed: int = 0
    repeat: int = 1
    limit: int | None = None

    @property
    def runs(self) -> int:
        """Runs in all, those of plain decoding among them."""
        return self.prompts * self.repeat * len({BASELINE, *self.policies})

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that can be set, under the names of the command line's options."""
        own = {"policies": list(self.policies), "seed": self.seed, "repeat": self.repeat, "limit": self.limit}
        return {**asdict(self.params), **own}


def make_report(
    pool: Pool, asked: Asked, runs: Sequence[BenchRun], *, hardware: str, version: str, interrupted: bool = False
) -> dict[str, Any]:
    """The report, which ``bench --out`` writes (``docs/results.md`` describes it).

    Rates are totals: tokens of all prompts ÷ decoding seconds of all prompts, so that every second counts the
    same. ``speedup`` divides by the autoregressive rate over the same prompts; ``speedup_interval`` is where 95 % of
    the speed-ups lie when as many runs are drawn from them again (bootstrap). ``regret_rounds`` is the mean
    per prompt, ``expected_regret`` that of the losses of sampled runs; ``tokens_per_drafting_second`` is the mean
    accepted tokens of a round by the time spent on drafting it; ``lossless`` is ``None`` where nothing
    could be compared (sampling). Prompts that could not be run are counted in ``statuses`` and ``failures``, not
    in the rates, which are ``None`` where nothing was measured; ``failed`` counts the runs that failed on a prompt
    that plain decoding could answer, and ``error`` is the first one's; ``near_ties`` counts outputs that left
    the baseline's where two tokens were all but equally probable.
    """
    specs = list(dict.fromkeys(run.policy for run in runs))
    failures = {(run.item, run.policy): run.generation.error for run in runs if run.generation.status == "error"}
    return {
        "pool": pool.name,
        "card_hash": pool.card_hash,
        "hardware": hardware,
        "dtype": pool.dtype,
        "version": version,
        "date": asked.begun.isoformat(timespec="seconds"),
        "suite": asked.suite,
        "settings": asked.settings,
        "runs": {"planned": asked.runs, "done": len(runs)},
        "interrupted": interrupted,
        "failures": [{"id": i.id, "policy": policy, "error": error} for (i, policy), error in failures.items()],
        "policies": {spec: _summary([run for run in runs if run.policy == spec], by_task=True) for spec in specs},
    }


def _summary(runs: Sequence[BenchRun], *, by_task: bool = False) -> dict[str, Any]:
    done = [run for run in runs if run.measured]
    generations = [run.generation for run in done]
    tokens = sum(len(g.token_ids) for g in generations)
    rounds = [r for g in generations for r in g.rounds]
    seconds = sum(r.seconds for r in rounds)
    drafted = sum(len(r.drafted) for r in rounds)
    drafting = sum(r.draft_seconds for r in rounds)
    baselines = [run.baseline for run in done if run.baseline]
    base_seconds = sum(g.seconds for g in baselines)
    base_rate = sum(len(g.token_ids) for g in baselines) / base_seconds if base_seconds else None
    rate = tokens / seconds if seconds else None
    regrets = [run.regret for run in done if run.regret]
    played = [
        (known.best_arm_ratio, sum(r.arm is not None for r in run.generation.rounds))
        for run in done
        if (known := run.regret or run.expected_regret)
    ]
    expected = [run.expected_regret.loss for run in done if run.expected_regret]
    checked = [run.lossless for run in done if run.lossless is not None]
    summary: dict[str, Any] = {
        "tokens_per_second": rate,
        "speedup": rate / base_rate if rate and base_rate else None,
        "speedup_interval": _interval(generations, baselines),
        "mean_accepted_tokens": tokens / len(rounds) if rounds else None,
        "acceptance_rate": None if not rounds else sum(r.accepted for r in rounds) / drafted if drafted else 0.0,
        "regret_rounds": sum(r.rounds for r in regrets) / len(regrets) if regrets else None,
        "expected_regret": sum(expected) / len(expected) if expected else None,
        "best_arm_ratio": _weighted(played),
        "lossless": None if not checked else all(checked),
        "near_ties": sum(run.near_tie is not None for run in done),
        "failed": sum(run.failed for run in runs),
        "error": next((run.generation.error for run in runs if run.failed), None),
        "prompts": len({run.item for run in done}),
        "tokens": tokens,
        "prefill_seconds": sum(g.prefill_seconds for g in generations),
        "seconds": seconds,
        "draft_seconds": drafting,
        "tokens_per_drafting_second": tokens / drafting if drafted else None,
        "verify_seconds": sum(r.verify_seconds for r in rounds),
        "policy_seconds": sum(r.policy_seconds for r in rounds),
        "evaluate_seconds": sum(r.evaluate_seconds for r in rounds),
        "statuses": dict(Counter(run.generation.status for run in runs)),
    }
    if by_task:
        tasks = dict.fromkeys(run.item.task for run in runs)
        summary["by_task"] = {task: _summary([run for run in runs if run.item.task == task]) for task in tasks}
    return summary


def _interval(
    generations: Sequence[Generation], baselines: Sequence[Generation], draws: int = 1000
) -> list[float] | None:
    """The middle 95 % of the speed-up over runs drawn with replacement; the same two numbers for a single run."""
    if not generations:
        return None

    def totals(runs: Sequence[Generation]) -> np.ndarray:
        return np.array([(len(g.token_ids), g.seconds) for g in runs])[chosen].sum(axis=1).T

    chosen = np.random.default_rng(0).integers(len(generations), size=(draws, len(generations)))
    tokens, seconds = totals(generations)
    base_tokens, base_seconds = totals(baselines)
    low, high = np.quantile((tokens / seconds) / (base_tokens / base_seconds), (0.025, 0.975))
    return [float(low), float(high)]


def _weighted(pairs: Sequence[tuple[float, int]]) -> float | None:
    total = sum(weight for _, weight in pairs)
    return sum(value * weight for value, weight in pairs) / total if total else None


def best_drafters(report: dict[str, Any]) -> dict[str, Any] | None:
    """What the best single drafter of each task makes, the task being known: the mark for every policy to reach.

    Returns:
        ``drafters`` by task, and ``tokens_per_second`` and ``speedup`` over all tasks; ``None`` where fewer than two
        drafters were measured alone (``fixed:…``) on every task.
    """
    policies: dict[str, Any] = report["policies"]
    plain = policies.get(BASELINE)
    if not plain or not plain["seconds"]:
        return None
    measured = {task: base for task, base in plain["by_task"].items() if base["tokens"]}
    alone = {
        spec: p["by_task"]
        for spec, p in policies.items()
        if spec.startswith("fixed:") and all(p["by_task"].get(task, {}).get("tokens") for task in measured)
    }
    if len(alone) < 2:
        return None
    tokens = seconds = 0.0
    best = {}
    for task, base in measured.items():
        spec = max(alone, key=lambda spec: float(alone[spec][task]["tokens_per_second"]))
        best[task] = spec.removeprefix("fixed:")
        tokens += base["tokens"]
        seconds += base["tokens"] / alone[spec][task]["tokens_per_second"]
    rate = tokens / seconds
    return {"drafters": best, "tokens_per_second": rate, "speedup": rate / plain["tokens_per_second"]}
