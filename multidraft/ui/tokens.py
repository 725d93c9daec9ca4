"""The output as it streams in: which drafter proposed each token, which are the target's own.

Pure functions from rounds to HTML. Every piece of model or user text is escaped here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from multidraft.records import OWN, Round
from multidraft.ui.tables import number, table_html
from multidraft.ui.theme import DRAFTER_COLOURS

OUTPUT_START = '<div class="md-output" dir="auto" role="region" tabindex="0" aria-label="Output">'
"""Never closed in the page's value: browsers close it, and a value that only grows at its end lets Gradio send
nothing but the new tokens."""


def arm_class(arm: int) -> str:
    """CSS class with the arm's colour; arms beyond the number of hues get dashed edges as well."""
    again = " md-again" if arm >= len(DRAFTER_COLOURS) else ""
    return f"md-arm{arm % len(DRAFTER_COLOURS)}{again}"


def rounds_html(rounds: Sequence[Round]) -> str:
    """The tokens of ``rounds``, to be appended to :data:`OUTPUT_START`."""
    return "".join(_round_html(r) for r in rounds)


def describe_round(r: Round) -> str:
    """One line on a round, e.g. ``Round 3: math, accepted 4 of 6, then the target's own token``."""
    own = "the target's own token" if r.own is not None else ""
    if r.drafter is None:
        return f"Round {r.index + 1}: no draft, {own or 'nothing'}"
    accepted = f"{r.drafter}, accepted {r.accepted} of {len(r.drafted)}"
    return f"Round {r.index + 1}: {accepted}" + (f", then {own}" if own else "")


def legend_html(drafters: Sequence[str], shares: Mapping[str, float] | None = None) -> str:
    """A bar of who proposed how much of the output, and the legend that names the colours.

    Args:
        drafters: the pool's arms in order.
        shares: ``Generation.drafter_shares``; empty before the first token. ``None`` names the colours only.
    """
    if shares is None:
        names = [(name, arm_class(arm)) for arm, name in enumerate(drafters)] + [(OWN, "md-own")]
        return f'<ul class="md-legend">{"".join(f"<li>{_swatch(*entry)}</li>" for entry in names)}</ul>'
    entries = [(name, arm_class(arm), shares.get(name, 0.0)) for arm, name in enumerate(drafters)]
    entries.append((OWN, "md-own", shares.get(OWN, 0.0)))
    bar = "".join(
        f'<span class="{kind}" style="flex-grow:{share:.4f}"></span>' for _, kind, share in entries if share > 0
    )
    items = "".join(
        f'<li class="{"md-used" if share > 0 else "md-unused"}">{_swatch(name, kind)} '
        f"<b>{_percent(share) if shares else '–'}</b></li>"
        for name, kind, share in entries
    )
    return f'<div class="md-shares" aria-hidden="true">{bar}</div><ul class="md-legend">{items}</ul>'


def rounds_table_html(rounds: Sequence[Round]) -> str:
    """All rounds as a table that opens on demand: the tooltips for keyboards, screen readers and touch."""
    if not rounds:
        return ""
    rows = (
        [
            escape(_visible(r.text)),
            escape(r.drafter or "no draft"),
            str(r.index + 1),
            f"{r.accepted} of {len(r.drafted)}" if r.drafter else number(None, 0),
            number(r.reward, 2),
            number(1000 * r.seconds, 1),
        ]
        for r in rounds
    )
    table = table_html(("Text", "Drafter", "Round", "Accepted", "Reward", "ms"), rows, figures=4, kind="md-texts")
    return f'<details class="md-details"><summary>Every round in detail</summary>{table}</details>'


def _round_html(r: Round) -> str:
    kinds = [arm_class(r.arm) if r.arm is not None else "md-own"] * r.accepted
    kinds += ["md-own"] * (len(r.pieces) - r.accepted)
    spans = "".join(
        f'<span class="md-token {kind}{" md-line" if piece.endswith(chr(10)) else ""}">{escape(piece)}</span>'
        for kind, piece in zip(kinds, r.pieces, strict=True)
        if piece
    )
    return f'<span class="md-round" title="{escape(describe_round(r))}">{spans}</span>'


def _swatch(name: str, kind: str) -> str:
    label = "target's own" if name == OWN else name
    return f'<span class="md-token {kind}">{escape(label)}</span>'


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _visible(text: str) -> str:
    return text.replace("\n", "↵")
