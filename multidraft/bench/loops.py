"""Answers that end in a loop: the same words over and over."""

from __future__ import annotations

import zlib

END, FEWEST = 400, 200
"""Bytes at the end of a text that are looked at, and the fewest that tell."""

LOOP = 0.35
"""Text of which compression leaves less than this share repeats itself. Of 240 answers of the pocket target three do,
all of them loops; the next one has 0.42, most have 0.5 or more."""


def loops(text: str) -> bool:
    """Whether a text ends in a loop, which any drafter guesses: speed-ups on it say little of text that makes sense."""
    end = text.encode(errors="replace")[-END:]
    return len(end) >= FEWEST and len(zlib.compress(end)) < LOOP * len(end)
