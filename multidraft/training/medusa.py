"""Train Medusa heads on the target's own answers, and count the n-grams that rescore them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel

from drafters.checkpoints.medusa import save_medusa
from drafters.models.ngram import ORDER, NGram, count_ngrams
from multidraft.training.answers import Answer
from multidraft.training.data import FeatureBatch
from multidraft.training.loop import Budget, autocast, train

HEAD_WEIGHT = 0.8
"""Base of the heads' weights: head ``k`` matters only where all heads before it were right (Medusa, Sec. 2.2.1)."""


class TrainableMedusa(nn.Module):
    """Medusa heads that begin as copies of the target's output layer, with blocks that add nothing.

    Args:
        heads: tokens guessed per draft.
        layers: residual blocks of a head.
    """

    blocks: Any

    def __init__(self, target: PreTrainedModel, heads: int = 2, layers: int = 1):
        super().__init__()
        output = target.get_output_embeddings().weight.detach().float()
        size, self.count = output.shape[1], heads
        self.blocks = nn.ModuleList(nn.ModuleList(nn.Linear(size, size) for _ in range(layers)) for _ in range(heads))
        # Named such that they are not optimised as hidden matrices are: they have a row per token.
        self.lm_heads = nn.ParameterList(nn.Parameter(output.clone()) for _ in range(heads))
        for parameter in self.blocks.parameters():
            nn.init.zeros_(parameter)

    def forward(self, hidden: torch.Tensor, head: int) -> torch.Tensor:
        """Logits ``(T, V)`` of a head for hidden states ``(T, hidden)``."""
        for block in self.blocks[head]:
            hidden = hidden + functional.silu(block(hidden))
        return functional.linear(hidden, self.lm_heads[head])

    def save(self, folder: Path) -> None:
        """Write them in the public layout, in half precision."""
        layers = len(self.blocks[0])
        named = {f"{head}.{layers}.weight": output for head, output in enumerate(self.lm_heads)}
        for name, tensor in self.blocks.state_dict().items():
            place, _, part = name.rpartition(".")
            named[f"{place}.linear.{part}"] = tensor
        save_medusa(folder, {name: tensor.detach().to(torch.bfloat16) for name, tensor in named.items()})


def fit_heads(
    model: TrainableMedusa, target: PreTrainedModel, batches: Iterator[FeatureBatch], budget: Budget, lr: float = 1e-3
) -> None:
    """Train heads for ``target``, whose weights stay as they are.

    The loss is the cross-entropy with the target's distributions, weighted ``HEAD_WEIGHT ** k`` for head ``k``, over
    all contexts that end in an answer or just before it: those that are drafted from.

    Args:
        batches: endless, with the target's last hidden states as their only features.

    Source: Medusa-1 (Cai et al. 2024, Sec. 2.2.1), with soft labels (self-distillation, Sec. 2.3.2).
    """
    device, output = target.device, target.get_output_embeddings()
    model.to(device)
    target.eval()

    def loss_of(batch: FeatureBatch) -> tuple[torch.Tensor, int]:
        batch = batch.to(str(device))
        with autocast(device.type):
            with torch.no_grad():
                goal = output(batch.last.to(output.weight.dtype)).float().softmax(dim=-1)
            loss = heads_loss(model, batch.features.to(output.weight.dtype), batch.wanted, goal, model.count)
        return loss, batch.ids.numel()

    train(model, batches, loss_of, budget, lr)


def heads_loss(
    model: Callable[[torch.Tensor, int], torch.Tensor],
    states: torch.Tensor,
    wanted: torch.Tensor,
    goal: torch.Tensor,
    heads: int,
) -> torch.Tensor:
    """Weighted sum of the heads' mean cross entropies.

    Args:
        model: logits ``(n, V)`` of hidden states ``(n, hidden)`` by a head.
        states: the target's last ones ``(B, T, hidden)``. Head ``k`` guesses from state ``i`` what state ``i + k + 1``
            tells: the token before is known when it guesses.
        wanted: bool ``(B, T)``, where state ``i + 1`` tells a token of an answer, and a draft may begin.
        goal: the target's distributions ``(n, V)`` there.
    """
    total = states.new_zeros((), dtype=torch.float32)
    for head in range(heads):
        # Whether a draft may begin `head` states before.
        begins = functional.pad(wanted, (head, 0))[:, : wanted.shape[1]]
        learnt = wanted & begins
        if learnt.any():
            from_states = functional.pad(states, (0, 0, head, 0))[:, : states.shape[1]][learnt]
            loss = functional.cross_entropy(model(from_states, head).float(), goal[begins[wanted]])
            total = total + HEAD_WEIGHT**head * loss
    return total


def build_ngram(answers: Sequence[Answer], vocab_size: int, path: Path) -> NGram:
    """Count the n-grams of the target's answers, each with the end of its prompt, and write them to ``path``."""
    texts = (answer.ids[max(answer.prompt_length + 1 - ORDER, 0) :] for answer in answers)
    model = count_ngrams(texts, vocab_size)
    model.save(path)
    return model
