"""Weights in 8 bits for ONNX Runtime's ``MatMulNBits``: rounded in blocks of a row, each with a scale of its own."""

from __future__ import annotations

from collections.abc import Iterable

import torch

BLOCK = 64
"""Numbers that share a scale. With 32, forwards of eight tokens or more take 13 to 19 % longer and draft no better."""

ZERO = 128
"""The code of 0."""

COPIES = 2
"""Of these matrices, in memory: as they are handed over, and as ONNX Runtime packs them."""


def in_blocks(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A matrix ``(outputs, inputs)`` as codes, uint8 (outputs, blocks, :data:`BLOCK`), and scales, float32
    (outputs, blocks): a weight is its scale times its code less :data:`ZERO`. The last block of a row is filled up."""
    rows, columns = weight.shape
    blocks = torch.nn.functional.pad(weight.detach().float(), (0, -columns % BLOCK)).view(rows, -1, BLOCK)
    scales = blocks.abs().amax(dim=-1) / 127
    codes = (blocks / scales.clamp_min(torch.finfo(torch.float32).tiny)[..., None]).round_().add_(ZERO)
    return codes.to(torch.uint8), scales


def int8_bytes(shapes: Iterable[tuple[int, ...]], others: int = 0, copies: int = 1) -> int:
    """Bytes of so many copies of matrices of these shapes as :func:`in_blocks` has them, and of ``others`` numbers in
    float32."""
    return copies * sum(rows * -(-columns // BLOCK) * (BLOCK + 4) for rows, columns in shapes) + 4 * others


def packed_bytes(model: torch.nn.Module, int8: bool = False) -> int:
    """Bytes of what ONNX Runtime makes of the matrices of a model's linear layers, whose weights stay beside it."""
    shapes, others = products_of(model)
    return int8_bytes(shapes, others, COPIES) if int8 else 4 * sum(rows * columns for rows, columns in shapes)


def products_of(model: torch.nn.Module) -> tuple[list[tuple[int, ...]], int]:
    """Shapes of the matrices of a model's linear layers, and how many numbers all its other weights have; a matrix that
    is an embedding too counts as both."""
    shapes, others = list[tuple[int, ...]](), 0
    for layer in model.modules():
        weights = dict(layer.named_parameters(recurse=False))
        if isinstance(layer, torch.nn.Linear):
            shapes.append(tuple(weights.pop("weight").shape))
        others += sum(weight.numel() for weight in weights.values())
    return shapes, others
