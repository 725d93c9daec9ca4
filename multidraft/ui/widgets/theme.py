"""One visual language for page and charts: colours, fonts, and Gradio's theme made of them.

Nothing is fetched from elsewhere: the fonts are the system's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any
from zlib import crc32

import gradio as gr

DRAFTER_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8a4a12", "#f0e442")
"""Okabe & Ito's colour-blind-safe hues, and a brown where they have black: the drafters' colours."""

_DRAFTERS = {
    **{"math": 0, "code": 1, "sql": 2, "translation": 3, "summary": 4, "json": 5, "general": 6, "lookup": 7},
    **{"student": 0, "eagle": 2, "medusa": 3, "dflash": 3, "suffix": 4, "small": 5},
    **{"eagle-math": 8, "eagle-tree": 10, "rest": 12, "eagle-json": 13, "lookahead": 15},
}
"""The places of the bundled cards' drafters, so chosen that no two of one card share theirs: the hue, and from 8 on the
hue with its second mark."""

POLICY_COLOURS = ("#9823e7", "#657915", "#e1194e", "#4854fc", "#be70e6", "#13aa13", "#e723b2", "#da736c")
"""Far from the drafters' hues and from each other, and of contrast 3 on light and on dark."""

_POLICIES = "rate-hedge ucb normal-hedge autoregressive ucbspec exp3spec fixed:general router".split()
"""Those that are often seen beside each other, in the order of the hues."""

_HATCHES = ("", "/", "x", ".")
_SYMBOLS = ("circle", "diamond", "square", "triangle-up")
"""The second mark, for the first pass through the hues, the second and so on: of areas and of points."""

BAD, BAD_DARK = "#b3261e", "#ff9b93"
"""Of what is wrong."""

TARGET_COLOUR = "#7a7f87"
"""The target's own tokens in charts and bars; readable on white and on near-black."""

TEXT, TEXT_DARK = "#16191d", "#eef1f4"
SURFACE, SURFACE_DARK = "#ffffff", "#16191d"
TINT, TINT_DARK = 0.38, 0.42
"""How much of the arm's colour a token's background takes; the texts above keep WCAG AA contrast on all of them."""

SANS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "Arial", "sans-serif")
MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "DejaVu Sans Mono", "monospace")

_WIDGETS = Path(__file__).parent
STYLES = (*sorted(_WIDGETS.glob("*.css")), *sorted(_WIDGETS.with_name("tabs").glob("*/*.css")))
"""Style sheets; a tab's own stand in its folder, and come last."""

_BLUE = gr.themes.Color(
    *"#eef6fb #d8eaf5 #b3d5ea #85bbdc #4f9dcb #1d82bd #0072b2 #005d92 #004b76 #003a5c #002a44".split(),
)
_GREY = gr.themes.Color(
    *"#f7f8fa #eef0f3 #dfe3e8 #c6ccd4 #9aa2ad #69717d #4d545e #363c45 #23282f #16191d #0e1013".split(),
)

_BOTH = {
    "body_background_fill": ("*neutral_50", "*neutral_950"),
    "body_text_color": (TEXT, TEXT_DARK),
    "body_text_color_subdued": ("*neutral_600", "*neutral_300"),
    "background_fill_primary": (SURFACE, SURFACE_DARK),
    "block_background_fill": (SURFACE, SURFACE_DARK),
    "block_label_text_color": ("*neutral_600", "*neutral_300"),
    "block_title_text_color": ("*neutral_700", "*neutral_200"),
    "input_background_fill": (SURFACE, "*neutral_800"),
    "input_border_color": ("*neutral_300", "*neutral_600"),
    "input_placeholder_color": ("*neutral_500", "*neutral_400"),
    "button_primary_background_fill": ("*primary_600", "*primary_600"),
    "button_primary_background_fill_hover": ("*primary_700", "*primary_700"),
    "button_secondary_background_fill": ("*neutral_100", "*neutral_800"),
    "button_secondary_background_fill_hover": ("*neutral_200", "*neutral_700"),
    "button_cancel_background_fill": (BAD, BAD),
    "button_cancel_background_fill_hover": ("#8c1d18", "#c5392f"),
    "button_cancel_text_color": ("white", "white"),
    "link_text_color": ("*primary_700", "*primary_300"),
    "slider_color": ("*primary_600", "*primary_400"),
}
"""Variables of Gradio's theme, in light and dark, where its base differs."""


def blend(colour: str, ground: str, share: float) -> str:
    """``share`` of ``colour`` over ``ground``, all as ``#rrggbb``."""
    channels = zip(bytes.fromhex(colour[1:]), bytes.fromhex(ground[1:]), strict=True)
    return "#" + bytes(round(share * over + (1 - share) * under) for over, under in channels).hex()


def drafter_places(drafters: Sequence[str]) -> tuple[int, ...]:
    """The place of each drafter among the colours, past their number among the marks. It is the name's own in every
    pool, whatever the order; a drafter of no bundled card gives way to others of its pool that have the same one."""
    places = _places(frozenset(drafters))
    return tuple(places[name] for name in drafters)


@lru_cache
def _places(names: frozenset[str]) -> Mapping[str, int]:
    """A place for each name: the fixed one, or one by its spelling, and the next free one where that is taken."""
    hues, places = len(DRAFTER_COLOURS), dict[str, int]()
    for name in sorted(names, key=lambda name: (name not in _DRAFTERS, name)):
        wish = _DRAFTERS.get(name, crc32(name.encode()) % hues)
        tries = (wish, *((wish + step) % hues + step // hues * hues for step in range(len(names) + 2 * hues)))
        places[name] = next(place for place in tries if place not in places.values())
    return places


def policy_colour(policy: str) -> str:
    """Colour of a policy's spec, the same wherever, under whatever settings and beside whatever others it is shown: the
    Lab replays under other settings what a batch ran, and a benchmark starts the same policy in several ways."""
    return POLICY_COLOURS[_policy_hue(policy)]


def policy_place(policy: str, among: Sequence[str]) -> tuple[int, int]:
    """The hue of a policy's spec, and how many of those that it is shown among have the same one and come before it:
    which second mark tells it from them."""
    hue = _policy_hue(policy)
    same = [spec for spec in {policy, *among} if _policy_hue(spec) == hue]
    return hue, sorted(same, key=lambda spec: (spec not in _POLICIES, spec)).index(policy)


def _policy_hue(policy: str) -> int:
    name = policy.partition(":")[0]
    policy = policy if name == "fixed" else name  # whose drafter is all there is of it
    return _POLICIES.index(policy) if policy in _POLICIES else crc32(policy.encode()) % len(POLICY_COLOURS)


def drafter_colour(place: int) -> str:
    """Colour of a drafter by its place; the hues repeat where a pool has more drafters than there are."""
    return DRAFTER_COLOURS[place % len(DRAFTER_COLOURS)]


def drafter_symbol(place: int) -> str:
    """Its marker in charts, by Plotly's name: another one each time that the hues repeat."""
    return _SYMBOLS[place // len(DRAFTER_COLOURS) % len(_SYMBOLS)]


def drafter_pattern(place: int) -> dict[str, Any]:
    """Its hatching over its colour, as Plotly has it: none as long as the hues do not repeat."""
    return pattern(drafter_colour(place), place // len(DRAFTER_COLOURS))


def pattern(colour: str, again: int) -> dict[str, Any]:
    """A hatching over a colour, as Plotly has it, for the time that the colour is used ``again``; none at first."""
    shape = _HATCHES[again % len(_HATCHES)]
    if not shape:
        return {"shape": shape}
    return {"shape": shape, "bgcolor": colour, "fgcolor": hatch_colour(colour), "size": 7, "solidity": 0.3}


def hatch_colour(colour: str) -> str:
    """White or near-black, whichever shows better on a colour."""
    red, green, blue = bytes.fromhex(colour[1:])
    return TEXT if 0.299 * red + 0.587 * green + 0.114 * blue > 150 else SURFACE


def css() -> str:
    """The page's style sheet, with the colours of the arms for light and dark."""
    style = "\n".join(path.read_text(encoding="utf-8") for path in STYLES)
    return f"{colours('.dark {{ {} }}')}\n{style}"


def colours(dark: str) -> str:
    """The colours of the arms, of what is best and of what is wrong, and the class of each arm; ``dark`` is what has
    the variables where the page is dark."""
    classes = "\n".join(
        f".md-arm{i} {{ --arm: var(--arm{i}); --tint: var(--tint{i}); --hatch: {hatch_colour(colour)}; }}"
        for i, colour in enumerate(DRAFTER_COLOURS)
    )
    light, night = _variables(SURFACE, TINT, 4, BAD), _variables(SURFACE_DARK, TINT_DARK, 1, BAD_DARK)
    return f":root {{ {light} }}\n{dark.format(night)}\n{classes}"


def _variables(ground: str, tint: float, best: int, bad: str) -> str:
    arms = (f"--arm{i}: {c}; --tint{i}: {blend(c, ground, tint)};" for i, c in enumerate(DRAFTER_COLOURS))
    return " ".join(arms) + f" --target: {TARGET_COLOUR}; --best: var(--arm{best}); --bad: {bad};"


def theme() -> gr.themes.Base:
    """Gradio's theme in our colours."""
    style = gr.themes.Base(
        primary_hue=_BLUE,
        secondary_hue=_BLUE,
        neutral_hue=_GREY,
        radius_size=gr.themes.sizes.radius_md,
        font=SANS,
        font_mono=MONO,
    )
    light = {name: colours[0] for name, colours in _BOTH.items()}
    dark = {f"{name}_dark": colours[1] for name, colours in _BOTH.items()}
    return style.set(**light, **dark, block_title_text_weight="600", input_border_width="1px")
