"""An EAGLE-3 head that can be trained: each step of its training is the step that it will make when it drafts.

It reads the target's hidden states at the first step and its own of the previous step thereafter (EAGLE-3's
training-time test, Sec. 3.2).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import nn
from torch.nn import functional
from transformers import LlamaConfig, PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm, LlamaRotaryEmbedding, rotate_half

from drafters.checkpoints.model_sizes import head_size_of, inner_size_of, kv_heads_of

STEPS = 5
"""Depth of the training-time test."""
STEP_WEIGHT = 0.7
"""Weight of a step's loss relative to the previous step's: later steps matter only where the earlier ones were right.
Implemented as the probability that a batch goes on to the next step, which has the same mean at half the cost."""


def drawn_steps(rng: random.Random) -> int:
    """How many steps a batch is trained on: see :data:`STEP_WEIGHT`."""
    steps = 1
    while steps < STEPS and rng.random() < STEP_WEIGHT:
        steps += 1
    return steps


def loss_of_steps(losses: Iterable[torch.Tensor]) -> torch.Tensor:
    """The loss of a batch by those of the steps drawn."""
    return torch.stack(list(losses)).sum() / sum(STEP_WEIGHT**step for step in range(STEPS))


Pair = tuple[torch.Tensor, torch.Tensor]
"""Cosines and sines, or keys and values."""


class Attention(nn.Module):
    """Attention of an EAGLE-3 layer, over embedding and hidden state side by side."""

    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.heads, self.kv_heads, self.size = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        read = 2 * config.hidden_size
        self.q_proj = nn.Linear(read, self.heads * self.size, bias=False)
        self.k_proj = nn.Linear(read, self.kv_heads * self.size, bias=False)
        self.v_proj = nn.Linear(read, self.kv_heads * self.size, bias=False)
        self.o_proj = nn.Linear(self.heads * self.size, config.hidden_size, bias=False)

    def forward(self, x: torch.Tensor, rotation: Pair, past: list[Pair], start: int) -> torch.Tensor:
        """Attend at step ``k = len(past)``, and append this step's keys and values to ``past``.

        The pair ``i`` of step ``k`` stands at the end of a draft of ``k`` tokens: it sees the pairs up to ``i - k`` as
        step 0 made them, from the target's hidden states, and of each later step ``m`` the pair ``i - k + m``.

        Args:
            x: all pairs at step 0 ``(B, T, 2 hidden)``, those from ``start`` on at later steps.
            rotation: cosines and sines of all pairs.
            start: the first pair that is wanted; what stands before is only seen.

        Returns:
            ``(B, T - start, hidden)``.
        """

        def split(y: torch.Tensor, heads: int) -> torch.Tensor:
            return y.unflatten(2, (heads, self.size)).transpose(1, 2)

        step, group = len(past), self.heads // self.kv_heads
        wanted, seen = (start, 0) if step == 0 else (0, start)  # where queries begin in x, and keys in the text
        query, key = split(self.q_proj(x[:, wanted:]), self.heads), split(self.k_proj(x), self.kv_heads)
        query = turned(query, rotation, start) * self.size**-0.5
        key = turned(key, rotation, seen).repeat_interleave(group, dim=1)
        past.append((key, split(self.v_proj(x), self.kv_heads).repeat_interleave(group, dim=1)))
        (first_keys, first_values), *later = past
        length = first_keys.shape[2]
        hidden = torch.ones(length - start, length, dtype=torch.bool, device=x.device).triu_(start + 1 - step)
        scores = [(query @ first_keys.transpose(2, 3)).masked_fill_(hidden, -torch.inf)]
        for m, (keys, _) in enumerate(later, 1):
            scores.append((query * shifted(keys, step - m)).sum(dim=-1, keepdim=True))
        weights = torch.cat(scores, dim=-1).softmax(dim=-1)
        attended = weights[..., :length] @ first_values
        for m, (_, values) in enumerate(later, 1):
            attended = attended + weights[..., length + m - 1, None] * shifted(values, step - m)
        return self.o_proj(attended.transpose(1, 2).flatten(2))


def turned(x: torch.Tensor, rotation: Pair, start: int) -> torch.Tensor:
    """Rotary position embedding of ``x`` (B, heads, T, size), whose first position is ``start``."""
    cos, sin = (table[:, None, start : start + x.shape[2]] for table in rotation)
    return x * cos + rotate_half(x) * sin


def shifted(x: torch.Tensor, places: int) -> torch.Tensor:
    """``x`` (..., T, size) moved by so many places to later positions, zeros before."""
    return functional.pad(x, (0, 0, places, 0))[..., : x.shape[-2], :] if places else x


class Layer(nn.Module):
    """The one layer of an EAGLE-3 head."""

    def __init__(self, config: LlamaConfig):
        super().__init__()
        size, eps = config.hidden_size, config.rms_norm_eps
        self.self_attn, self.mlp = Attention(config), LlamaMLP(config)
        self.input_layernorm, self.hidden_norm = LlamaRMSNorm(size, eps), LlamaRMSNorm(size, eps)
        self.post_attention_layernorm = LlamaRMSNorm(size, eps)

    def forward(
        self, embedded: torch.Tensor, hidden: torch.Tensor, rotation: Pair, past: list[Pair], start: int
    ) -> torch.Tensor:
        """Hidden states ``(B, T - start, hidden)`` of the pairs from ``start`` on; see :meth:`Attention.forward`."""
        read = torch.cat([self.input_layernorm(embedded), self.hidden_norm(hidden)], dim=-1)
        attended = self.self_attn(read, rotation, past, start)
        hidden = hidden[:, -attended.shape[1] :] + attended
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class TrainableHead(nn.Module):
    """An EAGLE-3 head whose parameters are named as in the published folders.

    Args:
        target: lends the embedding, which is not trained and not saved, and the first output layer.
        ids: the target's token ids that it can propose, ascending ``(draft vocabulary,)``.
        shape: attention heads and feed-forward width of its layer; by default as in a layer of the target.
        config: of a head that is there, instead.
    """

    ids: torch.Tensor

    def __init__(
        self,
        target: PreTrainedModel,
        ids: torch.Tensor,
        shape: Mapping[str, int] | None = None,
        config: LlamaConfig | None = None,
    ):
        super().__init__()
        its = target.config.get_text_config()
        size = int(its.hidden_size)
        as_target = {
            "intermediate_size": inner_size_of(its),
            "num_attention_heads": int(its.num_attention_heads),
            "num_key_value_heads": kv_heads_of(its),
            "head_dim": head_size_of(its),
        }
        self.config = config or LlamaConfig(
            hidden_size=size,
            vocab_size=its.vocab_size,
            num_hidden_layers=1,
            max_position_embeddings=its.max_position_embeddings,
            rms_norm_eps=getattr(its, "rms_norm_eps", 1e-5),
            rope_theta=(getattr(its, "rope_parameters", None) or {}).get("rope_theta", 10_000.0),
            **(shape or as_target),
        )
        self.layers: tuple[int, ...] = layers_to_read(int(its.num_hidden_layers))
        self.fc = nn.Linear(3 * size, size, bias=False)
        self.midlayer = Layer(self.config)
        self.norm = LlamaRMSNorm(size, self.config.rms_norm_eps)
        self.lm_head = nn.Linear(size, len(ids), bias=False)
        self.register_buffer("ids", ids)
        self.rotary = LlamaRotaryEmbedding(self.config)
        with torch.no_grad():
            # It begins as one that passes the latest hidden state on and reads it as the target does its last.
            self.fc.weight.mul_(0.1)
            self.fc.weight[:, 2 * size :] += torch.eye(size)
            self.lm_head.weight.copy_(target.get_output_embeddings().weight[ids])
            self.midlayer.self_attn.o_proj.weight.mul_(0.1)
            self.midlayer.mlp.down_proj.weight.mul_(0.1)

    def forward(
        self, features: torch.Tensor, embedded: torch.Tensor, wanted: torch.Tensor, steps: int
    ) -> Iterator[torch.Tensor]:
        """Logits ``(n, draft vocabulary)`` of each step at the pairs wanted.

        Args:
            features: the target's hidden states of the pairs ``(B, T, 3 hidden)``.
            embedded: embeddings of the pairs' tokens ``(B, T, hidden)``.
            wanted: which pairs, bool ``(B, T)`` with ``n`` true.
        """
        hidden = self.fc(features)
        rotation = self.rotary(hidden, torch.arange(hidden.shape[1], device=hidden.device)[None])
        # A pair's last step begins so many pairs before it; pairs before the first that is wanted are only seen.
        start = max(int(wanted.any(dim=0).nonzero()[0]) - steps + 1, 0)
        past: list[Pair] = []
        for step in range(steps):
            if step:
                hidden, embedded = shifted(hidden, 1), embedded[:, -hidden.shape[1] :]
            hidden = self.midlayer(embedded, hidden, rotation, past, start)
            yield self.lm_head(self.norm(hidden[wanted[:, start:]]))

    def copy(self, other: TrainableHead) -> None:
        """Take the weights of a head of the same shape that may know other tokens."""
        weights = other.state_dict()
        output, ids = weights.pop("lm_head.weight"), weights.pop("ids")
        self.load_state_dict(weights, strict=False)
        shared = torch.isin(self.ids, ids)
        with torch.no_grad():
            self.lm_head.weight[shared] = output[torch.searchsorted(ids, self.ids[shared])]


def layers_to_read(count: int) -> tuple[int, int, int]:
    """A low, a middle and a high one of ``count`` layers; the last ones' states exist only normalised."""
    return (2 if count > 2 else 0, count // 2, max(count - 3, 0))
