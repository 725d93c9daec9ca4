"""Refuses a pool that does not fit the device's memory before anything of it is loaded, and says what would fit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from drafters.card import Card
from drafters.errors import PoolMemoryError
from drafters.hardware import format_bytes, free_memory
from drafters.memory import estimate

SKIP = "MULTIDRAFT_SKIP_MEMORY_CHECK"
"""An environment variable: if it is set, pools are loaded whatever the estimate says."""

SHORTEST_CONTEXT = 1024
"""Contexts shorter than this are not advised."""


def check_memory(card: Card, path: Path, device: str) -> None:
    """Refuse a pool that does not fit the device's free memory.

    A pool whose size is unknown passes: loading it says what is wrong.

    Raises:
        PoolMemoryError: it needs more than is free; the message says what would fit.
    """
    if os.environ.get(SKIP, "") not in ("", "0"):
        return
    free = free_memory(device)
    try:
        needed = estimate(card, path, device).total
    except Exception:  # whatever a configuration may lack
        return
    if free is None or needed <= free:
        return
    raise PoolMemoryError(
        f"pool {card.name!r} needs about {format_bytes(needed)} of memory on {device}, "
        f"where {format_bytes(free)} are free. {advice(card, path, device, free)}. "
        f"Set {SKIP}=1 to load it all the same",
        needed - free,
    )


def advice(card: Card, path: Path, device: str, free: int) -> str:
    """What would make a pool fit ``free`` bytes, in a sentence."""
    fitting = [f"{how} ({format_bytes(size)})" for how, size in remedies(card, path, device, free)]
    if not fitting:
        return "No quantisation, choice of drafters or shorter context of it would fit"
    return f"What would fit, in a copy of the card {path}: {'; '.join(fitting)}"


def remedies(card: Card, path: Path, device: str, free: int) -> list[tuple[str, int]]:
    """Changes to a card that make it fit ``free`` bytes, each with the bytes that are needed then.

    One way of each sort: a quantised target, fewer drafters, a shorter context; if none does, two of them together.
    """
    single = [found for ways in _ways(card, path, device) if (found := _first_fitting(ways, path, device, free))]
    if single:
        return [(how, size) for how, _, size in single]
    smallest = card.target.model_copy(update={"quantization": "nf4"})
    quantised = card.model_copy(update={"target": smallest})
    both = [found for ways in _ways(quantised, path, device) if (found := _first_fitting(ways, path, device, free))]
    return [(f"quantization: nf4 for the target and {how}", size) for how, _, size in both]


Way = tuple[str, Card]
"""A change in words, and the changed card."""


def _first_fitting(ways: Iterator[Way], path: Path, device: str, free: int) -> tuple[str, Card, int] | None:
    for how, card in ways:
        if (size := estimate(card, path, device).total) <= free:
            return how, card, size
    return None


def _ways(card: Card, path: Path, device: str) -> list[Iterator[Way]]:
    """Changes by sort, of each sort the mildest first."""
    return [_quantised(card), _fewer_drafters(card, path, device), _shorter_contexts(card, path, device)]


def _quantised(card: Card) -> Iterator[Way]:
    if card.target.quantization is None:
        for quantization in ("int8", "nf4"):
            target = card.target.model_copy(update={"quantization": quantization})
            yield f"quantization: {quantization} for the target", card.model_copy(update={"target": target})


def _fewer_drafters(card: Card, path: Path, device: str) -> Iterator[Way]:
    """Without the largest drafter, the two largest …; one has to stay."""
    sizes = {part.name: part.weights + part.cache for part in estimate(card, path, device).parts[1:]}
    largest = sorted(sizes, key=lambda name: -sizes[name])
    for count in range(1, len(largest) + 1):
        left = [entry for entry in card.drafters if entry.name not in largest[:count]]
        if left:
            yield f"without {' and '.join(largest[:count])}", card.model_copy(update={"drafters": left})


def _shorter_contexts(card: Card, path: Path, device: str) -> Iterator[Way]:
    window = estimate(card, path, device).context
    while window // 2 >= SHORTEST_CONTEXT:
        window //= 2
        yield f"context_window: {window}", card.model_copy(update={"context_window": window})
