"""Caches for the texts that jobs decode by turns."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Generator
from weakref import WeakKeyDictionary

from drafters.caches import Waiting
from drafters.draft import Draft
from drafters.hardware import clock
from drafters.pool import Pool
from drafters.sampling import SamplingParams
from multidraft.engine.decoding import Decoding
from multidraft.service.jobs import WAITING
from multidraft.service.line import CALLER

UNREAD = 100
"""Tokens that drafters read in the warm-up's evaluation of a text that none has read."""

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
        self._lent: list[tuple[Pool, str]] = []
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
        self._lent.append((lent, text.visitor))
        return lent

    def _turn(self, text: Text) -> bool:
        """Whether the next place is for this text."""
        if self._next is None:
            held, free = Counter(visitor for _, visitor in self._lent), self.texts - len(self._lent)
            kept = 1 if self.texts > 1 else 0
            may = [t for t in self._line if free > (kept if t.visitor and held[t.visitor] else 0)]
            self._next = min(may, key=lambda t: held[t.visitor], default=None)
        return text is self._next

    def take_back(self, lent: Pool, pool: Pool) -> None:
        """The text has ended."""
        self._lent = [(other, visitor) for other, visitor in self._lent if other is not lent]
        pool.caches.end(lent)
        if lent is not pool:
            self._twins.setdefault(pool, []).append(lent)

    def _free(self, pool: Pool) -> Pool:
        """The pool or a twin of it that is not lent."""
        if not any(other is pool for other, _ in self._lent):
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
                _decode(twin, tokens=4)
        warm_up(pool)


def warm_up(pool: Pool) -> None:
    """Decode a few tokens in every way; on the device's thread.

    What the first time took is forgotten: it holds the start of everything. The second leaves the pool some rounds of
    each way, by which policies know what they cost, an evaluation for which all drafters have a text to read, and a
    verification of each draft length: what drafters make of so little text is short, so that it would be the first
    long draft, whatever else the machine does then, that decides what long ones cost.
    """
    for tokens in (4, 8):
        pool.costs = pool.new_costs()
        _decode(pool, tokens)


def _decode(pool: Pool, tokens: int) -> None:
    """Without drafters, with each one, and with a policy that evaluates all of them."""
    params = SamplingParams(max_new_tokens=tokens, draft_length=pool.draft_length)
    _measure(pool, params)
    for spec in ("autoregressive", *(f"fixed:{name}" for name in pool.drafter_names), "normal-hedge:warmup=1,every=1"):
        Decoding(pool, "Hello", spec, params, learn=False).run()


def _measure(pool: Pool, params: SamplingParams) -> None:
    """Measure an evaluation of drafters that have read nothing of a text, as the first of a query is likely to be, and
    verifications."""
    text = (pool.encode("Hello") * UNREAD)[: min(UNREAD, pool.target.window // 2)]
    with pool.lock:
        pool.target.prefill(text)
        pool.prepare(text, ())
        pool.costs.begin(len(text), ())
        begun = clock(pool.device)
        pool.gamma(text, len(text) - 1, None, params)
        pool.costs.evaluated(clock(pool.device) - begun)
        for length in range(1, min(params.draft_length, (pool.target.window - len(text)) // 2) + 1):
            begun = clock(pool.device)
            pool.target.score(Draft.chain(text[:length]))
            pool.costs.verify.clock(length, clock(pool.device) - begun)
            pool.target.accept((), text[0])
