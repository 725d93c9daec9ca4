"""A plain decoder as an ONNX graph for ONNX Runtime: twelve operations per layer.

Rotary positions and attention over the cache are one ``GroupQueryAttention``, a residual and the norm after it one
``SkipSimplifiedLayerNormalization``. Tokens of several texts are fed one after the other, without padding; only for
attention are they laid out by text. The graph holds no weights: they are handed to the session as they lie in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from transformers import PreTrainedModel

from drafters.models.families import head_size_of, joined, not_plain, sliding_layers

MAX_PARAMETERS = 500_000_000
"""Beyond, fused kernels gain little and a second, packed copy of the weights costs a lot."""

_FUSED = "com.microsoft"
"""Domain of the operations that are ONNX Runtime's own."""


def unsupported(model: PreTrainedModel) -> str | None:
    """Why :func:`decoder_graph` does not know ``model``; ``None`` if it does."""
    if reason := not_plain(model):
        return reason
    if getattr(model, "hf_quantizer", None) is not None:
        return "quantised weights"
    if (size := head_size_of(model.config)) % 16:
        return f"attention heads of size {size}, no multiple of 16"
    if model.num_parameters() > MAX_PARAMETERS:
        return "a model so large that a second copy of its weights costs more memory than its speed is worth"
    return None


class DecoderGraph:
    """The graph of one model, for T tokens of B texts, of which the longest feeds L.

    Inputs: ``ids``, int64 (T,); ``pad``, int64 (B, L), which of the T tokens stand where, and ``unpad``, int64 (T, 2),
    where each of them stands; ``positions``, int64 (B, L); ``past``, int32 (B,), cached positions with those fed, less
    one; ``fed``, int32 (B,), tokens of each text, 0 for those that feed none; ``total``, int32, positions that the
    caches have room for; ``rows``, int64 (R,), tokens that logits are wanted of; ``bias``, and ``sliding`` for layers
    with a sliding window, float (B or 1, 1, L, room), added to the attention scores; ``cos`` and ``sin``, float
    (room, head size / 2); ``key_i`` and ``value_i`` of each layer, float (B, kv heads, room, head size), written in
    place. Outputs: ``logits`` (R, V); of each row the most probable token, ``tokens``, int64 (R,), and its
    log-probability, ``chances``, float (R,), which is not finite where a logit is not; and ``hidden_i`` (T, hidden) of
    the captured layers.

    Args:
        model: one that :func:`unsupported` has nothing against, float32 on the CPU.
        capture: layers whose hidden states are wanted: ``i`` is what enters layer ``i``, and the number of layers
            what leaves the final norm.

    Attributes:
        proto: the graph.
        weights: by name, the tensors that belong to it; parameters of the model where they need not be joined.
        biases: names of the inputs that are added to attention scores.
    """

    def __init__(self, model: PreTrainedModel, capture: Sequence[int] = ()):
        self.config, self.capture = model.config, capture
        self.weights: dict[str, torch.Tensor] = {}
        self._nodes: list[NodeProto] = []
        self._constants: list[TensorProto] = []
        self._hidden: dict[int, str] = {}
        self.biases: list[str] = []
        self._build(model)
        self.proto = self._proto()

    def _build(self, model: PreTrainedModel) -> None:
        body = model.model
        slides = sliding_layers(self.config)
        x = self._op("Gather", self._weight(body.embed_tokens.weight), "ids")
        skip = None
        for index, layer in enumerate(body.layers):
            normed, x = self._norm(x, skip, layer.input_layernorm)
            self._hidden[index] = x
            bias = "sliding" if slides[index] else "bias"
            self.biases = sorted({*self.biases, bias})
            attended = self._linear(self._attention(normed, layer.self_attn, index, bias), layer.self_attn.o_proj)
            normed, skip = self._norm(attended, x, layer.post_attention_layernorm)
            gate, up = self._linear(normed, layer.mlp.gate_proj), self._linear(normed, layer.mlp.up_proj)
            silu = self._op("QuickGelu", gate, domain=_FUSED, alpha=1.0)
            x = self._linear(self._op("Mul", silu, up), layer.mlp.down_proj)
        normed, _ = self._norm(x, skip, body.norm)
        self._hidden[len(body.layers)] = normed
        self._choose(self._linear(self._op("Gather", normed, "rows"), model.lm_head, into="logits"))

    def _attention(self, x: str, layer: Any, index: int, bias: str) -> str:
        heads, kv_heads = int(self.config.num_attention_heads), int(self.config.num_key_value_heads)
        qkv = self._linear(x, _joined(layer.q_proj, layer.k_proj, layer.v_proj))
        parts = [qkv, "", ""]
        if hasattr(layer, "q_norm"):
            size = head_size_of(self.config)
            widths = self._constant(np.array([heads * size, kv_heads * size, kv_heads * size]))
            query, key, value = self._ops("Split", [qkv, widths], 3, axis=-1)
            parts = [self._head_norm(query, layer.q_norm), self._head_norm(key, layer.k_norm), value]
        parts = [part and self._op("Gather", part, "pad") for part in parts]
        cache = f"key_{index}", f"value_{index}"
        attended, *_ = self._ops(
            "GroupQueryAttention",
            [*parts, *cache, "past", "total", "cos", "sin", "positions", bias, "", "", "", "", "", "fed"],
            outputs=["", *(f"new_{name}" for name in cache)],
            domain=_FUSED,
            num_heads=heads,
            kv_num_heads=kv_heads,
            do_rotary=1,
        )
        return self._op("GatherND", attended, "unpad")

    def _norm(self, x: str, skip: str | None, norm: Any) -> tuple[str, str]:
        """``x`` plus ``skip``, normed, and the sum itself."""
        epsilon, weight = float(norm.variance_epsilon), self._weight(norm.weight)
        if skip is None:
            return self._op("SimplifiedLayerNormalization", x, weight, axis=-1, epsilon=epsilon), x
        normed, _, _, total = self._ops(
            "SkipSimplifiedLayerNormalization", [x, skip, weight], 4, domain=_FUSED, epsilon=epsilon
        )
        return normed, total

    def _head_norm(self, x: str, norm: Any) -> str:
        """Each head of ``x`` (T, heads * size) normed by itself."""
        split = self._constant(np.array([0, -1, head_size_of(self.config)]))
        normed = self._norm(self._op("Reshape", x, split), None, norm)[0]
        return self._op("Reshape", normed, self._constant(np.array([0, -1])))

    def _choose(self, logits: str) -> None:
        """What a greedy step takes from its logits: here it costs less than in Python, whose code and data the weights
        have pushed out of the processor's caches."""
        last = self._constant(np.array([-1]))
        self._ops("ArgMax", [logits], outputs=["tokens"], axis=-1, keepdims=0)
        chance = self._op("ReduceMax", self._op("LogSoftmax", logits, axis=-1), last, keepdims=0)
        # Maxima may pass over what is not a number; a sum does not.
        total = self._op("ReduceSum", logits, last, keepdims=0)
        nothing = self._op("Mul", total, self._constant(np.zeros((), np.float32)))
        self._ops("Add", [chance, nothing], outputs=["chances"])

    def _linear(self, x: str, layer: Any, into: str = "") -> str:
        bias = getattr(layer, "bias", None)
        product = "" if bias is not None else into
        (y,) = self._ops("FusedMatMul", [x, self._weight(layer.weight)], outputs=[product], domain=_FUSED, transB=1)
        return y if bias is None else self._ops("Add", [y, self._weight(bias)], outputs=[into])[0]

    def _op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        return self._ops(kind, inputs, **attributes)[0]

    def _ops(
        self, kind: str, inputs: Sequence[str], count: int = 1, outputs: Sequence[str] = (), **attributes: Any
    ) -> list[str]:
        """Add an operation; ``outputs`` are names for its results, empty ones are made up."""
        made = [name or f"t{len(self._nodes)}_{i}" for i, name in enumerate(outputs or [""] * count)]
        self._nodes.append(helper.make_node(kind, list(inputs), made, **attributes))
        return made

    def _weight(self, tensor: torch.Tensor) -> str:
        name = next((name for name, held in self.weights.items() if held is tensor), f"w{len(self.weights)}")
        self.weights[name] = tensor
        return name

    def _constant(self, value: np.ndarray) -> str:
        self._constants.append(numpy_helper.from_array(value, f"c{len(self._constants)}"))
        return self._constants[-1].name

    def _proto(self) -> ModelProto:
        value, config = helper.make_tensor_value_info, self.config
        float32, int64, int32 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32
        size, layers = head_size_of(config), range(config.num_hidden_layers)
        table: list[str | int] = ["room", size // 2]
        cache: list[str | int] = ["B", int(config.num_key_value_heads), "room", size]
        inputs = [
            value("ids", int64, ["T"]),
            value("rows", int64, ["R"]),
            *(value(name, int64, ["B", "L"]) for name in ("pad", "positions")),
            value("unpad", int64, ["T", 2]),
            *(value(name, int32, ["B"]) for name in ("past", "fed")),
            value("total", int32, []),
            *(value(name, float32, table) for name in ("cos", "sin")),
            *(value(name, float32, [f"{name} B", 1, "L", "room"]) for name in self.biases),
        ]
        names = [f"{part}_{i}" for i in layers for part in ("key", "value")]
        inputs += [value(name, float32, cache) for name in names]
        outputs = [value("logits", float32, ["R", int(config.vocab_size)])]
        outputs += [value("tokens", int64, ["R"]), value("chances", float32, ["R"])]
        outputs += [value(f"new_{name}", float32, cache) for name in names]
        for layer in self.capture:
            self._nodes.append(helper.make_node("Identity", [self._hidden[layer]], [f"hidden_{layer}"]))
            outputs.append(value(f"hidden_{layer}", float32, ["T", int(config.hidden_size)]))
        weights = [
            TensorProto(
                name=name,
                data_type=float32,
                dims=tensor.shape,
                data_location=TensorProto.EXTERNAL,
                external_data=[{"key": "location", "value": "memory"}],
            )
            for name, tensor in self.weights.items()
        ]
        graph = helper.make_graph(self._nodes, "decoder", inputs, outputs, [*weights, *self._constants])
        domains = [helper.make_opsetid("", 21), helper.make_opsetid(_FUSED, 1)]
        return helper.make_model(graph, opset_imports=domains, ir_version=10)


def _joined(*layers: Any) -> torch.nn.Module:
    """One layer that computes what several do, side by side."""
    whole = torch.nn.Module()
    for name in ("weight", "bias"):
        if getattr(layers[0], name) is not None:
            setattr(whole, name, joined(*(getattr(layer, name) for layer in layers)))
    return whole
