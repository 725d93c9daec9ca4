"""A picture of a result, drawn once: as SVG, where the page's colours apply to it, and as PNG for previews of links."""

from __future__ import annotations

import io
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from html import escape
from pathlib import Path
from typing import Literal

import gradio
from PIL import Image, ImageDraw, ImageFont

from multidraft.ui.widgets import theme

WIDTH, HEIGHT = 1200, 630
"""What sites that preview links ask for."""

ROLES = {"ink": theme.TEXT, "faint": "#5c646f", "line": "#dfe3e8", "ground": theme.SURFACE}
"""Colours that a page may exchange (``--picture-ink`` and so on); others are as they are."""

_FONTS = Path(gradio.__file__).parent / "templates" / "frontend" / "static" / "fonts" / "IBMPlexSans"
"""Of the PNG: those of a machine may lack a bold one or the signs of figures. Without them Pillow's own is drawn."""

_SPELLED = {"×": "x", "–": "-", "—": "-", "−": "-", "≈": "~", "±": "+/-", "★": "*", "→": "->", "←": "<-",
            "’": "'", "“": '"', "”": '"'}  # fmt: skip
"""Characters that Pillow's font lacks. What has no spelling is drawn as a question mark."""

_WIDER, _BOLDER = 1.17, 1.14
"""How much wider than Pillow's font those are that an SVG may be shown in (DejaVu Sans); and how much wider again where
they are bold."""


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
            font, at = _font_of(size, bold), {"start": "ls", "middle": "ms", "end": "rs"}[anchor]
            draw.text((x, y), _drawable(text, font), fill, font, at)
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


def length(text: str, size: float, bold: bool = False) -> float:
    """What a text takes at the most, in the fonts of browsers too."""
    return _WIDER * (_BOLDER if bold else 1) * _font(size).getlength(_drawable(text, _font(size)))


def fits(text: str, size: float, width: float, bold: bool = False) -> bool:
    """Whether a text takes no more than ``width``."""
    return length(text, size, bold) <= width


def largest(sizes: Sequence[float], text: str, width: float, bold: bool = False) -> float:
    """The first of the sizes, the largest of which comes first, that a text fits in; else the last."""
    return next((size for size in sizes if fits(text, size, width, bold)), sizes[-1])


def wrapped(text: str, size: float, width: float) -> list[str]:
    """A bold text on two lines, as many words as fit on the first; on one where it has but one word."""
    words = text.split()
    first = next((n for n in range(len(words), 0, -1) if fits(" ".join(words[:n]), size, width, bold=True)), 1)
    return [line for line in (" ".join(words[:first]), " ".join(words[first:])) if line]


def _drawable(text: str, font: ImageFont.FreeTypeFont) -> str:
    """A text in the characters that the font has."""
    spelled = "".join(c if _has(font, c) else _SPELLED.get(c, unicodedata.normalize("NFKD", c)) for c in text)
    return "".join(c if _has(font, c) else "?" for c in spelled if not unicodedata.combining(c))


@lru_cache(4096)
def _has(font: ImageFont.FreeTypeFont, character: str) -> bool:
    """What a font lacks, it draws as it draws what no font has."""
    return " " <= character <= "~" or bytes(font.getmask(character)) != bytes(font.getmask("\uffff"))


@cache
def _font_of(size: float, bold: bool) -> ImageFont.FreeTypeFont:
    """That of the PNG."""
    try:
        return ImageFont.truetype(_FONTS / f"IBMPlexSans-{'Bold' if bold else 'Regular'}.woff2", size)
    except OSError:  # another version of Gradio, or a FreeType without brotli
        return _font(size)


@cache
def _font(size: float) -> ImageFont.FreeTypeFont:
    font = ImageFont.load_default(size)
    assert isinstance(font, ImageFont.FreeTypeFont), "Pillow was built without FreeType"
    return font
