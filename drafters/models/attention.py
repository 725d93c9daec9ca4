"""Layers for a few tokens on top of a key-value cache that is written in place."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

Rotation = tuple[torch.Tensor, torch.Tensor]
"""Cosines and signed sines by which queries and keys are rotated; see :func:`rotation_table`."""


def rotation_table(rotary: torch.nn.Module, like: torch.Tensor, window: int) -> Rotation:
    """Cosines and sines of all positions of ``window``, ``(window, 1, head size)``.

    Args:
        rotary: a rotary embedding of ``transformers``.
        like: a tensor of the device and dtype wanted.
    """
    cos, sin = rotary(like.reshape(1, 1, -1)[..., :1], torch.arange(window, device=like.device)[None])
    # Rotation multiplies (-high, low) by the sine: the sign is put into the table once.
    low, high = sin[0, :, None].chunk(2, dim=-1)
    return cos[0, :, None], torch.cat([-low, high], dim=-1)


def attend(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Attention of queries ``(N, heads, T, head size)`` to keys and values ``(N, kv heads, span, head size)``;
    ``(N, T, heads, head size)``.

    Args:
        bias: what is added to the scores, ``(…, group * T, span)``, once for each query head that shares a key. By
            default T > 1 tokens are causal and alone, and a single one sees all.
    """
    (rows, heads, length, size), kv_heads = query.shape, keys.shape[1]
    if bias is None and length > 1:
        return attend_to_own(query, keys, values)
    # Query heads that share a key stand as rows of one product: no kernel for grouped queries takes a mask.
    group = heads // kv_heads
    each = query.reshape(rows, kv_heads, group * length, size)
    attended = functional.scaled_dot_product_attention(each, keys, values, attn_mask=bias)
    # Some kernels return strides that no view could regroup, so dimensions are only split before they are moved.
    return attended.unflatten(2, (group, length)).permute(0, 3, 1, 2, 4)


def attend_to_own(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Causal attention of queries ``(N, heads, T, head size)`` to T keys; ``(N, T, heads, head size)``."""
    shared = query.shape[1] > keys.shape[1]
    attended = functional.scaled_dot_product_attention(query, keys, values, is_causal=True, enable_gqa=shared)
    return attended.transpose(1, 2)


@dataclass(frozen=True)
class Attention:
    """Grouped-query attention of one text, over a cache of its own.

    Attributes:
        heads, kv_heads: query heads, and heads of keys and values, each shared by ``heads / kv_heads`` of them.
        head_size: numbers per head.
    """

    heads: int
    kv_heads: int
    head_size: int

    def cache(self, window: int, like: torch.Tensor) -> torch.Tensor:
        """An empty cache, keys then values: ``(1, 2 kv heads, window, head size)``."""
        return like.new_zeros(1, 2 * self.kv_heads, window, self.head_size)

    def bias(self, mask: torch.Tensor | None, start: int, length: int, like: torch.Tensor) -> torch.Tensor | None:
        """What to add to the scores, ``(group * T, start + T)``, once for each query head that shares a key.

        ``None`` where nothing is hidden or the kernel hides it (a prompt, causal from the first token on).

        Args:
            mask: which cached positions each of ``length`` tokens sees, bool ``(T, start + T)``; causal by default.
        """
        if mask is None:
            if length == 1 or start == 0:
                return None
            mask = torch.ones(length, start + length, dtype=torch.bool, device=like.device).tril_(start)
        bias = torch.zeros(mask.shape, dtype=like.dtype, device=like.device).masked_fill_(~mask, -torch.inf)
        return bias.repeat(self.heads // self.kv_heads, 1)

    def __call__(
        self, qkv: torch.Tensor, cache: torch.Tensor, start: int, rotation: Rotation, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Write the new keys and values from ``start`` on, and attend to all so far.

        Args:
            qkv: queries, keys and values, side by side: ``(1, T, (heads + 2 kv heads) * head size)``; overwritten.
            bias: as :meth:`bias` gives it.

        Returns:
            ``(1, T, heads * head size)``.
        """
        end = start + qkv.shape[1]
        heads = qkv.view(*qkv.shape[:2], -1, self.head_size)
        rotary = heads[:, :, : self.heads + self.kv_heads]
        low, high = rotary.chunk(2, dim=-1)
        swapped = torch.cat((high, low), dim=-1)
        rotary.mul_(rotation[0]).addcmul_(swapped, rotation[1])
        cache[:, :, start:end] = heads[:, :, self.heads :].transpose(1, 2)
        keys, values = cache[:, :, :end].chunk(2, dim=1)
        return attend(heads[:, :, : self.heads].transpose(1, 2), keys, values, bias).reshape(*qkv.shape[:2], -1)


class RMSNorm:
    """``x / sqrt(mean(x²) + eps) * weight`` over the last dimension."""

    def __init__(self, eps: float, device: torch.device):
        self.eps = eps
        self.root_eps = torch.tensor(eps**0.5, device=device)

    def __call__(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        if x.dtype == torch.float32 and not x.is_cuda:  # the library's kernel is a chain of nine on a CPU
            size = x.shape[-1]
            root = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
            return x / root.mul_(size**-0.5).hypot_(self.root_eps) * weight
        if weight.ndim == 1:
            return functional.rms_norm(x, x.shape[-1:], weight, self.eps)
        return functional.rms_norm(x, x.shape[-1:], eps=self.eps) * weight
