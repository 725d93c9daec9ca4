"""Caches for the texts that jobs decode by turns."""

from __future__ import annotations

import copy
from collections.abc import Generator
from weakref import WeakKeyDictionary

from drafters.pool import Pool
from multidraft.service.jobs import WAITING

TEXTS = 4
"""Texts that may be under way at once, each with caches of its own; jobs with others wait."""


class Lender:
    """Lends a pool to one job, and twins of it to others; on the device's thread alone.

    Args:
        texts: how many are lent at once, at most.
    """

    def __init__(self, texts: int = TEXTS):
        self.texts = texts
        self._lent: list[Pool] = []
        self._twins: WeakKeyDictionary[Pool, list[Pool]] = WeakKeyDictionary()
        """Those that are not lent, by their pool; they go with it when another is loaded."""

    def lend(self, pool: Pool) -> Generator[object, None, Pool]:
        """Yields ``WAITING`` while as many texts as may be are under way; returns the pool or a twin of it."""
        while len(self._lent) >= self.texts:
            yield WAITING
        lent = pool
        if any(other is pool for other in self._lent):
            lent = twins.pop() if (twins := self._twins.get(pool)) else pool.twin()
            lent.costs = copy.copy(pool.costs)  # what is measured is shared
        self._lent.append(lent)
        return lent

    def take_back(self, lent: Pool, pool: Pool) -> None:
        """The text has ended."""
        self._lent = [other for other in self._lent if other is not lent]
        if lent is not pool:
            self._twins.setdefault(pool, []).append(lent)
