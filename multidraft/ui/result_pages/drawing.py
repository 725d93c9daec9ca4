"""Results as pictures: bars of speed-ups, the tokens of a run, the ratios of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from multidraft.ui.result_pages.picture import HEIGHT, WIDTH, Picture, largest, length, wrapped
from multidraft.ui.widgets.theme import TARGET_COLOUR, drafter_colour, drafter_places, policy_colour
from storage.records import Round

MARGIN = 60
MOST_BARS = 7
COLOURS = "One block per token, in the colour of the drafter that proposed it; grey: the target's own."
TICKS = (0.02, 0.05, 0.1, 0.2, 0.25, 0.5)
"""Between numbers of an axis, the smallest that leaves them room."""

BODY = 206
"""Where title and subtitle end."""

_LEFT, _TOP, _BOTTOM = 400, BODY + 6, HEIGHT - 84


@dataclass(frozen=True)
class Bar:
    """A figure of a policy with its interval, if it has one; ``name`` stands at its left, ``shown`` at its right, with
    ``said`` below; a ``marked`` one stands out."""

    policy: str
    name: str
    value: float
    low: float | None = None
    high: float | None = None
    shown: str = ""
    said: str = ""
    marked: bool = False


def bars(title: str, subtitle: str, found: Sequence[Bar], foot: str, unit: str) -> Picture:
    """Bars from 0, with a line at 1; ``unit`` says what that is. Of a bar of 0 its interval is all that is drawn."""
    picture = _begun(title, subtitle, foot)
    right, (step, lines) = WIDTH - 220, _lines(picture, found, 20)
    scale = (right - _LEFT) / max([1.0, *(bar.high or bar.value for _, bar in lines)])
    for y, bar in lines:
        picture.box(_LEFT, y + step * 0.18, bar.value * scale, step * 0.6, policy_colour(bar.policy))
        _interval(picture, bar, _LEFT, scale, y + step * 0.48)
    picture.box(_LEFT + scale - 1, _TOP - 4, 2, step * len(lines) + 8, TARGET_COLOUR)
    for y, bar in lines:  # each on a ground of its own: the line at 1 would run through what stands there
        x, below = _LEFT + max(bar.value, bar.high or 0.0) * scale + 14, y + step * 0.6
        picture.box(x - 4, below - 24, length(bar.shown, 25, bar.marked) + 8, 32, "ground")
        picture.text(x, below, bar.shown, 25, bold=bar.marked)
    picture.text(_LEFT + scale, _TOP + step * len(lines) + 30, unit, 20, colour="faint", anchor="middle")
    return picture


def ratios(title: str, subtitle: str, found: Sequence[Bar], foot: str, sides: tuple[str, str]) -> Picture:
    """Ratios with their intervals around 1; ``sides`` say what those below it mean, and those above."""
    picture = _begun(title, subtitle, foot)
    right, (step, lines) = WIDTH - 330, _lines(picture, found, 72)
    reach = max([0.05, *(abs(end - 1) for _, bar in lines for end in (bar.value, bar.low or 1.0, bar.high or 1.0))])
    reach = min(reach, 1.0) * 1.1
    middle, scale = (_LEFT + right) / 2, (right - _LEFT) / 2 / reach
    picture.box(middle - 1, _TOP - 4, 2, step * len(lines) + 8, TARGET_COLOUR)
    for y, bar in lines:
        low, high = (None if end is None else max(1 - reach, min(1 + reach, end)) for end in (bar.low, bar.high))
        inside = Bar(bar.policy, bar.name, max(1 - reach, min(1 + reach, bar.value)), low, high)
        ends = tuple(end is not None and abs(end - 1) <= reach for end in (bar.low, bar.high))
        _interval(picture, inside, middle - scale, scale, y + step * 0.48, ends)
        picture.box(middle + (inside.value - 1) * scale - 8, y + step * 0.48 - 8, 16, 16, policy_colour(bar.policy))
        wide = WIDTH - MARGIN - right - 14
        size = largest((24, 20), bar.shown, wide, bold=True)
        picture.text(right + 14, y + step * 0.45, bar.shown, size, bold=True, width=wide)
        picture.text(right + 14, y + step * 0.85, bar.said, 18, colour="faint", width=wide)
    below = _TOP + step * len(lines) + 28
    tick = next((tick for tick in TICKS if reach / tick < 3.5), 1.0)
    for place in range(-3, 4):
        if abs(x := place * tick) <= reach:
            picture.text(middle + x * scale, below, f"{1 + x:g}×", 19, colour="faint", anchor="middle")
    lower, upper = sides
    picture.text(middle - 14, below + 34, f"← {lower}", 20, colour="faint", anchor="end", width=middle - MARGIN - 14)
    picture.text(middle + 14, below + 34, f"{upper} →", 20, colour="faint", width=WIDTH - MARGIN - middle - 14)
    return picture


def _lines(picture: Picture, found: Sequence[Bar], below: float) -> tuple[float, list[tuple[float, Bar]]]:
    """The height of a line, and where those of the first bars begin, with their names drawn at the left; so much room
    is left ``below``."""
    step = min((_BOTTOM - _TOP - below) / max(len(found[:MOST_BARS]), 1), 96)
    lines = [(_TOP + place * step, bar) for place, bar in enumerate(found[:MOST_BARS])]
    for y, bar in lines:
        width = _LEFT - 16 - MARGIN
        size = largest((25, 21), bar.name, width)
        picture.text(_LEFT - 16, y + step * 0.6, bar.name, size, anchor="end", width=width)
    return step, lines


def tokens(
    title: str,
    subtitle: str,
    figures: Sequence[tuple[str, str]],
    rounds: Sequence[Round],
    drafters: Sequence[str],
    foot: str,
) -> Picture:
    """The tokens of a run, each in the colour of the drafter that proposed it, below its figures; then what that
    means."""
    picture = _begun(title, subtitle, foot)
    for place, (value, name) in enumerate(figures):
        x = MARGIN + place * (WIDTH - 2 * MARGIN) / len(figures)
        room = (WIDTH - 2 * MARGIN) / len(figures) - 16
        size = largest((52, 42, 34, 27), value, room, bold=True)
        picture.text(x, _TOP + 40, value, size, bold=True)
        picture.text(x, _TOP + 76, name, 22, colour="faint")
    places = drafter_places(drafters)
    colours = [
        drafter_colour(places[r.arm]) if r.arm is not None and place < r.accepted else TARGET_COLOUR
        for r in rounds
        for place in range(len(r.tokens))
    ]
    top, rows = _TOP + 110, max(1, min(4, -(-len(colours) // 64)))
    across = max(-(-len(colours) // rows), 24)
    width, height = (WIDTH - 2 * MARGIN) / across, (_BOTTOM - top - 34) / rows
    for place, colour in enumerate(colours):
        row, column = divmod(place, across)
        picture.box(MARGIN + column * width, top + row * height, width - min(2, width / 5), height - 6, colour)
    picture.text(MARGIN, _BOTTOM - 6, COLOURS, 20, colour="faint")
    return picture


def _begun(title: str, subtitle: str, foot: str) -> Picture:
    picture = Picture(f"{title}. {subtitle}")
    for arm in range(6):
        picture.box(MARGIN + arm * 26, 46, 22, 10, drafter_colour(arm))
    picture.text(WIDTH - MARGIN, 60, "multidraft", 26, colour="faint", anchor="end", bold=True)
    width = WIDTH - 2 * MARGIN
    size = largest((42, 38, 34, 32), title, width, bold=True)
    lines = wrapped(title, size, width)
    for place, line in enumerate(lines):
        picture.text(MARGIN, 118 + 38 * place - 14 * (len(lines) - 1), line, size, bold=True, width=width)
    small = largest((25, 23, 21, 20), subtitle, width)
    below = [subtitle] if small > 20 else wrapped(subtitle, 20, width)
    for place, line in enumerate(below):
        y = 164 + 18 * (len(lines) - 1) + 24 * place - 5 * (len(below) - 1)
        picture.text(MARGIN, y, line, small, colour="faint", width=width)
    picture.box(MARGIN, HEIGHT - 66, WIDTH - 2 * MARGIN, 1, "line")
    picture.text(MARGIN, HEIGHT - 30, foot, largest((21, 19, 17), foot, width), colour="faint", width=width)
    return picture


def _interval(
    picture: Picture, bar: Bar, left: float, scale: float, y: float, ends: Sequence[bool] = (True, True)
) -> None:
    """An interval; an end that lies outside the picture has no cap."""
    if bar.low is None or bar.high is None:
        return
    x, end = left + bar.low * scale, left + bar.high * scale
    picture.box(x, y - 1.5, end - x, 3, "ink")
    for edge, inside in zip((x, end), ends, strict=True):
        if inside:
            picture.box(edge - 1.5, y - 8, 3, 16, "ink")
