"""Products with weight matrices, the way that is fastest for a few tokens."""

from __future__ import annotations

import torch
from torch.nn import functional

LARGE_MATRIX, LARGE_MODEL = 150_000, 4_000_000
"""From so many numbers on, a matrix is packed on a CPU; all matrices of a model so large, whose weights outgrow the
caches near the core. Below, what a packed product costs to start (16 µs) is more than it saves for a single model."""

HELD_TWICE = 50_000_000
"""Up to so many parameters, a large model's weights are held plainly too, for single tokens."""


class Projection:
    """The same weight matrix of M models: ``y = x W^T``, each model with its own.

    On a CPU, large fp32 weights are held in the blocked layout of oneDNN: for the few tokens of a step, a verification
    or an evaluation, torch's own product takes two to four times as long (8.0 instead of 1.9 ms for all matrices of
    the pocket target and 7 tokens on two cores), and one batched over several models is slower still. Only a single
    token is faster with the plain weights on the left, ``(W x^T)^T``, as two columns since one goes a slower way.

    Args:
        weights: ``(M, out, in)``.
        parameters_each: parameters of one whole model.
    """

    def __init__(self, weights: torch.Tensor, parameters_each: int):
        self.weights = weights
        self.packed: list[torch.Tensor] = []
        large = weights[0].numel() >= LARGE_MATRIX or parameters_each >= LARGE_MODEL
        if can_pack(weights) and (large or len(weights) > 1):
            # Not a public interface, but the one that torch's own compiler uses for frozen weights.
            self.packed = [torch.ops.mkldnn._reorder_linear_weight(weight, None) for weight in weights]
        twice = len(weights) == 1 and LARGE_MODEL <= parameters_each <= HELD_TWICE
        if self.packed and large and not twice:
            self.weights = weights.new_empty(0)

    def of(self, model: int) -> Projection:
        """That of one of the models, sharing the weights."""
        one = Projection.__new__(Projection)
        one.weights = self.weights[model : model + 1]
        small = len(self.weights) > 1  # the plain weights of several models are held where they are small alone
        one.packed = [] if small else self.packed[model : model + 1]
        return one

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` (M, T, in) times the weights; (M, T, out)."""
        if len(self.packed) == 1 and x.shape[1] == 1 and len(self.weights):
            return torch.mm(self.weights[0], x[0].expand(2, -1).contiguous().t())[:, :1].t()[None]
        if len(self.packed) == 1:
            return packed_product(x, self.packed[0])
        if self.packed:
            return torch.stack([packed_product(*pair) for pair in zip(x, self.packed, strict=True)])
        if len(self.weights) == 1:
            return functional.linear(x, self.weights[0])
        return torch.bmm(x, self.weights.transpose(1, 2))


def can_pack(weights: torch.Tensor) -> bool:
    """Whether this build of torch has the packed product for such weights."""
    return (
        weights.device.type == "cpu"
        and weights.dtype == torch.float32
        and torch.backends.mkldnn.is_available()
        and all(hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise"))
    )


def packed_product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """``x`` (..., in) times a packed ``weight``; (..., out)."""
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise.default(x, weight, None, "none", [], "")
    return product
