"""What a comparison of two experiments says: sentences, and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from multidraft.bench.action import MOST_PROMPTS, listed, quoted
from multidraft.bench.comparison import ALIKE, NO_DIFFERENCE, SETTLED, TOO_FEW, Comparison, Paired
from multidraft.bench.summary import grouped
from multidraft.bench.table import NOTHING, busy, count
from multidraft.bench.verdict import MOST_NAMED
from multidraft.bench.verdict_tables import Table, times
from multidraft.policies.specs import starts_of, with_start
from storage.figures import FEWEST_TO_TELL


def sentences(found: Comparison) -> list[str]:
    """The verdict, the conclusion over all policies first; names of policies stand in backticks."""
    apart = bool(found.baseline and found.baseline.side)
    quick = f"Autoregressive decoding itself is {times(found.baseline)} as fast in B"
    said = [overall(found), *_repeated(found), *_noisy(found), *_same_rounds(found)]
    if found.seconds_apart is not None:
        said.append(f"They were timed {_duration(found.seconds_apart)} apart; a machine's speed may change in between.")
    if apart:
        judged = "so the verdicts compare speed-ups, each over its own autoregressive decoding"
        judged = judged if found.pairs[0].relative else "which the verdicts, by the clock, do not allow for"
        said.append(f"The machine, or the target's own decoding, was not equally fast in both. {quick}, {judged}.")
    said += [_conclusion(pair) for pair in found.pairs[:MOST_NAMED]]
    if more := len(found.pairs[MOST_NAMED:]):
        said.append(f"The table has {count(more, 'more policy')}.")
    if found.differs:
        said.append(
            "They differ in " + "; ".join(f"{name} ({one} → {other})" for name, one, other in found.differs) + "."
        )
    else:
        same = "They were made with the same settings, version, pool and machine"
        said.append(f"{same}: what differs is chance or the machine's load.")
    if found.baseline and not apart:
        few = found.baseline.prompts < FEWEST_TO_TELL
        said.append(f"{quick}, {'on too few prompts to test that' if few else 'which is no significant difference'}.")
    if not any(pair.judged.interval for pair in found.pairs):
        return said
    together = "; those of the verdicts hold for all policies together (Bonferroni)" if found.pairs[1:] else ""
    return [*said, f"Intervals: 95 %, paired bootstrap over the prompts that both ran{together}."]


def _noisy(found: Comparison) -> list[str]:
    """That the machine was busy, if it was."""
    said = busy(*found.noisy)
    return [f"{said} Tokens per round do not depend on it, unless a policy chooses by time."] if said else []


def _same_rounds(found: Comparison) -> list[str]:
    """What a difference can come from where the rounds do not differ."""
    same = [pair for pair in found.pairs if pair.same_rounds]
    if not same:
        return []
    what = "What differs is time: the code's, or the machine's from one hour to the next; to tell, repeat both in turns"
    return [f"Under {_policies(same)} both made the same rounds on every prompt. {what}."]


def _repeated(found: Comparison) -> list[str]:
    """On how many prompts policies began with what the very prompt had taught."""
    seen = [
        f"{prompts} of {count(pair.request.prompts, 'prompt')} when {name} ran in {side}"
        for pair in found.pairs
        for side, name, prompts in zip("AB", (f"`{spec}`" for spec in pair.specs), pair.repeated, strict=True)
        if prompts
    ]
    if not seen:
        return []
    learnt = [spec for pair in found.pairs if any(pair.repeated) for spec in pair.specs]
    warm = [spec for start, specs in starts_of(learnt).items() if start != "cold" for spec in specs]
    cold = list(dict.fromkeys(with_start(spec, "cold") for spec in warm))
    fair = f" For a fair comparison run both under {quoted(cold[:MOST_NAMED])}." if cold else ""
    return [f"Prompts seen before: the pool had already learnt from {listed(seen)}, which favours that side.{fair}"]


def _duration(seconds: float) -> str:
    """A time in words, as fine as it matters."""
    for most, unit, each in ((90, "second", 1), (90 * 60, "minute", 60), (36 * 3600, "hour", 3600)):
        if seconds < most:
            return count(round(seconds / each), unit)
    return count(round(seconds / 86400), "day")


def overall(found: Comparison) -> str:
    """Which experiment is better for which policies, and what to do."""
    a, b = sides(found)
    by = grouped(found.pairs, "said")
    better = {side: by[said] for side, said in ((a, "slower"), (b, "faster")) if said in by}
    said = [f"{side} is better for {_policies(pairs)}" for side, pairs in better.items()]
    if ALIKE in by:
        said.append(f"for {_policies(by[ALIKE])} either will do")
    if NO_DIFFERENCE in by:
        said.append(f"for {_policies(by[NO_DIFFERENCE])} these prompts cannot tell which is better")
    if TOO_FEW in by:
        most = max(pair.judged.prompts for pair in by[TOO_FEW])
        said.append(
            f"too few common prompts ({most}) for {_policies(by[TOO_FEW])}; at least {FEWEST_TO_TELL} are needed"
        )
    first, *more = said
    few, quiet = by.keys() == {TOO_FEW}, " on a quiet machine" * bool(busy(*found.noisy))
    action = f"repeat both{quiet}" if quiet else _action(a, b, better, by)
    action = f"run at least {FEWEST_TO_TELL} common prompts in both{quiet}" if few else action
    if any(pair.repeated[0] != pair.repeated[1] and not pair.same_rounds for pair in found.pairs):
        action += " and with `start=cold`" if few or quiet else ", but first repeat both with `start=cold`"
    return f"{'; '.join([first[0].upper() + first[1:], *more])}. What to do: {action}."


def _action(a: str, b: str, better: Mapping[str, list[Paired]], by: Mapping[str, list[Paired]]) -> str:
    a, b = (side if side in ("A", "B") else side[0].lower() + side[1:] for side in (a, b))
    sure = (
        ", if a repetition finds the same" if all(pair.same_rounds for each in better.values() for pair in each) else ""
    )
    if len(better) == 2:
        one, other = better.values()
        return f"keep {a} for {_policies(one)}, take {b} for {_policies(other)}{sure}"
    if better:
        return (f"keep {a}" if "slower" in by else f"take {b}") + sure
    if by.keys() == {ALIKE}:
        return f"take either, {a} or {b}: whole requests are equally fast within 5 %"
    return f"keep {a} until more prompts have run under both"


def sides(found: Comparison) -> tuple[str, str]:
    """What the two are called: by what they differ in, if that is one thing, else A and B."""
    if len(found.differs) != 1:
        return "A", "B"
    ((name, one, other),) = found.differs
    name = name[0].upper() + name[1:]
    return f"{name} {one}", f"{name} {other}"


def _policies(pairs: Sequence[Paired]) -> str:
    return listed([pair.name for pair in pairs[:MOST_NAMED]], left_out=len(pairs[MOST_NAMED:]))


def by_clock(found: Comparison) -> str:
    """A sentence on two measures of the table."""
    said = "By the clock: speeds themselves, not divided by those of each result's own autoregressive decoding"
    if found.pairs[0].relative:
        return f"{said}. The verdict is on the speed-up, since a faster machine is faster without drafters, too."
    return f"{said}. The verdict is on them, since some run has no speed-up."


def table(found: Comparison) -> Table:
    """A line for each policy."""
    columns = "policy|verdict on B|prompts|request speed-up in A|request speed-up in B|request speed-up, B over A"
    columns += "|tokens per round, B over A|decode speed by the clock, B over A|request speed by the clock, B over A"
    rows = [
        (
            pair.name.replace("`", ""),
            pair.verdict,
            str(pair.judged.prompts)
            + (f" of {pair.request.prompts}" if pair.judged.prompts < pair.request.prompts else ""),
            *(map(times, (*pair.speedups, pair.relative, pair.rounds, pair.decode, pair.request))),
        )
        for pair in found.pairs
    ]
    return Table("Policies", tuple(columns.split("|")), rows, 7)


def _conclusion(pair: Paired) -> str:
    clock = f"decoding is {times(pair.decode)} and whole requests are {times(pair.request)} as fast"
    if pair.said == TOO_FEW:
        return f"{pair.name}: too few prompts to call one faster, {pair.on}. By the clock, {clock} so far."
    speeds = f"by the clock {clock}"
    if pair.relative:
        a, b = (f"{ratio.value:.2f}×" if ratio else NOTHING for ratio in pair.speedups)
        speeds = f"the speed-up of whole requests is {b} in B and {a} in A, {times(pair.relative)} as high"
    verdict = pair.verdict
    if pair.said in SETTLED:
        verdict = f"B has the {verdict}" if pair.relative else f"B is {verdict}"
    calls = f"each call of the target wrote {times(pair.rounds)} as many tokens in B as in A"
    said = f"{pair.name}: {verdict}; {speeds}; {calls}, {pair.on}."
    if pair.said != NO_DIFFERENCE:
        return said
    said += " These prompts cannot tell which is better."
    needed = pair.judged.prompts_to_settle
    if needed is None or needed > MOST_PROMPTS:
        return said
    return f"{said} About {count(max(round(needed) - pair.judged.prompts, 1), 'more prompt')} would settle it."
