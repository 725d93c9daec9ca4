"""From benchmark runs to one report: JSON for programs; :mod:`multidraft.bench.table` shows it to people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from drafters.hardware import describe
from drafters.sampling import SamplingParams
from multidraft._version import version
from multidraft.bench.runner import Entry
from multidraft.bench.suites import SuiteItem
from multidraft.bench.summary import Row, speedups, value_of
from storage.figures import value_of_totals
from storage.records import PHASES, PLAIN

if TYPE_CHECKING:
    from drafters.pool import Pool


@dataclass(frozen=True)
class Asked:
    """What a benchmark is asked to measure.

    Attributes:
        suite: names of its suites.
        items: their prompts, after ``limit``.
        policies: specs in their canonical spelling, each once.
        limit: most prompts of each suite; ``None`` for all.
        left_out: the lines of its files that hold no prompt, and why.
        begun: when it began, in UTC.
    """

    suite: str
    items: Sequence[SuiteItem]
    policies: tuple[str, ...]
    params: SamplingParams
    begun: datetime
    seed: int = 0
    repeat: int = 1
    limit: int | None = None
    left_out: Sequence[str] = ()

    @property
    def runs(self) -> int:
        """Runs in all, the autoregressive ones included."""
        return len(self.items) * self.repeat * len({PLAIN, *self.policies})

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that can be set, under the names of the command line's options."""
        own = {"policies": list(self.policies), "seed": self.seed, "repeat": self.repeat, "limit": self.limit}
        return {**asdict(self.params), **own}


def make_report(pool: Pool, asked: Asked, runs: Sequence[Entry], *, interrupted: bool = False) -> dict[str, Any]:
    """The report, which ``bench --out`` writes; ``docs/results.md`` describes its figures.

    Figures are ratios of totals over all prompts (:mod:`storage.figures`), with 95 % intervals over prompts. Prompts
    that could not be run are counted in ``statuses`` and ``failures``, not in the rates, which are ``None`` where
    nothing was measured; ``failed`` counts the runs that failed on a prompt that the baseline could answer.
    """
    specs = list(dict.fromkeys(run.policy for run in runs))
    failures = {(run.item, run.policy): run.error for run in runs if run.error}
    rows = (Row.of(run.item.id, run.item.task, run.run, too_long=run.too_long) for run in runs)
    return {
        "pool": pool.name,
        "card_hash": pool.card_hash,
        "hardware": describe(pool.device),
        "dtype": pool.dtype,
        "version": version(),
        "date": asked.begun.isoformat(timespec="seconds"),
        "suite": asked.suite,
        "settings": asked.settings,
        "runs": {"planned": asked.runs, "done": len(runs)},
        "interrupted": interrupted,
        "left_out": list(asked.left_out),
        "failures": [{"id": i.id, "policy": policy, "error": error} for (i, policy), error in failures.items()],
        "policies": {spec: _summary([run for run in runs if run.policy == spec], by_task=True) for spec in specs},
        "rows": [{name: value for name, value in row.as_json().items() if name != "output"} for row in rows],
    }


def _summary(runs: Sequence[Entry], *, by_task: bool = False) -> dict[str, Any]:
    done = [run for run in runs if run.measured]
    generations = [run.run.generation for run in done]
    scores = [run.run.scores for run in done]
    rounds = [r for g in generations for r in g.rounds]
    counts = [len(g.token_ids) for g in generations]
    drafting = [sum(r.draft_seconds for r in g.rounds) for g in generations]
    drafted = sum(len(r.drafted) for r in rounds)
    seconds = {f"{phase}_seconds": sum(getattr(r, f"{phase}_seconds") for r in rounds) for phase in PHASES}
    rows = [Row.of(run.item.id, run.item.task, run.run) for run in done]
    decode, request = speedups(rows)
    prompts = [row.prompt for row in rows]

    def over_prompts(above: Iterable[float | None], below: Iterable[float]) -> float | None:
        """A ratio of totals in which each distinct prompt counts once; ``None`` in ``above`` is unknown."""
        known = [each for each in zip(above, below, prompts, strict=True) if each[0] is not None]
        return value_of_totals(*zip(*known)) if known else None

    chosen = [sum(r.arm is not None for r in g.rounds) if s.best_drafter else 0 for g, s in zip(generations, scores)]
    played = [(s.best_arm_ratio or 0.0) * count for s, count in zip(scores, chosen)]
    lossless = [s.lossless for s in scores if s.lossless is not None]
    gaps = [s.near_tie_gap for s in scores if s.near_tie_gap is not None]
    summary: dict[str, Any] = {
        "tokens_per_second": value_of(rows, "seconds"),
        "speedup": decode and decode.value,
        "speedup_interval": decode and decode.interval and list(decode.interval),
        "request_speedup": request and request.value,
        "request_speedup_interval": request and request.interval and list(request.interval),
        "mean_accepted_tokens": value_of(rows, "rounds"),
        "acceptance_rate": over_prompts(
            [sum(r.accepted for r in g.rounds) for g in generations],
            [sum(len(r.drafted) for r in g.rounds) for g in generations],
        ),
        "regret_rounds": over_prompts([s.regret_rounds for s in scores], [1] * len(rows)),
        "expected_regret": over_prompts([s.expected_regret for s in scores], [1] * len(rows)),
        "best_arm_ratio": over_prompts(played, chosen),
        "lossless": all(lossless) if lossless else None,
        "near_ties": len(gaps),
        "near_tie_gap": max(gaps, default=None),
        "failed": sum(run.failed for run in runs),
        "error": next((run.error for run in runs if run.failed), None),
        "prompts": len(set(prompts)),
        "tokens": sum(counts),
        "tokens_per_prompt": over_prompts(counts, [1] * len(rows)),
        "prefill_seconds": sum(g.prefill_seconds for g in generations),
        "seconds": sum(seconds.values()),
        **seconds,
        "tokens_per_drafting_second": over_prompts(counts, drafting) if drafted else None,
        "benched": {name: why for g in generations for name, why in g.benched.items()},
        "benched_runs": dict(Counter(name for g in generations for name in g.benched)),
        "statuses": dict(Counter(run.run.generation.status for run in runs)),
    }
    if by_task:
        tasks = dict.fromkeys(run.item.task for run in runs)
        summary["by_task"] = {task: _summary([run for run in runs if run.item.task == task]) for task in tasks}
    return summary


def best_drafters(report: dict[str, Any]) -> dict[str, Any] | None:
    """The speed of the best single drafter of each task, where the task is known: what policies are compared with.

    Returns:
        ``drafters`` by task, of those that were ``measured`` alone (``fixed:…``) on every task, and
        ``tokens_per_second`` and ``speedup`` over all tasks; ``None`` where these are fewer than two.
    """
    policies: dict[str, Any] = report["policies"]
    plain = policies.get(PLAIN)
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
        own = base["prompts"] * base["tokens_per_prompt"]  # of each distinct prompt once, as in the rates
        tokens += own
        seconds += own / alone[spec][task]["tokens_per_second"]
    rate = tokens / seconds
    measured_alone = [spec.removeprefix("fixed:") for spec in alone]
    speedup = rate / plain["tokens_per_second"]
    return {"drafters": best, "measured": measured_alone, "tokens_per_second": rate, "speedup": speedup}
