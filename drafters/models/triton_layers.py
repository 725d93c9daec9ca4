"""What lies between the products of a forward in few kernels, on GPUs where Triton runs."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import cache as cached
from typing import Any, ClassVar

import torch

from drafters.errors import first_line
from drafters.hardware import is_out_of_memory
from drafters.models.attention import attend_to_own, rotation_table
from drafters.models.torch_layers import Cache, Fed, Kernels, TorchKernels, run
from drafters.models.torch_weights import Product, Weights

try:
    import triton

    from drafters.models import triton_kernels as kernels
except ImportError:  # comes with PyTorch for NVIDIA's GPUs
    triton = None  # type: ignore[assignment]

log = logging.getLogger(__name__)

LEAST_PART = 64
"""Cached positions that a program reads at least, if there are as many."""


class TritonKernels:
    """As of :class:`~drafters.models.torch_layers.Kernels`: a layer takes five kernels, or six where the cached
    positions are divided among several programs."""

    scattered: ClassVar[bool] = True

    def __init__(self, weights: Weights, cache: Cache, fed: Fed):
        self._weights, self._cache, self._fed = weights, cache, fed
        self._positions = fed.positions.contiguous()
        self._places, self._bases, self._start = (each.contiguous() for each in (fed.places, fed.bases, fed.start))
        tree = fed.tree
        self._own = self._positions if tree is None else tree.own.to(torch.uint8)

    def norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return self._normed(x, None, weight)[1]

    def added(
        self, product: Product, inputs: torch.Tensor, x: torch.Tensor, weight: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self._normed(x, product(inputs), weight)

    def _normed(
        self, x: torch.Tensor, delta: torch.Tensor | None, weight: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        size = x.shape[-1]
        rows, normed = x.numel() // size, torch.empty_like(x)
        total = x if delta is None else torch.empty_like(x)
        rows_each, block = rows if weight.ndim == 1 else x.shape[1], triton.next_power_of_2(size)
        eps, adds = self._weights.norm.eps, delta is not None
        warps = max(1, min(16, block // 512))
        other = x if delta is None else delta
        kernels.add_norm[(rows,)](x, other, weight, total, normed, size, rows_each, eps, adds, block, num_warps=warps)
        return total, normed

    def gated(self, gate_up: torch.Tensor) -> torch.Tensor:
        size = gate_up.shape[-1] // 2
        gated, block = gate_up.new_empty(*gate_up.shape[:-1], size), min(1024, triton.next_power_of_2(size))
        kernels.gate[(gated.numel() // size, triton.cdiv(size, block))](gate_up, gated, size, block)
        return gated

    def attention(self, layer: int, qkv: torch.Tensor) -> torch.Tensor:
        weights, fed, cache = self._weights, self._fed, self._cache
        heads, kv_heads, size = weights.heads, weights.kv_heads, weights.head_size
        (texts, length), block = fed.ids.shape, max(16, triton.next_power_of_2(size))
        query = qkv.new_empty(texts * length, heads, size)
        keys, values = cache.written_keys[layer], cache.written_values[layer]
        norms = None if weights.head_norms is None else weights.head_norms[layer]
        kernels.rotate[(texts * length, heads + 2 * kv_heads)](
            *(qkv, query, keys, values, cache.cos, cache.sin, qkv if norms is None else norms),
            *(self._positions, self._places, length, keys.stride(0), texts // weights.count, weights.norm.eps),
            *(heads, kv_heads, size, norms is not None, block),
            num_warps=1,
        )
        shape = *qkv.shape[:-1], heads * size
        if fed.bare and length > 1:
            each = query.view(texts, length, heads, size).transpose(1, 2)
            return attend_to_own(each, cache.keys[layer], cache.values[layer]).reshape(shape)
        slides, half = weights.layers[layer].slides, qkv.dtype.itemsize == 2
        step, most_rows = (64, 64) if half else (32, 32)
        rows = max(16, min(most_rows, triton.next_power_of_2(heads // kv_heads * length)))
        tiles = triton.cdiv(heads // kv_heads * length, rows) * kv_heads
        reach = _reach(cache.span, tiles * texts, step, qkv.device)
        parts = triton.cdiv(cache.span, reach)
        found = query.new_empty(*query.shape[:2], parts, size, dtype=torch.float32 if parts > 1 else qkv.dtype)
        sums = query.new_empty(*query.shape[:2], parts, dtype=torch.float32)
        kernels.attend[(parts, tiles, texts)](
            *(query, keys, values, found, sums, self._bases, self._start, self._positions, self._own),
            *(size**-0.5, length, keys.stride(0), reach, weights.sliding_window or 0),
            *(heads, kv_heads, size, fed.tree is not None, slides, parts, rows, step, block),
            num_stages=2,
        )
        if parts == 1:
            return found.view(shape)
        most = triton.next_power_of_2(parts)
        kernels.join[(texts * length * heads,)](found, sums, query, size, parts, most, block)
        return query.view(shape)


def _reach(span: int, programs: int, step: int, device: torch.device) -> int:
    """How many positions each program reads, so that there are about two for each multiprocessor."""
    parts = max(1, min(span // LEAST_PART, 2 * _multiprocessors(device) // programs))
    return int(triton.cdiv(triton.cdiv(span, parts), step) * step)


@cached
def _multiprocessors(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count) if device.type == "cuda" else 4


def kernels_for(weights: Weights, rotary: torch.nn.Module) -> type[Kernels]:
    """Those of Triton on a GPU on which they come to what PyTorch's do with these weights, else PyTorch's.

    Args:
        rotary: the rotary embedding of ``transformers``.
    """
    if not weights.embedding.is_cuda or triton is None:
        return TorchKernels
    try:
        if (error := difference(weights, rotary)) <= (1e-3 if weights.embedding.dtype == torch.float32 else 0.05):
            return TritonKernels
        reason = f"they differ by {error:.1%} from PyTorch's"
    except Exception as error:  # no compiler, a GPU that it does not know, too little shared memory
        if is_out_of_memory(error):
            raise
        reason = f"{type(error).__name__}: {first_line(error)}"
    log.warning("Triton's kernels do not work here; PyTorch's are used, which are slower: %s", reason)
    return TorchKernels


@torch.inference_mode()
def difference(weights: Weights, rotary: torch.nn.Module) -> float:
    """By how much the results of the two kinds of kernels differ at most after one layer: one token and many, after a
    few that are cached; as a share of the result's norm."""
    one, like = replace(weights, layers=weights.layers[:1]), weights.embedding
    cos, sin = rotation_table(rotary, like, span := 256)
    found: dict[type[Any], list[torch.Tensor]] = {}
    for kind in (TorchKernels, TritonKernels):
        size = span, weights.kv_heads, weights.head_size
        keys, values = like.new_zeros(size), like.new_zeros(size)
        seen = keys.transpose(0, 1)[None], values.transpose(0, 1)[None]
        base = torch.zeros(1, 1, dtype=torch.int64, device=like.device)
        cache = Cache([keys], [values], seen[:1], seen[1:], cos[:, 0], sin[:, 0])
        start, found[kind] = base, []
        for length in (32, 1, 32):
            ids = torch.arange(length, device=like.device)[None]
            with torch.cuda.device_of(like):  # Triton launches kernels on the current device
                found[kind].append(run(kind, one, cache, Fed(ids, start, start, base)).float())
            start = start + length
    pairs = zip(found[TorchKernels], found[TritonKernels], strict=True)
    return max(float((mine - theirs).norm() / mine.norm()) for mine, theirs in pairs)
