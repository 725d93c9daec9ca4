"""A causal LM as a forward with a cache that can take tokens back, and as what drafts by feeding itself."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Generator
from torch.nn import functional

from drafters.draft import Draft
from drafters.sampling import SamplingParams, draw_by, likeliest, probabilities, uniforms

Likeliest = tuple[np.ndarray, np.ndarray]
"""Of each row of logits the most probable token, int64 ``(rows,)`` (ties: the lowest id), and its log-probability,
float32 ``(rows,)``, which is not finite where a logit is not."""

States = torch.Tensor | np.ndarray
"""Hidden states ``(T, hidden)``; of ONNX Runtime as NumPy arrays, which are copied in a quarter of the time."""


@dataclass(frozen=True)
class DraftOptions:
    """How a model is to draft.

    Attributes:
        length: most tokens, >= 1.
        generator: what draws the tokens if ``params`` say so.
        vocab_size: of the target, whose tokens these are.
        log_confidence: a draft ends with the token at which the logarithms of its tokens' probabilities add up to less.
            Of a sampled draft these are the probabilities that they were drawn with. Whether a token follows then hangs
            on those before it, not on itself, so what is accepted stays distributed as without.
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


class Decoder(ABC):
    """Logits of one model, with a key-value cache.

    Attributes:
        window: most positions.
        captured: by layer, hidden states of the tokens fed last; lent with the logits.
        likeliest: the most probable tokens of the logits returned last, valid as long as lent ones; ``None`` where the
            model does not find them itself.
    """

    window: int
    parameter_count: int
    captured: Mapping[int, States] = {}
    likeliest: Likeliest | None = None

    @abstractmethod
    def forward(
        self,
        ids: Sequence[int],
        start: int,
        *,
        positions: torch.Tensor | None = None,
        mask: torch.Tensor | None = None,
        last: int | None = None,
        capture: Sequence[int] = (),
        lend: bool = False,
    ) -> torch.Tensor:
        """Run tokens through the model, writing the cache from ``start`` on; what was cached from there is forgotten.

        Args:
            ids: token ids.
            start: how many cached positions precede them.
            positions: rotary positions ``(T,)`` of a tree; by default ``start, start + 1, …``.
            mask: which cached positions each token of a tree sees, bool ``(T, start + T)``, all those before ``start``
                among them; causal by default. Like ``positions`` on the CPU.
            last: return the logits of the last ``last`` tokens only.
            capture: layers whose hidden states are put into :attr:`captured`: ``i`` is what enters layer ``i``, and
                the number of layers what leaves the final norm (as ``transformers`` counts them).
            lend: whether the next forward may overwrite logits and hidden states, which saves copies. Lent logits may
                be those of a token map's tokens alone; :meth:`whole` makes them logits of all.

        Returns:
            Logits ``(T or last, V)``.
        """

    def whole(self, lent: torch.Tensor) -> torch.Tensor:
        """Lent logits as those of the whole vocabulary, ``(…, V)``."""
        return lent

    def draft(self, ids: Sequence[int], start: int, options: DraftOptions) -> Draft:
        """Continue ``ids`` by a chain of tokens; all of it but the last token is then cached.

        Unless overridden there is a forward for each token, which is looked at before the next.

        Args:
            start: how many cached positions precede ``ids``.
        """
        params, size = options.params, options.vocab_size
        logits = self.forward(ids, start, last=1, lend=True)
        end = start + len(ids)
        tokens: list[int] = []
        rows: list[torch.Tensor] = []
        points = [] if params.greedy else uniforms(options.length, options.generator).tolist()
        sure = 0.0
        while len(tokens) < options.length and sure >= options.log_confidence:
            if tokens:
                logits = self.forward(tokens[-1:], end + len(tokens) - 1, last=1, lend=True)
            found = self.likeliest
            if found is not None and found[0][0] >= size:  # rows of padding may have the largest logit
                found = None
            if found is None or options.with_q or not params.greedy:
                logits = aligned(self.whole(logits), size)
            if params.greedy:
                token, chance = likeliest(logits[0]) if found is None else (int(found[0][0]), float(found[1][0]))
                tokens.append(token)
                sure += chance
                if options.with_q:
                    rows.append(logits.clone())
            else:
                rows.append(probabilities(logits, params))
                tokens.append(draw_by(rows[-1][0], points[len(tokens)]))
                sure += float(rows[-1][0, tokens[-1]].log())
        if not rows:
            return Draft.chain(tokens)
        q = torch.cat(rows)
        return Draft.chain(tokens, probabilities(q, params) if params.greedy else q, sampled=not params.greedy)

    @abstractmethod
    def twin(self) -> Decoder:
        """The same model for another text: weights are shared, the cache is its own."""

    @abstractmethod
    def keep(self, start: int, kept: Sequence[int]) -> None:
        """Move the cached positions ``start + kept[0], start + kept[1], …`` to ``start, start + 1, …`` and forget what
        follows them."""
