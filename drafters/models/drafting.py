"""A draft by a causal LM that is fed each of its tokens in turn."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Generator
from torch.nn import functional

from drafters.draft import Draft
from drafters.sampling import SamplingParams, draw, likeliest, probabilities

Likeliest = tuple[np.ndarray, np.ndarray]
"""Of each row of logits the most probable token, int64 ``(rows,)`` (ties: the lowest id), and its log-probability,
float32 ``(rows,)``, which is not finite where a logit is not."""


class Forward(Protocol):
    """A model, as :class:`~drafters.models.decoder.Decoder` has it."""

    likeliest: Likeliest | None

    def forward(
        self, ids: Sequence[int], start: int, *, last: int | None = None, lend: bool = False
    ) -> torch.Tensor: ...

    def whole(self, lent: torch.Tensor) -> torch.Tensor: ...


@dataclass(frozen=True)
class DraftOptions:
    """How a model is to draft.

    Attributes:
        length: most tokens, >= 1.
        generator: what draws the tokens if ``params`` say so.
        vocab_size: of the target, whose tokens these are.
        log_confidence: a greedy draft ends with the token at which the logarithms of its tokens' probabilities add up
            to less.
        with_q: whether a greedy draft is to carry the probabilities that its tokens had; a sampled one does.
    """

    length: int
    params: SamplingParams
    generator: Generator
    vocab_size: int
    log_confidence: float = -math.inf
    with_q: bool = False

    @property
    def kind(self) -> tuple[Hashable, ...]:
        """Drafts of one kind can be made together."""
        sampling = self.params.temperature, self.params.top_k, self.params.top_p
        return *sampling, self.vocab_size, self.log_confidence, self.with_q


def aligned(logits: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """Logits over ``vocab_size`` tokens: rows of padding are cut off, tokens that a model lacks are impossible."""
    missing = vocab_size - logits.shape[-1]
    return logits if missing == 0 else functional.pad(logits, (0, missing), value=-math.inf)


def step_by_step(model: Forward, ids: Sequence[int], start: int, options: DraftOptions) -> Draft:
    """As :meth:`~drafters.models.decoder.Decoder.draft`, by a forward for each token, which is looked at before the
    next."""
    params, size = options.params, options.vocab_size
    logits = model.forward(ids, start, last=1, lend=True)
    end = start + len(ids)
    tokens: list[int] = []
    rows: list[torch.Tensor] = []
    sure = 0.0
    while len(tokens) < options.length and sure >= options.log_confidence:
        if tokens:
            logits = model.forward(tokens[-1:], end + len(tokens) - 1, last=1, lend=True)
        found = model.likeliest
        if found is not None and found[0][0] >= size:  # rows of padding may have the largest logit
            found = None
        if found is None or options.with_q or not params.greedy:
            logits = aligned(model.whole(logits), size)
        if params.greedy:
            token, chance = likeliest(logits[0]) if found is None else (int(found[0][0]), float(found[1][0]))
            tokens.append(token)
            sure += chance
            if options.with_q:
                rows.append(logits.clone())
        else:
            rows.append(probabilities(logits, params))
            tokens.append(draw(rows[-1][0], options.generator))
    if not rows:
        return Draft.chain(tokens)
    q = torch.cat(rows)
    return Draft.chain(tokens, probabilities(q, params) if params.greedy else q, sampled=not params.greedy)
