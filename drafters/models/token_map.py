"""Drafts from a part of the vocabulary: an output layer of the frequent tokens only.

A small model spends much of a step on its output layer. Without the rows of tokens that hardly occur it is faster and
drafts as well (FR-Spec, Zhao et al. 2025); outputs are the target's, whatever is drafted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import PreTrainedModel

from drafters.errors import PoolError, first_line


class ConfinedHead(torch.nn.Module):
    """An output layer for some tokens; all others are impossible.

    Args:
        head: the whole layer.
        tokens: ids of those that it keeps.

    Attributes:
        rows: the layer of these tokens alone, one output for each.
        tokens: their ids, int64 ``(outputs,)``.
        vocab_size: how many tokens the whole layer has.
    """

    tokens: torch.Tensor

    def __init__(self, head: torch.nn.Linear, tokens: Sequence[int]):
        super().__init__()
        self.vocab_size = head.out_features
        self.register_buffer("tokens", own := torch.tensor(tokens, device=head.weight.device))
        self.rows = torch.nn.Linear(head.in_features, len(tokens), head.bias is not None, device="meta")
        self.rows.weight = torch.nn.Parameter(head.weight.detach()[own], requires_grad=False)
        if head.bias is not None:
            self.rows.bias = torch.nn.Parameter(head.bias.detach()[own], requires_grad=False)

    def fill_up(self, outputs: int) -> None:
        """Have so many outputs, by more of the first token, whose logit is then written more than once: models with
        fewer tokens share the products of others."""
        if not (more := outputs - len(self.tokens)):
            return
        self.tokens = torch.cat([self.tokens, self.tokens[:1].expand(more)])
        for name, part in list(self.rows.named_parameters()):
            filled = torch.cat([part, part[:1].expand(more, *part.shape[1:])])
            setattr(self.rows, name, torch.nn.Parameter(filled, requires_grad=False))
        self.rows.out_features = outputs

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits ``(…, V)`` of hidden states ``(…, hidden)``."""
        return spread(self.rows(hidden), self.tokens, self.vocab_size)


def spread(logits: torch.Tensor, tokens: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """Logits ``(…, outputs)`` of ``tokens``, ``(outputs,)`` or of the same dimensions, as those of all ``(…, V)``."""
    whole = logits.new_full((*logits.shape[:-1], vocab_size), -math.inf)
    return whole.scatter_(-1, tokens.expand_as(logits), logits)


def outputs_of(model: PreTrainedModel) -> int:
    """Of how many tokens its output layer computes logits."""
    head = model.lm_head
    return len(head.tokens) if isinstance(head, ConfinedHead) else int(head.out_features)


def confine(model: PreTrainedModel, file: Path) -> None:
    """Let a model put out those tokens alone whose ids a file holds (:func:`read_token_map`).

    Raises:
        PoolError: no such list, or a model that cannot.
    """
    if type(getattr(model, "lm_head", None)) is not torch.nn.Linear:
        raise PoolError(f"{file}: a token map needs a drafter with a plain output layer, lm_head")
    model.lm_head = ConfinedHead(model.lm_head, read_token_map(file, model.lm_head.out_features))


def read_token_map(file: Path, size: int) -> list[int]:
    """The ids, ascending, that a file holds: a list in JSON, or in a file of PyTorch.

    Args:
        size: how many tokens the drafter has.

    Raises:
        PoolError: no such list, or not of the drafter's tokens.
    """
    try:
        if file.suffix == ".json":
            found = json.loads(file.read_text("utf-8"))
        else:
            found = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # unpickling raises whatever it likes
        raise PoolError(f"{file}: the token map cannot be read: {first_line(error)}") from None
    tokens = found.tolist() if isinstance(found, torch.Tensor) else found
    if not isinstance(tokens, list) or not tokens or any(type(token) is not int for token in tokens):
        raise PoolError(f"{file}: a token map is a list of token ids")
    if wrong := next((token for token in tokens if not 0 <= token < size), None):
        raise PoolError(f"{file}: token {wrong} is not among the drafter's {size:,} tokens")
    # FR-Spec's own script lists the first token of every text twice. Of equal logits the lowest id is the likeliest.
    return sorted(set(tokens))
