"""Greedy drafts on ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from drafters.draft import Draft
from drafters.models.decoder import Likeliest, aligned
from drafters.models.feeds import DraftFeed, Feed
from drafters.models.onnx_model import OnnxModel
from drafters.sampling import probabilities


class _Chain:
    """The draft of one text so far.

    Attributes:
        end: how many positions are cached when its last token is fed.
    """

    def __init__(self, feed: DraftFeed):
        self.slot, self.end, self.options = feed.slot, feed.start + len(feed.ids) - 1, feed.options
        self.tokens, self.rows, self.sure = list[int](), list[torch.Tensor](), 0.0

    def goes_on(self, row: int, found: Likeliest | None, logits: torch.Tensor) -> bool:
        """Whether more follows the token of one row, which is the next here."""
        assert found is not None
        self.tokens.append(int(found[0][row]))
        self.sure += float(found[1][row])
        self.end += 1
        if self.options.with_q:
            self.rows.append(logits[row : row + 1].clone())
        return len(self.tokens) < self.options.length and self.sure >= self.options.log_confidence


class Drafts:
    """What drafts greedily with a model (:meth:`~drafters.models.decoder.Decoder.draft`), for any number of texts."""

    def __init__(self, model: OnnxModel):
        self._model = model

    def run(self, feeds: Sequence[DraftFeed]) -> list[Draft]:
        """Those of several texts share the forward of each token."""
        model = self._model
        if len(feeds) == 1:
            return [model.draft(feeds[0])]
        chains = [_Chain(feed) for feed in feeds]
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
        return [self._draft(chain) for chain in chains]

    def _draft(self, chain: _Chain) -> Draft:
        if not chain.rows:
            return Draft.chain(chain.tokens)
        q = aligned(self._model.whole(torch.cat(chain.rows)), chain.options.vocab_size)
        return Draft.chain(chain.tokens, probabilities(q, chain.options.params))
