"""The verdict on a kind of traffic in words: the same for the command line and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from drafters.hardware import format_bytes
from multidraft.bench.action import action, listed, quoted, shorter_is_faster, withheld
from multidraft.bench.caveats import caveats, mostly_cut
from multidraft.bench.table import count, percent
from multidraft.bench.verdict_tables import times
from multidraft.replay.advice import Advice
from multidraft.replay.contribution import NEGLIGIBLE, Share
from multidraft.replay.options import Option
from storage.figures import FEWEST_PROMPTS, FEWEST_TO_TELL
from storage.records import PLAIN

AT_ONE_SPEED = (
    "The policies' baselines differ (measured at different times, or on sampled answers of different lengths), so each "
    "policy is compared with their mean, and figures may differ from those on the page of each batch."
)
"""What is said where they have (``storage.figures.at_one_speed``)."""

MOST_NAMED = 3
"""Policies that a sentence names; the table has them all."""


class Verdict(NamedTuple):
    """Sentences, in which names of policies and drafters stand in backticks.

    Attributes:
        todo: the conclusion, which policy to run and what else to try, and which drafters to keep.
        caveats: what the prompts leave open.
        reasons: why, how certain it is, and what it rests on.
    """

    todo: list[str]
    caveats: list[str]
    reasons: list[str]


def sentences(advice: Advice) -> list[str]:
    """All that there is to say of the traffic, in the order of :class:`Verdict`."""
    return [sentence for part in verdict(advice) for sentence in part]


def verdict(advice: Advice) -> Verdict:
    """What to do about the traffic, and why.

    Where policies were measured on the prompts, what they measured leads, and replays add what was not run, unless they
    are too far from it.
    """
    replayed = f"Replayed on {count(advice.texts, 'recorded text')}" if advice.texts else ""
    more = [*_alone(advice), *_about(advice), *_lengths(advice), *_drafters(advice)] if advice.pays == "yes" else []
    if live := advice.measured:
        fewer = f" on the {live.prompts} of {advice.prompts} prompts that all of these policies ran"
        said = [f"Measured{fewer if live.prompts < advice.prompts else ''}. {_conclusion(live, advice.short)}"]
        said += [*_decoding(live), *_rivals(live)] if live.pays == "yes" else []
        said += [f"{replayed}: {_beyond(advice, live)} {_off(advice)}", *more]
        said = said if advice.trusted else [*said[: -1 - len(more)], withheld(advice)]
    elif advice.trusted:
        conclusion = _conclusion(advice, advice.short)
        said = [f"{replayed}. {conclusion} {_off(advice)}" if replayed else conclusion]
        said += [*_decoding(advice), *_rivals(advice), *more] if advice.pays == "yes" else []
    else:
        said = [f"No verdict: no policy was measured on all of these {advice.prompts} prompts.", withheld(advice)]
    conclusion, *reasons = said
    todo = [conclusion, action(advice), _kept_or_not(advice) if more else ""]
    return Verdict(list(filter(None, todo)), caveats(advice), [*reasons, _basis(advice)])


def _freed(advice: Advice) -> str:
    """Memory of the drafters that can go, if they have any."""
    freed = sum(share.memory or 0 for share in advice.shares if share.drafter in advice.removed[0])
    return format_bytes(freed) if freed else ""


def _kept_or_not(advice: Advice) -> str:
    """Which drafters to keep and which not, in short."""
    fates: dict[str, list[str]] = {}
    for share in advice.shares:
        if share.asked or advice.fate(share) == "remove":
            fates.setdefault(advice.fate(share), []).append(share.drafter)
    memory = f", which frees {freed} of memory" if (freed := _freed(advice)) else ""
    parts = [f"keep {quoted(fates['keep'])}"] if "keep" in fates else []
    if "remove" in fates and not advice.about.single:
        parts.append(f"leave out {quoted(fates['remove'])}{memory}{_fastest_alone(advice)}")
    if parts and (unsure := [*fates.get("alone", []), *fates.get("open", [])]):
        parts.append(f"not settled: {quoted(unsure)}")
    said = "; ".join(parts)
    return f"Drafters under `{advice.about.spec}`, {_variant(advice) or 'by replays'}: {said}." if said else ""


def _fastest_alone(advice: Advice) -> str:
    """That the single drafter to take is among those that can go, if it is."""
    single = next((option.single for option in advice.options if option.single), None)
    gone = single in advice.removed[0]
    return f" (`{single}` is the fastest alone, but not missed beside the others)" if gone else ""


def _variant(advice: Advice) -> str:
    """What the replayed policy is to the one that ran, where that one cannot be replayed as it is."""
    ran = advice.measured.first.spec if advice.measured and advice.about_measured else advice.about.spec
    return f"replayed in place of `{ran}`" if ran != advice.about.spec else ""


def _beyond(advice: Advice, live: Advice) -> str:
    """What replays put first of what was not run, against the policy that is first where runs were measured."""
    other, unrun = advice.option(live.first.spec), advice.unrun
    if unrun is None:
        return "no other policy or draft length was tried."
    named = f"`{unrun.spec}` with drafts of up to {count(unrun.length, 'token')}"
    if other is unrun:
        how = "faster, at the 95 % level," if shorter_is_faster(advice) else "not significantly faster"
        return (
            f"{named} is {how} than with up to {live.first.length}, and nothing else that was not run comes before it."
        )
    if other is None:
        return f"of what was not run, {named} comes first."
    faster = unrun.times_as_fast(other)
    if faster.value <= 1:
        first = advice.best.spec
        but = f"replays put `{first}` first, unlike the runs, which count; " if first != other.spec else ""
        return f"{but}nothing that was not run comes before `{other.spec}`."
    return (
        f"of what was not run, {named} comes first; its whole requests are {times(faster)} as fast as `{other.spec}`'s."
    )


def _alone(advice: Advice) -> list[str]:
    """How the fastest drafter does alone, where it was not run."""
    live = advice.measured
    single = next((option for option in advice.options if option.single), None)
    if single is None or not advice.texts or single is advice.best or (live and live.option(single.spec)):
        return []
    ratio, beside = single.times_as_fast(advice.plain), advice.best.times_as_fast(advice.plain)
    return [
        f"The fastest single drafter, `{single.spec}`, makes whole requests {times(ratio)} as fast as autoregressive "
        f"decoding by replays, `{advice.best.spec}` {times(beside)}."
    ]


def _off(advice: Advice) -> str:
    """How far replays are from what was measured."""
    off = advice.errors
    if not off:
        return "How far replays are off is not known: no policy ran live on enough of these prompts."
    rounds = "".join(
        f", tokens per round of `{spec}` by {percent(by, '+')}" for spec, by in _rounds_off(advice).items()
    )
    why = ", as it goes by the clock" if rounds else ""
    reach = f"{_reach(off)} in decoding"
    reach += f" and {_reach(advice.request_errors)} in whole requests" if advice.request_errors else ""
    said = f"Replayed speed-ups are off from those measured by {reach} ({quoted(off)}){rounds}{why}."
    for spec, error in advice.dropped.items():
        said += f" `{spec}`, which chooses by the clock, is off by {percent(error, '+')}, so it is not replayed."
    return said


def _reach(errors: Mapping[str, float]) -> str:
    return " to ".join(dict.fromkeys(percent(value, "+") for value in (min(errors.values()), max(errors.values()))))


def _rounds_off(advice: Advice) -> dict[str, float]:
    """Of the policies whose replayed rounds are estimates and that ran live at the same draft length, by what share
    their tokens per round are off on the prompts that they ran on."""
    found = {}
    for option in advice.options if advice.measured else ():
        known = advice.measured and advice.measured.option(option.spec)
        if not known or not option.estimate or known.length != option.length:
            continue
        if (same := option.on(known.prompts)).prompts:
            found[option.spec] = same.mean_accepted_tokens / known.mean_accepted_tokens - 1
    return found


def _conclusion(advice: Advice, short: int) -> str:
    fastest, plain = advice.best, advice.plain
    best = advice.sure or fastest
    decode, request = best.times_as_fast(plain, "decode"), best.times_as_fast(plain)
    named = f"`{best.spec}`, draft length up to {best.length}"
    speeds = (
        f"decoding is {times(decode)} and whole requests are {times(request)} as fast as autoregressive decoding, on "
        f"{count(advice.prompts, 'prompt')}"
    )
    if advice.cut and not mostly_cut(advice):
        speeds += f" ({advice.cut} of the answers ended at max tokens)"
    if short:
        speeds += f" ({short} more answered too briefly for a speed-up)"
    saved = _saved_by(best)
    if advice.sure:
        time = f"Each request takes {percent(1 - 1 / request.value)} less device time."
        if best is not fastest:
            higher = times(fastest.times_as_fast(plain))
            time += f" The estimate of `{fastest.spec}` is higher, {higher}, but no speed-up of it is certain."
        return f"For this traffic: {named}: {speeds}; {saved}. {time}"
    if advice.pays == "no":
        return f"Don't speculate on this traffic: with the fastest policy, {named}, {speeds}, though {saved}."
    if advice.prompts < FEWEST_TO_TELL:
        few = "1 prompt is" if advice.prompts == 1 else f"{advice.prompts} prompts are"
        few += f" too few to say which policy is faster; at least {FEWEST_TO_TELL} are needed."
        if not decode.too_noisy:
            return f"{few} The fastest so far is {named}: {speeds}; {saved}."
        first = advice.saving_most
        lead = f"{quoted(option.spec for option in first)} {'lead' if first[1:] else 'leads'}"
        found = {"faster": advice.on_side(1), "slower": advice.on_side(-1)}
        are = [
            f"{quoted(option.spec for option in told)} {'are' if told[1:] else 'is'} {side}"
            for side, told in found.items()
            if told
        ]
        said = f", though {' and '.join(are)} than autoregressive decoding" if are else ""
        return (
            f"{few} The machine was too busy for figures of speed{said}. By target calls, which do not depend on the "
            f"clock, {lead}: {_saved_by(*first)}."
        )
    among = "both" if len(advice.options) == 2 else f"all {len(advice.options)}"
    each = f"is certain on this traffic, at the 95 % level for {among} policies together"
    certain = each if advice.options[1:] else "is certain on this traffic"
    return (
        f"No speed-up of whole requests {certain}: with the fastest policy, {named}, {speeds}. "
        f"{saved[0].upper()}{saved[1:]}."
    )


def _saved_by(option: Option, *others: Option) -> str:
    rounds = f"{option.mean_accepted_tokens:.2f} tokens per round"
    save = "they save" if others else "it saves"
    return f"{save} {percent(option.calls_saved)} of the target's calls ({rounds})"


def _decoding(advice: Advice) -> list[str]:
    """Why another policy leads where decoding alone is told, if one does."""
    fastest = min(advice.options, key=lambda option: option.decode.sum())
    if fastest.times_as_fast(advice.best, "decode").value < 1.01:
        return []
    first, second = (times(option.times_as_fast(advice.plain, "decode")) for option in (fastest, advice.best))
    return [
        f"In decoding alone `{fastest.spec}` is ahead ({first} against {second}); it loses that before the first "
        "token, while router and drafters read the prompt."
    ]


def _rivals(advice: Advice) -> list[str]:
    level, slower = advice.level(), advice.slower()
    if not advice.options[1:]:
        return ["There is no other policy to compare it with."]
    if advice.certain:
        others = "the other policy" if len(slower) == 1 else f"each of the {len(slower)} others"
        return [f"Under {others} whole requests are slower, at the 95 % level: {_named(slower, advice)}."]
    than = f"than under `{advice.best.spec}`"
    said = [f"Under {_named(level, advice)} whole requests are not significantly slower {than}."]
    paired = "(paired by prompt; the intervals in the table do not show this)"
    return said + [f"Under {_named(slower, advice)} they are slower, at the 95 % level {paired}."] * bool(slower)


def _named(options: Sequence[Option], advice: Advice) -> str:
    """Policies, with how many times as fast as autoregressive decoding their whole requests are."""
    found = [(o.spec, times(o.times_as_fast(advice.plain))) for o in options[:MOST_NAMED]]
    named = [f"`{spec}` (request speed-up {ratio.replace(' (', ', ').rstrip(')')})" for spec, ratio in found]
    return listed(named, left_out=len(options[MOST_NAMED:]))


def _lengths(advice: Advice) -> list[str]:
    about = advice.about
    if not advice.lengths:
        return []
    slower = [str(length) for length, ratio in advice.lengths.items() if ratio.side < 0]
    level = [str(length) for length, ratio in advice.lengths.items() if str(length) not in slower]
    parts = [f"faster, at the 95 % level, than those of up to {listed(slower)}" if slower else ""]
    parts.append(f"not significantly faster than those of up to {listed(level)}" if level else "")
    said = f"Drafts of up to {about.length} tokens under `{about.spec}`, by replays: {'; '.join(filter(None, parts))}."
    if advice.text and about.length == advice.text.params.draft_length:
        said += (
            " Longer ones were not recorded: to try them, run a batch of a greater draft length and compare the two."
        )
    return [said]


def _about(advice: Advice) -> list[str]:
    """Under which policy lengths and drafters were tried, where the one that the verdict is on has no such replays."""
    live = advice.measured
    if live is None or advice.about_measured:
        return []
    return [f"Lengths and drafters are tried under `{advice.about.spec}`, as `{live.first.spec}` is not replayed."]


def _drafters(advice: Advice) -> list[str]:
    said, about = [], advice.about.spec
    if keep := [share for share in advice.shares if advice.fate(share) == "keep"]:
        said.append(f"By replays under `{about}`, keep {listed([_kept(share) for share in keep])}.")
    gone, ratio = advice.removed
    if gone and advice.about.single:
        said.append(f"`{about}` plays no other drafter, which says nothing of them under other policies.")
    elif gone:
        freed = f"; {memory} of memory (weights and cache) are free then" if (memory := _freed(advice)) else ""
        why = "it never drafts" if len(gone) == 1 else "they never draft"
        cost = f"requests take {times(ratio)} as long without" if ratio else why
        said.append(f"Under `{about}`, remove {quoted(gone)}{_fastest_alone(advice)}: {cost}{freed}.")
    if alone := [share.drafter for share in advice.shares if advice.fate(share) == "alone"]:
        said.append(f"{quoted(alone)} could go alone, but not together with {quoted(advice.missed_together)}.")
    if unknown := [share.drafter for share in advice.shares if share.asked and advice.fate(share) == "open"]:
        pay = "these drafters pay" if unknown[1:] else "this drafter pays"
        said.append(
            f"Not settled by these prompts whether {pay}: {quoted(unknown)}. A drafter is kept if requests take longer "
            f"without it, and can go if they take less than {percent(NEGLIGIBLE - 1)} longer, each at the 95 % level."
        )
    return said


def _kept(share: Share) -> str:
    missed = f"; without it requests take {times(share.without)} as long" if share.without else ""
    return f"`{share.drafter}` (its accepted drafts are {percent(share.share)} of the tokens{missed})"


def _basis(advice: Advice) -> str:
    intervals = "Intervals: 95 %, paired bootstrap over prompts."
    if (advice.measured or advice).options[1:]:
        intervals += f" A policy is called faster than `{PLAIN}` at that level for all policies together (Bonferroni)."
    if (advice.measured or advice).apart:
        intervals += f" {AT_ONE_SPEED}"
    if not advice.texts:
        few = advice.prompts < FEWEST_PROMPTS
        return "Measured runs; each prompt counts once. " + (
            "±: how far timings within the runs may put a speed-up off, at the 95 % level." if few else intervals
        )
    where = "that machine"
    if text := advice.text:
        where = f"pool {text.conditions.pool} on {text.conditions.hardware}, {text.conditions.dtype}; runs with draft "
        where += f"length {text.params.draft_length} and at most {count(text.params.max_new_tokens, 'token')}"
    said = f"Replays take the costs that were measured there: {where}. {intervals}"
    if any(option.estimate for option in advice.options):
        said += " ≈: it chooses by measured time, so its rounds are estimates."
    return said
