"""Building blocks of the ONNX graphs that ONNX Runtime runs: operations, the weights they read, and their proto.

A graph holds no weights: they are handed to the session as they lie in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from drafters.models.int8 import BLOCK, in_blocks

FUSED = "com.microsoft"
"""Domain of the operations that are ONNX Runtime's own."""

Shape = Sequence[int | str]
"""Of an input or output; names are sizes that are known when it is fed."""

Linear = tuple[torch.Tensor, torch.Tensor | None]
"""Weight ``(outputs, inputs)`` and bias of a product."""


class Graph:
    """Operations in the order in which they are added. Each returns the names of what it computes.

    Args:
        int8: whether products are of weights in 8 bits (:func:`~drafters.models.int8.in_blocks`) and of activations
            that are rounded to 8 bits in the same blocks.

    Attributes:
        weights: by name, the tensors that belong to it.
        proto: the whole, once it is built.
    """

    proto: ModelProto

    def __init__(self, int8: bool = False) -> None:
        self.int8 = int8
        self.weights: dict[str, torch.Tensor] = {}
        self._nodes: list[NodeProto] = []
        self._constants: list[TensorProto] = []

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add an operation with one result."""
        return self.ops(kind, inputs, **attributes)[0]

    def ops(
        self, kind: str, inputs: Sequence[str], count: int = 1, outputs: Sequence[str] = (), **attributes: Any
    ) -> list[str]:
        """Add an operation; ``outputs`` are names for its results, empty ones are made up."""
        made = [name or f"t{len(self._nodes)}_{i}" for i, name in enumerate(outputs or [""] * count)]
        self._nodes.append(helper.make_node(kind, list(inputs), made, **attributes))
        return made

    def weight(self, tensor: torch.Tensor) -> str:
        """A tensor that is read where it is."""
        name = next((name for name, held in self.weights.items() if held is tensor), f"w{len(self.weights)}")
        self.weights[name] = tensor
        return name

    def constant(self, value: np.ndarray) -> str:
        """A small array that becomes part of the graph."""
        self._constants.append(numpy_helper.from_array(value, f"c{len(self._constants)}"))
        return self._constants[-1].name

    def linear(self, x: str, weight: torch.Tensor, bias: torch.Tensor | None = None, into: str = "") -> str:
        """``x`` times ``weight`` (outputs, inputs), plus ``bias``."""
        y = self._product(x, weight, into if bias is None else "")
        return y if bias is None else self.ops("Add", [y, self.weight(bias)], outputs=[into])[0]

    def _product(self, x: str, weight: torch.Tensor, into: str) -> str:
        if not self.int8:
            return self.ops("FusedMatMul", [x, self.weight(weight)], outputs=[into], domain=FUSED, transB=1)[0]
        rows, columns = weight.shape
        return self.ops(
            "MatMulNBits",
            [x, *map(self.weight, in_blocks(weight))],
            outputs=[into],
            domain=FUSED,
            bits=8,
            block_size=BLOCK,
            accuracy_level=4,  # activations in 8 bits
            N=rows,
            K=columns,
        )[0]

    def norm(
        self, x: str, skip: str | None, weight: torch.Tensor, epsilon: float, into: Sequence[str] = ("", "")
    ) -> tuple[str, str]:
        """``x`` plus ``skip``, normed by its root mean square, and the sum itself, under the names ``into``."""
        if skip is None:
            inputs = [x, self.weight(weight)]
            return self.ops("SimplifiedLayerNormalization", inputs, outputs=into[:1], axis=-1, epsilon=epsilon)[0], x
        normed, _, _, total = self.ops(
            "SkipSimplifiedLayerNormalization",
            [x, skip, self.weight(weight)],
            outputs=[into[0], "", "", into[1]],
            domain=FUSED,
            epsilon=epsilon,
        )
        return normed, total

    def head_norms(self, qkv: str, heads: Sequence[int], norms: Sequence[torch.Tensor], epsilon: float) -> list[str]:
        """Queries, keys and values of a joined projection, each head of the first two normed by itself.

        Args:
            heads: how many of each.
            norms: weights ``(head size,)`` for queries and for keys.
        """
        size = len(norms[0])
        parts = self.ops("Split", [qkv, self.constant(np.array(heads) * size)], 3, axis=-1)
        for place, norm in enumerate(norms):
            split = self.op("Reshape", parts[place], self.constant(np.array([-1, size])))
            normed = self.norm(split, None, norm, epsilon)[0]
            parts[place] = self.op("Reshape", normed, self.op("Shape", parts[place]))
        return parts

    def attention(self, parts: Sequence[str], layer: int, heads: int, kv_heads: int, bias: str) -> str:
        """Attention over a cache that is written in place, with rotary positions (:func:`rotation`).

        Args:
            parts: queries, keys and values ``(B, L, …)``; empty where the first holds all.
            layer: whose cache, the inputs ``key_i`` and ``value_i``.
            bias: the input that is added to the scores.
        """
        cache = f"key_{layer}", f"value_{layer}"
        attended, *_ = self.ops(
            "GroupQueryAttention",
            [*parts, *cache, "past", "total", "cos", "sin", "positions", bias, "", "", "", "", "", "fed"],
            outputs=["", *(f"new_{name}" for name in cache)],
            domain=FUSED,
            num_heads=heads,
            kv_num_heads=kv_heads,
            do_rotary=1,
            scale=1.0,
        )
        return attended

    def gated(self, x: str, gate: Linear, up: Linear, down: Linear) -> str:
        """A feed-forward layer with SiLU."""
        silu = self.op("QuickGelu", self.linear(x, *gate), domain=FUSED, alpha=1.0)
        return self.linear(self.op("Mul", silu, self.linear(x, *up)), *down)

    def choose(self, logits: str, ids: torch.Tensor | None = None, *, verifies: bool = False) -> None:
        """What a greedy step takes from its logits, the outputs ``tokens`` and ``chances``: here it costs less than in
        Python, whose code and data the weights have pushed out of the processor's caches.

        Args:
            ids: the token that each logit is of, where they are not numbered.
            verifies: whether ``chances`` shall not be finite where a logit is not, and need be no more than that.
        """
        last = self.constant(np.array([-1]))
        best = self.ops("ArgMax", [logits], outputs=["" if ids is not None else "tokens"], axis=-1, keepdims=0)[0]
        if ids is not None:
            self.ops("Gather", [self.constant(ids.numpy()), best], outputs=["tokens"])
        if not verifies:
            self.ops("ReduceMax", [self.op("LogSoftmax", logits, axis=-1), last], outputs=["chances"], keepdims=0)
            return
        total = self.op("ReduceSum", logits, last, keepdims=0)  # a maximum may pass over what is not a number
        self.ops("Mul", [total, self.constant(np.zeros((), np.float32))], outputs=["chances"])

    def build(self, name: str, inputs: Iterable[ValueInfoProto], outputs: Iterable[ValueInfoProto]) -> ModelProto:
        """The model of all that was added."""
        weights = [
            TensorProto(
                name=name,
                data_type=TensorProto.UINT8 if tensor.dtype == torch.uint8 else TensorProto.FLOAT,
                dims=tensor.shape,
                data_location=TensorProto.EXTERNAL,
                external_data=[{"key": "location", "value": "memory"}],
            )
            for name, tensor in self.weights.items()
        ]
        graph = helper.make_graph(self._nodes, name, list(inputs), list(outputs), [*weights, *self._constants])
        domains = [helper.make_opsetid("", 21), helper.make_opsetid(FUSED, 1)]
        return helper.make_model(graph, opset_imports=domains, ir_version=10)


def unsupported_heads(size: int) -> str | None:
    """Why :meth:`Graph.attention` cannot have heads of so many numbers; ``None`` if it can."""
    return f"attention heads of size {size}, no multiple of 16" if size % 16 else None


def value(name: str, kind: type, shape: Shape) -> ValueInfoProto:
    """An input or output of numbers of NumPy's type ``kind``."""
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), shape)


def attention_inputs(head_size: int, biases: Sequence[tuple[str, Shape]]) -> list[ValueInfoProto]:
    """What :meth:`Graph.attention` reads beside projections and caches: ``positions``, int64 (B, L); ``past``, int32
    (B,), cached positions with those fed, less one; ``fed``, int32 (B,), tokens of each text, 0 for those that feed
    none; ``total``, int32, positions that the caches have room for; ``cos`` and ``sin``, float (room, head size / 2);
    and biases, float (…, 1, L, room)."""
    return [
        value("positions", np.int64, ["B", "L"]),
        *(value(name, np.int32, ["B"]) for name in ("past", "fed")),
        value("total", np.int32, []),
        *(value(name, np.float32, ["room", head_size // 2]) for name in ("cos", "sin")),
        *(value(name, np.float32, shape) for name, shape in biases),
    ]


def rotation(cos: torch.Tensor, sin: torch.Tensor) -> dict[str, np.ndarray]:
    """The inputs ``cos`` and ``sin`` of :meth:`Graph.attention`, from those of each position ``(room, head size / 2)``.

    They hold the factor of scores as well, its square root for queries and for keys: a single token's product with the
    keys is taken where these lie in memory if it has no factor, else of a packed copy.
    """
    scale = (2 * cos.shape[1]) ** -0.25
    return {"cos": (cos * scale).contiguous().numpy(), "sin": (sin * scale).contiguous().numpy()}


def caches(layers: int, kv_heads: int, head_size: int) -> tuple[list[ValueInfoProto], list[ValueInfoProto]]:
    """Inputs ``key_i`` and ``value_i`` of each layer, float (B, kv heads, room, head size), and as outputs what they
    become, ``new_…``: bound to the same memory."""
    names = [f"{part}_{i}" for i in range(layers) for part in ("key", "value")]
    shape: Shape = ["B", kv_heads, "room", head_size]
    return [value(name, np.float32, shape) for name in names], [
        value(f"new_{name}", np.float32, shape) for name in names
    ]
