"""Plain decoders on ONNX Runtime: the forward of a CPU, for a few tokens on top of a cache."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from drafters.models.decoder_graph import unsupported as no_graph
from drafters.models.onnx_model import Answer, Feed, OnnxModel
from drafters.models.streams import answer

CHUNK = 512
"""Longer inputs are fed in pieces of so many tokens, which bounds the memory of scores and biases."""


def unsupported(model: PreTrainedModel, dtype: torch.dtype, device: str) -> str | None:
    """Why :class:`OnnxDecoder` cannot run ``model`` in ``dtype`` on ``device``; ``None`` if it can."""
    if dtype != torch.float32 or not device.startswith("cpu"):
        return f"{dtype} on {device}: ONNX Runtime is for float32 on the CPU"
    return no_graph(model)


class OnnxDecoder:
    """One text under one model, on the CPU in float32; see :class:`~drafters.models.decoder.Decoder`.

    Args:
        model: one that :func:`unsupported` has nothing against, or what runs it already for other texts.
    """

    device = torch.device("cpu")

    def __init__(self, model: PreTrainedModel | OnnxModel):
        self.runs = runs = model if isinstance(model, OnnxModel) else OnnxModel(model)
        self.model, self.vocab_size = runs.model, runs.vocab_size
        self.window = int(runs.config.max_position_embeddings)
        self.parameter_count = runs.parameter_count
        self.captured: dict[int, torch.Tensor] = {}
        self._slot = runs.take_slot()
        weakref.finalize(self, runs.release_slot, self._slot)

    def twin(self) -> OnnxDecoder:
        """As of :class:`~drafters.models.decoder.Decoder`."""
        return OnnxDecoder(self.runs)

    def forward(
        self,
        ids: Sequence[int],
        start: int,
        *,
        positions: torch.Tensor | None = None,
        mask: torch.Tensor | None = None,
        last: int | None = None,
        capture: Sequence[int] = (),
        into: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """As of :class:`~drafters.models.decoder.Decoder`; ``into`` is where to write the logits."""
        length = len(ids)
        if start + length > self.window:
            raise ValueError(f"{start + length} tokens exceed the context window of {self.window}")
        rows = length if last is None or last > length else last
        if length <= CHUNK or mask is not None:  # only what is causal can be cut
            feed = Feed(self._slot, ids, start, rows, positions, mask, capture)
            found: Answer = answer(self.runs, feed, length, prompt=rows < length)
            self.captured = {layer: found.hidden[layer].clone() for layer in capture}
            return found.logits.clone() if into is None else into.copy_(found.logits)
        pieces = []
        for begin in range(0, length, CHUNK):
            end = min(begin + CHUNK, length)
            wanted = max(end - max(begin, length - rows), 1)  # no forward is without logits
            logits = self.forward(ids[begin:end], start + begin, last=wanted, capture=capture)
            pieces.append((logits, self.captured))
        self.captured = {layer: torch.cat([hidden[layer] for _, hidden in pieces]) for layer in capture}
        whole = torch.cat([logits for logits, _ in pieces])[-rows:]
        return whole if into is None else into.copy_(whole)

    def keep(self, start: int, kept: Sequence[int]) -> None:
        """As of :class:`~drafters.models.decoder.Decoder`."""
        self.runs.keep(self._slot, start, kept)


class OnnxGroup:
    """Models of one vocabulary, run one after the other: products batched over models are no faster on a CPU."""

    def __init__(self, decoders: Sequence[OnnxDecoder]):
        self.decoders = decoders
        self.window, self.vocab_size = decoders[0].window, decoders[0].vocab_size

    def twin(self) -> tuple[OnnxGroup, Sequence[OnnxDecoder]]:
        """As of :class:`~drafters.models.decoder.Group`."""
        decoders = [decoder.twin() for decoder in self.decoders]
        return OnnxGroup(decoders), decoders

    def forward(self, ids: Sequence[int], cached: Sequence[int], *, last: int) -> torch.Tensor:
        """As of :class:`~drafters.models.decoder.Group`."""
        logits = torch.empty(len(self.decoders), min(last, len(ids)), self.vocab_size)
        for decoder, start, rows in zip(self.decoders, cached, logits, strict=True):
            decoder.forward(ids[start:], start, last=last, into=rows)
        return logits
