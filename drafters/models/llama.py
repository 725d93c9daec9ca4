"""A lean forward for Llama models of one shape, stacked: N models share every matrix product.

Small models spend most of a step outside their arithmetic (Python, mask building, one kernel per
projection). This forward does a model's step in a few kernels, and N same-shape drafters in as many:
that is what makes evaluating all of them affordable (HedgeSpec 3.2). It computes what
``transformers``' Llama computes, in the same precision; a test holds it to that.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch.nn import functional
from transformers import LlamaForCausalLM, PreTrainedModel

from drafters.models.attention import Attention, RMSNorm, product, rotation_table

MAX_WINDOW = 8192
"""The cache is allocated for the whole window at once."""

MAX_PARAMETERS = 500_000_000
"""Beyond, fusing kernels gains little and holding a second copy of the weights costs a lot."""


@dataclass(frozen=True)
class Layer:
    """One layer of M models."""

    norm1: torch.Tensor
    """``(M, 1, hidden)``, like ``norm2``."""
    qkv: torch.Tensor
    out: torch.Tensor
    norm2: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    cache: torch.Tensor
    """Keys, then values: ``(M, 2 kv heads, window, head size)``."""

    def of(self, model: int) -> Layer:
        """That of one of the models, sharing weights and cache."""
        return Layer(*(tensor[model : model + 1] for tensor in vars(self).values()))


@dataclass(frozen=True)
class Weights:
    """M models, as one forward needs them."""

    embedding: torch.Tensor
    """``(M, V, hidden)``."""
    layers: list[Layer]
    final_norm: torch.Tensor
    head: torch.Tensor

    def of(self, model: int) -> Weights:
        """Those of one of the models, sharing the storage."""
        one = slice(model, model + 1)
        layers = [layer.of(model) for layer in self.layers]
        return Weights(self.embedding[one], layers, self.final_norm[one], self.head[one])


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
        self.parameter_count = models[0].num_parameters()
        weight = models[0].model.embed_tokens.weight
        self.device = weight.device
        head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.attention = Attention(config.num_attention_heads, config.num_key_value_heads, head_size)
        self.norm = RMSNorm(float(config.rms_norm_eps), self.device)
        self.captured: dict[int, torch.Tensor] = {}

        def stack(name: str) -> torch.Tensor:
            return torch.stack([model.get_parameter(name).detach() for model in models])

        def joined(*names: str) -> torch.Tensor:
            return torch.cat([stack(name) for name in names], dim=1)

        layers = []
        for index in range(config.num_hidden_layers):
            part = f"model.layers.{index}."
            layers.append(
                Layer(
                    norm1=stack(part + "input_layernorm.weight")[:, None],
                    qkv=joined(*(f"{part}self_attn.{p}_proj.weight" for p in "qkv")),
                    out=stack(part + "self_attn.o_proj.weight"),
                    norm2=stack(part + "post_attention_layernorm.weight")[:, None],
                    gate_up=joined(*(f"{part}mlp.{p}_proj.weight" for p in ("gate", "up"))),
                    down=stack(part + "mlp.down_proj.weight"),
                    cache=self.attention.cache(self.size, self.window, weight),
                )
            )
        embedding, tied = stack("model.embed_tokens.weight"), config.tie_word_embeddings
        head = embedding if tied else stack("lm_head.weight")
        self.all = Weights(embedding, layers, stack("model.norm.weight")[:, None], head)
        self.each = [self.all.of(index) for index in range(self.size)]
        self.cos, self.sin = rotation_table(models[0].model.rotary_emb, weight, self.window)

    def twin(self) -> LlamaStack:
        """The same models for another text: weights are shared, caches are their own."""
        twin = copy.copy(self)
        layers = [replace(layer, cache=torch.zeros_like(layer.cache)) for layer in self.all.layers]
        twin.all = replace(self.all, layers=layers)
        twin.each = [twin.all.of(index) for index in range(self.size)]
        return twin

    @torch.inference_mode()
    def forward(
        self,
        ids: Sequence[int],
        start: int,
        model: int | None = None,
        *,
        positions: torch.Tensor | None = None,
        mask: torch.Tensor | None = None,
        last: int | None = None,
        capture: Sequence[int] = (),
    ) -> torch.Tensor:
        """Run tokens through one model or all of them, writing the cache from ``start`` on.

        Args:
            ids: token ids, the same for every model.
            start: how many cached positions precede them.
            model: index of the one model to run; ``None`` runs all N.
            positions: rotary positions ``(T,)``; by default ``start, start + 1, …``.
            mask: which cached positions each token sees, bool ``(T, start + T)``; causal by default.
            last: return the logits of the last ``last`` tokens only.
            capture: layers whose input is kept in :attr:`captured`, ``(models, T, hidden)`` each; the number of
                layers stands for what leaves the final norm (as ``transformers`` counts hidden states).

        Returns:
            Logits ``(models, T or last, V)``, ``models`` being 1 or N.
        """
        length = len(ids)
        end = start + length
        if end > self.window:
            raise ValueError(f"{end} tokens exceed the context window of {self.window}")
        at = slice(start, end) if positions is None else positions
        rotation = self.cos[at], self.sin[at]
        weights = self.all if model is None else self.each[model]
        bias = self.attention.bias(mask, start, length, weights.embedding)
        tokens = torch.tensor(ids, device=self.device).clamp_(max=self.vocab_size - 1)  # of the target, lacking here
        x = weights.embedding.index_select(1, tokens)
        self.captured = {}
        for index, layer in enumerate(weights.layers):
            if index in capture:
                self.captured[index] = x
            qkv = product(self.norm(x, layer.norm1), layer.qkv)
            x = x + product(self.attention(qkv, layer.cache, start, rotation, bias), layer.out)
            gate, up = product(self.norm(x, layer.norm2), layer.gate_up).chunk(2, dim=-1)
            x = x + product(functional.silu(gate).mul_(up), layer.down)
        if (end := len(weights.layers)) in capture:
            self.captured[end] = self.norm(x, weights.final_norm)
        if last is not None and last < length:
            x = x[:, -last:]
        return product(self.norm(x, weights.final_norm), weights.head)

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
