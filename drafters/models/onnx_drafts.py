"""Drafts on ONNX Runtime, of several texts in one loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from drafters.draft import Draft
from drafters.models.decoder import Likeliest
from drafters.models.feeds import DraftFeed, Feed
from drafters.models.onnx_model import OnnxModel
from drafters.sampling import probabilities, sampled, uniforms


class _Chain:
    """The draft of one text so far.

    Attributes:
        end: how many positions are cached when its last token is fed.
    """

    def __init__(self, feed: DraftFeed, model: OnnxModel):
        self.slot, self.end, self.options = feed.slot, feed.start + len(feed.ids) - 1, feed.options
        self.tokens, self._sure = list[int](), 0.0
        self._uniforms, self._rows = list[float](), np.zeros((0, 0), np.float32)
        self._known: Any = slice(model.vocab_size) if model.tokens is None else model.tokens.numpy()
        self._lacking = -np.inf if self.options.params.greedy else 0.0  # tokens that the model lacks are impossible
        if not self.options.params.greedy:
            self._uniforms = uniforms(self.options.length, self.options.generator).tolist()
        if self._uniforms or self.options.with_q:
            self._rows = np.empty((self.options.length, self.options.vocab_size), np.float32)

    def goes_on(self, row: int, found: Likeliest | None, logits: torch.Tensor) -> bool:
        """Whether more follows the token of one row of lent logits, which is the next here."""
        options, own, place = self.options, logits.numpy()[row], len(self.tokens)
        if options.params.greedy:
            assert found is not None
            token, chance = int(found[0][row]), float(found[1][row])
        else:
            token, chance, own = sampled(own, options.params, self._uniforms[place])
            token = token if isinstance(self._known, slice) else int(self._known[token])
        if len(self._rows):
            self._rows[place] = self._lacking
            self._rows[place, self._known] = own
        self.tokens.append(token)
        self._sure += chance
        self.end += 1
        return len(self.tokens) < options.length and self._sure >= options.log_confidence

    def draft(self) -> Draft:
        """All of it."""
        if not len(self._rows):
            return Draft.chain(self.tokens)
        params, rows = self.options.params, torch.from_numpy(self._rows[: len(self.tokens)])
        return Draft.chain(
            self.tokens, probabilities(rows, params) if params.greedy else rows, sampled=not params.greedy
        )


class Drafts:
    """What drafts with a model (:meth:`~drafters.models.decoder.Decoder.draft`), for any number of texts."""

    def __init__(self, model: OnnxModel):
        self._model = model

    def run(self, feeds: Sequence[DraftFeed]) -> list[Draft]:
        """Those of several texts share the forward of each token."""
        model = self._model
        if len(feeds) == 1 and feeds[0].options.params.greedy:  # most drafts are: half as much Python between forwards
            return [model.draft(feeds[0])]
        chains = [_Chain(feed, model) for feed in feeds]
        until = max(chain.end + chain.options.length for chain in chains)
        model.make_room(max(feed.slot for feed in feeds) + 1, until)
        answers = model.run([Feed(feed.slot, feed.ids, feed.start, 1) for feed in feeds])
        going = [chain for chain, first in zip(chains, answers) if chain.goes_on(0, first.likeliest, first.logits)]
        while going:
            step, left = model.steps([chain.slot for chain in going], until), going
            while len(left) == len(going):
                found, logits = step([chain.tokens[-1] for chain in going], [chain.end for chain in going])
                left = [chain for row, chain in enumerate(going) if chain.goes_on(row, found, logits)]
            going = left
        return [chain.draft() for chain in chains]
