"""Weights of plain decoders, of one model or of several of one shape, as our forward in PyTorch takes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn import functional
from transformers import PreTrainedModel

from drafters.checkpoints.model_sizes import head_size_of
from drafters.models.attention import RMSNorm
from drafters.models.families import become_views, joined, sliding_layers, sliding_window_of
from drafters.models.token_map import ConfinedHead, spread


class Product(Protocol):
    """A linear layer."""

    def __call__(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
        """``x``, ``(T, in)`` or ``(N, T, in)``, times the weights, plus the residual."""


class Matrices:
    """As of :class:`Product`: weights ``(N, out, in)`` of N models and their biases ``(N, out)``."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None):
        self.weight, self.bias = weight, bias
        self._matrix = weight[0] if len(weight) == 1 else weight
        self._turned = self._matrix.transpose(-1, -2)
        self._bias = bias if bias is None else bias[0] if len(weight) == 1 else bias[:, None]

    def __call__(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
        if residual is None and x.ndim == 2:
            return functional.linear(x, self._matrix, self._bias)
        first, second = (residual, self._bias) if residual is not None else (self._bias, None)
        if first is None:
            y = torch.bmm(x, self._turned)
        else:
            y = torch.addmm(first, x, self._turned) if x.ndim == 2 else torch.baddbmm(first, x, self._turned)
        return y if second is None else y.add_(second)


class Modules:
    """As of :class:`Product`: linear layers of one model side by side, each by its own forward (quantised ones)."""

    def __init__(self, modules: Sequence[torch.nn.Module]):
        self._modules = modules

    def __call__(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
        parts = [module(x) for module in self._modules]
        y = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
        return y if residual is None else residual + y


class Spread:
    """As of :class:`Product`: output layers of some tokens, whose ids are ``(N, outputs)``, as those of all."""

    def __init__(self, rows: Product, tokens: torch.Tensor, vocab_size: int):
        self._rows, self._tokens, self._vocab_size = rows, tokens, vocab_size

    def __call__(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
        y = self._rows(x)
        y = spread(y, self._tokens[0] if y.ndim == 2 else self._tokens[:, None], self._vocab_size)
        return y if residual is None else y + residual


@dataclass(frozen=True)
class Layer:
    """One layer of N models."""

    norm1: torch.Tensor
    """``(N, 1, hidden)``, ``(hidden,)`` of a single model; like ``norm2``."""
    qkv: Product
    out: Product
    norm2: torch.Tensor
    gate_up: Product
    down: Product
    slides: bool


@dataclass(frozen=True)
class Weights:
    """N models of one shape."""

    count: int
    embedding: torch.Tensor
    """``(N, V, hidden)``."""
    layers: list[Layer]
    head_norms: torch.Tensor | None
    """Of queries and keys (Qwen 3): ``(layers, N, heads + kv heads, 1, head size)``."""
    final_norm: torch.Tensor
    head: Product
    norm: RMSNorm
    heads: int
    kv_heads: int
    head_size: int
    sliding_window: int | None


def weights_of(models: Sequence[PreTrainedModel]) -> Weights:
    """The weights of models of one shape. They are held once: the parameters of the models become views of them, and so
    are the weights of one of the models that are made of it after that."""
    config = models[0].config
    heads, kv_heads = int(config.num_attention_heads), int(config.num_key_value_heads)

    def product(*names: str) -> Product:
        parts = [[model.get_submodule(name) for name in names] for model in models]
        if any(type(part) is not torch.nn.Linear for part in parts[0]):
            return Modules(parts[0])
        bias = None if parts[0][0].bias is None else _stacked(parts, "bias")
        return Matrices(_stacked(parts, "weight"), bias)

    def norm(name: str) -> torch.Tensor:
        weight = _stacked([[model.get_submodule(name)] for model in models], "weight")
        return weight[0] if len(models) == 1 else weight[:, None]

    layers, head_norms = [], []
    for index, slides in enumerate(sliding_layers(config)):
        part = f"model.layers.{index}."
        layers.append(
            Layer(
                norm(part + "input_layernorm"),
                product(*(f"{part}self_attn.{p}_proj" for p in "qkv")),
                product(part + "self_attn.o_proj"),
                norm(part + "post_attention_layernorm"),
                product(part + "mlp.gate_proj", part + "mlp.up_proj"),
                product(part + "mlp.down_proj"),
                slides,
            )
        )
        attention = [model.get_submodule(part + "self_attn") for model in models]
        if hasattr(attention[0], "q_norm"):
            each = [[a.q_norm.weight] * heads + [a.k_norm.weight] * kv_heads for a in attention]
            head_norms.append(torch.stack([torch.stack(rows) for rows in each])[:, :, None].detach())
    heads_of = [model.lm_head for model in models]
    head: Product
    if isinstance(heads_of[0], ConfinedHead):
        most = max(len(each.tokens) for each in heads_of)
        for each in heads_of:
            each.fill_up(most)
        head = Spread(product("lm_head.rows"), torch.stack([each.tokens for each in heads_of]), heads_of[0].vocab_size)
    else:
        head = product("lm_head")
    embedding = _stacked([[model.get_input_embeddings()] for model in models], "weight")
    if config.tie_word_embeddings and isinstance(head, Matrices):
        head = Matrices(embedding, head.bias)
    return Weights(
        len(models),
        embedding,
        layers,
        torch.stack(head_norms) if head_norms else None,
        norm("model.norm"),
        head,
        RMSNorm(float(config.rms_norm_eps), embedding.device),
        heads,
        kv_heads,
        head_size_of(config),
        sliding_window_of(config),
    )


def _stacked(modules: Sequence[Sequence[torch.nn.Module]], name: str) -> torch.Tensor:
    """The same parameter of some modules of each model, side by side: ``(N, out, …)``."""
    each = [joined(*(getattr(module, name) for module in row)) for row in modules]
    if len(each) == 1:
        return each[0][None]
    whole = torch.stack(each)
    for row, own in zip(modules, whole, strict=True):
        become_views([getattr(module, name) for module in row], own)
    return whole
