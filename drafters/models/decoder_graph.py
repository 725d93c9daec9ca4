"""A plain decoder as an ONNX graph for ONNX Runtime: twelve operations per layer.

Rotary positions and attention over the cache are one ``GroupQueryAttention``, a residual and the norm after it one
``SkipSimplifiedLayerNormalization``. Tokens of several texts are fed one after the other, without padding; only for
attention are they laid out by text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto
from transformers import PreTrainedModel

from drafters.checkpoints.model_sizes import head_size_of
from drafters.models.families import joined, not_plain, sliding_layers
from drafters.models.graph import Graph, Linear, attention_inputs, caches, unsupported_heads, value
from drafters.models.token_map import ConfinedHead, outputs_of

MAX_PARAMETERS = 500_000_000
"""Beyond, fused kernels gain little and a second, packed copy of the weights costs a lot."""


def unsupported(model: PreTrainedModel) -> str | None:
    """Why :class:`DecoderGraph` does not know ``model``; ``None`` if it does."""
    if reason := not_plain(model):
        return reason
    if getattr(model, "hf_quantizer", None) is not None:
        return "quantised weights"
    if reason := unsupported_heads(head_size_of(model.config)):
        return reason
    extra = model.lm_head.rows.weight.numel() if isinstance(model.lm_head, ConfinedHead) else 0
    if model.num_parameters() - extra > MAX_PARAMETERS:
        return "a model so large that a second copy of its weights costs more memory than its speed is worth"
    return None


class DecoderGraph(Graph):
    """The graph of one model, for T tokens of B texts, of which the longest feeds L.

    Inputs: ``ids``, int64 (T,); ``pad``, int64 (B, L), which of the T tokens stand where, and ``unpad``, int64 (T, 2),
    where each of them stands; ``rows``, int64 (R,), tokens that logits are wanted of, and ``ends``, int64 (R, 2), where
    they stand; those of :func:`~drafters.models.graph.attention_inputs` with ``bias``, and ``sliding`` for layers with
    a sliding window, (B or 1, 1, L, room); and the caches. Outputs: ``logits`` (R, V or the tokens of a
    :class:`~drafters.models.token_map.ConfinedHead`); of each row the most probable token, ``tokens``, int64 (R,), and
    ``chances``, float (R,): its log-probability, or, if the model ``verifies``, a number that is not finite where a
    logit is not; and ``hidden_i`` (T, hidden) of the captured layers.

    Args:
        model: one that :func:`unsupported` has nothing against, float32 on the CPU.
        capture: layers whose hidden states are wanted, as of :meth:`~drafters.models.decoder.Decoder.forward`.
        int8: as of :class:`~drafters.models.graph.Graph`.
        verifies: whether it is a target, of which nobody asks how sure it is.

    Attributes:
        weights: parameters of the model where they need not be joined or rounded.
        biases: names of the inputs that are added to attention scores.
        outputs: how many logits a token has.
    """

    def __init__(self, model: PreTrainedModel, capture: Sequence[int], int8: bool, *, verifies: bool):
        super().__init__(int8)
        self.config, self.capture, self._verifies = model.config, capture, verifies
        self._hidden: dict[int, str] = {}
        self.biases: list[str] = []
        self._add(model)
        self.proto = self._proto()

    def _add(self, model: PreTrainedModel) -> None:
        body = model.model
        slides = sliding_layers(self.config)
        x = self.op("Gather", self.weight(body.embed_tokens.weight), "ids")
        skip, count = None, len(body.layers)
        # Of the last layer's tokens the caches have keys and values by then: nobody reads on but those that ask.
        last = count if count in self.capture else count - 1
        for index, layer in enumerate(body.layers):
            normed, x = self._norm(x, skip, layer.input_layernorm)
            self._hidden[index] = x
            bias = "sliding" if slides[index] else "bias"
            self.biases = sorted({*self.biases, bias})
            attended = self._attention(normed, layer.self_attn, index, bias, "ends" if index == last else "unpad")
            x = self.op("Gather", x, "rows") if index == last else x
            attended = self.linear(attended, *_linear(layer.self_attn.o_proj))
            normed, skip = self._norm(attended, x, layer.post_attention_layernorm)
            mlp = layer.mlp
            x = self.gated(normed, _linear(mlp.gate_proj), _linear(mlp.up_proj), _linear(mlp.down_proj))
        normed, _ = self._norm(x, skip, body.norm)
        self._hidden[count] = normed
        normed = self.op("Gather", normed, "rows") if last == count else normed
        self.outputs, head, confined = outputs_of(model), model.lm_head, isinstance(model.lm_head, ConfinedHead)
        head, tokens = (head.rows, head.tokens) if confined else (head, None)
        logits = self.linear(normed, *_linear(head), into="logits")
        self.choose(logits, tokens, verifies=self._verifies)

    def _attention(self, x: str, layer: Any, index: int, bias: str, places: str) -> str:
        heads, kv_heads = int(self.config.num_attention_heads), int(self.config.num_key_value_heads)
        parts = [self.linear(x, *_joined(layer.q_proj, layer.k_proj, layer.v_proj)), "", ""]
        if hasattr(layer, "q_norm"):
            norms = layer.q_norm.weight, layer.k_norm.weight
            parts = self.head_norms(parts[0], (heads, kv_heads, kv_heads), norms, float(layer.q_norm.variance_epsilon))
        parts = [part and self.op("Gather", part, "pad") for part in parts]
        return self.op("GatherND", self.attention(parts, index, heads, kv_heads, bias), places)

    def _norm(self, x: str, skip: str | None, norm: Any) -> tuple[str, str]:
        return self.norm(x, skip, norm.weight, float(norm.variance_epsilon))

    def _proto(self) -> ModelProto:
        config, size = self.config, head_size_of(self.config)
        cached, becoming = caches(config.num_hidden_layers, int(config.num_key_value_heads), size)
        inputs = [
            value("ids", np.int64, ["T"]),
            value("rows", np.int64, ["R"]),
            value("pad", np.int64, ["B", "L"]),
            value("unpad", np.int64, ["T", 2]),
            value("ends", np.int64, ["R", 2]),
            *attention_inputs(size, [(name, [f"{name} B", 1, "L", "room"]) for name in self.biases]),
            *cached,
        ]
        outputs = [value("logits", np.float32, ["R", self.outputs])]
        outputs += [value("tokens", np.int64, ["R"]), value("chances", np.float32, ["R"]), *becoming]
        for layer in self.capture:
            self.ops("Identity", [self._hidden[layer]], outputs=[f"hidden_{layer}"])
            outputs.append(value(f"hidden_{layer}", np.float32, ["T", int(config.hidden_size)]))
        return self.build("decoder", inputs, outputs)


def _linear(layer: Any) -> Linear:
    return layer.weight, getattr(layer, "bias", None)


def _joined(*layers: Any) -> Linear:
    """One product that computes what those of several layers do, side by side."""
    biases = [layer.bias for layer in layers if getattr(layer, "bias", None) is not None]
    return joined(*(layer.weight for layer in layers)), joined(*biases) if biases else None
