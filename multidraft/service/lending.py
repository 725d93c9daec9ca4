"""Caches for the texts that jobs decode by turns."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Generator
from weakref import WeakKeyDictionary

from drafters.caches import Waiting
from drafters.pool import Pool
from multidraft.engine.warming import decode_each, warm_up
from multidraft.service.jobs import WAITING
from multidraft.service.queue import CALLER

TEXTS = 4
"""Texts that may be under way at once, each with caches of its own; jobs with others wait."""


class Text(Waiting):
    """A text that waits for its caches, and whose it is."""

    def __init__(self, visitor: str):
        self.visitor = visitor


class Lender:
    """Lends a pool to one job, and twins of it to others; on the device's thread alone.

    A place that is free goes to the visitor who has the fewest, and the last one only to a visitor who has none, so
    that nobody's texts keep all others waiting.

    Args:
        texts: how many are lent at once, at most.
    """

    def __init__(self, texts: int = TEXTS):
        self.texts = texts
        self._lent: dict[Pool, str] = {}  # and to whom
        self._line: list[Text] = []
        self._next: Text | None = None  # it stays the next until there is memory for it, or leaves
        self._twins: WeakKeyDictionary[Pool, list[Pool]] = WeakKeyDictionary()
        """Those that are not lent, by their pool; they go with it when another is loaded."""

    def lend(self, pool: Pool, tokens: int) -> Generator[object, None, Pool]:
        """The pool or a twin of it, for a text of at most ``tokens`` tokens; yields ``WAITING`` while as many texts as
        may be are under way, or those that are leave no room for its caches."""
        text = Text(CALLER.get().visitor)
        self._line.append(text)
        try:
            while not self._turn(text) or not pool.caches.admit(text, lent := self._free(pool), tokens):
                yield WAITING
        except GeneratorExit:
            pool.caches.leave(text)
            raise
        finally:
            self._line.remove(text)
            self._next = None if self._next is text else self._next
        if lent is not pool:
            self._twins[pool].remove(lent)
            lent.costs = copy.copy(pool.costs)  # what is measured is shared
        self._lent[lent] = text.visitor
        return lent

    def _turn(self, text: Text) -> bool:
        """Whether the next place is for this text."""
        if self._next is None:
            held, free = Counter(self._lent.values()), self.texts - len(self._lent)
            may = [t for t in self._line if free > (1 if t.visitor and held[t.visitor] else 0)]
            self._next = min(may, key=lambda t: held[t.visitor], default=None)
        return text is self._next

    def take_back(self, lent: Pool, pool: Pool) -> None:
        """The text has ended."""
        del self._lent[lent]
        pool.caches.end(lent)
        if lent is not pool:
            self._twins.setdefault(pool, []).append(lent)

    def _free(self, pool: Pool) -> Pool:
        """The pool or a twin of it that is not lent."""
        if pool not in self._lent:
            return pool
        twins = self._twins.setdefault(pool, [])
        if not twins:
            twins.append(pool.twin())
        return twins[-1]

    def warm_up(self, pool: Pool) -> None:
        """:func:`warm_up` the pool, and decode on as many twins as may be lent, so that their caches are there.

        The last twin comes first: then the caches have room for all, and nothing recorded for one is lost as they grow.
        """
        twins = self._twins[pool] = [pool.twin() for _ in range(self.texts - 1)]
        for twin in reversed(twins):
            for _ in range(2 if pool.device.type == "cuda" else 1):  # graphs are recorded at the second time
                decode_each(twin, tokens=4)
        warm_up(pool)
