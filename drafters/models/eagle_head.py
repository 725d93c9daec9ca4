"""The network of an EAGLE head: it continues the target's hidden states instead of the text alone."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import torch
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from drafters.base import FeatureSource, common_prefix
from drafters.checkpoints.eagle import HeadShape
from drafters.models.attention import Attention, RMSNorm, rotation_table


@dataclass
class _Layer:
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
    cache: torch.Tensor


class EagleHead:
    """An EAGLE-1, -2 or -3 head with a key-value cache; several drafters may share it, one at a time.

    Its inputs are pairs: the hidden state after token ``i`` and the embedding of token ``i + 1``; what it makes of a
    pair predicts token ``i + 2``, and stands in for the hidden state after token ``i + 1`` in the next pair.

    EAGLE-1 and -2 predict the target's last hidden state, which the target's own output layer reads. EAGLE-3 fuses
    three of the target's hidden states, has an output layer of its own (of fewer tokens), and is free in what it
    passes on.

    Args:
        shape, tensors: as :func:`~drafters.checkpoints.eagle.read_head` gives them.
        target: lends the embedding where the head has none, and to EAGLE-1 its output layer.

    Source: EAGLE (Li et al. 2024a), EAGLE-2 (2024b), EAGLE-3 (2025, Fig. 5).
    """

    def __init__(self, shape: HeadShape, tensors: dict[str, torch.Tensor], target: PreTrainedModel):
        self.shape, config = shape, shape.config
        borrowed = target.get_input_embeddings().weight.detach()
        self.device, dtype = borrowed.device, borrowed.dtype
        weights = {name: tensor.to(self.device, dtype) for name, tensor in tensors.items() if name != "d2t"}
        self.parameter_count = sum(tensor.numel() for tensor in weights.values())
        self.embedding = weights.get("embed_tokens.weight", borrowed)
        self.attention = Attention(config.num_attention_heads, config.num_key_value_heads, shape.head_size)
        self.norm = RMSNorm(float(config.rms_norm_eps), self.device)

        self.fc, self.fc_bias = weights["fc.weight"], weights.get("fc.bias")
        self.fused_norm = weights.get("input_norm.weight")
        self.fc_norms = [weights[f"fc_norm.{i}.weight"] for i in range(len(shape.layers))] if shape.fc_norm else []
        self.layers = []
        for index in range(config.num_hidden_layers):
            part = f"layers.{index}."
            biases = [weights[name] for p in "qkv" if (name := f"{part}self_attn.{p}_proj.bias") in weights]
            self.layers.append(
                _Layer(
                    qkv=torch.cat([weights[f"{part}self_attn.{p}_proj.weight"] for p in "qkv"]),
                    qkv_bias=torch.cat(biases) if biases else None,
                    out=weights[part + "self_attn.o_proj.weight"],
                    gate_up=torch.cat([weights[f"{part}mlp.{p}_proj.weight"] for p in ("gate", "up")]),
                    down=weights[part + "mlp.down_proj.weight"],
                    input_norm=weights.get(part + "input_layernorm.weight"),
                    hidden_norm=weights.get(part + "hidden_norm.weight"),
                    mlp_norm=weights[part + "post_attention_layernorm.weight"],
                    query_norm=weights.get(part + "self_attn.q_norm.weight"),
                    key_norm=weights.get(part + "self_attn.k_norm.weight"),
                    cache=self.attention.cache(1, 0, borrowed),
                )
            )
        self.final_norm = weights.get("norm.weight")
        lent = target.get_output_embeddings()
        self.output = weights.get("lm_head.weight", lent.weight.detach())
        self.output_bias = None if "lm_head.weight" in weights else getattr(lent, "bias", None)
        self.vocab_size = len(self.output)
        self.to_target: torch.Tensor | None = None
        """Target's token id of each token that the head can propose; ``None`` where they are the same."""
        if "d2t" in tensors and self.vocab_size != len(self.embedding):
            self.to_target = tensors["d2t"].long().to(self.device) + torch.arange(self.vocab_size, device=self.device)
        self.rotary = LlamaRotaryEmbedding(config).to(self.device)
        self.room = 0
        self._query: Sequence[int] = ()
        self.cached: list[int] = []
        """The context whose pairs the cache holds; drafted ones beyond it are overwritten."""
        self._twins: WeakKeyDictionary[FeatureSource, EagleHead] = WeakKeyDictionary()

    def twin(self, target: FeatureSource) -> EagleHead:
        """The same head for another text, that of ``target``: weights are shared, the cache is the text's own. Drafters
        that share a head share its twin too."""
        if (twin := self._twins.get(target)) is None:
            self._twins[target] = twin = copy.copy(self)
            twin.layers = [replace(layer, cache=layer.cache[:, :, :0]) for layer in self.layers]
            twin.room, twin.cached, twin._query = 0, [], ()
        return twin

    def begin(self, context: Sequence[int]) -> None:
        """Begin a query: nothing cached is used again, but for what another drafter has read of this very query."""
        if context is not self._query:
            self.cached, self._query = [], context

    def read(self, context: Sequence[int], source: FeatureSource, last: int) -> torch.Tensor:
        """What it makes of the last ``last`` pairs of ``context``; only what the cache lacks is computed.

        Pair ``i`` is the hidden state after token ``i`` with token ``i + 1``, so there is one less than tokens.

        Args:
            source: the target, whose hidden states it reads.

        Returns:
            ``(last, hidden)``, as :meth:`step` does; as many as there are pairs if those are fewer.
        """
        pairs = len(context) - 1
        if pairs < 1:
            return torch.empty(0, self.shape.config.hidden_size)
        keep = max(min(common_prefix(self.cached, context) - 1, pairs - last), 0)
        features = source.features(context, self.shape.layers)[keep:]
        ids = torch.tensor(context[keep + 1 :], device=self.device)
        self.cached = []  # a forward that fails leaves the cache in an undefined state
        hidden = self.step(ids, self.fuse(features), keep)
        self.cached = list(context)
        return hidden[-last:]

    def _make_room(self, positions: int) -> None:
        """Caches and rotations for so many positions, and as many again: a head knows no limit of its own."""
        if positions <= self.room:
            return
        self.room = max(2 * positions, 256)
        for layer in self.layers:
            grown = self.attention.cache(1, self.room, layer.cache)
            grown[:, :, : layer.cache.shape[2]] = layer.cache
            layer.cache = grown
        self.cos, self.sin = rotation_table(self.rotary, self.embedding, self.room)

    @torch.inference_mode()
    def fuse(self, features: torch.Tensor) -> torch.Tensor:
        """Hidden states of the target ``(T, layers * target size)`` as the head's own ``(T, hidden)`` (EAGLE-3)."""
        if self.shape.generation == 1:
            return features
        if self.fused_norm is not None:
            features = self.norm(features, self.fused_norm)
        if self.fc_norms:
            parts = features.chunk(len(self.fc_norms), dim=-1)
            features = torch.cat(
                [self.norm(part, norm) for part, norm in zip(parts, self.fc_norms, strict=True)], dim=-1
            )
        return functional.linear(features, self.fc)

    @torch.inference_mode()
    def step(
        self,
        ids: torch.Tensor,
        hidden: torch.Tensor,
        start: int,
        *,
        positions: torch.Tensor | None = None,
        mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Run pairs through the head, writing its cache from ``start`` on.

        Args:
            ids: the tokens ``(T,)`` of the pairs.
            hidden: the states ``(T, hidden)`` before them: of :meth:`fuse`, or what this returned for the pair before.
            start: how many cached pairs precede them.
            positions: rotary positions ``(T,)``; by default ``start, start + 1, …``.
            mask: which cached pairs each sees, bool ``(T, start + T)``; causal by default.

        Returns:
            ``(T, hidden)``, for :meth:`logits` and for the next step.
        """
        length = len(ids)
        self._make_room(start + length)
        at = slice(start, start + length) if positions is None else positions
        rotation = self.cos[at], self.sin[at]
        bias = self.attention.bias(mask, start, length, self.embedding)
        embedded, x = functional.embedding(ids, self.embedding)[None], hidden[None]
        if self.shape.generation == 1:
            x = functional.linear(torch.cat([embedded, x], dim=-1), self.fc, self.fc_bias)
        for index, layer in enumerate(self.layers):
            if self.shape.generation == 3 and index == 0:
                assert layer.input_norm is not None and layer.hidden_norm is not None
                normed = self.norm(x, layer.hidden_norm)
                x = normed if self.shape.norm_before_residual else x
                read = torch.cat([self.norm(embedded, layer.input_norm), normed], dim=-1)
            else:
                read = x if layer.input_norm is None else self.norm(x, layer.input_norm)
            qkv = self._normed(functional.linear(read, layer.qkv, layer.qkv_bias), layer)
            x = x + functional.linear(self.attention(qkv, layer.cache, start, rotation, bias), layer.out)
            gate, up = functional.linear(self.norm(x, layer.mlp_norm), layer.gate_up).chunk(2, dim=-1)
            x = x + functional.linear(functional.silu(gate).mul_(up), layer.down)
        if self.shape.norm_output and self.final_norm is not None:
            x = self.norm(x, self.final_norm)
        return x[0]

    def _normed(self, qkv: torch.Tensor, layer: _Layer) -> torch.Tensor:
        if layer.query_norm is None or layer.key_norm is None:
            return qkv
        heads, kv_heads = self.attention.heads, self.attention.kv_heads
        each = qkv.view(*qkv.shape[:2], -1, self.attention.head_size)
        query, key, value = each.split([heads, kv_heads, kv_heads], dim=2)
        parts = [self.norm(query, layer.query_norm), self.norm(key, layer.key_norm), value]
        return torch.cat(parts, dim=2).flatten(2)

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits ``(T, tokens it can propose)`` of what :meth:`step` returned."""
        if self.final_norm is not None and not self.shape.norm_output:
            hidden = self.norm(hidden, self.final_norm)
        return functional.linear(hidden, self.output, self.output_bias)
