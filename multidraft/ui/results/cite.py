"""How a result is cited: BibTeX with version, commit, pool and hardware."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlsplit

from multidraft.service.settings import is_loopback

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "×": r"$\times$",
    "→": r"$\rightarrow$",
    **{c: f"\\{c}" for c in "{}$&#_%"},
}

AUTHOR = "The multidraft authors"


def bibtex(place: str, title: str, made: Sequence[Mapping[str, Any]], address: str, settings: Sequence[str]) -> str:
    """An entry for a result at an address, which is left out where only this machine could open it.

    Args:
        made: ``created_at`` and the conditions (``experiments.MADE_ON``); of a comparison those of A and of B.
        settings: what each was set to, such as policies and draft length.
    """
    key = re.sub(r"\W+", "-", f"multidraft-{place}")
    notes = [_note(*each) for each in zip(made, settings, strict=True)]
    note = ". ".join(f"{side}: {each}" for side, each in zip("AB", notes, strict=True)) if notes[1:] else notes[0]
    lines = [
        f"@misc{{{key},",
        f"  author = {{{{{AUTHOR}}}}},",
        f"  title = {{{{{_plain(title)}}}}},",
        f"  year = {{{made[-1]['created_at'][:4]}}},",
        f"  date = {{{made[-1]['created_at'][:10]}}},",
        f"  note = {{{_plain(note)}}},",
    ]
    if not is_loopback(urlsplit(address).hostname or ""):
        lines.append(f"  url = {{{quote(address, safe=':/?&=.-_~%')}}},")
        lines.append(f"  urldate = {{{datetime.now(UTC):%Y-%m-%d}}},")
    return "\n".join((*lines, "}"))


def _note(made: Mapping[str, Any], settings: str) -> str:
    """With what it was made."""
    number, _, commit = str(made["version"] or "").partition("+")
    program = f"multidraft {number}" + (f", commit {commit}" if commit else "")
    where = ", ".join(str(part) for part in (made["hardware"], made["dtype"]) if part)
    parts = (program, f"pool {made['pool']}, card {made['card_hash'] or 'unknown'}", where, settings)
    return "; ".join(filter(None, parts))


def _plain(text: str) -> str:
    """A text that LaTeX shows as it is, on one line."""
    return "".join(_SPECIAL.get(c, c) for c in " ".join(text.split()))
