"""How much memory a pool needs, estimated before any of its weights are loaded or fetched."""

from __future__ import annotations

from dataclasses import dataclass
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
from drafters.hardware import GIB, format_bytes, free_memory
from drafters.kinds.base import SizeContext
from drafters.models.llama import stacked_copies, unsupported
from drafters.source import Quantization

CUDA_RESERVE = GIB // 2
"""For CUDA's libraries, their workspaces and what the allocator cannot use of its blocks."""


@dataclass(frozen=True)
class Part:
    """Memory of one model or head.

    Attributes:
        name: of the drafter, or ``target``.
        parameters: numbers of its weights.
        weights, cache: bytes of the weights, and of the cache in a full context; 0 for what is shared.
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
        parts: the target first, then the drafters with weights, in the card's order.
        context: the tokens of the longest context.
        working: what the largest forward (the prefill of a full context) or the loading needs besides.
        reserve: what the device's libraries take.
    """

    parts: tuple[Part, ...]
    context: int
    working: int
    reserve: int

    @property
    def total(self) -> int:
        """All of it."""
        return sum(part.weights + part.cache for part in self.parts) + self.working + self.reserve


def estimate(card: Card, path: Path, device: str) -> Estimate:
    """What the pool of ``card`` needs on ``device``.

    Args:
        path: the card's file.

    Raises:
        PoolError: a configuration cannot be read or fetched.
    """
    dtype, quantization = getattr(torch, card.dtype), card.target.quantization
    model = skeleton(*config_of(card.target, path))
    own = window_of(model)
    tokens = min(own or card.context_window or 4096, card.context_window or own or 4096)
    context = SizeContext(path, model, tokens, card.draft_length, dtype, device)
    footprints = {entry.name: size for entry in card.drafters if (size := entry.footprint(context))}
    watched = len(frozenset().union(*(size.hidden_states for size in footprints.values())))
    states = 2 * watched * text_config(model).hidden_size  # buffered with as much room again as they fill
    lean = quantization is None and unsupported(model) is None
    parts = [
        Part(
            "target",
            type(model).__name__,
            model.num_parameters(),
            weight_bytes(model, dtype.itemsize, quantization) * (stacked_copies(model, dtype, device) if lean else 1),
            dtype.itemsize * tokens * (cache_numbers(text_config(model)) + states),
            quantization,
        )
    ]
    for entry in card.drafters:
        if size := footprints.get(entry.name):
            other, source = card.shares_with(entry), entry.source
            weights, cache = (0, 0) if other else (size.weights, size.cache)
            stored = source.quantization if source else None
            parts.append(Part(entry.name, entry.kind, size.parameters, weights, cache, stored, other))
    forward = prefill_bytes(model, tokens, dtype.itemsize, all_states=bool(watched) and not lean)
    forward = max(forward, *(size.working for size in footprints.values()), 0)
    # Verification: logits of the largest draft, as they come and as probabilities, and those of a drafter beside them.
    nodes = 1 + max(entry.most_nodes(card.draft_length) for entry in card.drafters)
    forward += 3 * 4 * nodes * text_config(model).vocab_size
    working = max(forward, sum(size.loading for size in footprints.values()))
    return Estimate(tuple(parts), tokens, working, CUDA_RESERVE if device.startswith("cuda") else 0)


def describe_estimate(card: Card, path: Path, device: str) -> dict[str, Any]:
    """An estimate for printing: bytes by part, and what is free (``None`` where that is unknown)."""
    found = estimate(card, path, device)
    return {
        "pool": card.name,
        "device": device,
        "dtype": card.dtype,
        "context": found.context,
        "parts": [vars(part) for part in found.parts],
        "working": found.working,
        "reserve": found.reserve,
        "total": found.total,
        "free": free_memory(device),
    }


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
