"""Drafts on ONNX Runtime, of several texts in one loop."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from drafters.draft import Draft
from drafters.models.decoder import Likeliest, aligned
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
        self._model = model
        self.tokens, self._rows, self._sure = list[int](), list[np.ndarray](), 0.0
        self._uniforms: list[float] = []
        if not self.options.params.greedy:
            self._uniforms = uniforms(self.options.length, self.options.generator).tolist()

    def goes_on(self, row: int, found: Likeliest | None, logits: torch.Tensor) -> bool:
        """Whether more follows the token of one row of lent logits, which is the next here."""
        options, own = self.options, logits.numpy()[row]
        if options.params.greedy:
            assert found is not None
            token, chance = int(found[0][row]), float(found[1][row])
            self._rows += [own.copy()] if options.with_q else []
        else:  # of a token map's tokens alone: there are fewer
            token, chance, q = sampled(own, options.params, self._uniforms[len(self.tokens)])
            self._rows.append(q)
            token = token if self._model.tokens is None else int(self._model.tokens[token])
        self.tokens.append(token)
        self._sure += chance
        self.end += 1
        return len(self.tokens) < options.length and self._sure >= options.log_confidence

    def draft(self) -> Draft:
        """All of it."""
        if not self._rows:
            return Draft.chain(self.tokens)
        params, size = self.options.params, self.options.vocab_size
        fill = -math.inf if params.greedy else 0.0
        q = aligned(self._model.whole(torch.from_numpy(np.stack(self._rows)), fill), size, fill)
        return Draft.chain(self.tokens, probabilities(q, params) if params.greedy else q, sampled=not params.greedy)


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
