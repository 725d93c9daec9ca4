"""The network of an EAGLE head: it continues the target's hidden states instead of the text alone."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from drafters.base import FeatureSource, common_prefix
from drafters.checkpoints.eagle import HeadShape
from drafters.models.attention import Attention, RMSNorm, rotation_table
from drafters.models.decoder import Likeliest
from drafters.models.head_graph import HeadLayer, HeadWeights
from drafters.models.onnx_head import OnnxHead, unsupported
from drafters.sampling import likeliest


class Made(NamedTuple):
    """What a head makes of pairs: states ``(n, hidden)`` for the next step, and logits ``(n, V)``, with the most
    probable tokens of the target where it finds them itself."""

    hidden: torch.Tensor
    logits: torch.Tensor
    likeliest: Likeliest | None = None


class EagleHead:
    """An EAGLE-1, -2 or -3 head with a key-value cache; several drafters may share it, one at a time.

    Its steps run on ONNX Runtime where that can (:func:`~drafters.models.onnx_head.unsupported`), else in PyTorch.

    Its inputs are pairs: the hidden state after token ``i`` and the embedding of token ``i + 1``; what it makes of a
    pair predicts token ``i + 2``, and stands in for the hidden state after token ``i + 1`` in the next pair.

    EAGLE-1 and -2 predict the target's last hidden state, which the target's own output layer reads. EAGLE-3 fuses
    three of the target's hidden states, has an output layer of its own (of fewer tokens), and is free in what it
    passes on.

    Args:
        shape, tensors: as :func:`~drafters.checkpoints.eagle.read_head` gives them.
        target: lends the embedding and the output layer, or its rows of the tokens that the head proposes, where the
            head has none.
        int8: whether ONNX Runtime, if it runs the head, has int8 weights (:mod:`drafters.models.int8`).

    Source: EAGLE (Li et al. 2024a), EAGLE-2 (2024b), EAGLE-3 (2025, Fig. 5).
    """

    def __init__(self, shape: HeadShape, tensors: dict[str, torch.Tensor], target: PreTrainedModel, int8: bool = False):
        self.shape, config = shape, shape.config
        borrowed = target.get_input_embeddings().weight.detach()
        self.device, dtype = borrowed.device, borrowed.dtype
        weights = {name: tensor.to(self.device, dtype) for name, tensor in tensors.items() if name != "d2t"}
        self.embedding = weights.get("embed_tokens.weight", borrowed)
        self.attention = Attention(config.num_attention_heads, config.num_key_value_heads, shape.head_size)
        self.norm = RMSNorm(float(config.rms_norm_eps), self.device)
        lent = target.get_output_embeddings()
        bias = None if "lm_head.weight" in weights else getattr(lent, "bias", None)
        self.to_target: torch.Tensor | None = None
        """Target's token id of each token that the head can propose; ``None`` where they are the same."""
        if "d2t" in tensors and shape.vocab_size != len(self.embedding):
            self.to_target = tensors["d2t"].long().to(self.device) + torch.arange(shape.vocab_size, device=self.device)
            if "lm_head.weight" not in weights:
                weights["lm_head.weight"] = lent.weight.detach()[self.to_target]
                bias = None if bias is None else bias[self.to_target]
        self.parameter_count = sum(tensor.numel() for tensor in weights.values())
        output = weights.get("lm_head.weight", lent.weight.detach())
        self.vocab_size = len(output)
        self.weights = HeadWeights(
            self.embedding,
            weights["fc.weight"],
            weights.get("fc.bias"),
            weights.get("input_norm.weight"),
            [weights[f"fc_norm.{i}.weight"] for i in range(len(shape.layers))] if shape.fc_norm else [],
            [_layer(weights, f"layers.{index}.") for index in range(config.num_hidden_layers)],
            weights.get("norm.weight"),
            output,
            bias,
            self.to_target,
        )
        reason = unsupported(shape, dtype, str(self.device))
        self.onnx = None if reason else OnnxHead(shape, self.weights, int8)
        self.caches = [self.attention.cache(0, borrowed) for _ in self.weights.layers]
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
            twin.caches, twin.onnx = [cache[:, :, :0] for cache in self.caches], self.onnx and self.onnx.twin()
            twin.room, twin.cached, twin._query = 0, [], ()
        return twin

    def begin(self, context: Sequence[int]) -> None:
        """Begin a query: nothing cached is used again, but for what another drafter has read of this very query."""
        if context is not self._query:
            self.cached, self._query = [], context

    def read(self, context: Sequence[int], source: FeatureSource, last: int) -> Made:
        """What it makes of the last ``last`` pairs of ``context``, or of as many as there are; computes only what the
        cache lacks.

        Args:
            source: the target, whose hidden states it reads.
        """
        pairs = len(context) - 1
        if pairs < 1:
            return Made(torch.empty(0, self.shape.config.hidden_size), torch.empty(0, self.vocab_size))
        keep = max(min(common_prefix(self.cached, context) - 1, pairs - last), 0)
        features = source.features(context, self.shape.layers)[keep:]
        ids = context[keep + 1 :]
        last = min(last, len(ids))
        self.cached = []  # a forward that fails leaves the cache in an undefined state
        made = self.first_step(ids, features, keep, last)
        self.cached = list(context)
        return made

    def _make_room(self, positions: int) -> None:
        """Caches and rotations for so many positions, and as many again: a head knows no limit of its own."""
        if positions <= self.room:
            return
        self.room = max(2 * positions, 256)
        for index, cache in enumerate(self.caches):
            self.caches[index] = grown = self.attention.cache(self.room, cache)
            grown[:, :, : cache.shape[2]] = cache
        self.cos, self.sin = rotation_table(self.rotary, self.embedding, self.room)
        if self.onnx is not None:
            half = self.shape.head_size // 2
            self.onnx.use(self.caches, self.cos[:, 0, :half], self.sin[:, 0, half:])

    def first_step(self, ids: Sequence[int], features: torch.Tensor, start: int, last: int) -> Made:
        """As :meth:`step`, with the target's own hidden states ``features``, ``(T, layers * target size)``, in place of
        what :meth:`fuse` makes of them."""
        if self.onnx is not None:
            self._make_room(start + len(ids))
            return Made(*self.onnx.read(ids, features, start, last))
        return self.step(torch.tensor(ids, device=self.device), self.fuse(features), start, last=last)

    @torch.inference_mode()
    def fuse(self, features: torch.Tensor) -> torch.Tensor:
        """Hidden states of the target ``(T, layers * target size)`` as the head's own ``(T, hidden)`` (EAGLE-3)."""
        if self.shape.generation == 1:
            return features
        if self.weights.fused_norm is not None:
            features = self.norm(features, self.weights.fused_norm)
        if norms := self.weights.fc_norms:
            parts = zip(features.chunk(len(norms), dim=-1), norms, strict=True)
            features = torch.cat([self.norm(part, norm) for part, norm in parts], dim=-1)
        return functional.linear(features, self.weights.fc)

    @torch.inference_mode()
    def step(
        self,
        ids: torch.Tensor,
        hidden: torch.Tensor,
        start: int,
        *,
        positions: torch.Tensor | None = None,
        mask: torch.Tensor | None = None,
        last: int | None = None,
    ) -> Made:
        """Run pairs through the head, writing its cache from ``start`` on.

        Args:
            ids: the tokens ``(T,)`` of the pairs.
            hidden: the states ``(T, hidden)`` before them: of :meth:`fuse`, or what this returned for the pair before.
            start: how many cached pairs precede them.
            positions: rotary positions ``(T,)``; by default ``start, start + 1, …``.
            mask: which cached pairs each sees, bool ``(T, start + T)``; causal by default.
            last: of how many pairs, the last ones, states and logits are wanted; by default of all.
        """
        length = len(ids)
        self._make_room(start + length)
        if self.onnx is not None:
            return Made(*self.onnx.step(ids, hidden, start, positions, mask, length if last is None else last))
        weights = self.weights
        at = slice(start, start + length) if positions is None else positions
        rotation = self.cos[at], self.sin[at]
        bias = self.attention.bias(mask, start, length, self.embedding)
        embedded, x = functional.embedding(ids, self.embedding)[None], hidden[None]
        if self.shape.generation == 1:
            x = functional.linear(torch.cat([embedded, x], dim=-1), weights.fc, weights.fc_bias)
        for layer, cache in zip(weights.layers, self.caches, strict=True):
            if layer.hidden_norm is not None and layer.input_norm is not None:  # the first layer of EAGLE-3
                normed = self.norm(x, layer.hidden_norm)
                x = normed if self.shape.norm_before_residual else x
                read = torch.cat([self.norm(embedded, layer.input_norm), normed], dim=-1)
            else:
                read = x if layer.input_norm is None else self.norm(x, layer.input_norm)
            qkv = self._normed(functional.linear(read, layer.qkv, layer.qkv_bias), layer)
            attended = self.attention(qkv, cache, start, rotation, bias)
            if last is not None and layer is weights.layers[-1]:
                x, attended = x[:, -last:], attended[:, -last:]
            x = x + functional.linear(attended, layer.out)
            gate, up = functional.linear(self.norm(x, layer.mlp_norm), layer.gate_up).chunk(2, dim=-1)
            x = x + functional.linear(functional.silu(gate).mul_(up), layer.down)
        final = x if weights.final_norm is None else self.norm(x, weights.final_norm)
        logits = functional.linear(final[0], weights.output, weights.output_bias)
        return Made(final[0] if self.shape.norm_output else x[0], logits)

    @torch.inference_mode()
    def draft(
        self, made: Made, start: int, length: int, log_confidence: float = -math.inf, *, with_logits: bool = False
    ) -> tuple[list[int], list[torch.Tensor]]:
        """The likeliest token of each step in turn.

        Args:
            made: what it made of the pair before the draft.
            start: how many cached pairs precede it.
            length: most tokens, >= 1.
            log_confidence: the draft ends with the token at which the logarithms of its tokens' probabilities add up to
                less.

        Returns:
            Tokens of the target, and if wanted the logits ``(1, V)`` that each was chosen by.
        """
        self._make_room(start + length)
        tokens, rows, sure = list[int](), list[torch.Tensor](), 0.0
        while len(tokens) < length and sure >= log_confidence:
            if tokens and self.onnx is not None:
                more = self.onnx.draft(made.hidden, tokens[0], start, length - 1, log_confidence - sure, with_logits)
                return tokens + more[0], rows + more[1]
            if tokens:
                made = self.step(torch.tensor(tokens[-1:], device=self.device), made.hidden, start + len(tokens) - 1)
            if made.likeliest:
                best, chance = int(made.likeliest[0][0]), float(made.likeliest[1][0])
            else:
                best, chance = likeliest(made.logits[0])
                best = best if self.to_target is None else int(self.to_target[best])
            tokens.append(best)
            rows += [made.logits] if with_logits else []
            sure += chance
        return tokens, rows

    def _normed(self, qkv: torch.Tensor, layer: HeadLayer) -> torch.Tensor:
        if layer.query_norm is None or layer.key_norm is None:
            return qkv
        heads, kv_heads = self.attention.heads, self.attention.kv_heads
        each = qkv.view(*qkv.shape[:2], -1, self.attention.head_size)
        query, key, value = each.split([heads, kv_heads, kv_heads], dim=2)
        parts = [self.norm(query, layer.query_norm), self.norm(key, layer.key_norm), value]
        return torch.cat(parts, dim=2).flatten(2)


def _layer(weights: dict[str, torch.Tensor], part: str) -> HeadLayer:
    biases = [weights[name] for p in "qkv" if (name := f"{part}self_attn.{p}_proj.bias") in weights]
    return HeadLayer(
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
    )
