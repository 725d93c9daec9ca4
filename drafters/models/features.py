"""Hidden states of the target, for drafters that continue from them (EAGLE, Medusa) instead of from the text alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from drafters.models.decoder import States
from drafters.models.feeds import joined, tensor_of


class Features:
    """Hidden states of the target's context, gathered from the forwards that it makes anyway; layers are counted as in
    :class:`~drafters.base.FeatureSource`.

    Args:
        read: makes them, ``(tokens, layers * hidden)``, by token ids and layers, for texts other than the target's
            present one, such as recorded generations.
    """

    def __init__(self, read: Callable[[Sequence[int], Sequence[int]], torch.Tensor]):
        self.read = read
        self.layers: tuple[int, ...] = ()
        self.ids: list[int] = []
        self._rows: Any = torch.empty(0, 0)
        self._room = 0
        self._other: tuple[list[int], torch.Tensor] = ([], torch.empty(0, 0))

    def watch(self, layers: Sequence[int]) -> None:
        """Gather these layers too. What was gathered before is forgotten."""
        self.layers, self._room = tuple(sorted({*self.layers, *layers})), 0
        self.clear()

    def clear(self) -> None:
        """Forget everything: a new context begins."""
        self.ids = []
        self._other = ([], torch.empty(0, 0))

    def twin(self) -> Features:
        """Those of another text: of the same layers."""
        twin = Features(self.read)
        twin.layers = self.layers
        return twin

    def extend(self, ids: Sequence[int], states: Mapping[int, States], kept: Sequence[int]) -> None:
        """Append tokens of the last forward.

        Args:
            ids: all tokens fed, ``n``.
            states: by layer, of all ``n``.
            kept: indices of those that have become context, ascending.
        """
        start, count = len(self.ids), len(kept)
        places: slice | list[int] = slice(count) if kept[-1] == count - 1 else list(kept)
        rows: list[Any] = [states[layer][places] for layer in self.layers]
        if start + count > self._room:
            self._make_room(rows, start, start + count)
        joined(rows, axis=-1, out=self._rows[start : start + count])
        self.ids.extend(ids[index] for index in kept)

    def _make_room(self, rows: list[Any], start: int, end: int) -> None:
        """Make room for twice as many, also of later texts: memory in use is written to faster than new one."""
        self._room, width = max(2 * end, 256), sum(row.shape[1] for row in rows)
        numpy = isinstance(rows[0], np.ndarray)
        with torch.inference_mode(False):  # or outside of that mode nothing could be written to it
            room = np.empty((self._room, width), rows[0].dtype) if numpy else rows[0].new_empty(self._room, width)
        if start:  # before the first rows there is nothing, not even a width
            room[:start] = self._rows[:start]
        self._rows = room

    def of(self, context: Sequence[int], layers: Sequence[int]) -> torch.Tensor:
        """As of :class:`~drafters.base.FeatureSource`; a text other than the present context is read by itself."""
        known = list(context[:-1])
        ids, rows = self.ids, self._rows
        if ids[: len(known)] != known:
            ids, rows = self._other
            if ids[: len(known)] != known:
                ids, rows = known, self.read(known, self.layers)
                self._other = ids, rows
        width = rows.shape[1] // max(len(self.layers), 1)
        places = [self.layers.index(layer) for layer in layers]
        if places == list(range(places[0], places[0] + len(places))):
            return tensor_of(rows[: len(known), places[0] * width : (places[-1] + 1) * width])
        parts = [rows[: len(known), place * width : (place + 1) * width] for place in places]
        return tensor_of(joined(parts, axis=-1))
