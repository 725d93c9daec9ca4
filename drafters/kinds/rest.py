"""``rest``: retrieval of what followed the same words in a datastore of past text (REST, He et al. 2023)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Literal

from pydantic import Field

from drafters.draft import Draft
from drafters.kinds.base import BuildContext, FileEntry, TreeEntry, register
from drafters.proposing import PointMassDrafter
from drafters.retrieval.datastore import END, Datastore, tokenizer_fingerprint
from drafters.tree import grow

LONGEST = 16
"""Longest suffix of the context that is looked up, in tokens."""

SAMPLE = 64
"""Of more occurrences than these an even sample is counted."""

WIDTH = 4
"""Most continuations of one text in a tree."""

Found = tuple[int, int, int]
"""Occurrences of a text: from and to which place of the suffix array, and tokens of the text."""

Place = Callable[[], Found]
"""Occurrences that are looked up only if a draft goes on there."""


class DatastoreDrafter(PointMassDrafter):
    """Drafts what most often followed the longest suffix of the context that the datastore holds.

    It caches nothing of the context. Drafts are point masses: trees of at most ``nodes`` nodes, chains by default.
    """

    def __init__(self, name: str, store: Datastore, nodes: int | None = None):
        self.name, self.store, self.nodes = name, store, nodes
        # Single elements are read several times faster from these than from the arrays.
        self._tokens, self._suffixes = store.tokens.data, store.suffixes.data
        bounds = store.bounds().tolist()
        self._bounds = [*bounds, bounds[-1]]  # of what is greater than every token of the datastore, too

    def draft(self, context: Sequence[int], length: int) -> Draft:
        found = self._find(context[-LONGEST:])
        return grow(lambda: found, self._continuations, length, self.nodes)

    def _find(self, context: Sequence[int]) -> Found:
        """All occurrences of the longest suffix of ``context`` that has any."""
        low = high = known = 0
        shortest, longest = 1, len(context)
        while shortest <= longest:  # what occurs, does so with all its suffixes: halve
            length = (shortest + longest) // 2
            text, reading = list(context[-length:]), self._reading(length)
            first = min(text[0], len(self._bounds) - 2)
            begin, end = self._bounds[first], self._bounds[first + 1]
            place = bisect_left(self._suffixes, text, begin, end, key=reading)
            if place < end and reading(self._suffixes[place]) == text:
                low, high, known, shortest = place, end, length, length + 1
            else:
                longest = length - 1
        if known:
            high = bisect_right(self._suffixes, list(context[-known:]), low, high, key=self._reading(known))
        return low, high, known

    def _reading(self, length: int) -> Callable[[int], list[int]]:
        """What stands at a position of the datastore, ``length`` tokens of it."""
        tokens = self._tokens
        return lambda position: tokens[position : position + length].tolist()

    def _continuations(self, place: Place) -> list[tuple[int, float, Place]]:
        """The up to ``WIDTH`` tokens that most often follow, and where they do; of equals the lowest token first."""
        low, high, length = found = place()
        if not length:
            return []
        tokens = self._tokens
        if high - low == 1:  # the rest of the draft is one copy: most are
            token = tokens[self._suffixes[low] + length]
            return [] if token == END else [(token, 1.0, lambda: (low, high, length + 1))]
        stride = -(-(high - low) // SAMPLE)
        # So few are counted faster in plain Python than by array operations. Ascending: the array is sorted.
        following = [tokens[position + length] for position in self._suffixes[low:high:stride]]
        counts = sorted(Counter(following).items(), key=itemgetter(1), reverse=True)[: WIDTH + 1]
        places = list[tuple[int, float, Place]]()
        for token, count in counts:
            if token != END:
                place = partial(self._narrowed, found, token, following.index(token), count, stride)
                places.append((token, count / len(following), place))
        return places[:WIDTH]

    def _narrowed(self, found: Found, token: int, begin: int, count: int, stride: int) -> Found:
        """Of the occurrences ``found`` those that ``token`` follows: in an even sample with this ``stride`` those are
        ``count``, from the one numbered ``begin`` on."""
        low, high, length = found
        if stride == 1:
            return low + begin, low + begin + count, length + 1
        tokens = self._tokens

        def follows(position: int) -> int:
            return tokens[position + length]

        # The sample says between which occurrences the first and the last one lie.
        first, last = low + begin * stride, low + (begin + count - 1) * stride
        start = bisect_left(self._suffixes, token, max(first - stride, low), first + 1, key=follows)
        stop = bisect_right(self._suffixes, token, last, min(last + stride, high), key=follows)
        return start, stop, length + 1


@register
class DatastoreEntry(TreeEntry, FileEntry):
    """A drafter of kind ``rest``, read from a datastore."""

    title = "datastore"
    description = "what most often followed the same words in past text"

    kind: Literal["rest"]
    path: str = Field(description="the path of a datastore, a file relative to the card")

    def build(self, context: BuildContext) -> DatastoreDrafter:
        store = Datastore.open(self.file(context), tokenizer_fingerprint(context.tokenizer), context.target.vocab_size)
        drafter = DatastoreDrafter(self.name, store, self.nodes)
        drafter.digest = store.fingerprint
        return drafter
