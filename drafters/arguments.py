"""What is given as an argument, as what it should be; ``None`` for what is not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index
from typing import Any

import numpy as np


def whole(value: Any) -> int | None:
    """``value`` as an ``int``, NumPy's among them; ``None`` for what is no whole number, such as ``True``."""
    try:
        return None if isinstance(value, bool) else index(value)
    except TypeError:
        return None


def whole_numbers(value: object) -> list[int] | None:
    """A sequence or array of whole numbers as a list; ``None`` for anything else."""
    value = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return None
    numbers = [number for one in value if (number := whole(one)) is not None]
    return numbers if len(numbers) == len(value) else None


def texts_of(value: Any) -> tuple[str, ...] | None:
    """The texts in a list or another collection; ``None`` for what is none, such as a single text, whose letters are
    not meant."""
    found = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (None,)
    return found if all(isinstance(text, str) for text in found) else None
