"""A lean forward for Llama models of one shape, stacked: N models share every matrix product.

Small models spend most of a step outside their arithmetic (Python, mask building, one kernel per
projection). This forward does a model's step in a few kernels, and N same-shape drafters in as many:
that is what makes evaluating all of them affordable (HedgeSpec 3.2). It computes what
``transformers``' Llama computes, in the same precision; a test holds it to that.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional
from transformers import LlamaForCausalLM, PreTrainedModel

MAX_WINDOW = 8192
"""The cache is allocated for the whole window at once."""

FEW_TOKENS, LARGE_MATRIX, LARGE_MODEL = 16, 250_000, 4_000_000
"""Up to so many tokens, and from so many numbers on, a product on a CPU has the weights on the left: see
:meth:`LlamaStack._project`. A model is large where its weights outgrow the caches near the core."""

MAX_PARAMETERS = 500_000_000
"""Beyond, fusing kernels gains little and holding a second copy of the weights costs a lot."""


class LlamaStack:
    """N Llama models of one shape, with a key-value cache of their own.

    The cache is one buffer per layer and side, ``(N, kv heads, window, head size)``: position ``s`` of
    model ``i`` is written in place, so rolling back is forgetting a number.

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
        weight = models[0].model.embed_tokens.weight
        self.device, self.dtype = weight.device, weight.dtype

        def stack(name: str) -> torch.Tensor:
            return torch.stack([model.get_parameter(name).detach() for model in models])

        self.embedding = stack("model.embed_tokens.weight")
        self.final_norm = stack("model.norm.weight")
        self.head = self.embedding if config.tie_word_embeddings else stack("lm_head.weight")
        self.layers = []
        for index in range(config.num_hidden_layers):
            part = f"model.layers.{index}."
            self.layers.append(
                {
                    "norm1": stack(part + "input_layernorm.weight"),
                    "qkv": torch.cat([stack(f"{part}self_attn.{p}_proj.weight") for p in "qkv"], dim=1),
                    "out": stack(part + "self_attn.o_proj.weight"),
                    "norm2": stack(part + "post_attention_layernorm.weight"),
                    "gate_up": torch.cat([stack(f"{part}mlp.{p}_proj.weight") for p in ("gate", "up")], dim=1),
                    "down": stack(part + "mlp.down_proj.weight"),
                }
            )
        cos, sin = models[0].model.rotary_emb(
            self.embedding[0, :1, None], torch.arange(self.window)[None].to(self.device)
        )
        self.cos, self.sin = cos[0], sin[0]
        self.parameters_each = self.parameter_count
        shape = (self.size, self.kv_heads, self.window, self.head_size)
        self.keys = [torch.zeros(shape, dtype=self.dtype, device=self.device) for _ in self.layers]
        self.values = [torch.zeros(shape, dtype=self.dtype, device=self.device) for _ in self.layers]

    @property
    def parameter_count(self) -> int:
        """Parameters of one of the models."""
        tensors = [self.embedding, self.final_norm, *(t for layer in self.layers for t in layer.values())]
        if self.head is not self.embedding:
            tensors.append(self.head)
        return sum(t[0].numel() for t in tensors)

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
        pick = slice(None) if model is None else slice(model, model + 1)
        length = ids.shape[0]
        end = start + length
        if end > self.window:
            raise ValueError(f"{end} tokens exceed the context window of {self.window}")
        if positions is None:
            cos, sin = self.cos[start:end], self.sin[start:end]
        else:
            cos, sin = self.cos[positions], self.sin[positions]
        if mask is None and length > 1:
            mask = torch.ones(length, end, dtype=torch.bool, device=self.device).tril_(start)
        x = self.embedding[pick, ids]
        for layer, keys, values in zip(self.layers, self.keys, self.values, strict=True):
            x = x + self._attention(
                self._norm(x, layer["norm1"][pick]), layer, pick, keys, values, start, cos, sin, mask
            )
            gate, up = self._project(self._norm(x, layer["norm2"][pick]), layer["gate_up"][pick]).chunk(2, dim=-1)
            x = x + self._project(functional.silu(gate).mul_(up), layer["down"][pick])
        if last is not None:
            x = x[:, -last:]
        return self._project(self._norm(x, self.final_norm[pick]), self.head[pick])

    def _attention(
        self,
        x: torch.Tensor,
        layer: dict[str, torch.Tensor],
        pick: slice,
        keys: torch.Tensor,
        values: torch.Tensor,
        start: int,
        cos: torch.Tensor,
        sin: torch.Tensor,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        models, length, _ = x.shape
        end = start + length
        heads = self._project(x, layer["qkv"][pick]).view(models, length, -1, self.head_size).transpose(1, 2)
        rotary, value = heads[:, : self.heads + self.kv_heads], heads[:, self.heads + self.kv_heads :]
        low, high = rotary.chunk(2, dim=-1)
        rotary = rotary * cos + torch.cat((-high, low), dim=-1) * sin
        keys[pick, :, start:end] = rotary[:, self.heads :]
        values[pick, :, start:end] = value
        attended = functional.scaled_dot_product_attention(
            rotary[:, : self.heads],
            keys[pick, :, :end],
            values[pick, :, :end],
            attn_mask=mask,
            enable_gqa=self.heads != self.kv_heads,
        )
        return self._project(attended.transpose(1, 2).reshape(models, length, -1), layer["out"][pick])

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, x.shape[-1:], eps=self.eps) * weight[:, None]

    def _project(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """``x`` (M, T, in) times ``weight`` (M, out, in), each model with its own.

        For a few tokens on a CPU the weights go first, ``(weight x^T)^T``, where they are large or have to come from
        far: as the right-hand matrix they take two to four times as long (600 instead of 140 µs for the output head
        of the pocket target). A single token counts as two then: one column goes a slower way again.
        """
        models, tokens, _ = x.shape
        large = models * self.parameters_each > LARGE_MODEL or weight[0].numel() > LARGE_MATRIX
        if large and tokens <= FEW_TOKENS and x.device.type == "cpu":
            columns = x.expand(-1, max(tokens, 2), -1).contiguous().transpose(1, 2)
            product = torch.mm(weight[0], columns[0])[None] if models == 1 else torch.bmm(weight, columns)
            return product[..., :tokens].transpose(1, 2)
        if models == 1:
            return functional.linear(x, weight[0])
        return torch.bmm(x, weight.transpose(1, 2))

    def keep(self, start: int, kept: Sequence[int]) -> None:
        """Move the cached positions ``start + kept[0], start + kept[1], …`` to ``start, start + 1, …``."""
        if list(kept) == list(range(len(kept))):
            return
        source = torch.tensor(kept, device=self.device) + start
        for buffer in (*self.keys, *self.values):
            buffer[:, :, start : start + len(kept)] = buffer[:, :, source]


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
        fields = (
            "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads "
            "head_dim max_position_embeddings rms_norm_eps tie_word_embeddings rope_parameters"
        ).split()
        for name in fields:
            mine, other = getattr(config, name, None), getattr(like.config, name, None)
            if mine != other:
                return f"{name} differs: {mine} and {other}"
    return None
