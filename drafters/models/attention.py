"""Layers for a few tokens of one or several models at once; attention is over a key-value cache written in place."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

Rotation = tuple[torch.Tensor, torch.Tensor]
"""Cosines and signed sines ``(T, 1, head size)`` by which queries and keys are rotated; see :func:`rotation_table`."""


def rotation_table(rotary: torch.nn.Module, like: torch.Tensor, window: int) -> Rotation:
    """Cosines and sines of all positions of ``window``, as :class:`Attention` takes them.

    Args:
        rotary: a rotary embedding of ``transformers``.
        like: a tensor of the device and dtype wanted.
    """
    cos, sin = rotary(like.reshape(1, 1, -1)[..., :1], torch.arange(window, device=like.device)[None])
    # Rotation multiplies (-high, low) by the sine: the sign is put into the table once.
    low, high = sin[0, :, None].chunk(2, dim=-1)
    return cos[0, :, None], torch.cat([-low, high], dim=-1)


@dataclass(frozen=True)
class Attention:
    """Grouped-query attention of M models of one shape.

    Attributes:
        heads, kv_heads: query heads, and heads of keys and values, each shared by ``heads / kv_heads`` of them.
        head_size: numbers per head.
    """

    heads: int
    kv_heads: int
    head_size: int

    def cache(self, models: int, window: int, like: torch.Tensor) -> torch.Tensor:
        """An empty cache, keys then values: ``(M, 2 kv heads, window, head size)``."""
        return torch.zeros(models, 2 * self.kv_heads, window, self.head_size, dtype=like.dtype, device=like.device)

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
            qkv: queries, keys and values, side by side: ``(M, T, (heads + 2 kv heads) * head size)``; overwritten.
            bias: as :meth:`bias` gives it.

        Returns:
            ``(M, T, heads * head size)``.
        """
        models, length, _ = qkv.shape
        end, group = start + length, self.heads // self.kv_heads
        heads = qkv.view(models, length, -1, self.head_size)
        rotary = heads[:, :, : self.heads + self.kv_heads]
        low, high = rotary.chunk(2, dim=-1)
        swapped = torch.cat((high, low), dim=-1)
        rotary.mul_(rotation[0]).addcmul_(swapped, rotation[1])
        cache[:, :, start:end] = heads[:, :, self.heads :].transpose(1, 2)
        keys, values = cache[:, :, :end].chunk(2, dim=1)
        query = heads[:, :, : self.heads]
        if bias is None and length > 1:
            attended = functional.scaled_dot_product_attention(
                query.transpose(1, 2), keys, values, is_causal=True, enable_gqa=group > 1
            )
            return attended.transpose(1, 2).reshape(models, length, -1)
        # Query heads that share a key stand as rows of one product: no kernel for grouped queries takes a mask.
        rows = query.view(models, length, self.kv_heads, group, -1).permute(0, 2, 3, 1, 4)
        rows = rows.reshape(models, self.kv_heads, group * length, -1)
        attended = functional.scaled_dot_product_attention(rows, keys, values, attn_mask=bias)
        # Some kernels return strides that no view could regroup, so dimensions are only split before the copy.
        attended = attended.unflatten(2, (group, length)).permute(0, 3, 1, 2, 4)
        return attended.reshape(models, length, -1)


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


def product(x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """``x`` (M, T, in) times the weights (M, out, in) of M models, each its own; (M, T, out)."""
    return functional.linear(x, weights[0]) if len(weights) == 1 else torch.bmm(x, weights.transpose(1, 2))
