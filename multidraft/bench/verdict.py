"""The verdict on a kind of traffic in words, tables and JSON: the same for the command line and the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from drafters.hardware import format_bytes
from multidraft.bench.table import NOTHING, count
from multidraft.replay.advice import Advice, Share
from multidraft.replay.options import Option
from storage.figures import FEWEST_PROMPTS, Ratio
from storage.run import plain

MOST_NAMED = 3
"""Policies that a sentence names; the table has them all."""

MOST_PROMPTS = 1000
"""Where it would take more prompts than this to tell two policies apart, either will do."""

PARTS: tuple[Literal["decode"], Literal["request"]] = ("decode", "request")

FAR_OFF = 0.2
"""Share by which a replayed speed-up may be off from the measured one (docs/figures.md has what is usual)."""


def sentences(advice: Advice) -> list[str]:
    """The verdict, the conclusion first; names of policies and drafters stand in backticks.

    Where policies were measured on the prompts, what they measured leads, and replays add what was not run.
    """
    replayed = f"Replayed on {count(advice.texts, 'recorded text')}" if advice.texts else ""
    more = [*_lengths(advice), *_drafters(advice)] if advice.pays == "yes" else []
    if live := advice.measured:
        said = [f"Measured. {_conclusion(live)}", *(_rivals(live) if live.pays == "yes" else [])]
        said += [f"{replayed}, for what was not run: {_beyond(advice, live)} {_off(advice, live)}", *more]
    else:
        said = [f"{replayed}. {_conclusion(advice)}" if replayed else _conclusion(advice)]
        said += [*_rivals(advice), *more] if advice.pays == "yes" else []
    return [*said, _basis(advice)]


def _beyond(advice: Advice, live: Advice) -> str:
    """What the replays put first, against the policy that is first where runs were measured."""
    best, other = advice.best, advice.option(live.best.spec)
    named = f"`{best.spec}` with drafts of up to {count(best.length, 'token')}"
    if other is best and best.length == live.best.length:
        return f"no other policy or draft length comes before `{best.spec}`."
    if other is None or other is best:
        return f"{named} comes first."
    return (
        f"{named} comes first; its whole requests are {times(best.times_as_fast(other))} as fast as `{other.spec}`'s."
    )


def _off(advice: Advice, live: Advice) -> str:
    """How far replays are from what was measured."""
    off = {
        option.spec: option.times_as_fast(advice.plain, "decode").value
        / known.times_as_fast(live.plain, "decode").value
        for option in advice.options
        if (known := live.option(option.spec))
    }
    if not off:
        return "No policy that was measured could be replayed."
    reach = " to ".join(dict.fromkeys(percent(value - 1, "+") for value in (min(off.values()), max(off.values()))))
    said = f"Replayed decode speed-ups are off by {reach} from those measured ({_listed([f'`{o}`' for o in off])})"
    far = max(abs(value - 1) for value in off.values()) > FAR_OFF
    return f"{said}: too far to rely on; run what they suggest." if far else f"{said}."


def _conclusion(advice: Advice) -> str:
    best, plain = advice.best, advice.plain
    decode, request = best.times_as_fast(plain, "decode"), best.times_as_fast(plain)
    named = f"`{best.spec}`, draft length up to {best.length}"
    speeds = (
        f"decoding is {times(decode)} and whole requests are {times(request)} as fast as autoregressive decoding, on "
        f"{count(advice.prompts, 'prompt')}"
    )
    saved = f"it saves {_saved(best)}"
    if advice.pays == "yes":
        time = f"Requests take {percent(1 - 1 / request.value)} less of the device's time."
        return f"For this traffic: {named}: {speeds}; {saved}. {time}"
    if advice.pays == "no":
        return f"Don't speculate on this traffic: with the fastest policy, {named}, {speeds}, though {saved}."
    if advice.prompts < FEWEST_PROMPTS:
        few = f"Too few prompts for a verdict: {advice.prompts}, and an interval takes {FEWEST_PROMPTS}."
        if not decode.too_noisy:
            return f"{few} The fastest so far is {named}: {speeds}; {saved}."
        most = max(advice.options, key=lambda option: option.calls_saved)
        return (
            f"{few} The machine was too noisy to tell which policy is the fastest. By the count of calls, which no "
            f"noise changes, `{most.spec}` leads: it saves {_saved(most)}."
        )
    return (
        f"No speed-up of whole requests is certain on this traffic: with the fastest policy, {named}, {speeds}. "
        f"{saved[0].upper()}{saved[1:]}. {_settled(advice, best, plain)}"
    )


def _saved(option: Option) -> str:
    return f"{percent(option.calls_saved)} of the target's calls ({option.mean_accepted_tokens:.2f} tokens per round)"


def _rivals(advice: Advice) -> list[str]:
    level, slower = advice.level(), advice.slower()
    if not advice.options[1:]:
        return ["No other policy is compared with it."]
    if advice.certain:
        others = "the other policy" if len(slower) == 1 else f"each of the {len(slower)} others"
        return [f"Whole requests are faster than under {others}, at the 95 % level: {_named(slower, advice)}."]
    said = [f"Whole requests are not significantly slower under {_named(level, advice)}."]
    said[0] += f" {_settled(advice, advice.best, level[0])}"
    if slower:
        said.append(f"They are slower, at the 95 % level, under {_named(slower, advice)}.")
    simple = next((option for option in level if option.spec.startswith("fixed:")), None)
    if simple and not advice.best.spec.startswith("fixed:"):
        said.append(f"Of those that are not, `{simple.spec}` needs a single drafter{_freed(advice, simple)}.")
    return said


def _named(options: Sequence[Option], advice: Advice) -> str:
    """Policies, with how many times as fast as autoregressive decoding their whole requests are."""
    named = [f"`{o.spec}` ({o.times_as_fast(advice.plain).value:.2f}×)" for o in options[:MOST_NAMED]]
    more = len(options) - len(named)
    return _listed([*named, *([f"{more} more"] if more else [])])


def _settled(advice: Advice, best: Option, other: Option) -> str:
    """How many more prompts would tell the two apart."""
    needed, against = best.prompts_to_settle(other), f"`{best.spec}` against `{other.spec}`"
    if needed is None:
        return f"{FEWEST_PROMPTS} prompts or more are needed to settle {against}."
    if needed > MOST_PROMPTS:
        return f"More than {MOST_PROMPTS:,} prompts would be needed to settle {against}: either will do."
    return f"About {count(max(round(needed) - advice.prompts, 1), 'more prompt')} would settle {against}."


def _freed(advice: Advice, simple: Option) -> str:
    used = simple.spec.removeprefix("fixed:")
    freed = sum(share.memory or 0 for share in advice.shares if share.drafter != used)
    return f": {format_bytes(freed)} less memory" if freed else ""


def _lengths(advice: Advice) -> list[str]:
    if not advice.lengths:
        return []
    slower = [str(length) for length, ratio in advice.lengths.items() if (ratio.high or math.inf) < 1]
    level = [str(length) for length, ratio in advice.lengths.items() if str(length) not in slower]
    parts = [f"slower at the 95 % level with {_listed(slower)}" if slower else ""]
    parts.append(f"no significant difference with {_listed(level)}" if level else "")
    return [f"Draft length up to {advice.best.length}: {'; '.join(filter(None, parts))} tokens."]


def _drafters(advice: Advice) -> list[str]:
    said = []
    if keep := [share for share in advice.shares if share.verdict == "keep"]:
        said.append(f"Keep {_listed([_kept(share) for share in keep])}.")
    gone, ratio = advice.removed
    if gone and advice.best.spec.startswith("fixed:"):
        said.append(f"`{advice.best.spec}` plays no other drafter, which says nothing of them under other policies.")
    elif gone:
        memory = sum(share.memory or 0 for share in advice.shares if share.drafter in gone)
        freed = f"; {format_bytes(memory)} of memory are free then" if memory else ""
        why = "it never drafts" if len(gone) == 1 else "they never draft"
        cost = f"requests take {times(ratio)} as long without" if ratio else f"under this policy {why}"
        said.append(f"Remove {_listed([f'`{name}`' for name in gone])}: {cost}{freed}.")
    if unknown := [f"`{s.drafter}`" for s in advice.shares if s.drafter not in gone and s.verdict != "keep"]:
        said.append(f"Not settled by these prompts whether it pays: {_listed(unknown)}.")
    return said


def _kept(share: Share) -> str:
    missed = f"; without it requests take {times(share.without)} as long" if share.without else ""
    return f"`{share.drafter}` (proposes {percent(share.share)} of the tokens{missed})"


def _basis(advice: Advice) -> str:
    intervals = "Intervals: 95 %, paired bootstrap over prompts."
    if not advice.texts:
        few = advice.prompts < FEWEST_PROMPTS
        return "Measured runs; each prompt counts once. " + (
            "±: how far timings within the runs may put a speed-up off, at the 95 % level." if few else intervals
        )
    made_on = advice.conditions
    where = f"pool {made_on.pool} on {made_on.hardware}, {made_on.dtype}" if made_on else "that machine"
    said = f"Replays take the costs that were measured there: {where}. {intervals}"
    if any(option.estimate for option in advice.options):
        said += " ≈: it chooses by the clock, so its rounds are estimates."
    if advice.left_out:
        said += f" {count(advice.left_out, 'text')} of other pools or machines left out."
    return said


@dataclass(frozen=True)
class Table:
    """Cells as text; the last ``figures`` columns are figures."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    figures: int


def tables(advice: Advice) -> list[Table]:
    """The policies, the fastest first, a star only where it is certain; and the drafters under the first."""
    policies = [_policy(advice, option) for option in advice.options]
    how = ", replayed" if advice.texts else ""
    columns = f"policy|draft length|tokens per round|calls saved|decode{how}|whole request{how}|first is faster"
    columns += "|decode, measured|whole request, measured" if advice.measured else ""
    found = [Table(f"Policies{how}", tuple(columns.split("|")), policies, columns.count("|"))]
    if advice.shares:
        columns = "drafter|proposed|requests without it|memory|verdict"
        drafters = [
            (
                share.drafter,
                f"{percent(share.share)}",
                times(share.without),
                format_bytes(share.memory) if share.memory else NOTHING,
                {"keep": "keep", "remove": "can go", "open": "not settled"}[share.verdict],
            )
            for share in advice.shares
        ]
        found.append(Table(f"Drafters under {advice.best.spec}", tuple(columns.split("|")), drafters, 4))
    return found


def _policy(advice: Advice, option: Option) -> tuple[str, ...]:
    first = option is advice.best
    live = advice.measured
    certain = advice.certain and advice.pays == "yes" and (not live or live.best.spec == option.spec)
    star = " ★" if first and certain else ""
    known = live and live.option(option.spec)
    ratios = (known.times_as_fast(live.plain, part) if live and known else None for part in PARTS)
    return (
        f"{option.spec}{' ≈' if option.estimate else ''}{star}",
        str(option.length),
        f"{option.mean_accepted_tokens:.2f}",
        f"{percent(option.calls_saved)}",
        times(option.times_as_fast(advice.plain, "decode")),
        times(option.times_as_fast(advice.plain)),
        NOTHING if first else times(advice.best.times_as_fast(option)),
        *(map(times, ratios) if live else ()),
    )


def as_json(advice: Advice) -> dict[str, Any]:
    """All of it as plain values."""
    options = [
        {
            "policy": option.spec,
            "draft_length": option.length,
            "exact_rounds": not option.estimate,
            "mean_accepted_tokens": option.mean_accepted_tokens,
            "calls_saved": option.calls_saved,
            "speedup": asdict(option.times_as_fast(advice.plain, "decode")),
            "request_speedup": asdict(option.times_as_fast(advice.plain)),
            "first_is_faster": asdict(advice.best.times_as_fast(option)),
            "prompts_to_settle": None if option is advice.best else advice.best.prompts_to_settle(option),
            "measured": _measured(advice, option),
        }
        for option in advice.options
    ]
    gone, ratio = advice.removed
    values: dict[str, Any] = plain(
        {
            "verdict": sentences(advice),
            "pays": advice.pays,
            "certain": advice.certain,
            "prompts": advice.prompts,
            "texts": advice.texts,
            "policies": options,
            "lengths": {str(length): asdict(found) for length, found in advice.lengths.items()},
            "drafters": [{**asdict(share), "verdict": share.verdict} for share in advice.shares],
            "removed": {"drafters": gone, "without": ratio and asdict(ratio)},
        }
    )
    return values


def _measured(advice: Advice, option: Option) -> list[dict[str, Any]]:
    live = advice.measured
    known = live and live.option(option.spec)
    return [asdict(known.times_as_fast(live.plain, part)) for part in PARTS] if live and known else []


def times(ratio: Ratio | None) -> str:
    """A ratio with its interval: ``2.10× (1.80–2.40)``."""
    return NOTHING if ratio is None else ratio.text("×")


def percent(share: float, sign: str = "") -> str:
    """``84 %``."""
    return f"{100 * share:{sign}.0f} %"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else "".join(names)
