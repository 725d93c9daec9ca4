"""A report as people read it: a table, and below it what the table cannot say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from multidraft.bench.report import best_drafters
from multidraft.bench.runner import Entry
from multidraft.bench.summary import Row, in_parts, speedups, value_of
from storage.figures import FEWEST_TOKENS, TOO_NOISY, Ratio, too_noisy
from storage.records import FINISHED, PLAIN

NOTHING = "–"
COLUMNS = ("decode", "whole request", "MAT", "tokens/drafting s", "tokens/s", "regret", "best arm", "lossless")
"""What follows the speed-ups by task; docs/results.md explains each."""


def render_table(report: dict[str, Any]) -> str:
    """Markdown table in the manner of Spec-Bench: speed-up of decoding by task and over all, that of whole requests
    (both with intervals), then the rest.

    A policy of which no run ended well has no figures.
    """
    policies: dict[str, Any] = report["policies"]
    tasks = list(dict.fromkeys(task for policy in policies.values() for task in policy["by_task"]))
    rows = []
    for spec, policy in policies.items():
        by_task = [shown(policy["by_task"].get(task, {}).get("speedup"), "{:.2f}x") for task in tasks]
        rows.append([spec, *by_task, *_figures(policy)])
    return markdown(["policy", *(task.replace("|", "\\|") or "all" for task in tasks), *COLUMNS], rows)


def markdown(head: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def _figures(policy: dict[str, Any]) -> list[str]:
    if policy["tokens_per_second"] is None:
        return ["failed" if policy["failed"] else NOTHING, *(NOTHING for _ in COLUMNS[1:])]
    expected = policy["expected_regret"]
    return [
        _speedup(policy, "speedup"),
        _speedup(policy, "request_speedup"),
        shown(policy["mean_accepted_tokens"], "{:.2f}"),
        shown(policy["tokens_per_drafting_second"], "{:.0f}"),
        shown(policy["tokens_per_second"], "{:.0f}"),
        shown(policy["regret_rounds"], "{:z.1f}") if expected is None else f"{expected:z.2f}",
        shown(policy["best_arm_ratio"], "{:.0%}"),
        {True: "yes", False: "NO", None: NOTHING}[policy["lossless"]],
    ]


def _speedup(policy: dict[str, Any], name: str) -> str:
    if policy[name] is None:
        return NOTHING
    low, high = policy[f"{name}_interval"] or (None, None)
    return Ratio(policy[name], low, high, policy["prompts"]).text("x")


def percent(share: float | None, sign: str = "") -> str:
    """``84 %``; a dash for ``None`` and NaN."""
    return NOTHING if share is None or share != share else f"{round(100 * share):{sign},} %"


def count(number: int, noun: str) -> str:
    """``1 round``, ``2 rounds``, ``1,000 rounds``; ``1 policy``, ``2 policies``."""
    many = f"{noun[:-1]}ies" if noun.endswith("cy") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else many}"


def busy(noisy: int, runs: int, share: float = 0.25) -> str:
    """A sentence on a machine that was busy while ``noisy`` of the ``runs`` were timed; empty where there are none, or
    fewer than this ``share``."""
    if not noisy or noisy < share * runs:
        return ""
    return (
        f"The machine was busy: the timings of {noisy} of {runs} runs may put their speed-ups off by more than "
        f"±{percent(TOO_NOISY)}."
    )


def left_out(runs: int) -> str:
    """A sentence on finished runs that are too short for a speed-up; empty where there are none."""
    are = "is" if runs == 1 else "are"
    of = f"{count(runs, 'run')} of fewer than {FEWEST_TOKENS} tokens"
    return f"{of} {are} left out of speed-ups: too short to say." if runs else ""


def too_long(runs: int, total: int) -> str | None:
    """How a batch ends in which so many runs could not be made; ``None`` where all were."""
    of = f"{runs:,} of {count(total, 'run')}"
    return f"{of} left out: their prompts do not fit the context window" if runs else None


def shown(value: float | None, form: str) -> str:
    """The value in a format string, a dash where it is unknown."""
    return NOTHING if value is None else form.format(value)


def notes(report: dict[str, Any]) -> list[str]:
    """Sentences to read below the table: near-ties, what the best drafter of each task makes, and what went wrong."""
    said = []
    if any(policy["expected_regret"] is not None for policy in report["policies"].values()):
        said.append("Sampled runs: their regret is the expected loss of the drafts, not rounds.")
    for spec, policy in report["policies"].items():
        if policy["near_ties"]:
            said.append(
                f"{spec}: in {count(policy['near_ties'], 'output')} rounding decided between two tokens, whose logits "
                f"lie at most {policy['near_tie_gap']:.2g} apart."
            )
    if best := best_drafters(report):
        named = ", ".join(f"{drafter} for {task or 'all'}" for task, drafter in best["drafters"].items())
        ran = ", ".join(f"fixed:{drafter}" for drafter in best["measured"])
        said.append(
            f"The best drafter of each task ({named}) of those measured alone ({ran}): "
            f"{best['tokens_per_second']:.0f} tokens/s, {best['speedup']:.2f}x."
        )
    off = [row["speedup_uncertainty"] for row in report["rows"] if row["speedup"] and row["policy"] != PLAIN]
    if disturbed := busy(sum(map(too_noisy, off)), len(off), share=0):
        said.append(f"{disturbed} Those of tasks with few prompts may be off as far.")
    short = sum(row["status"] in FINISHED and row["tokens"] < FEWEST_TOKENS for row in report["rows"])
    said += [left_out(short)] if short else []
    for spec, policy in report["policies"].items():
        if policy["failed"]:
            runs = sum(policy["statuses"].values())
            some = " Its figures are of the other runs alone, not comparable with those of all."
            some = some if policy["prompts"] else ""
            said.append(f"{spec} failed in {policy['failed']} of {runs} runs: {policy['error']}.{some}")
    for spec, policy in report["policies"].items():
        for name, why in policy["benched"].items():
            runs, failed = sum(policy["statuses"].values()), policy["benched_runs"][name]
            said.append(f"{spec}: drafter {name} failed in {failed} of {runs} runs, which went on without it: {why}.")
    for spec, policy in report["policies"].items():
        if policy["lossless"] is False:
            tasks = [task or "all" for task, figures in policy["by_task"].items() if figures["lossless"] is False]
            said.append(
                f"{spec} is not lossless: an output ({', '.join(tasks)}) is not the target's own greedy one, and "
                "rounding does not explain it."
            )
    if unanswered := [failure for failure in report["failures"] if failure["policy"] == PLAIN]:
        first = unanswered[0]
        said.append(f"Prompts that could not be run: {len(unanswered)}, e.g. {first['id']}: {first['error']}.")
    return said


def render_curve(entries: Sequence[Entry], specs: Sequence[str]) -> str:
    """The learning curve of a suite that was run in order, as traffic: by policy and part of the stream the decode
    speed-up with its 95 % interval / that of the whole request, and tokens per round. Failed runs are left out."""
    places: dict[int, int] = {}  # of the items themselves: their ids may be the same
    for entry in entries:
        places.setdefault(id(entry.item), len(places))
    parts = in_parts(len(places))
    rows = []
    for spec in (spec for spec in specs if spec != PLAIN):
        runs = [entry for entry in entries if entry.policy == spec and entry.measured]
        rows.append((spec, *(_cell([e for e in runs if places[id(e.item)] in part]) for part in parts)))
    heads = [f"prompts {part.start + 1}–{part.stop}" for part in parts]
    return "Learning curve: decode speed-up (95 % interval) / whole request, tokens per round\n\n" + markdown(
        ["policy", *heads], rows
    )


def _cell(entries: Sequence[Entry]) -> str:
    rows = [Row.of(entry.item.id, entry.item.task, entry.run) for entry in entries]
    decode, request = speedups(rows)
    if decode is None or request is None:
        return NOTHING
    return f"{decode.text()} / {request.value:.2f}, {value_of(rows, 'rounds'):.2f}"
