"""Figures and names as the page writes them; filters of the templates, too."""

from __future__ import annotations

import pandas as pd

__all__ = ["count", "number", "percent", "sentence", "signed"]

UNKNOWN = "–"


def number(value: float | None, digits: int, unit: str = "") -> str:
    """A figure with its unit; a dash for ``None`` and NaN."""
    return UNKNOWN if value is None or pd.isna(value) else f"{value:,.{digits}f}{unit}"


def signed(value: float | None, digits: int) -> str:
    """A difference with its sign, likewise."""
    return UNKNOWN if value is None or pd.isna(value) else f"{value:+,.{digits}f}"


def percent(share: float | None) -> str:
    """A share as whole percent, likewise."""
    return number(None if share is None else 100 * share, 0, " %")


def count(number: int, noun: str) -> str:
    """``1 round``, ``2 rounds``, ``1,000 rounds``; ``1 policy``, ``2 policies``."""
    many = f"{noun[:-1]}ies" if noun.endswith("cy") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else many}"


def sentence(text: object) -> str:
    """An error's message as a sentence. Names that it begins with, of files and parameters, stay as they are."""
    text = str(text)
    first, *_ = text.split(maxsplit=1) or [""]
    if first.replace("-", "").isalpha():
        text = text[:1].upper() + text[1:]
    return text + ("" if text.endswith(".") else ".")
