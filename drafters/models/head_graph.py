"""What an EAGLE head computes, as ONNX graphs for ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from drafters.checkpoints.eagle import HeadShape
from drafters.models.graph import Graph, attention_inputs, caches, value


@dataclass
class HeadLayer:
    """Weights of a layer; those of queries, keys and values are joined, and so are those of gate and up projection."""

    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    out: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    input_norm: torch.Tensor | None
    hidden_norm: torch.Tensor | None
    mlp_norm: torch.Tensor
    query_norm: torch.Tensor | None
    key_norm: torch.Tensor | None


@dataclass
class HeadWeights:
    """Weights of an EAGLE head.

    Attributes:
        embedding: ``(vocabulary, hidden)``.
        fc, fc_bias: what fuses its inputs: embedding and state (EAGLE-1), or the target's states (EAGLE-3).
        fused_norm, fc_norms: of the target's states, all together or each layer's by itself, before they are fused.
        output: ``(tokens that it can propose, hidden)``.
        to_target: target's token id of each token that it can propose; ``None`` where they are the same.
    """

    embedding: torch.Tensor
    fc: torch.Tensor
    fc_bias: torch.Tensor | None
    fused_norm: torch.Tensor | None
    fc_norms: Sequence[torch.Tensor]
    layers: Sequence[HeadLayer]
    final_norm: torch.Tensor | None
    output: torch.Tensor
    output_bias: torch.Tensor | None
    to_target: torch.Tensor | None


class FuseGraph(Graph):
    """The target's hidden states as those of an EAGLE-3 head: ``features`` (1, T, layers * target size) become
    ``hidden`` (1, T, hidden)."""

    def __init__(self, shape: HeadShape, weights: HeadWeights, int8: bool):
        super().__init__(int8)
        (hidden, width), epsilon, x = weights.fc.shape, float(shape.config.rms_norm_eps), "features"
        if weights.fused_norm is not None:
            x, _ = self.norm(x, None, weights.fused_norm, epsilon)
        if weights.fc_norms:
            parts = self.ops("Split", [x], len(weights.fc_norms), axis=-1, num_outputs=len(weights.fc_norms))
            normed = [
                self.norm(part, None, norm, epsilon)[0] for part, norm in zip(parts, weights.fc_norms, strict=True)
            ]
            x = self.op("Concat", *normed, axis=-1)
        self.linear(x, weights.fc, into="hidden")
        inputs, outputs = (
            value(name, np.float32, [1, "T", size]) for name, size in (("features", width), ("hidden", hidden))
        )
        self.proto = self.build("fuse", [inputs], [outputs])


class HeadGraph(Graph):
    """T pairs of one text through a head.

    Inputs: ``ids``, int64 (1, T), and ``hidden`` (1, T, hidden), the tokens of the pairs and the states before them;
    ``rows``, int64 (R,), pairs that something is wanted of; those of
    :func:`~drafters.models.graph.attention_inputs` with ``bias`` (1, 1, T, room); and the caches. Outputs: ``made``
    (1, R, hidden), states for the next step; ``logits`` (1, R, V); ``tokens``, int64 (1, R), the most probable ones, as
    the target numbers them; and ``chances``, float (1, R), their log-probabilities.

    ``ids`` and ``hidden`` are read before ``tokens`` and ``made`` are written, so they may share memory.
    """

    def __init__(self, shape: HeadShape, weights: HeadWeights, int8: bool):
        super().__init__(int8)
        config, size, hidden = shape.config, shape.head_size, int(shape.config.hidden_size)
        heads, kv_heads = int(config.num_attention_heads), int(config.num_key_value_heads)
        epsilon, width = float(config.rms_norm_eps), int(config.intermediate_size)
        embedded, x = self.op("Gather", self.weight(weights.embedding), "ids"), "hidden"
        if shape.generation == 1:
            x = self.linear(self.op("Concat", embedded, x, axis=-1), weights.fc, weights.fc_bias)
        added = None
        for index, layer in enumerate(weights.layers):
            if layer.hidden_norm is not None and layer.input_norm is not None:  # the first layer of EAGLE-3
                normed, _ = self.norm(x, None, layer.hidden_norm, epsilon)
                x = normed if shape.norm_before_residual else x
                read = self.op("Concat", self.norm(embedded, None, layer.input_norm, epsilon)[0], normed, axis=-1)
            elif layer.input_norm is not None:
                read, x = self.norm(x, added, layer.input_norm, epsilon)
            else:
                read = x = x if added is None else self.op("Add", x, added)
            parts = [self.linear(read, layer.qkv, layer.qkv_bias), "", ""]
            if layer.query_norm is not None and layer.key_norm is not None:
                norms = layer.query_norm, layer.key_norm
                parts = self.head_norms(parts[0], (heads, kv_heads, kv_heads), norms, epsilon)
            attended = self.attention(parts, index, heads, kv_heads, "bias")
            if layer is weights.layers[-1]:  # nobody reads the others on: the caches have their keys and values by now
                attended, x = (self.op("Gather", states, "rows", axis=1) for states in (attended, x))
            normed, x = self.norm(self.linear(attended, layer.out), x, layer.mlp_norm, epsilon)
            gate, up = layer.gate_up[:width], layer.gate_up[width:]
            added = self.gated(normed, (gate, None), (up, None), (layer.down, None))
        assert added is not None
        if weights.final_norm is None:
            (last,) = self.ops("Add", [x, added], outputs=["made"])
        else:
            names = ("made", "") if shape.norm_output else ("", "made")
            last, _ = self.norm(added, x, weights.final_norm, epsilon, names)
        logits = self.linear(last, weights.output, weights.output_bias, into="logits")
        self.choose(logits, weights.to_target)

        cached, becoming = caches(len(weights.layers), kv_heads, size)
        inputs = [
            value("ids", np.int64, [1, "T"]),
            value("hidden", np.float32, [1, "T", hidden]),
            value("rows", np.int64, ["R"]),
            *attention_inputs(size, [("bias", [1, 1, "T", "room"])]),
            *cached,
        ]
        outputs = [
            value("made", np.float32, [1, "R", hidden]),
            value("logits", np.float32, [1, "R", len(weights.output)]),
            value("tokens", np.int64, [1, "R"]),
            value("chances", np.float32, [1, "R"]),
            *becoming,
        ]
        self.proto = self.build("head", inputs, outputs)
