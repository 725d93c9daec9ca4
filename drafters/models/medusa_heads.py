"""Heads that read the target's last hidden state and predict one token each, further and further on: Medusa and BPD.

What they read is the state after the final norm. From it the target's own output layer predicts the next token, head 0
the one after that, head ``k`` the ``k + 2``-th.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch.nn import functional
from transformers import PreTrainedModel

from drafters.checkpoints.model_sizes import last_hidden_state


class _Linear:
    """One linear layer of each head, computed for the first few at once; or of a single one, all heads'.

    Args:
        tensors: of head ``h``, ``{h}.{part}.weight`` (out, in) and, of a layer with biases, ``{h}.{part}.bias`` (out).
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor], heads: int, part: str):
        self.weights = torch.stack([tensors[f"{head}.{part}.weight"] for head in range(heads)])
        biases = [tensors[name] for head in range(heads) if (name := f"{head}.{part}.bias") in tensors]
        self.bias = torch.stack(biases)[:, None] if biases else None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` (n, T, in) of the first n heads to (n, T, out)."""
        weights = self.weights[: len(x)]
        y = functional.linear(x, weights[0]) if len(weights) == 1 else torch.bmm(x, weights.transpose(1, 2))
        return y if self.bias is None else y + self.bias[: len(x)]


class Heads(ABC):
    """Heads on the target's last hidden state, computed on its device in its dtype.

    Args:
        tensors: as ``drafters.checkpoints.medusa`` reads them.
        target: the one that they were trained for.

    Attributes:
        count: how many heads there are.
        outputs: how many tokens they can propose.
        to_target: target's token id of each of these; ``None`` where they are the same.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor], target: PreTrainedModel):
        like = target.get_output_embeddings().weight
        self.layer = last_hidden_state(target)
        ids = tensors.get("token_map")
        weights = {name: tensor for name, tensor in tensors.items() if name != "token_map"}
        self.to_target = None if ids is None else ids.long().to(like.device)
        self.outputs = int(target.config.get_text_config().vocab_size) if ids is None else len(ids)
        self.count = 1 + max(int(name.split(".")[0]) for name in weights)
        self.parameter_count = sum(tensor.numel() for tensor in weights.values())
        self.set_up({name: tensor.to(like.device, like.dtype) for name, tensor in weights.items()}, target)

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor, count: int) -> torch.Tensor:
        """Logits ``(min(count, heads), T, outputs)`` of the first ``count`` heads for hidden states ``(T, hidden)``."""
        return self.forward(hidden.expand(min(count, self.count), -1, -1))

    @abstractmethod
    def set_up(self, tensors: dict[str, torch.Tensor], target: PreTrainedModel) -> None:
        """Make the layers of ``tensors``."""

    @abstractmethod
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits ``(n, T, V)`` of the first n heads, each for its hidden states ``(n, T, hidden)``."""


class MedusaHeads(Heads):
    """Medusa heads: residual blocks ``x + SiLU(W x + b)``, then an output layer, of each head or of all.

    Source: Medusa (Cai et al. 2024, Sec. 2.1.1).
    """

    def set_up(self, tensors: dict[str, torch.Tensor], target: PreTrainedModel) -> None:
        depth = max(int(name.split(".")[1]) for name in tensors)
        outputs = self.count if f"{self.count - 1}.{depth}.weight" in tensors else 1
        self.blocks = [_Linear(tensors, self.count, f"{place}.linear") for place in range(depth)]
        self.output = _Linear(tensors, outputs, str(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + functional.silu(block(x))
        return self.output(x)


class BPDHeads(Heads):
    """Heads of blockwise parallel decoding: ``h + W₂ relu(W₁ h + b₁) + b₂``, read by the target's own output layer.

    Source: Stern et al. 2018, Sec. 6 (a feed-forward layer per head with a residual connection, the vocabulary
    projection shared with the original model).
    """

    def set_up(self, tensors: dict[str, torch.Tensor], target: PreTrainedModel) -> None:
        self.up, self.down = _Linear(tensors, self.count, "up"), _Linear(tensors, self.count, "down")
        lent = target.get_output_embeddings()
        self.output, self.output_bias = lent.weight.detach(), getattr(lent, "bias", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.down(functional.relu(self.up(x)))
        return functional.linear(x, self.output, self.output_bias)
