"""Plain decoders on ONNX Runtime: the forward of a CPU, for a few tokens on top of a cache."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from drafters.draft import Draft
from drafters.models.decoder import DraftOptions
from drafters.models.decoder_graph import unsupported as no_graph
from drafters.models.feeds import CHUNK, DraftFeed, SlotDecoder
from drafters.models.onnx_drafts import Drafts
from drafters.models.onnx_model import OnnxModel
from drafters.models.onnx_session import elsewhere
from drafters.models.streams import ALONE, answer


def unsupported(model: PreTrainedModel, dtype: torch.dtype, device: str) -> str | None:
    """Why :class:`OnnxDecoder` cannot run ``model`` in ``dtype`` on ``device``; ``None`` if it can."""
    return elsewhere(dtype, device) or no_graph(model)


SCORES, LEAST = 2**20, 64
"""Most attention scores of one head held at a time; but never are fewer than ``LEAST`` tokens fed at once."""


class OnnxDecoder(SlotDecoder):
    """One text under one model, on the CPU in float32; see :class:`~drafters.models.decoder.Decoder`.

    Args:
        model: one that :func:`unsupported` has nothing against.
        int8, verifies: as of :class:`~drafters.models.decoder_graph.DecoderGraph`.
    """

    runs: OnnxModel

    def __init__(self, model: PreTrainedModel, int8: bool = False, *, verifies: bool = False):
        super().__init__(OnnxModel(model, int8, verifies=verifies))
        self.model, self._drafts = model, Drafts(self.runs)

    def draft(self, ids: Sequence[int], start: int, options: DraftOptions) -> Draft:
        """As of :class:`~drafters.models.decoder.Decoder`. Texts decoded at once share the forwards of each token."""
        if options.vocab_size < self.vocab_size:  # rows of padding may be the largest, and are no tokens
            return super().draft(ids, start, options)
        self._check(start + len(ids) + options.length - 1)
        if (most := len(ids) - 1) >= ALONE:  # long ones first, without the last token
            self.forward(ids[:most], start, last=1, lend=True)
            ids, start = ids[most:], start + most
        feed = DraftFeed(self._slot.number, ids, start, options)
        found: Draft = answer(self._drafts, feed, lambda draft: len(ids) + len(draft) - 1)
        return found

    def whole(self, lent: torch.Tensor) -> torch.Tensor:
        return self.runs.whole(lent)

    def most(self, end: int) -> int:
        return max(min(CHUNK, SCORES // max(end, self.runs.room)), LEAST)
