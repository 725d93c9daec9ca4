"""One visual language for page and charts: colours, fonts, and Gradio's theme made of them.

Nothing is fetched from elsewhere: the fonts are the system's own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

DRAFTER_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8a4a12", "#f0e442")
"""Okabe & Ito's colour-blind-safe hues, and a brown where they have black: the arms' colours, in the pool's order."""

_HATCHES = ("", "/", "x", ".")
_SYMBOLS = ("circle", "diamond", "square", "triangle-up")
"""The second mark, for the first pass through the hues, the second and so on: of areas and of points."""

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
    "button_cancel_background_fill": ("#b3261e", "#b3261e"),
    "button_cancel_background_fill_hover": ("#8c1d18", "#c5392f"),
    "button_cancel_text_color": ("white", "white"),
    "link_text_color": ("*primary_700", "*primary_300"),
    "slider_color": ("*primary_600", "*primary_400"),
}
"""Variables of Gradio's theme, in light and dark, where its base differs."""


def blend(colour: str, ground: str, share: float) -> str:
    """``share`` of ``colour`` over ``ground``, all as ``#rrggbb``."""
    channels = ((int(colour[i : i + 2], 16), int(ground[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(share * over + (1 - share) * under):02x}" for over, under in channels)


def drafter_colour(arm: int) -> str:
    """Colour of an arm; the hues repeat where a pool has more drafters than there are."""
    return DRAFTER_COLOURS[arm % len(DRAFTER_COLOURS)]


def drafter_symbol(arm: int) -> str:
    """Marker of an arm in charts, by Plotly's name: another one each time that the hues repeat."""
    return _SYMBOLS[arm // len(DRAFTER_COLOURS) % len(_SYMBOLS)]


def drafter_pattern(arm: int) -> dict[str, Any]:
    """An arm's hatching over its colour, as Plotly has it: none as long as the hues do not repeat."""
    shape = _HATCHES[arm // len(DRAFTER_COLOURS) % len(_HATCHES)]
    if not shape:
        return {"shape": shape}
    return {"shape": shape, "bgcolor": drafter_colour(arm), "fgcolor": hatch_colour(arm), "size": 7, "solidity": 0.3}


def hatch_colour(arm: int) -> str:
    """White or near-black, whichever shows better on an arm's colour."""
    red, green, blue = (int(drafter_colour(arm)[i : i + 2], 16) for i in (1, 3, 5))
    return TEXT if 0.299 * red + 0.587 * green + 0.114 * blue > 150 else SURFACE


def css() -> str:
    """The page's style sheet, with the colours of the arms for light and dark."""
    style = "\n".join(path.read_text(encoding="utf-8") for path in STYLES)
    return f"{colours('.dark {{ {} }}')}\n{style}"


def colours(dark: str) -> str:
    """The colours of the arms, and the class of each; ``dark`` is what has its variables where the page is dark."""
    classes = "\n".join(
        f".md-arm{i} {{ --arm: var(--arm{i}); --tint: var(--tint{i}); --hatch: {hatch_colour(i)}; }}"
        for i in range(len(DRAFTER_COLOURS))
    )
    return f":root {{ {_variables(SURFACE, TINT)} }}\n{dark.format(_variables(SURFACE_DARK, TINT_DARK))}\n{classes}"


def _variables(ground: str, tint: float) -> str:
    arms = (f"--arm{i}: {c}; --tint{i}: {blend(c, ground, tint)};" for i, c in enumerate(DRAFTER_COLOURS))
    return " ".join(arms) + f" --target: {TARGET_COLOUR};"


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
