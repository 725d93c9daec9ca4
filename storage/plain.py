"""Values that both JSON and SQLite can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """``value`` as plain Python, copied: numbers of numpy and torch as Python's own, arrays and tuples as lists.

    Infinities and NaN become ``None``, and lone surrogates in texts U+FFFD: neither JSON nor UTF-8 has them.
    """
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if hasattr(value, "_asdict"):  # a named tuple
        value = value._asdict()
    if isinstance(value, Mapping):
        return {plain(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, datetime):
        return utc_text(value)
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def utc_text(moment: datetime) -> str:
    """ISO 8601 in UTC, always with microseconds, so that the order of texts is that of time; naive means UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
