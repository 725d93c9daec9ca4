"""How much memory a pool needs, told before any of its weights is loaded or fetched."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaForCausalLM, PreTrainedModel

from drafters.card import KINDS, Card, DrafterCard, Quantization
from drafters.head_shapes import head_size
from drafters.shapes import cache_numbers, config_of, skeleton, text_config, weight_bytes, window_of
from multidraft.hardware import free_memory
from multidraft.llama import unsupported
from multidraft.projection import HELD_TWICE

GIB = 1 << 30
CUDA_RESERVE = GIB // 2
"""For CUDA's libraries, their workspaces and what the allocator cannot use of its blocks."""


@dataclass(frozen=True)
class Part:
    """Memory of one model or head.

    Attributes:
        name: of the drafter, or ``target``.
        parameters: numbers of its weights.
        weights, cache: bytes of the weights, and of what is kept of a full context; none of what is shared.
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
    itemsize = getattr(torch, card.dtype).itemsize
    model = skeleton(*config_of(card.target, path))
    own = window_of(model)
    context = min(own or card.context_window or 4096, card.context_window or own or 4096)
    lean = card.target.quantization is None and unsupported(model) is None
    heads = {e.name: head_size(e, path, model) for e in card.drafters if _reads_states(e)}
    watched = len(frozenset().union(*(size.layers for size in heads.values())))
    states = 2 * watched * text_config(model).hidden_size  # kept with as much room again as they fill
    parts = [
        Part(
            "target",
            type(model).__name__,
            model.num_parameters(),
            weight_bytes(model, itemsize, card.target.quantization)
            * (_copies(model, card.dtype, device) if lean else 1),
            itemsize * context * (cache_numbers(text_config(model)) + states),
            card.target.quantization,
        )
    ]
    working = _prefill(model, context, itemsize, all_states=bool(watched) and not lean)
    doubled = 0
    for entry in card.drafters:
        if entry.kind == "lm":
            part, drafter = _language_model(entry, card, path, model, context, device)
            doubled += part.weights if _stacked(drafter, entry, model) else 0
            working = max(working, _prefill(drafter, min(context, _reads(entry, drafter, context)), itemsize))
            parts.append(part)
        elif size := heads.get(entry.name):
            other = card.shares_with(entry)
            weights, cached = (0, 0) if other else (itemsize * size.parameters, itemsize * context * size.cached)
            parts.append(Part(entry.name, entry.kind, size.parameters, weights, cached, shares=other))
    # Verification: logits of the largest draft, as they come and as probabilities, and those of a drafter beside them.
    nodes = max([card.draft_length, *(entry.nodes or 0 for entry in card.drafters)]) + 1
    working = max(working + 3 * 4 * nodes * text_config(model).vocab_size, doubled)
    return Estimate(tuple(parts), context, working, CUDA_RESERVE if device.startswith("cuda") else 0)


def _reads_states(entry: DrafterCard) -> bool:
    """Whether it is a head on the target's hidden states."""
    return entry.kind == "mtp" or (KINDS[entry.kind][0] == "model" and entry.kind != "lm")


def _language_model(
    entry: DrafterCard, card: Card, path: Path, target: PreTrainedModel, context: int, device: str
) -> tuple[Part, PreTrainedModel]:
    itemsize = getattr(torch, card.dtype).itemsize
    model = skeleton(*config_of(entry.source, path))
    weights = weight_bytes(model, itemsize, entry.quantization)
    kept = min(context, _reads(entry, model, context) + card.draft_length)
    if _stacked(model, entry, target):
        weights *= _copies(model, card.dtype, device) - 1  # the library's own copy is let go
        kept = window_of(model) or kept  # a stack's cache is made for its whole window at once
    cached = itemsize * kept * cache_numbers(text_config(model))
    return Part(entry.name, "lm", model.num_parameters(), weights, cached, entry.quantization), model


def _reads(entry: DrafterCard, model: PreTrainedModel, context: int) -> int:
    """Most tokens of a context that a drafter reads."""
    return min(entry.window or context, window_of(model) or context)


def _stacked(model: PreTrainedModel, entry: DrafterCard, target: PreTrainedModel) -> bool:
    """Whether it will run as part of a :class:`~multidraft.llama.LlamaStack`."""
    same = text_config(model).vocab_size == text_config(target).vocab_size
    return entry.quantization is None and isinstance(model, LlamaForCausalLM) and same and unsupported(model) is None


def _copies(model: PreTrainedModel, dtype: str, device: str) -> int:
    """How often a Llama that runs in a stack is held: as the library has it, and as the stack has it, which on a CPU
    keeps both packed and plain matrices unless the model is large."""
    packed = device == "cpu" and dtype == "float32" and model.num_parameters() <= HELD_TWICE
    return 3 if packed else 2


def _prefill(model: PreTrainedModel, tokens: int, itemsize: int, all_states: bool = False) -> int:
    """Bytes that a forward over so many tokens needs besides weights and cache.

    At its largest it holds the three products of an MLP, and some six copies of the hidden states (residual, norms in
    float32, attention); with ``all_states`` also those of all layers, as the library gives them to heads.
    """
    config = text_config(model)
    hidden = int(config.hidden_size)
    inner = int(getattr(config, "intermediate_size", None) or 4 * hidden)
    states = (int(config.num_hidden_layers) + 1) * hidden if all_states else 0
    return itemsize * tokens * (3 * inner + 6 * hidden + states)


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
    free = "unknown" if content["free"] is None else in_words(content["free"])
    reserve = f" and {in_words(content['reserve'])} for CUDA's libraries" if content["reserve"] else ""
    total = f"needs {in_words(content['total'])}; free: {free}."
    lines.append(f"\nWith {in_words(content['working'])} to work in{reserve} it {total}")
    if "advice" in content:
        lines.append(f"That does not fit. {content['advice']}.")
    return "\n".join(lines)


def in_words(size: int) -> str:
    """Bytes as GiB, small ones as MiB or KiB."""
    for unit, name in ((GIB, "GiB"), (1 << 20, "MiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size / 1024:.0f} KiB"
