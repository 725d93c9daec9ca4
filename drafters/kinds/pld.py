"""``pld``: prompt lookup (Saxena 2023).

Finds the longest suffix of the context earlier in it and copies what followed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Literal

from drafters.base import common_prefix
from drafters.draft import Draft
from drafters.kinds.base import BuildContext, DrafterEntry, register
from drafters.proposing import ReadingDrafter

NGRAMS = (4, 2, 1)
"""Lengths of the suffixes that are looked for, the longest first."""


class PromptLookup(ReadingDrafter):
    """Drafts by copying; a point mass on each copied token, no model and no distribution.

    The end positions of all n-grams of :data:`NGRAMS` are indexed as the context grows, so a lookup costs microseconds
    however long the context is. Of several occurrences it takes the one nearest to where the text has been copied from
    so far, which is the place that the last of its longest n-grams to occur before was found at, moved on with the
    text; so a copy is taken up again after a word that differs. Before any was found it takes the first. A copy that
    reaches the end of the context goes on with what it has copied, so that it can run through a loop.
    """

    def __init__(self, name: str = "lookup"):
        self.name = name
        self.prepare(())

    def prepare(self, context: Sequence[int]) -> None:
        self.indexed: list[int] = []
        self.ends: list[dict[tuple[int, ...], list[int]]] = [{} for _ in NGRAMS]
        self.sources: list[int | None] = [None]
        """At each position the place to go on copying from, by how far it lies back; ``None`` before any is known."""
        self._index(context)

    def draft(self, context: Sequence[int], length: int) -> Draft:
        return self.drafts(context, range(len(context), len(context) + 1), length)[0]

    def drafts(self, context: Sequence[int], begins: range, length: int) -> list[Draft]:
        self._index(context)
        return [Draft.chain(self._lookup(context, begin, length)) for begin in begins]

    def _index(self, context: Sequence[int]) -> None:
        """Add the n-grams of the new tokens; a context that does not continue the indexed one starts afresh."""
        known = len(self.indexed)
        if common_prefix(self.indexed, list(context)) < known:
            self.prepare(context)
            return
        longest = NGRAMS[0]
        for end in range(known + 1, len(context) + 1):
            for n, ends in zip(NGRAMS, self.ends, strict=True):
                if end >= n:
                    ends.setdefault(tuple(context[end - n : end]), []).append(end)
            before, back = self.ends[0].get(tuple(context[max(end - longest, 0) : end]), []), self.sources[-1]
            self.sources.append(end - _nearest(before, end, back) if len(before) > 1 else back)
        self.indexed.extend(context[known:])

    def _lookup(self, context: Sequence[int], position: int, length: int) -> list[int]:
        """The tokens that followed the occurrence chosen of the longest suffix of ``context[:position]``; what reaches
        the end goes on with its own copy."""
        for n, indexed in zip(NGRAMS, self.ends, strict=True):
            ends = indexed.get(tuple(context[max(position - n, 0) : position]), [])
            if ends and ends[0] < position:
                begin = _nearest(ends, position, self.sources[position])
                copied = list(context[begin : min(begin + length, position)])
                return copied + [copied[i % len(copied)] for i in range(length - len(copied))]
        return []


def _nearest(ends: Sequence[int], position: int, back: int | None) -> int:
    """Of the ascending ``ends``, the first of which is before ``position``, the one before it that is nearest to
    ``back`` tokens before it, of two the earlier; the first if that is not known."""
    if back is None:
        return ends[0]
    place = bisect_left(ends, position - back)
    near = [end for end in ends[max(place - 1, 0) : place + 1] if end < position]
    return min(near, key=lambda end: abs(end - (position - back)))


@register
class PromptLookupEntry(DrafterEntry):
    """A drafter of kind ``pld``: it has no weights and no settings."""

    title = "prompt lookup"
    description = "copies what followed earlier in the text"

    kind: Literal["pld"]

    def build(self, context: BuildContext) -> PromptLookup:
        return PromptLookup(self.name)
