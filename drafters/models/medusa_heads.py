"""Heads that read the target's last hidden state and predict one token each, further and further on: Medusa and BPD.

What they read is the state after the final norm. From it the target's own output layer predicts the next token, head 0
the one after that, head ``k`` the ``k + 2``-th.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch.nn import functional
from transformers import PreTrainedModel

from drafters.models.attention import product


class _Linear:
    """One linear layer of each head, computed for the first few at once.

    Args:
        weights: of each head, ``(out, in)``.
        biases: ``(out,)``; empty for a layer without.
    """

    def __init__(self, weights: Sequence[torch.Tensor], biases: Sequence[torch.Tensor] = ()):
        self.weights = torch.stack(list(weights))
        self.bias = torch.stack(list(biases))[:, None] if biases else None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` (n, T, in) of the first n heads to (n, T, out)."""
        y = product(x, self.weights[: len(x)])
        return y if self.bias is None else y + self.bias[: len(x)]


class MedusaHeads:
    """Medusa heads: residual blocks ``x + SiLU(W x + b)``, then an output layer of the head's own.

    Args:
        tensors: as :func:`~drafters.checkpoints.medusa.read_medusa` returns them.
        target: says where to compute, in what dtype, and which hidden state is its last.

    Source: Medusa (Cai et al. 2024, Sec. 2.1.1).
    """

    kind = "medusa"

    def __init__(self, tensors: Mapping[str, torch.Tensor], target: PreTrainedModel):
        self.layer, weights = _last_layer(target), _as_target(tensors, target)
        self.count = 1 + max(int(name.split(".")[0]) for name in weights)
        depth = max(int(name.split(".")[1]) for name in weights)
        self.parameter_count = sum(tensor.numel() for tensor in weights.values())

        def layer(place: int, weight: str, bias: str = "") -> _Linear:
            names = [f"{head}.{place}." for head in range(self.count)]
            return _Linear(
                [weights[name + weight] for name in names],
                [weights[name + bias] for name in names] if bias else [],
            )

        self.blocks = [layer(place, "linear.weight", "linear.bias") for place in range(depth)]
        self.output = layer(depth, "weight")

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor, count: int) -> torch.Tensor:
        """Logits ``(min(count, heads), T, V)`` of the first ``count`` heads for hidden states ``(T, hidden)``."""
        x = hidden.expand(min(count, self.count), -1, -1)
        for block in self.blocks:
            x = x + functional.silu(block(x))
        return self.output(x)


class BPDHeads:
    """Heads of blockwise parallel decoding: ``h + W₂ relu(W₁ h + b₁) + b₂``, read by the target's own output layer.

    Args:
        tensors: as :func:`~drafters.checkpoints.medusa.read_bpd` returns them.
        target: lends its output layer.

    Source: Stern et al. 2018, Sec. 6 (a feed-forward layer per head with a residual connection, the vocabulary
    projection shared with the original model).
    """

    kind = "bpd"

    def __init__(self, tensors: Mapping[str, torch.Tensor], target: PreTrainedModel):
        self.layer, weights = _last_layer(target), _as_target(tensors, target)
        self.count = 1 + max(int(name.split(".")[0]) for name in weights)
        self.parameter_count = sum(tensor.numel() for tensor in weights.values())

        def layer(part: str) -> _Linear:
            names = [f"{head}.{part}." for head in range(self.count)]
            return _Linear([weights[name + "weight"] for name in names], [weights[name + "bias"] for name in names])

        self.up, self.down = layer("up"), layer("down")
        lent = target.get_output_embeddings()
        self.output, self.output_bias = lent.weight.detach(), getattr(lent, "bias", None)

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor, count: int) -> torch.Tensor:
        """Logits ``(min(count, heads), T, V)`` of the first ``count`` heads for hidden states ``(T, hidden)``."""
        x = hidden.expand(min(count, self.count), -1, -1)
        x = x + self.down(functional.relu(self.up(x)))
        return functional.linear(x, self.output, self.output_bias)


Heads = MedusaHeads | BPDHeads


def _last_layer(target: PreTrainedModel) -> int:
    """Of the target's hidden states, the one that leaves the final norm."""
    return int(target.config.get_text_config().num_hidden_layers)


def _as_target(tensors: Mapping[str, torch.Tensor], target: PreTrainedModel) -> dict[str, torch.Tensor]:
    """On the target's device, in its dtype."""
    like = target.get_output_embeddings().weight
    return {name: tensor.to(like.device, like.dtype) for name, tensor in tensors.items()}
