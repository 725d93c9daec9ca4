"""What the target's own forwards show of a text that it writes, for drafters that learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from drafters.base import TOP, Lesson
from storage.records import Generation

if TYPE_CHECKING:
    from drafters.pool import Pool


class Notes:
    """Notes the target's likeliest tokens at each token of an answer, as its forwards pass by.

    Args:
        pool: whose drafters are to learn, if any; where none of them asks for probabilities, none are noted.
    """

    def __init__(self, pool: Pool | None):
        self._wanted = pool is not None and any(drafter.learns for drafter in pool.drafters)
        self._rows: list[tuple[torch.Tensor, torch.Tensor]] = []

    def add(self, logits: torch.Tensor | None, rows: Sequence[int]) -> None:
        """Note the rows of ``logits (n, V)`` from which a round's tokens were chosen; without logits, nothing from then
        on. Waits for no device."""
        self._wanted &= logits is not None
        if not self._wanted or logits is None:
            return
        scores = logits[: len(rows)] if list(rows) == list(range(len(rows))) else logits[list(rows)]
        found = scores.topk(min(TOP, scores.shape[-1]), dim=-1)
        self._rows.append((found.indices, found.values.float() - scores.float().logsumexp(dim=-1, keepdim=True)))

    def lesson(self, context: Sequence[int], generation: Generation) -> Lesson:
        """What there is to learn from a generation that has ended with this context."""
        prompt, answer = list(context[: generation.prompt_tokens]), list(generation.token_ids)
        if not self._wanted or not self._rows:
            return Lesson(prompt, answer)
        ids, logs = (torch.cat(parts)[: len(answer)].cpu() for parts in zip(*self._rows, strict=True))
        return Lesson(prompt, answer, ids, logs.exp())
