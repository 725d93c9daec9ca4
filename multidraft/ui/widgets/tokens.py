"""The output as it streams in: which drafter proposed each token, which are the target's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr
from markupsafe import Markup

from multidraft.service.workbench import PLAYED_SECONDS, ROUND_SECONDS
from multidraft.ui.widgets.markup import UNKNOWN, folded, macros, number, page, source, table_of
from multidraft.ui.widgets.theme import DRAFTER_COLOURS, drafter_places
from storage.records import OWN, Round

OUTPUT_START = Markup('<div class="md-output" dir="auto" role="region" tabindex="0" aria-label="Output">')
"""Opens the box of the rounds; whoever shows them closes it."""

_macros = macros("widgets/tokens.html")
token = _macros.token

_SCRIPT = source("widgets/output.js")


def arm_classes(drafters: Sequence[str]) -> dict[int | None, str]:
    """CSS classes with the arms' colours, ``None`` for the target's; those beyond the number of hues have dashes."""
    hues = len(DRAFTER_COLOURS)
    classes = [f"md-arm{place % hues}{' md-again' * (place >= hues)}" for place in drafter_places(drafters)]
    return {None: "md-own", **dict(enumerate(classes))}


def rounds_html(rounds: Sequence[Round], drafters: Sequence[str]) -> Markup:
    """The tokens of ``rounds``, to be appended to :data:`OUTPUT_START`. Rejected guesses are struck through, and shown
    only where the reader asks for them. ``drafters`` are the pool's, in the order of the arms."""
    kinds = arm_classes(drafters)
    return Markup().join(
        _macros.round(r, kinds[r.arm], describe_round(r), _visible("".join(map(r.text_of, r.rejected))), step_of(r))
        for r in rounds
    )


def describe_round(r: Round) -> str:
    """One line on a round, e.g. ``Round 3: math, accepted 4 of 6, then the target's own token``."""
    own = "the target's own token" if r.own is not None else ""
    if r.drafter is None:
        return f"Round {r.index + 1}: no draft, {own or 'nothing'}"
    accepted = f"{r.drafter}, accepted {r.accepted} of {len(r.drafted)}"
    if r.accepted < len(r.drafted) and own:
        own = "the target's correction"
    return f"Round {r.index + 1}: {accepted}" + (f", then {own}" if own else "")


def step_of(r: Round) -> dict[str, Any]:
    """What ``stepper.js`` shows of a round, all as text: guesses, of which the first ``accepted`` stay, the target's
    choice for each place, the other guesses there, and the target's own token. What is empty is left out."""
    step = {
        "drafter": r.drafter,
        "guesses": [r.text_of(token) for token in r.drafted],
        "accepted": r.accepted,
        "choices": [r.text_of(token) for token in r.choices],
        "siblings": [[r.text_of(token) for token in beside] for beside in r.siblings],
        "own": None if r.own is None else r.text_of(r.own),
        "together": r.together,
    }
    return {name: value for name, value in step.items() if value not in (None, 0, [])}


def legend_html(drafters: Sequence[str], shares: Mapping[str, float] | None = None) -> Markup:
    """A bar of who proposed how much of the output, and the legend that names the colours.

    Args:
        drafters: the pool's arms in order.
        shares: ``Generation.drafter_shares``; empty before the first token. ``None`` names the colours only.
    """
    share = (shares or {}).get
    kinds = arm_classes(drafters)
    entries = [(name, kinds[arm], share(name, 0.0)) for arm, name in enumerate(drafters)]
    return _macros.legend([*entries, ("target's own", kinds[None], share(OWN, 0.0))], shares)


def rounds_table_html(rounds: Sequence[Round]) -> Markup:
    """All rounds as a table that opens on demand: the tooltips for keyboards, screen readers and touch."""
    if not rounds:
        return Markup()
    lines = [
        {
            "Text": _visible(r.text),
            "Drafter": r.drafter or "no draft",
            "Round": r.index + 1,
            "Accepted": f"{r.accepted} of {len(r.drafted)}" if r.drafter else UNKNOWN,
            "Reward": number(r.reward, 2),
            "ms": number(1000 * r.seconds, 1),
        }
        for r in rounds
    ]
    table = table_of(lines, figures=4, kind="md-texts", label="Rounds")
    return folded("Every round in detail", table, _macros.reward_note())


def _visible(text: str) -> str:
    return text.replace("\n", "↵")


def output_box(longest: int, *, elem_id: str) -> gr.HTML:
    """The box with the output of a run and the timeline of its rounds, where a draft of ``longest`` tokens has a bar of
    the full height; its value is what :func:`rounds_html` makes.

    The value never becomes part of a template: the script appends what is new to what is there. So a value that grows
    at its end costs the network and the page no more than its new part, however long the output is.
    """
    values = {"output": OUTPUT_START, "longest": longest, "round": ROUND_SECONDS, "played": PLAYED_SECONDS}
    frame = page("widgets/output.html", **values)
    return gr.HTML("", html_template=frame, js_on_load=_SCRIPT, apply_default_css=False, elem_id=elem_id)
