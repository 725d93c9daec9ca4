"""A lean forward for Llama models of one shape, stacked: N models share every matrix product.

Small models spend most of a step outside their arithmetic (Python, mask building, one kernel per
projection). This forward does a model's step in a few kernels, and N same-shape drafters in as many:
that is what makes evaluating all of them affordable (HedgeSpec 3.2). It computes what
``transformers``' Llama computes, in the same precision; a test holds it to that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional
from transformers import LlamaForCausalLM, PreTrainedModel

from multidraft.projection import Projection

MAX_WINDOW = 8192
"""The cache is allocated for the whole window at once."""

MAX_PARAMETERS = 500_000_000
"""Beyond, fusing kernels gains little and holding a second copy of the weights costs a lot."""


@dataclass(frozen=True)
class Layer:
    """One layer of M models."""

    norm1: torch.Tensor
    """``(M, 1, hidden)``, like ``norm2``."""
    qkv: Projection
    out: Projection
    norm2: torch.Tensor
    gate_up: Projection
    down: Projection
    cache: torch.Tensor
    """Keys, then values: ``(M, 2 kv heads, window, head size)``."""

    def of(self, model: int) -> Layer:
        """That of one of the models, sharing weights and cache."""
        one = slice(model, model + 1)
        return Layer(
            self.norm1[one],
            self.qkv.of(model),
            self.out.of(model),
            self.norm2[one],
            self.gate_up.of(model),
            self.down.of(model),
            self.cache[one],
        )


@dataclass(frozen=True)
class Weights:
    """M models, as one forward needs them."""

    embedding: torch.Tensor
    """``(M, V, hidden)``."""
    layers: list[Layer]
    final_norm: torch.Tensor
    head: Projection

    def of(self, model: int) -> Weights:
        """Those of one of the models, sharing the storage."""
        one = slice(model, model + 1)
        layers = [layer.of(model) for layer in self.layers]
        return Weights(self.embedding[one], layers, self.final_norm[one], self.head.of(model))


class LlamaStack:
    """N Llama models of one shape, with a key-value cache of their own.

    The cache is one buffer per layer: position ``s`` of model ``i`` is written in place, so rolling back
    is forgetting a number.

    Args:
        models: the models; configurations must agree in everything but names.

    Raises:
        ValueError: shapes differ, or a model uses something this forward does not compute.
    """

    def __init__(self, models: Sequence[LlamaForCausalLM]):
        for model in models:
            if problem := unsupported(model, models[0]):
                raise ValueError(problem)
        config = models[0].config
        self.size = len(models)
        self.window = int(config.max_position_embeddings)
        self.vocab_size = int(config.vocab_size)
        self.eps = float(config.rms_norm_eps)
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_size = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.parameter_count = models[0].num_parameters()
        weight = models[0].model.embed_tokens.weight
        self.device, self.dtype = weight.device, weight.dtype
        self.root_eps = torch.tensor(self.eps**0.5, device=self.device)

        def stack(name: str) -> torch.Tensor:
            return torch.stack([model.get_parameter(name).detach() for model in models])

        def project(*names: str) -> Projection:
            stacked = [stack(name) for name in names]
            return Projection(torch.cat(stacked, dim=1) if len(names) > 1 else stacked[0], self.parameter_count)

        cache_shape = (self.size, 2 * self.kv_heads, self.window, self.head_size)
        layers = []
        for index in range(config.num_hidden_layers):
            part = f"model.layers.{index}."
            layers.append(
                Layer(
                    norm1=stack(part + "input_layernorm.weight")[:, None],
                    qkv=project(*(f"{part}self_attn.{p}_proj.weight" for p in "qkv")),
                    out=project(part + "self_attn.o_proj.weight"),
                    norm2=stack(part + "post_attention_layernorm.weight")[:, None],
                    gate_up=project(*(f"{part}mlp.{p}_proj.weight" for p in ("gate", "up"))),
                    down=project(part + "mlp.down_proj.weight"),
                    cache=torch.zeros(cache_shape, dtype=self.dtype, device=self.device),
                )
            )
        embedding, tied = stack("model.embed_tokens.weight"), config.tie_word_embeddings
        head = Projection(embedding, self.parameter_count) if tied else project("lm_head.weight")
        self.all = Weights(embedding, layers, stack("model.norm.weight")[:, None], head)
        self.each = [self.all.of(index) for index in range(self.size)]
        cos, sin = models[0].model.rotary_emb(embedding[0, :1, None], torch.arange(self.window)[None].to(self.device))
        # Rotation multiplies (-high, low) by the sine: the sign is put into the table once.
        low, high = sin[0, :, None].chunk(2, dim=-1)
        self.cos, self.sin = cos[0, :, None], torch.cat([-low, high], dim=-1)

    @torch.inference_mode()
    def forward(
        self,
        ids: torch.Tensor,
        start: int,
        model: int | None = None,
        *,
        positions: torch.Tensor | None = None,
        mask: torch.Tensor | None = None,
        last: int | None = None,
    ) -> torch.Tensor:
        """Run tokens through one model or all of them, writing the cache from ``start`` on.

        Args:
            ids: token ids ``(T,)`` int64, the same for every model.
            start: how many cached positions precede them.
            model: index of the one model to run; ``None`` runs all N.
            positions: rotary positions ``(T,)``; by default ``start, start + 1, …``.
            mask: which cached positions each token sees, bool ``(T, start + T)``; causal by default.
            last: return the logits of the last ``last`` tokens only.

        Returns:
            Logits ``(models, T or last, V)``, ``models`` being 1 or N.
        """
        length = ids.shape[0]
        end = start + length
        if end > self.window:
            raise ValueError(f"{end} tokens exceed the context window of {self.window}")
        at = slice(start, end) if positions is None else positions
        rotation = self.cos[at], self.sin[at]
        bias = self._attention_bias(mask, start, length)
        weights = self.all if model is None else self.each[model]
        x = weights.embedding.index_select(1, ids)
        for layer in weights.layers:
            qkv = layer.qkv(self._norm(x, layer.norm1))
            x = x + layer.out(self._attention(qkv, layer.cache, start, rotation, bias))
            gate, up = layer.gate_up(self._norm(x, layer.norm2)).chunk(2, dim=-1)
            x = x + layer.down(functional.silu(gate).mul_(up))
        if last is not None and last < length:
            x = x[:, -last:]
        return weights.head(self._norm(x, weights.final_norm))

    def _attention_bias(self, mask: torch.Tensor | None, start: int, length: int) -> torch.Tensor | None:
        """``(group * T, start + T)`` to add to the scores, once for each query head that shares a key; ``None`` where
        nothing is hidden or the kernel hides it (a prompt, causal from the first token on)."""
        if mask is None:
            if length == 1 or start == 0:
                return None
            mask = torch.ones(length, start + length, dtype=torch.bool, device=self.device).tril_(start)
        bias = torch.zeros(mask.shape, dtype=self.dtype, device=self.device).masked_fill_(~mask, -torch.inf)
        return bias.repeat(self.heads // self.kv_heads, 1)

    def _attention(
        self,
        qkv: torch.Tensor,
        cache: torch.Tensor,
        start: int,
        rotation: tuple[torch.Tensor, torch.Tensor],
        bias: torch.Tensor | None,
    ) -> torch.Tensor:
        """Write the new keys and values from ``start`` on, and attend to all so far; ``(M, T, heads * head size)``."""
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
        else:
            # Query heads that share a key stand as rows of one product: no kernel for grouped queries takes a mask.
            rows = query.view(models, length, self.kv_heads, group, -1).permute(0, 2, 3, 1, 4)
            rows = rows.reshape(models, self.kv_heads, group * length, -1)
            attended = functional.scaled_dot_product_attention(rows, keys, values, attn_mask=bias)
            # Some kernels return strides that no view could regroup, so dimensions are only split before the copy.
            attended = attended.unflatten(2, (group, length)).permute(0, 3, 1, 2, 4)
            return attended.reshape(models, length, -1)
        return attended.transpose(1, 2).reshape(models, length, -1)

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        if x.dtype == torch.float32:  # the library's kernel is a chain of nine on a CPU
            size = x.shape[-1]
            root = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
            return x / root.mul_(size**-0.5).hypot_(self.root_eps) * weight
        return functional.rms_norm(x, x.shape[-1:], eps=self.eps) * weight

    def keep(self, start: int, kept: Sequence[int]) -> None:
        """Move the cached positions ``start + kept[0], start + kept[1], …`` to ``start, start + 1, …``."""
        if list(kept) == list(range(len(kept))):
            return
        source = torch.tensor(kept, device=self.device) + start
        for layer in self.all.layers:
            layer.cache[:, :, start : start + len(kept)] = layer.cache[:, :, source]


def unsupported(model: PreTrainedModel, like: LlamaForCausalLM | None = None) -> str | None:
    """Why :class:`LlamaStack` cannot run ``model`` (together with ``like``); ``None`` if it can."""
    if type(model) is not LlamaForCausalLM:
        return f"{type(model).__name__} is not a plain Llama"
    config = model.config
    if getattr(model, "hf_quantizer", None) is not None:
        return "quantised weights"
    if (config.rope_parameters or {}).get("rope_type", "default") not in ("default", "linear", "llama3"):
        return "rotary frequencies that depend on the length"
    if config.max_position_embeddings > MAX_WINDOW or model.num_parameters() > MAX_PARAMETERS:
        return "a model so large that its kernels, not their number, cost the time"
    if config.hidden_act != "silu" or config.attention_bias or config.mlp_bias:
        return "a Llama with biases or another activation"
    if like is not None:
        names = (
            "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads "
            "head_dim max_position_embeddings rms_norm_eps tie_word_embeddings rope_parameters"
        ).split()
        for name in names:
            mine, other = getattr(config, name, None), getattr(like.config, name, None)
            if mine != other:
                return f"{name} differs: {mine} and {other}"
    return None
