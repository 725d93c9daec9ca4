"""How much memory a pool needs, estimated before any of its weights are fetched, and what would fit instead."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from drafters.caches import SETTING, Caches
from drafters.card import Card
from drafters.checkpoints.model_sizes import cache_numbers, config_of, prefill_bytes, skeleton, weight_bytes, window_of
from drafters.errors import MisfitError, PoolMemoryError
from drafters.hardware import GIB, format_bytes, free_memory
from drafters.kinds.base import SizeContext
from drafters.models.int8 import packed_bytes
from drafters.models.runtimes import cached_positions, runtime_of
from drafters.source import Quantization, Source

CUDA_RESERVE = GIB // 2
"""For CUDA's libraries, their workspaces and what the allocator cannot use of its blocks."""

SKIP = "MULTIDRAFT_SKIP_MEMORY_CHECK"
"""An environment variable: if it is set, pools are loaded whatever the estimate says."""

SHARE = 0.9
"""Of the memory that weights and the largest forward leave, what keys and values may take where no budget is set."""

SHORTEST_CONTEXT = 1024
"""Contexts shorter than this are not advised."""


@dataclass(frozen=True)
class Part:
    """Memory of one model or head.

    Attributes:
        name: of the drafter, or ``target``.
        parameters: numbers of its weights.
        weights, cache: bytes, of the cache in a full context; 0 for what is shared. Weights that a runtime has a copy
            of count twice.
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
        drafts: what verifying a text's draft needs: logits, as they come and as probabilities.
        working: what the largest forward (the prefill of a full context) needs besides.
        reserve: what the device's libraries take.
    """

    context: int
    parts: tuple[Part, ...]
    drafts: int
    working: int
    reserve: int

    @property
    def text(self) -> int:
        """What each text under way needs in a full context."""
        return sum(part.cache for part in self.parts) + self.drafts

    @property
    def alone(self) -> int:
        """What the pool needs without any text."""
        return sum(part.weights for part in self.parts) + self.working + self.reserve

    @property
    def total(self) -> int:
        """What it needs with one text."""
        return self.alone + self.text

    def texts(self, free: int) -> int:
        """How many texts there is room for at once, each in a full context, where so many bytes are free."""
        return max(free - self.alone, 0) // self.text


def estimate(card: Card, path: Path, device: str) -> Estimate:
    """What the pool of ``card``, from the file ``path``, needs on ``device``; :class:`~drafters.errors.PoolError` where
    a configuration cannot be read or fetched."""
    dtype, quantization = getattr(torch, card.dtype), card.target.quantization
    model = skeleton(*config_of(card.target, path))
    config, own = model.config.get_text_config(), window_of(model)
    tokens = min(own or card.context_window or 4096, card.context_window or own or 4096)
    context = SizeContext(path, model, tokens, card.draft_length, dtype, device, quantization)
    footprints = [(entry, size) for entry in card.drafters if (size := entry.footprint(context))]
    watched = len(frozenset().union(*(size.hidden_states for _, size in footprints)))
    states = 2 * watched * config.hidden_size  # buffered with as much room again as they fill
    runtime = runtime_of(model, dtype, device)
    packed = packed_bytes(model) if runtime == "onnx" and not quantization else 0
    parts = [
        Part(
            "target",
            type(model).__name__,
            model.num_parameters(),
            weight_bytes(model, dtype.itemsize, quantization) + packed,
            dtype.itemsize * (cached_positions(runtime, tokens, own) * cache_numbers(config) + tokens * states),
            quantization,
        )
    ]
    for entry, size in footprints:
        other = card.shares_with(entry)
        weights, cache = (0, 0) if other else (size.weights, size.cache)
        parts.append(Part(entry.name, entry.kind, size.parameters, weights, cache, entry.stored_as, other))
    all_states = bool(watched) and (runtime == "hub" or bool(quantization))
    forward = prefill_bytes(model, tokens, dtype.itemsize, all_states)
    working = max([forward, *(size.working for _, size in footprints)])
    # Logits of the largest draft, as they come and as probabilities, and those of a drafter beside them.
    drafts = 3 * 4 * (1 + _most_nodes(card)) * config.vocab_size
    return Estimate(tokens, tuple(parts), drafts, working, CUDA_RESERVE if device.startswith("cuda") else 0)


def _most_nodes(card: Card) -> int:
    return max(entry.most_nodes(card.draft_length) for entry in card.drafters)


def text_bytes(card: Card, path: Path, device: str, tokens: int, *, remote: bool = False) -> int:
    """What a text of at most ``tokens`` tokens and a draft need beside the weights; without the target's part where
    that runs in another engine (``remote``). Otherwise as :func:`estimate`."""
    room = min(tokens + _most_nodes(card), card.context_window or 1 << 30)
    found = estimate(card.model_copy(update={"context_window": room}), path, device)
    return found.text - (found.parts[0].cache if remote else 0)


def describe_estimate(card: Card, path: Path, device: str) -> dict[str, Any]:
    """An estimate for printing: bytes by part, and what is free and for how many texts that is enough (``None`` where
    that is unknown)."""
    found, free = estimate(card, path, device), free_memory(device)
    asked = {"pool": card.name, "device": device, "dtype": card.dtype}
    sizes = {"text": found.text, "total": found.total, "free": free}
    return {**asked, **asdict(found), **sizes, "texts": None if free is None else found.texts(free)}


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

    def size_of(bytes_: int) -> str:
        return f"{bytes_ / unit:,.2f} {name}"

    free = "unknown" if content["free"] is None else size_of(content["free"])
    reserve = f", {size_of(content['reserve'])} for CUDA's libraries" if content["reserve"] else ""
    weights = size_of(sum(part["weights"] for part in content["parts"]))
    lines.append(
        f"\nIt needs {weights} for weights, {size_of(content['working'])} to work in{reserve} and "
        f"{size_of(content['text'])} for each text under way: {size_of(content['total'])} with one text; free: {free}."
    )
    if content["texts"]:
        lines.append(f"That is enough for {content['texts']:,} at once; shorter texts take less each.")
    if "advice" in content:
        lines.append(f"That does not fit. {content['advice']}.")
    return "\n".join(lines)


def check_memory(card: Card, path: Path, device: str, budget: int | None = None) -> Caches:
    """Refuse a pool that does not fit the device's free memory; one of unknown size passes, as loading it says why.

    Args:
        budget: bytes for the keys and values of all texts under way; by default what the pool leaves free, at least
            those of one text in a full context.

    Returns:
        The budget of its texts.

    Raises:
        MisfitError: its parts do not fit together.
        PoolMemoryError: it needs more than is free; the message says what would fit.
    """
    free = free_memory(device)
    try:
        found = estimate(card, path, device)
    except MisfitError:
        raise
    except Exception:  # whatever a configuration may lack
        return Caches(budget=None)
    needed = found.alone + (found.text if budget is None else budget)
    if free is not None and needed > free and os.environ.get(SKIP, "") in ("", "0"):
        what, remedy = "", advice(card, path, device, free)
        if budget is not None:
            what = f", {format_bytes(budget)} of it for keys and values"
            remedy = f"Lower {SETTING}" if found.total <= free else f"{remedy}, and a lower {SETTING}"
        raise PoolMemoryError(
            f"pool {card.name!r} needs about {format_bytes(needed)} of memory on {device}{what}, "
            f"where {format_bytes(free)} are free. {remedy}. "
            f"Set {SKIP}=1 to load it all the same",
            needed - free,
        )
    if budget is None and free is not None:
        budget = max(found.text, int(SHARE * (free - found.alone)))
    return Caches(partial(text_bytes, card, path, device), budget)


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
