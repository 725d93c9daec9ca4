"""The forward of plain decoders in PyTorch: 14 to 16 kernels a layer, whose shapes depend on no number they compute.

It is for few tokens on top of a cache, of one model or of N models of one shape, which then share every product. All
that varies between calls of one shape is in tensors, so that it can be recorded as a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from drafters.models.torch_weights import Weights

Rotation = tuple[torch.Tensor, torch.Tensor]

AT_ONCE = 64
"""Tables that differ by layer are made for all layers at once for up to so many tokens."""


@dataclass(frozen=True)
class Cache:
    """Keys and values of N texts, or of one text under N models.

    Attributes:
        written_keys, written_values: by layer, those of all texts, ``(places, kv heads, head size)``.
        keys, values: by layer, ``(N, kv heads, span, head size)``.
        bases: where the first position of each is among them, ``(N, 1)``.
        cos, sin: by position, ``(positions, head size)``; the sines with their signs.
    """

    written_keys: Sequence[torch.Tensor]
    written_values: Sequence[torch.Tensor]
    keys: Sequence[torch.Tensor]
    values: Sequence[torch.Tensor]
    bases: torch.Tensor
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


def run(
    weights: Weights,
    cache: Cache,
    ids: torch.Tensor,
    start: torch.Tensor,
    at: torch.Tensor,
    *,
    tree: Tree | None = None,
    bare: bool = False,
    hidden: Callable[[int, torch.Tensor], None] = lambda layer, states: None,
) -> torch.Tensor:
    """Hidden states ``(N, T, hidden)`` after the last layer, before the final norm; writes keys and values.

    Args:
        ids: ``(N, T)``.
        start: how many positions are cached, ``(N, 1)``; those of the tokens follow them.
        at: where keys and values are written, ``(N, 1)``: ``start``, or where nothing is read.
        bare: nothing needs to be hidden but later tokens of a text that begins here: a single token that sees the whole
            span, or one text with nothing cached, whose span are its tokens.
        hidden: called with what enters each layer, ``(N * T, hidden)``, or ``(N, T, hidden)`` of N models.
    """
    (rows, length), size = ids.shape, weights.head_size
    heads, kv_heads = weights.heads, weights.kv_heads
    group = heads // kv_heads
    steps = torch.arange(length, device=ids.device)
    positions = start + steps if tree is None else tree.positions
    places = (cache.bases + at + steps).flatten()
    biases = (None, None) if bare else _biases(weights, cache.span, start, positions, tree, group)
    x = _embedded(weights, ids)
    rotations = _rotations(weights, cache.cos[positions][:, None], cache.sin[positions][:, None])
    for index, (layer, (cos, sin)) in enumerate(zip(weights.layers, rotations, strict=True)):
        hidden(index, x)
        each = layer.qkv(weights.norm(x, layer.norm1)).view(rows, length, -1, size)
        rotary = each[:, :, : heads + kv_heads]
        if weights.head_norms is not None:
            rotary = functional.rms_norm(rotary, (size,), eps=weights.norm.eps)
        rotary = rotary.transpose(1, 2)
        low, high = rotary.chunk(2, dim=-1)
        # Joining copies, with the heads before the tokens as attention wants them.
        rotated = torch.cat((high, low), dim=-1).mul_(sin).addcmul_(rotary, cos)
        new_keys = rotated[:, heads:].transpose(1, 2)
        cache.written_keys[index].index_copy_(0, places, new_keys.flatten(0, 1))
        cache.written_values[index].index_copy_(0, places, each[:, :, heads + kv_heads :].flatten(0, 1))
        keys, values = cache.keys[index], cache.values[index]
        attended = _attend(rotated[:, :heads], keys, values, biases[layer.slides], kv_heads)
        x = layer.out(attended.reshape(*x.shape[:-1], -1), x)
        gate, up = layer.gate_up(weights.norm(x, layer.norm2)).chunk(2, dim=-1)
        x = layer.down(functional.silu(gate).mul_(up), x)
    hidden(len(weights.layers), x)
    return x


def logits_of(weights: Weights, x: torch.Tensor) -> torch.Tensor:
    """Logits ``(…, V)`` of hidden states ``(T, hidden)``, or ``(N, T, hidden)`` of N models."""
    return weights.head(weights.norm(x, weights.final_norm))


def _embedded(weights: Weights, ids: torch.Tensor) -> torch.Tensor:
    ids = ids.clamp(max=weights.embedding.shape[1] - 1)  # of the target, lacking here
    if weights.count == 1:
        return functional.embedding(ids.flatten(), weights.embedding[0])
    return weights.embedding[torch.arange(weights.count, device=ids.device)[:, None], ids]


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


def _attend(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, bias: torch.Tensor | None, kv_heads: int
) -> torch.Tensor:
    """Attention of queries ``(N, heads, T, head size)``; ``(N, T, heads, head size)``."""
    (rows, _, length, size), group = query.shape, query.shape[1] // kv_heads
    if bias is None and length > 1:
        attended = functional.scaled_dot_product_attention(query, keys, values, is_causal=True, enable_gqa=group > 1)
        return attended.transpose(1, 2)
    # Query heads that share a key stand as rows of one product: no kernel for grouped queries takes a mask.
    each = query.reshape(rows, kv_heads, group * length, size)
    attended = functional.scaled_dot_product_attention(each, keys, values, attn_mask=bias)
    # Some kernels return strides that no view could regroup, so dimensions are only split before they are moved.
    return attended.unflatten(2, (group, length)).permute(0, 3, 1, 2, 4)
