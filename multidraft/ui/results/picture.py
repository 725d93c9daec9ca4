"""A picture of a result, drawn once: as SVG, where the page's colours apply to it, and as PNG for previews of links."""

from __future__ import annotations

import io
import unicodedata
from dataclasses import dataclass, field
from functools import cache
from html import escape
from typing import Literal

from PIL import Image, ImageDraw, ImageFont

from multidraft.ui.widgets import theme

WIDTH, HEIGHT = 1200, 630
"""What sites that preview links ask for."""

ROLES = {"ink": theme.TEXT, "faint": "#5c646f", "line": "#dfe3e8", "ground": theme.SURFACE}
"""Colours that a page may exchange (``--picture-ink`` and so on); others are as they are."""

_SPELLED = {"×": "x", "–": "-", "—": "-", "−": "-", "≈": "~", "±": "+/-", "★": "*", "→": "->", "←": "<-", "’": "'"}
"""Characters that the font of the PNG, Pillow's own, lacks. What has no spelling is drawn as a question mark."""

_WIDER, _BOLDER = 1.17, 1.14
"""How much wider than the font of the PNG those are that an SVG may be shown in (DejaVu Sans); and how much wider again
where they are bold."""


@dataclass
class Picture:
    """Shapes, in the order in which they are drawn; lengths are pixels of ``WIDTH`` by ``HEIGHT``.

    Attributes:
        about: what it shows, for those who don't see it.
    """

    about: str
    _shapes: list[tuple[str, tuple[float, ...], str, str, str, bool]] = field(default_factory=list)

    def box(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        """A filled rectangle."""
        self._shapes.append(("box", (x, y, max(width, 0), height), colour, "", "", False))

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float = 28,
        *,
        colour: str = "ink",
        anchor: Literal["start", "middle", "end"] = "start",
        bold: bool = False,
        width: float = WIDTH,
    ) -> None:
        """A line of text on the baseline ``y``, cut where it would take more than ``width``."""
        self._shapes.append(("text", (x, y, size), colour, _cut(text, size, width, bold), anchor, bold))

    def svg(self, top: float = 0) -> str:
        """An SVG document; its colours are variables with a default, so that a page can have it in its own.

        Args:
            top: what stands above it is left out, for a page that says it itself.
        """
        family = escape(", ".join(theme.SANS), quote=True)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 {top:g} {WIDTH} {HEIGHT - top:g}" role="img" '
            f'font-family="{family}"><title>{escape(self.about)}</title>',
            f'<rect width="{WIDTH}" height="{HEIGHT}" style="fill:{_variable("ground")}"/>',
        ]
        for kind, place, colour, text, anchor, bold in self._shapes:
            if place[1] < top:
                continue
            style = f"fill:{_variable(colour)}"
            if kind == "box":
                x, y, width, height = place
                parts.append(
                    f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3" style="{style}"/>'
                )
                continue
            x, y, size = place
            weight = ' font-weight="600"' if bold else ""
            parts.append(
                f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}"{weight} style="{style}">'
                f"{escape(text)}</text>"
            )
        return "".join([*parts, "</svg>"])

    def png(self) -> bytes:
        """A PNG of ``WIDTH`` by ``HEIGHT``, on white."""
        image = Image.new("RGB", (WIDTH, HEIGHT), ROLES["ground"])
        draw = ImageDraw.Draw(image)
        for kind, place, colour, text, anchor, bold in self._shapes:
            fill = ROLES.get(colour, colour)
            if kind == "box":
                x, y, width, height = place
                if width >= 1:
                    draw.rounded_rectangle((x, y, x + width, y + height), 3, fill)
                continue
            x, y, size = place
            stroke = size / 60 if bold else 0
            at = {"start": "ls", "middle": "ms", "end": "rs"}[anchor]
            draw.text((x, y), _drawable(text), fill, _font(size), at, stroke_width=stroke)
        file = io.BytesIO()
        image.save(file, "PNG")
        return file.getvalue()


def _variable(colour: str) -> str:
    return f"var(--picture-{colour}, {ROLES[colour]})" if colour in ROLES else colour


def _cut(text: str, size: float, width: float, bold: bool) -> str:
    """As much of a text, on one line, as fits."""
    text = " ".join("".join(c for c in text if c.isprintable() or c.isspace()).split())[:400]
    if fits(text, size, width, bold):
        return text
    while text and not fits(text + "…", size, width, bold):
        text = text[: -max(1, len(text) // 20)]
    return text.rstrip() + "…"


def fits(text: str, size: float, width: float, bold: bool = False) -> bool:
    """Whether a text takes no more than ``width``, in the fonts of browsers too."""
    return _WIDER * (_BOLDER if bold else 1) * _font(size).getlength(_drawable(text)) <= width


def wrapped(text: str, size: float, width: float) -> list[str]:
    """A bold text on two lines, as many words as fit on the first; on one where it has but one word."""
    words = text.split()
    first = next((n for n in range(len(words), 0, -1) if fits(" ".join(words[:n]), size, width, bold=True)), 1)
    return [line for line in (" ".join(words[:first]), " ".join(words[first:])) if line]


def _drawable(text: str) -> str:
    """A text in the characters that the font has."""
    spelled = "".join(_SPELLED.get(c, c) for c in text)
    plain = unicodedata.normalize("NFKD", spelled)
    return "".join(c if " " <= c <= "~" or c in "·…" else "?" for c in plain if not unicodedata.combining(c))


@cache
def _font(size: float) -> ImageFont.FreeTypeFont:
    font = ImageFont.load_default(size)
    assert isinstance(font, ImageFont.FreeTypeFont), "Pillow was built without FreeType"
    return font
