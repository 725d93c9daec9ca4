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
"""Opens the box of the rounds; whoever shows them closes it."""

_REWARD = (
    '<p class="md-caption">Reward: what the round was worth to the policy, from 0 to 1. For most policies it is the '
    "accepted tokens ÷ the draft length of the settings, even where a shorter draft was made; for UCB and its like, "
    "unless set otherwise, how closely the drafter's probabilities agreed with the target's.</p>"
)


def arm_class(arm: int) -> str:
    """CSS class with the arm's colour; arms beyond the number of hues get dashed edges as well."""
    again = " md-again" if arm >= len(DRAFTER_COLOURS) else ""
    return f"md-arm{arm % len(DRAFTER_COLOURS)}{again}"


def rounds_html(rounds: Sequence[Round], rejected: Sequence[str] | None = None) -> str:
    """The tokens of ``rounds``, to be appended to :data:`OUTPUT_START`.

    Args:
        rejected: the text of each round's rejected guesses, in the same order; they are struck through, and shown only
            where the reader asks for them.
    """
    texts = [""] * len(rounds) if rejected is None else rejected
    return "".join(_round_html(r, text) for r, text in zip(rounds, texts, strict=True))


def describe_round(r: Round) -> str:
    """One line on a round, e.g. ``Round 3: math, accepted 4 of 6, then the target's own token``."""
    own = "the target's own token" if r.own is not None else ""
    if r.drafter is None:
        return f"Round {r.index + 1}: no draft, {own or 'nothing'}"
    accepted = f"{r.drafter}, accepted {r.accepted} of {len(r.drafted)}"
    if r.accepted < len(r.drafted) and own:
        own = "the target's correction"
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
        f"<b>{escape(_percent(share)) if shares else '–'}</b></li>"
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
    columns = ("Text", "Drafter", "Round", "Accepted", "Reward", "ms")
    table = table_html(columns, rows, figures=4, kind="md-texts", label="Rounds")
    return f'<details class="md-details"><summary>Every round in detail</summary>{table}{_REWARD}</details>'


def _round_html(r: Round, rejected: str) -> str:
    """One round; what its bar in the timeline needs stands in its attributes (see ``output.js``)."""
    kind = arm_class(r.arm) if r.arm is not None else "md-own"
    guesses = "".join(_token_html(kind, piece) for piece in r.pieces[: r.accepted])
    if rejected:
        guesses += f'<del class="md-rejected {kind}" aria-hidden="true">{escape(_visible(rejected))}</del>'
    own = "".join(_token_html("md-own", piece) for piece in r.pieces[r.accepted :])
    bar = f'data-arm="{kind}" data-drafted="{len(r.drafted)}" data-accepted="{r.accepted}"'
    corrected = " data-corrected" if r.own is not None and r.accepted < len(r.drafted) else ""
    return f'<span class="md-round" title="{escape(describe_round(r))}" {bar}{corrected}>{guesses}{own}</span>'


def _token_html(kind: str, piece: str) -> str:
    line = " md-line" if piece.endswith("\n") else ""
    return f'<span class="md-token {kind}{line}">{escape(piece)}</span>' if piece else ""


def _swatch(name: str, kind: str) -> str:
    label = "target's own" if name == OWN else name
    return f'<span class="md-token {kind}">{escape(label)}</span>'


def _percent(share: float) -> str:
    return "< 1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def _visible(text: str) -> str:
    return text.replace("\n", "↵")
