"""The forward of plain decoders in PyTorch: 14 to 16 kernels a layer, whose shapes depend on no number they compute.

It is for few tokens on top of a cache, of one model or of N models of one shape, which then share every product. All
that varies between calls of one shape is in tensors, so that it can be recorded as a CUDA graph. What lies between the
products is done by :class:`TorchKernels`, or in fewer kernels by
:class:`~drafters.models.triton_layers.TritonKernels`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch.nn import functional

from drafters.models.attention import Rotation, attend
from drafters.models.torch_weights import Product, Weights

AT_ONCE = 64
"""Tables that differ by layer are made for all layers at once for up to so many tokens."""


@dataclass(frozen=True)
class Cache:
    """Keys and values of N texts, or of one text under N models.

    Attributes:
        written_keys, written_values: by layer, those of all texts, ``(places, kv heads, head size)``.
        keys, values: by layer, ``(N, kv heads, span, head size)``.
        cos, sin: by position, ``(positions, head size)``; the sines with their signs.
    """

    written_keys: Sequence[torch.Tensor]
    written_values: Sequence[torch.Tensor]
    keys: Sequence[torch.Tensor]
    values: Sequence[torch.Tensor]
    cos: torch.Tensor
    sin: torch.Tensor

    @property
    def span(self) -> int:
        """How many positions are looked at."""
        return self.keys[0].shape[2]


@dataclass(frozen=True)
class Tree:
    """What makes a tree of the tokens fed.

    Attributes:
        positions: ``(N, T)``.
        own: which of the tokens fed each of them sees, bool ``(N, T, T)``; all see what is cached.
    """

    positions: torch.Tensor
    own: torch.Tensor


@dataclass(frozen=True)
class Fed:
    """The tokens that N texts feed, T each.

    Attributes:
        ids: ``(N, T)``.
        start: how many positions are cached, ``(N, 1)``; those of the tokens follow them.
        places: where keys and values of the first token are written, ``(N, 1)``.
        bases: where position 0 of each text is, ``(N, 1)``.
        tree: by default the tokens are chains.
        bare: nothing needs to be hidden but later tokens of a text that begins here: a single token that sees the whole
            span, or one text with nothing cached, whose span are its tokens.
    """

    ids: torch.Tensor
    start: torch.Tensor
    places: torch.Tensor
    bases: torch.Tensor
    tree: Tree | None = None
    bare: bool = False

    @property
    def steps(self) -> torch.Tensor:
        """0, 1, … T - 1."""
        return torch.arange(self.ids.shape[1], device=self.ids.device)

    @property
    def positions(self) -> torch.Tensor:
        """``(N, T)``."""
        return self.start + self.steps if self.tree is None else self.tree.positions


class Kernels(Protocol):
    """What lies between the products of one forward. States are ``(N * T, hidden)``, or ``(N, T, hidden)`` of N models;
    what is asked by layer is asked layer by layer.

    Attributes:
        scattered: whether the texts may lie anywhere in the cache.
    """

    scattered: ClassVar[bool]

    def __init__(self, weights: Weights, cache: Cache, fed: Fed): ...

    def norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """The RMS norm of states."""

    def attention(self, layer: int, qkv: torch.Tensor) -> torch.Tensor:
        """Write keys and values, and attend to all so far; ``(…, heads * head size)``."""

    def added(
        self, product: Product, inputs: torch.Tensor, x: torch.Tensor, weight: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """States with a product added to them, and their norm."""

    def gated(self, gate_up: torch.Tensor) -> torch.Tensor:
        """SiLU of the first half times the second one."""


def run(
    kernels: type[Kernels],
    weights: Weights,
    cache: Cache,
    fed: Fed,
    hidden: Callable[[int, torch.Tensor], None] = lambda layer, states: None,
) -> torch.Tensor:
    """Hidden states after the final norm, ``(N * T, hidden)``, or ``(N, T, hidden)`` of N models; writes keys, values.

    Args:
        hidden: called with what enters each layer, and with what is returned.
    """
    between = kernels(weights, cache, fed)
    x = _embedded(weights, fed.ids)
    normed = between.norm(x, weights.layers[0].norm1)
    next_norms = [*(layer.norm1 for layer in weights.layers[1:]), weights.final_norm]
    for index, (layer, next_norm) in enumerate(zip(weights.layers, next_norms, strict=True)):
        hidden(index, x)
        attended = between.attention(index, layer.qkv(normed))
        x, normed = between.added(layer.out, attended, x, layer.norm2)
        x, normed = between.added(layer.down, between.gated(layer.gate_up(normed)), x, next_norm)
    hidden(len(weights.layers), normed)
    return normed


class TorchKernels:
    """As of :class:`Kernels`, by PyTorch's own."""

    scattered: ClassVar[bool] = False

    def __init__(self, weights: Weights, cache: Cache, fed: Fed):
        self._weights, self._cache, positions = weights, cache, fed.positions
        group = weights.heads // weights.kv_heads
        biases = None if fed.bare else _biases(weights, cache.span, fed.start, positions, fed.tree, group)
        self._biases = biases or (None, None)
        self._places = (fed.places + fed.steps).flatten()
        self._shape = fed.ids.shape
        self._rotations = iter(_rotations(weights, cache.cos[positions][:, None], cache.sin[positions][:, None]))

    def norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return self._weights.norm(x, weight)

    def attention(self, layer: int, qkv: torch.Tensor) -> torch.Tensor:
        weights, cache = self._weights, self._cache
        heads, kv_heads, size = weights.heads, weights.kv_heads, weights.head_size
        cos, sin = next(self._rotations)
        each = qkv.view(*self._shape, -1, size)
        rotary = each[:, :, : heads + kv_heads]
        if weights.head_norms is not None:
            rotary = functional.rms_norm(rotary, (size,), eps=weights.norm.eps)
        rotary = rotary.transpose(1, 2)
        low, high = rotary.chunk(2, dim=-1)
        # Joining copies, with the heads before the tokens as attention wants them.
        rotated = torch.cat((high, low), dim=-1).mul_(sin).addcmul_(rotary, cos)
        new_keys = rotated[:, heads:].transpose(1, 2)
        cache.written_keys[layer].index_copy_(0, self._places, new_keys.flatten(0, 1))
        cache.written_values[layer].index_copy_(0, self._places, each[:, :, heads + kv_heads :].flatten(0, 1))
        bias = self._biases[weights.layers[layer].slides]
        attended = attend(rotated[:, :heads], cache.keys[layer], cache.values[layer], bias)
        return attended.reshape(*qkv.shape[:-1], -1)

    def added(
        self, product: Product, inputs: torch.Tensor, x: torch.Tensor, weight: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        x = product(inputs, x)
        return x, self.norm(x, weight)

    def gated(self, gate_up: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return functional.silu(gate).mul_(up)


def _embedded(weights: Weights, ids: torch.Tensor) -> torch.Tensor:
    ids = ids.clamp(max=weights.embedding.shape[1] - 1)  # of the target, lacking here
    if weights.count == 1:
        return functional.embedding(ids.flatten(), weights.embedding[0])
    each = ids.reshape(weights.count, -1)
    return weights.embedding[torch.arange(weights.count, device=ids.device)[:, None], each]


def _rotations(weights: Weights, cos: torch.Tensor, sin: torch.Tensor) -> Iterable[Rotation]:
    """What each layer multiplies queries and keys with, and what it multiplies them with swapped by halves; the weights
    of their norms are in it."""
    norms = weights.head_norms
    if norms is None:
        return [(cos, sin)] * len(weights.layers)
    swapped = norms.roll(weights.head_size // 2, dims=-1)
    if cos.shape[2] > AT_ONCE:
        return ((cos * norm, sin * other) for norm, other in zip(norms, swapped, strict=True))
    return zip((cos * norms).unbind(), (sin * swapped).unbind(), strict=True)


def _biases(
    weights: Weights, span: int, start: torch.Tensor, positions: torch.Tensor, tree: Tree | None, group: int
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """What layers without and with a sliding window add to scores, ``(N, 1, group * T, span)``: once for each query
    head that shares a key. ``None`` where no layer asks for it."""
    slots = torch.arange(span, device=start.device)
    seats = positions[..., None]
    if tree is None:
        seen, places = slots <= seats, slots
    else:
        length = tree.own.shape[-1]
        # By how far a slot is from the first token fed: all see what is before it, none what is after the last one.
        known = functional.pad(functional.pad(tree.own, (1, 0), value=True), (0, 1), value=False)
        away = (slots - start).clamp(-1, length) + 1
        seen = known.gather(2, away[:, None].expand(-1, length, -1))
        fed = functional.pad(positions, (1, 1)).gather(1, away)
        places = torch.where(away == 0, slots, fed)[:, None]

    def additive(shown: torch.Tensor) -> torch.Tensor:
        bias = torch.zeros(shown.shape, dtype=weights.embedding.dtype, device=shown.device)
        return bias.masked_fill_(~shown, -torch.inf).repeat(1, group, 1)[:, None]

    window, slides = weights.sliding_window, [layer.slides for layer in weights.layers]
    return (
        None if all(slides) else additive(seen),
        additive(seen & (places > seats - window)) if window is not None and any(slides) else None,
    )
