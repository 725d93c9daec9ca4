"""What texts feed into a model that runs several of them at once, each in a slot of its cache."""

from __future__ import annotations

import copy
import heapq
import itertools
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import torch

from drafters.models.decoder import Decoder, DraftOptions, Likeliest, States
from drafters.models.streams import Model, answer

CHUNK = 512
"""Longer inputs are fed in pieces of so many tokens at most, which bounds the memory of scores and biases."""


class Feed(NamedTuple):
    """What one text feeds into a forward: see :meth:`~drafters.models.decoder.Decoder.forward`."""

    slot: int
    ids: Sequence[int]
    start: int
    last: int
    positions: torch.Tensor | None = None
    mask: torch.Tensor | None = None
    capture: Sequence[int] = ()


class DraftFeed(NamedTuple):
    """What one text feeds into a draft: see :meth:`~drafters.models.decoder.Decoder.draft`."""

    slot: int
    ids: Sequence[int]
    start: int
    options: DraftOptions


def tensor_of(states: States) -> torch.Tensor:
    """Hidden states as a tensor, which shares their memory."""
    return torch.from_numpy(states) if isinstance(states, np.ndarray) else states  # a third of as_tensor's time


def joined(parts: Sequence[Any], axis: int = 0, out: Any = None) -> Any:
    """``States`` put together, in memory of their own or in ``out``."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts, axis=axis, out=out)
    return torch.cat(list(parts), dim=axis, out=out)


class Answer(NamedTuple):
    """Logits ``(last, V)``, or of a token map's tokens alone, hidden states by layer, and, where the model finds them
    itself, the most probable tokens: valid until the next forward."""

    logits: torch.Tensor
    hidden: Mapping[int, States]
    likeliest: Likeliest | None = None


def pieces_of(begin: int, end: int, rows: int, size: int = CHUNK) -> Iterator[tuple[int, int, int]]:
    """An input in pieces of ``size``: where each begins and ends, and how many of its last tokens logits are wanted of,
    if they are of the last ``rows`` of all."""
    for piece in range(begin, end, size):
        until = min(piece + size, end)
        yield piece, until, max(until - max(piece, end - rows), 1)  # no forward is without logits


class Runs(Model, Protocol):
    """A model with a cache in slots, one for each text: it makes of each :class:`Feed` an :class:`Answer`."""

    window: int
    vocab_size: int
    parameter_count: int

    def take_slot(self) -> int:
        """A slot for one more text."""

    def release_slot(self, slot: int) -> None:
        """Take a slot back."""

    def keep(self, slot: int, start: int, kept: Sequence[int]) -> None:
        """As :meth:`~drafters.models.decoder.Decoder.keep`."""


class Slots:
    """Numbers of slots, the lowest first that is free, since forwards span all between those they are for."""

    def __init__(self) -> None:
        self._free, self._more = list[int](), itertools.count()

    def take(self) -> int:
        """A slot that nobody has."""
        try:  # not asked first whether there is one: other threads may take slots too
            return heapq.heappop(self._free)
        except IndexError:
            return next(self._more)

    def give_back(self, slot: int) -> None:
        """Let others have a slot."""
        heapq.heappush(self._free, slot)


class Slot:
    """A slot that is given back when nothing refers to it any more."""

    def __init__(self, runs: Runs):
        self.number = runs.take_slot()
        weakref.finalize(self, runs.release_slot, self.number)


class SlotDecoder(Decoder):
    """One text under a model; see :class:`~drafters.models.decoder.Decoder`.

    Args:
        runs: the model, which may run other texts too.
        slot: where its keys and values are; by default one of its own.
    """

    def __init__(self, runs: Runs, slot: Slot | None = None):
        self.runs, self._slot = runs, slot or Slot(runs)
        self.window, self.vocab_size, self.parameter_count = runs.window, runs.vocab_size, runs.parameter_count

    def twin(self) -> Self:
        twin = copy.copy(self)
        twin._slot, twin.captured = Slot(self.runs), {}
        return twin

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
        length = len(ids)
        self._check(start + length)
        rows = length if last is None or last > length else last
        if mask is not None or length <= (most := self.most(start + length)):  # only what is causal can be cut
            feed = Feed(self._slot.number, ids, start, rows, positions, mask, capture)
            found: Answer = answer(self.runs, feed, length, prompt=rows < length)
            hidden = found.hidden
            self.captured = hidden if lend or not capture else {layer: joined([hidden[layer]]) for layer in capture}
            self.likeliest = found.likeliest
            return found.logits if lend else self.whole(found.logits.clone())
        pieces = []
        for begin, end, wanted in pieces_of(0, length, rows, most):
            logits = self.forward(ids[begin:end], start + begin, last=wanted, capture=capture, lend=lend)
            lent = {layer: joined([states]) for layer, states in self.captured.items()} if lend else {}
            pieces.append((logits.clone(), lent) if lend else (logits, self.captured))
        self.captured = {layer: joined([hidden[layer] for _, hidden in pieces]) for layer in capture}
        self.likeliest = None
        return torch.cat([logits for logits, _ in pieces])[-rows:]

    def most(self, end: int) -> int:
        """How many tokens are fed at once where ``end`` are cached afterwards."""
        return CHUNK

    def keep(self, start: int, kept: Sequence[int]) -> None:
        self.runs.keep(self._slot.number, start, kept)

    def _check(self, end: int) -> None:
        if end > self.window:
            raise ValueError(f"{end} tokens exceed the context window of {self.window}")
