"""``pld``: prompt lookup (Saxena 2023).

Finds the longest suffix of the context earlier in it and copies what followed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Literal

from drafters.base import FeatureSource, common_prefix
from drafters.draft import Draft
from drafters.kinds.base import BuildContext, DrafterEntry, register
from drafters.proposing import PointMassDrafter

LONGEST_NGRAM = 3


class PromptLookup(PointMassDrafter):
    """Drafts by copying; a point mass on each copied token, no model and no distribution.

    The end positions of all n-grams (n = 3, 2, 1) are indexed as the context grows, so a lookup costs
    microseconds however long the context is. Of several occurrences the latest is taken. A copy that reaches the end
    of the context goes on with what it has copied, so that it can run through a loop.
    """

    kind = "pld"

    def __init__(self, name: str = "lookup"):
        self.name = name
        self.prepare(())

    def twin(self, target: FeatureSource) -> PromptLookup:
        return PromptLookup(self.name)

    def forget(self) -> None:
        self.prepare(())

    def prepare(self, context: Sequence[int]) -> None:
        self.indexed: list[int] = []
        self.ends: list[dict[tuple[int, ...], list[int]]] = [{} for _ in range(LONGEST_NGRAM)]
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
        for end in range(known + 1, len(context) + 1):
            for n, ends in enumerate(self.ends, start=1):
                if end >= n:
                    ends.setdefault(tuple(context[end - n : end]), []).append(end)
        self.indexed.extend(context[known:])

    def _lookup(self, context: Sequence[int], position: int, length: int) -> list[int]:
        """The tokens that followed the latest earlier occurrence of the longest suffix of ``context[:position]``; what
        reaches the end goes on with its own copy."""
        for n in range(min(LONGEST_NGRAM, position), 0, -1):
            ends = self.ends[n - 1].get(tuple(context[position - n : position]), [])
            earlier = bisect_left(ends, position) - 1
            if earlier >= 0:
                begin = ends[earlier]
                copied = list(context[begin : min(begin + length, position)])
                return copied + [copied[i % len(copied)] for i in range(length - len(copied))]
        return []


@register
class PromptLookupEntry(DrafterEntry):
    """A drafter of kind ``pld``: it has no weights and no settings."""

    title = "prompt lookup"
    description = "copies what followed earlier in the text"

    kind: Literal["pld"]

    def build(self, context: BuildContext) -> PromptLookup:
        return PromptLookup(self.name)
