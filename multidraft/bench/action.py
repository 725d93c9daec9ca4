"""What to do about a kind of traffic: the second sentence of every verdict."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from drafters.card import WITHOUT as WITHOUT_SOME
from drafters.card import is_bundled
from drafters.hardware import format_bytes
from multidraft.bench.suites import suite_names
from multidraft.bench.table import count, percent
from multidraft.policies import parse_spec
from multidraft.policies.static import Fixed
from multidraft.replay.advice import FAR_OFF, Advice
from multidraft.replay.options import Option
from storage.figures import FEWEST_TO_TELL
from storage.records import PLAIN

MOST_PROMPTS = 1000
"""Where it would take more prompts than this to tell two policies apart, either will do."""

WORTH_A_RUN = 1.05
"""The smallest replayed speed-up over the best measured policy that is worth a run on the prompts."""

WITHOUT = f"without drafters (`{PLAIN}`)"


def action(advice: Advice) -> str:
    """Which policy to run now, why that one, and how many more prompts would settle what is open."""
    live = advice.measured or advice
    if live is advice and not advice.trusted:
        return f"What to do: measure it: run these prompts in one batch, under {quoted(advice.errors)}, then ask again."
    more = untried(advice)
    return f"What to do: {_now(live, advice)}{f' {more.why}' if more else ''}"


def withheld(advice: Advice) -> str:
    """Why replays give no advice; empty where they do."""
    if advice.trusted:
        return ""
    spec, error = max(advice.errors.items(), key=lambda item: abs(item[1]))
    option = advice.option(spec)
    rounds = " It chooses by measured time, so its rounds differ too." if option and option.estimate else ""
    busy = "A machine that is busy with other work is the usual reason: run the prompts again when it is not."
    return (
        "Replays give no advice here, on draft lengths, drafters or what was not run: the replayed decode speed-up of "
        f"`{spec}` is off by {percent(error, '+')} from what its live runs measured, and more than ±{percent(FAR_OFF)} "
        f"is too far.{rounds} {busy}"
    )


def _now(live: Advice, advice: Advice) -> str:
    best = live.best
    if live.pays == "no":
        return f"decode {WITHOUT}."
    if live.pays == "open":
        return _unsettled(live)
    if not (level := live.level()):
        others = "other policies that ran" if live.options[2:] else "other policy that ran"
        why = (
            f"it is faster than the {others}, and no more prompts are needed to settle that"
            if live.options[1:]
            else "no other policy ran on all of these prompts"
        )
        return f"run {_named(best)}: {why}."
    alike = [option for option in level if (best.times_as_fast(option).prompts_to_settle or math.inf) > MOST_PROMPTS]
    among = alike if level[0] in alike else level
    simple = next((option for option in among if option.single), None) if not best.single else None
    if among is alike:
        why = f"more than {MOST_PROMPTS:,} prompts would be needed to tell `{best.spec}` from {_rivals(alike)}"
        why += ", so either will do"
        if simple:
            return f"run {_named(simple)}: {why}, and it needs a single drafter{_freed(advice, simple)}."
        return f"run {_named(best)}: {why}; its estimate is the highest."
    said = f"run {_named(best)}. It leads, but not significantly: {_at_most(best, level)}. "
    said += _settled(live, best, level[0])
    if simple:
        said += f" Where memory is short, run `{simple.spec}`: it needs a single drafter{_freed(advice, simple)}."
    return said


def _rivals(level: Sequence[Option]) -> str:
    return f"`{level[0].spec}`" + (f" and {count(len(level) - 1, 'other')}" if level[1:] else "")


def _unsettled(live: Advice) -> str:
    """Where it is open whether to speculate at all."""
    best, missing = live.best, FEWEST_TO_TELL - live.prompts
    if live.sure:
        why = f"it is certainly faster than decoding {WITHOUT}; of `{best.spec}` that is not certain"
        return f"run {_named(live.sure)}: {why}. {_settled(live, best, live.sure)}"
    found = live.over_plain(best)
    settled = _settled(live, best, live.plain)
    if live.prompts == 1:
        return f"run {FEWEST_TO_TELL} prompts or more as a batch: one does not tell which policy to take."
    if missing > 0:
        settled = f"At least {count(missing, 'more prompt')} {'is' if missing == 1 else 'are'} needed for a verdict."
    if found.too_noisy:
        if live.first in live.on_side(-1):
            slower = f"`{live.first.spec}` saves the most calls of the target, but is slower"
            return f"decode {WITHOUT} for now: {slower}. {settled}"
        return f"run {_named(live.first)} for now: it saves the most calls of the target. {settled}"
    if found.value <= 1:
        return f"decode {WITHOUT} for now: no policy is ahead of that. {settled}"
    risk = ""
    if found.low is not None and found.low < 1:
        risk = f", and requests take at most {percent(1 / found.low - 1)} longer than {WITHOUT}"
    return f"run {_named(best)} for now: it is the fastest so far{risk}. {settled}"


def _settled(live: Advice, best: Option, other: Option) -> str:
    """How many more prompts would tell the two apart."""
    ratio = live.over_plain(best) if other is live.plain else best.times_as_fast(other)
    needed, against = ratio.prompts_to_settle, f"`{best.spec}` against `{other.spec}`"
    if needed is None or needed > MOST_PROMPTS:
        return f"More than {MOST_PROMPTS:,} prompts would be needed to settle {against}, so it makes little difference."
    more = count(max(round(needed) - live.prompts, 1), "more prompt")
    return f"About {more} would settle {against} (95 % level, 80 % power)."


def _at_most(best: Option, level: Sequence[Option]) -> str:
    """How much there is to lose by running it."""
    worst = percent(max(0.01, *(1 / (best.times_as_fast(option).low or 1.0) - 1 for option in level)))  # no finer
    return f"{_rivals(level)} could be at most {worst} faster (95 % confidence)"


class LeftOut(NamedTuple):
    """How to measure what drafters that can go are worth.

    Attributes:
        drafters: their names.
        command: runs the prompts on the pool without them.
    """

    drafters: tuple[str, ...]
    command: str


def left_out(advice: Advice) -> LeftOut | None:
    """Where the verdict leaves drafters out."""
    gone, text, live = advice.removed[0], advice.text, advice.measured or advice
    if not gone or text is None or advice.pays != "yes" or not advice.trusted or advice.about.single:
        return None
    pool, suite, params = text.conditions.pool, text.origin.suite, text.params
    card = pool if is_bundled(pool) else "CARD"
    without = f"{card}{',' if WITHOUT_SOME in card else WITHOUT_SOME}{','.join(gone)}"
    prompts, limit = (suite, f" --limit {advice.prompts}") if suite in suite_names() else ("PROMPTS.jsonl", "")
    command = f"python -m multidraft bench {prompts} --pool {without} --policies {live.first.spec}{limit}"
    command += f" --draft-length {params.draft_length} --max-new-tokens {params.max_new_tokens} --db HISTORY.db"
    return LeftOut(gone, command)


class Untried(NamedTuple):
    """What to run on the same prompts too.

    Attributes:
        policies: specs; the one that is first where runs were measured, beside the one that was not run.
        length: of drafts, where it is to be another.
        why: in a sentence.
    """

    policies: tuple[str, ...]
    length: int | None
    why: str


def untried(advice: Advice) -> Untried | None:
    """What replays suggest that was not measured."""
    live, replayed = advice.measured, advice.best
    if live is None or not advice.trusted:
        return None
    best = live.first.spec
    if shorter_is_faster(advice):
        tokens = count(advice.about.length, "token")
        why = f"Replays of `{best}` are faster with drafts of up to {tokens}: run these prompts so too."
        return Untried((best,), advice.about.length, why)
    known = advice.option(best)
    gain = replayed.times_as_fast(known).value if known else math.inf
    if not live.option(replayed.spec) and gain >= WORTH_A_RUN:
        why = f"Replays put `{replayed.spec}` first, {not_run(live, replayed.spec)}: run it on these prompts too."
        return Untried((best, replayed.spec), None, why)
    single = next((option for option in advice.options if option.single and not live.option(option.spec)), None)
    if live.first.times_as_fast(live.plain).value <= 1:
        return None  # a single drafter in place of it would not pay either
    if known is None or single is None or known.single or known.times_as_fast(single).side_shown > 0:
        return None
    freed = _freed(advice, single)
    why = f"By replays a single drafter is not significantly slower{freed}: run `{single.spec}` on these prompts too."
    return Untried((best, single.spec), None, why)


def not_run(live: Advice, spec: str) -> str:
    """That a policy was replayed only; and of which that ran it is a variant, if it is one."""
    name = parse_spec(spec)[0]
    alike = () if name == Fixed.name else live.options  # of another drafter a policy is another
    ran = next((option.spec for option in alike if parse_spec(option.spec)[0] == name), None)
    return f"a variant of `{ran}` that was replayed, not run" if ran else "which was not run"


def shorter_is_faster(advice: Advice) -> bool:
    """Whether replays are faster, at the 95 % level, if the policy that is first where runs were measured drafts less
    than it did there."""
    live = advice.measured
    ran = advice.lengths.get(live.first.length) if live and advice.about_measured else None
    return ran is not None and ran.side < 0


def _named(option: Option) -> str:
    return f"`{option.spec}`" + (f", draft length up to {option.length}" if option.length else "")


def _freed(advice: Advice, simple: Option) -> str:
    freed = sum(share.memory or 0 for share in advice.shares if share.drafter != simple.single)
    return f" ({format_bytes(freed)} less memory)" if freed else ""


def listed(names: Sequence[str], left_out: int = 0) -> str:
    """``a, b and c``; ``a, b and 3 more`` where so many are left out."""
    names = [*names, f"{left_out} more"] if left_out else names
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else "".join(names)


def quoted(names: Iterable[str]) -> str:
    """The same of specs or drafters, each in backticks."""
    return listed([f"`{name}`" for name in names])
