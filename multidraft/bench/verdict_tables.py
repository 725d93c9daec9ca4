"""The verdict in tables: policies, drafters and draft lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from drafters.hardware import format_bytes
from multidraft.bench.table import NOTHING, percent
from multidraft.replay.advice import Advice
from multidraft.replay.options import Option
from storage.figures import Ratio

FATES = {"keep": "keep", "remove": "can go", "alone": "can go alone", "open": "not settled"}
"""What a table says of a drafter (``Advice.fate``)."""

PARTS: tuple[Literal["decode"], Literal["request"]] = ("decode", "request")


@dataclass(frozen=True)
class Table:
    """Cells as text, names of policies in backticks; the last ``figures`` columns are figures."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    figures: int


def tables(advice: Advice) -> list[Table]:
    """The policies, the fastest first, a star only where it is certain; and the drafters under the first."""
    policies = [_policy(advice, option) for option in advice.options]
    if live := advice.measured:  # some of it cannot be replayed
        more = [option for option in live.options if advice.option(option.spec) is None]
        policies += [(f"`{option.spec}`", *((NOTHING,) * 6), *_ran(live, option)) for option in more]
    how = ", replayed" if advice.texts else ""
    far = "" if advice.trusted else ", too far from what was measured to rely on"
    columns = f"policy|draft length{how}|tokens per round{how}|calls saved{how}|decode{how}|whole request{how}"
    columns += f"|`{advice.best.spec}` is faster by"
    if advice.measured:
        columns += "|draft length, measured|tokens per round, measured|decode, measured|whole request, measured"
    found = [Table(f"Policies{how}{far}", tuple(columns.split("|")), policies, columns.count("|"))]
    if advice.shares and not advice.about.single:  # which says nothing of others
        columns = "drafter|share of the tokens from its drafts|request time without it|memory (weights, cache)|verdict"
        drafters = [
            (
                share.drafter,
                percent(share.share),
                times(share.without),
                format_bytes(share.memory) if share.memory else NOTHING,
                FATES[advice.fate(share)],
            )
            for share in advice.shares
        ]
        found.append(Table(f"Drafters under `{advice.about.spec}`", tuple(columns.split("|")), drafters, 4))
    if advice.lengths:
        about = advice.about
        heads = ("draft length", f"whole requests, times as fast as with {about.length}")
        marks = {live.first.length: " (measured)"} if live and advice.about_measured else {}
        ratios = {**{length: times(ratio) for length, ratio in advice.lengths.items()}, about.length: "1.00×"}
        lengths = [(f"{length}{marks.get(length, '')}", ratio) for length, ratio in sorted(ratios.items())]
        found.append(Table(f"Draft lengths of `{about.spec}`{how}", heads, lengths, 1))
    return found


def _policy(advice: Advice, option: Option) -> tuple[str, ...]:
    first = option is advice.best
    live = advice.measured
    star = " ★" if first and advice.trusted and option.spec == (live or advice).leader else ""
    ran = _ran(live, live.option(option.spec)) if live else ()
    return (
        f"`{option.spec}`{' ≈' if option.estimate else ''}{star}",
        str(option.length),
        f"{option.mean_accepted_tokens:.2f}",
        percent(option.calls_saved),
        times(option.times_as_fast(advice.plain, "decode")),
        times(option.times_as_fast(advice.plain)),
        NOTHING if first else times(advice.best.times_as_fast(option)),
        *ran,
    )


def _ran(live: Advice, option: Option | None) -> tuple[str, ...]:
    """What was measured of a policy."""
    if option is None:
        return (NOTHING,) * 4
    rounds = f"{option.mean_accepted_tokens:.2f}"
    return str(option.length), rounds, *(times(option.times_as_fast(live.plain, part)) for part in PARTS)


def times(ratio: Ratio | None) -> str:
    """A ratio with its interval: ``2.10× (1.80–2.40)``."""
    return NOTHING if ratio is None else ratio.text("×")
