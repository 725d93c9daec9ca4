"""How much memory a pool needs, estimated before any of its weights are fetched, and what would fit instead."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from drafters.card import Card
from drafters.checkpoints.model_sizes import (
    cache_numbers,
    config_of,
    prefill_bytes,
    skeleton,
    text_config,
    weight_bytes,
    window_of,
)
from drafters.errors import PoolMemoryError
from drafters.hardware import GIB, format_bytes, free_memory
from drafters.kinds.base import SizeContext
from drafters.models.decoder import runtime_of
from drafters.source import Quantization, Source

CUDA_RESERVE = GIB // 2
"""For CUDA's libraries, their workspaces and what the allocator cannot use of its blocks."""

SKIP = "MULTIDRAFT_SKIP_MEMORY_CHECK"
"""An environment variable: if it is set, pools are loaded whatever the estimate says."""

SHORTEST_CONTEXT = 1024
"""Contexts shorter than this are not advised."""


@dataclass(frozen=True)
class Part:
    """Memory of one model or head.

    Attributes:
        name: of the drafter, or ``target``.
        parameters: numbers of its weights.
        weights, cache: bytes, of the cache in a full context; 0 for what is shared.
        shares: the part whose weights and cache it uses.
    """

    name: str
    kind: str
    parameters: int
    weights: int
    cache: int
    quantization: Quantization | None = None
    shares: str | None = None


@dataclass(frozen=True)
class Estimate:
    """Memory of a pool, in bytes.

    Attributes:
        context: the tokens of the longest context.
        parts: the target first, then the drafters with weights, in the card's order.
        working: what the largest forward (the prefill of a full context) or the loading needs besides.
        reserve: what the device's libraries take.
    """

    context: int
    parts: tuple[Part, ...]
    working: int
    reserve: int

    @property
    def total(self) -> int:
        """All of it."""
        return sum(part.weights + part.cache for part in self.parts) + self.working + self.reserve


def estimate(card: Card, path: Path, device: str) -> Estimate:
    """What the pool of ``card``, from the file ``path``, needs on ``device``; :class:`~drafters.errors.PoolError` where
    a configuration cannot be read or fetched."""
    dtype, quantization = getattr(torch, card.dtype), card.target.quantization
    model = skeleton(*config_of(card.target, path))
    own = window_of(model)
    tokens = min(own or card.context_window or 4096, card.context_window or own or 4096)
    context = SizeContext(path, model, tokens, card.draft_length, dtype, device)
    footprints = [(entry, size) for entry in card.drafters if (size := entry.footprint(context))]
    watched = len(frozenset().union(*(size.hidden_states for _, size in footprints)))
    states = 2 * watched * text_config(model).hidden_size  # buffered with as much room again as they fill
    copies = 1 if quantization or runtime_of(model, dtype, device) == "hub" else 2
    parts = [
        Part(
            "target",
            type(model).__name__,
            model.num_parameters(),
            weight_bytes(model, dtype.itemsize, quantization) * copies,
            dtype.itemsize * tokens * (cache_numbers(text_config(model)) + states),
            quantization,
        )
    ]
    for entry, size in footprints:
        other, source = card.shares_with(entry), entry.source
        weights, cache = (0, 0) if other else (size.weights, size.cache)
        stored = source.quantization if source else None
        parts.append(Part(entry.name, entry.kind, size.parameters, weights, cache, stored, other))
    forward = prefill_bytes(model, tokens, dtype.itemsize, all_states=bool(watched) and copies == 1)
    forward = max(forward, *(size.working for _, size in footprints), 0)
    # Verification: logits of the largest draft, as they come and as probabilities, and those of a drafter beside them.
    nodes = 1 + max(entry.most_nodes(card.draft_length) for entry in card.drafters)
    forward += 3 * 4 * nodes * text_config(model).vocab_size
    working = max(forward, sum(size.loading for _, size in footprints))
    return Estimate(tokens, tuple(parts), working, CUDA_RESERVE if device.startswith("cuda") else 0)


def describe_estimate(card: Card, path: Path, device: str) -> dict[str, Any]:
    """An estimate for printing: bytes by part, and what is free (``None`` where that is unknown)."""
    found = estimate(card, path, device)
    asked = {"pool": card.name, "device": device, "dtype": card.dtype}
    return {**asked, **asdict(found), "total": found.total, "free": free_memory(device)}


def render_estimate(content: dict[str, Any]) -> str:
    """A Markdown table of :func:`describe_estimate`."""
    unit, name = (GIB, "GiB") if content["total"] >= GIB else (1 << 20, "MiB")
    lines = [
        f"Memory of pool {content['pool']} on {content['device']} in {name}, in contexts of up to "
        f"{content['context']:,} tokens:\n",
        "| | kind | parameters | weights as | weights | cache |",
        "|---|---|---|---|---|---|",
    ]
    for part in content["parts"]:
        size = f"{part['parameters'] / 1e6:,.1f}M"
        stored = part["quantization"] or content["dtype"]
        numbers = f"{part['weights'] / unit:.2f} | {part['cache'] / unit:.2f}"
        if other := part["shares"]:
            numbers = f"in {other} | in {other}"
        lines.append(f"| {part['name']} | {part['kind']} | {size} | {stored} | {numbers} |")
    free = "unknown" if content["free"] is None else format_bytes(content["free"])
    reserve = f" and {format_bytes(content['reserve'])} for CUDA's libraries" if content["reserve"] else ""
    total = f"needs {format_bytes(content['total'])}; free: {free}."
    lines.append(f"\nWith {format_bytes(content['working'])} to work in{reserve} it {total}")
    if "advice" in content:
        lines.append(f"That does not fit. {content['advice']}.")
    return "\n".join(lines)


def check_memory(card: Card, path: Path, device: str) -> None:
    """Refuse a pool that does not fit the device's free memory; one of unknown size passes, as loading it says why.

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
    smaller = card.model_copy(update={"target": _quantised(card, "nf4")})
    return _mildest(card, path, device, free) or [
        (f"quantization: nf4 for the target and {how}", size) for how, size in _mildest(smaller, path, device, free)
    ]


def _mildest(card: Card, path: Path, device: str, free: int) -> list[tuple[str, int]]:
    """Of each sort of change the mildest that fits."""
    found = list[tuple[str, int]]()
    for ways in _changes(card, estimate(card, path, device)):
        sizes = ((how, estimate(card.model_copy(update=changed), path, device).total) for how, changed in ways)
        found += islice(((how, size) for how, size in sizes if size <= free), 1)
    return found


def _changes(card: Card, now: Estimate) -> list[list[tuple[str, dict[str, Any]]]]:
    """Changes in words and as fields of the card, by sort, the mildest first; one drafter has to stay."""
    kinds = ("int8", "nf4") if card.target.quantization is None else ()
    largest = [part.name for part in sorted(now.parts[1:], key=lambda part: -(part.weights + part.cache))]
    without = [largest[:count] for count in range(1, len(largest) + 1)]
    left = [[entry for entry in card.drafters if entry.name not in names] for names in without]
    windows = [now.context >> halvings for halvings in range(1, 32)]
    return [
        [(f"quantization: {kind} for the target", {"target": _quantised(card, kind)}) for kind in kinds],
        [(f"without {' and '.join(names)}", {"drafters": rest}) for names, rest in zip(without, left) if rest],
        [(f"context_window: {size}", {"context_window": size}) for size in windows if size >= SHORTEST_CONTEXT],
    ]


def _quantised(card: Card, quantization: str) -> Source:
    return card.target.model_copy(update={"quantization": quantization})
