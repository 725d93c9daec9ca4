"""Drafts on ONNX Runtime, of several texts in one loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from drafters.draft import Draft
from drafters.models.decoder import Likeliest, aligned
from drafters.models.feeds import DraftFeed, Feed
from drafters.models.onnx_model import OnnxModel
from drafters.sampling import draw, probabilities


class _Chain:
    """The draft of one text so far.

    Args:
        whole: makes lent logits those of the whole vocabulary.

    Attributes:
        end: how many positions are cached when its last token is fed.
    """

    def __init__(self, feed: DraftFeed, whole: Callable[[torch.Tensor], torch.Tensor]):
        self.slot, self.end, self.options = feed.slot, feed.start + len(feed.ids) - 1, feed.options
        self.whole = whole
        self.tokens, self.rows, self.sure = list[int](), list[torch.Tensor](), 0.0

    def goes_on(self, row: int, found: Likeliest | None, logits: torch.Tensor) -> bool:
        """Whether more follows the token of one row of lent logits, which is the next here."""
        options, own = self.options, logits[row : row + 1]
        if options.params.greedy:
            assert found is not None
            self.tokens.append(int(found[0][row]))
            self.sure += float(found[1][row])
            self.rows += [own.clone()] if options.with_q else []
        else:
            self.rows.append(probabilities(aligned(self.whole(own), options.vocab_size), options.params))
            self.tokens.append(draw(self.rows[-1][0], options.generator))
        self.end += 1
        return len(self.tokens) < options.length and self.sure >= options.log_confidence

    def draft(self) -> Draft:
        """All of it."""
        if not self.rows:
            return Draft.chain(self.tokens)
        rows, params = torch.cat(self.rows), self.options.params
        if not params.greedy:
            return Draft.chain(self.tokens, rows, sampled=True)
        return Draft.chain(self.tokens, probabilities(aligned(self.whole(rows), self.options.vocab_size), params))


class Drafts:
    """What drafts with a model (:meth:`~drafters.models.decoder.Decoder.draft`), for any number of texts."""

    def __init__(self, model: OnnxModel):
        self._model = model

    def run(self, feeds: Sequence[DraftFeed]) -> list[Draft]:
        """Those of several texts share the forward of each token."""
        model = self._model
        if len(feeds) == 1 and feeds[0].options.params.greedy:  # most drafts are: half as much Python between forwards
            return [model.draft(feeds[0])]
        chains = [_Chain(feed, model.whole) for feed in feeds]
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
