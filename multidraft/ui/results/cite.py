"""How a result is cited: BibTeX with version, commit, pool and hardware."""

from __future__ import annotations

import re
from collections.abc import Mapping
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


def bibtex(place: str, title: str, made: Mapping[str, Any], address: str, settings: str = "") -> str:
    """An entry for a result at an address, which is left out where only this machine could open it.

    Args:
        made: ``created_at`` and the conditions (``experiments.MADE_ON``).
        settings: what it was set to, such as policies and draft length.
    """
    key = re.sub(r"\W+", "-", f"multidraft-{place}")
    number, _, commit = str(made["version"] or "").partition("+")
    program = f"multidraft {number}" + (f", commit {commit}" if commit else "")
    where = ", ".join(_plain(str(part)) for part in (made["hardware"], made["dtype"]) if part)
    note = f"{_plain(program)}; pool {_plain(made['pool'])}, card {_plain(made['card_hash'] or 'unknown')}; {where}"
    note += f"; {_plain(settings)}" if settings else ""
    lines = [
        f"@misc{{{key},",
        f"  author = {{{{{AUTHOR}}}}},",
        f"  title = {{{{{_plain(title)}}}}},",
        f"  year = {{{made['created_at'][:4]}}},",
        f"  date = {{{made['created_at'][:10]}}},",
        f"  note = {{{note}}},",
    ]
    if not is_loopback(urlsplit(address).hostname or ""):
        lines.append(f"  url = {{{quote(address, safe=':/?&=.-_~')}}},")
    return "\n".join((*lines, "}"))


def _plain(text: str) -> str:
    """A text that LaTeX shows as it is, on one line."""
    return "".join(_SPECIAL.get(c, c) for c in " ".join(text.split()))
