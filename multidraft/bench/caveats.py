"""What the prompts and the machine leave open, in words, for every verdict."""

from __future__ import annotations

from collections.abc import Sequence

from multidraft.bench.action import listed, quoted
from multidraft.bench.table import busy, count
from multidraft.policies.settings import STARTS
from multidraft.policies.specs import starts_of
from multidraft.replay.advice import Advice
from storage.figures import FEWEST_TO_TELL


def caveats(advice: Advice) -> list[str]:
    """All of them."""
    ran = advice.measured or advice
    found = (
        advice.warning,
        _looping(ran),
        _noisy(ran, replays=bool(advice.texts)),
        unequal_starts([option.spec for option in ran.options]),
        _cut(ran),
        _repeated(ran),
        _left_out(advice),
    )
    return list(filter(None, found))


def _looping(ran: Advice) -> str:
    """Where one answer in ten or more is of no use as a sample of the traffic."""
    if not ran.looping or 10 * ran.looping < ran.prompts:
        return ""
    return (
        f"The answers to {ran.looping} of {ran.prompts} prompts end by saying the same over and over. Any drafter "
        "guesses such text, so speed-ups here say little of answers that make sense: leave such prompts out, or take a "
        "model that can answer them."
    )


def _noisy(ran: Advice, replays: bool) -> str:
    """Where a quarter of the runs or more say nothing by themselves."""
    said = busy(*ran.noisy) if ran.prompts >= FEWEST_TO_TELL else ""
    if not said or not replays:
        return said and f"{said} The intervals include that."
    return (
        f"{said} Measured intervals include that, those of replays do not: repeat the batch on a quiet machine before "
        "you act on what replays say of draft lengths and drafters."
    )


def unequal_starts(specs: Sequence[str]) -> str:
    """Where policies did not begin with the same knowledge."""
    starts = starts_of(specs)
    if len(starts) < 2:
        return ""
    said = "; ".join(f"{quoted(specs)} {STARTS[start]}" for start, specs in starts.items())
    alike = "To compare the policies alone, give all of them `start=cold`."
    return f"Policies did not begin with the same knowledge: {said}. {alike}"


def _cut(ran: Advice) -> str:
    if not mostly_cut(ran):
        return ""
    return (
        f"Most answers were cut: {ran.cut} of {ran.prompts} ended at max new tokens. For whole answers another policy "
        "or other drafters may be the fastest: run these prompts again with a higher limit."
    )


def mostly_cut(ran: Advice) -> bool:
    """Whether most answers did not come to their end."""
    return ran.prompts >= FEWEST_TO_TELL and 2 * ran.cut > ran.prompts


def _repeated(ran: Advice) -> str:
    """On how many of the prompts policies began with what the very prompt had taught."""
    if not ran.repeated:
        return ""
    on = listed(
        [f"{prompts} of {count(ran.prompts, 'prompt')} when `{spec}` ran" for spec, prompts in ran.repeated.items()]
    )
    return f"Prompts seen before: the pool had already learnt from {on}, so new prompts may be answered more slowly."


def _left_out(advice: Advice) -> str:
    """What the verdict is not on, though figures beside it may be."""
    if not advice.left_out:
        return ""
    texts = count(advice.left_out, "text")
    return (
        f"This verdict leaves out {texts} of other pools, machines or settings, perhaps of the same prompts. For a "
        "verdict on those, choose their pool, draft length or batch, or compare two batches in Results."
    )
