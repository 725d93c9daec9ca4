"""From benchmark runs to one report: JSON for programs; :mod:`multidraft.bench.table` shows it to people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from drafters.pool import Pool
from drafters.sampling import SamplingParams
from multidraft.bench.measure import BASELINE
from multidraft.bench.runner import Entry
from multidraft.bench.summary import Row, speedups
from storage.figures import Ratio, divided
from storage.records import PHASES


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
        """Runs in all, the autoregressive ones included."""
        return self.prompts * self.repeat * len({BASELINE, *self.policies})

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that can be set, under the names of the command line's options."""
        own = {"policies": list(self.policies), "seed": self.seed, "repeat": self.repeat, "limit": self.limit}
        return {**asdict(self.params), **own}


def make_report(
    pool: Pool, asked: Asked, runs: Sequence[Entry], *, hardware: str, version: str, interrupted: bool = False
) -> dict[str, Any]:
    """The report, which ``bench --out`` writes (``docs/results.md`` describes it).

    Figures are ratios of totals over all prompts, so that every second and every token counts the same
    (:mod:`storage.figures`): ``speedup`` is that of decoding, ``request_speedup`` that of the whole request, prefill of
    target and drafters, routing and the first decision included; both divide by the autoregressive baseline of the
    same prompts and leave out answers of fewer than 8 tokens. Their ``…_interval`` is the 95 % interval of a paired
    bootstrap over prompts, ``None`` below 3 of them. ``regret_rounds`` is the mean per prompt, ``expected_regret`` that
    of the losses of sampled runs; ``best_arm_ratio`` is over rounds with a drafter; ``tokens_per_drafting_second`` is
    the mean accepted tokens of a round by the time spent on drafting it. ``lossless`` is ``None`` where nothing could
    be compared (sampling); ``near_ties`` counts outputs in which rounding decided between tokens that are all but
    equally probable, and ``near_tie_gap`` is the largest difference of two such logits. Prompts that could not be run
    are counted in ``statuses`` and ``failures``, not in the rates, which are ``None`` where nothing was measured;
    ``failed`` counts the runs that failed on a prompt that the baseline could answer, and ``error`` is the first one's.
    """
    specs = list(dict.fromkeys(run.policy for run in runs))
    failures = {(run.item, run.policy): run.error for run in runs if run.error}
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


def _summary(runs: Sequence[Entry], *, by_task: bool = False) -> dict[str, Any]:
    done = [run for run in runs if run.measured]
    generations = [run.run.generation for run in done]
    scores = [run.run.scores for run in done]
    rounds = [r for g in generations for r in g.rounds]
    tokens = sum(len(g.token_ids) for g in generations)
    drafted = sum(len(r.drafted) for r in rounds)
    seconds = {phase: sum(getattr(r, f"{phase}_seconds") for r in rounds) for phase in PHASES}
    decode, request = speedups(
        [Row.of(run.item.id, run.item.task, run.run) for run in done], [run.item for run in done]
    )
    chosen = [sum(r.arm is not None for r in g.rounds) if s.best_drafter else 0 for g, s in zip(generations, scores)]
    played = sum((s.best_arm_ratio or 0.0) * count for s, count in zip(scores, chosen))
    checked = [s.lossless for s in scores if s.lossless is not None]
    gaps = [s.near_tie_gap for s in scores if s.near_tie_gap is not None]
    summary: dict[str, Any] = {
        "tokens_per_second": divided(tokens, sum(seconds.values())),
        "speedup": decode and decode.value,
        "speedup_interval": _interval(decode),
        "request_speedup": request and request.value,
        "request_speedup_interval": _interval(request),
        "mean_accepted_tokens": divided(tokens, len(rounds)),
        "acceptance_rate": None if not rounds else sum(r.accepted for r in rounds) / drafted if drafted else 0.0,
        "regret_rounds": _mean([s.regret_rounds for s in scores]),
        "expected_regret": _mean([s.expected_regret for s in scores]),
        "best_arm_ratio": divided(played, sum(chosen)),
        "lossless": all(checked) if checked else None,
        "near_ties": len(gaps),
        "near_tie_gap": max(gaps, default=None),
        "failed": sum(run.failed for run in runs),
        "error": next((run.error for run in runs if run.failed), None),
        "prompts": len({run.item for run in done}),
        "tokens": tokens,
        "prefill_seconds": sum(g.prefill_seconds for g in generations),
        "seconds": sum(seconds.values()),
        **{f"{phase}_seconds": spent for phase, spent in seconds.items()},
        "tokens_per_drafting_second": divided(tokens, seconds["draft"]) if drafted else None,
        "statuses": dict(Counter(run.run.generation.status for run in runs)),
    }
    if by_task:
        tasks = dict.fromkeys(run.item.task for run in runs)
        summary["by_task"] = {task: _summary([run for run in runs if run.item.task == task]) for task in tasks}
    return summary


def _interval(ratio: Ratio | None) -> list[float] | None:
    return list(ratio.interval) if ratio and ratio.interval else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def best_drafters(report: dict[str, Any]) -> dict[str, Any] | None:
    """What the best single drafter of each task makes, the task being known: what every policy is to be held against.

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
