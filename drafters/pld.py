"""``pld``: prompt lookup (Saxena 2023).

Finds the longest suffix of the context earlier in it and copies what followed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
import torch

from drafters.base import Drafter, Evidence, common_prefix
from multidraft.draft import Draft
from multidraft.sampling import SamplingParams

LONGEST_NGRAM = 3


class PromptLookup(Drafter):
    """Drafts by copying; a point mass on each copied token, no model and no distribution.

    The end positions of all n-grams (n = 3, 2, 1) are indexed as the context grows, so a lookup costs
    microseconds however long the context is. Of several occurrences the latest is taken. A copy that reaches the end
    of the context goes on with what it has copied, so that it can run through a loop.
    """

    kind = "pld"

    def __init__(self, name: str = "lookup"):
        self.name = name
        self.prepare(())

    def prepare(self, context: Sequence[int]) -> None:
        self.indexed: list[int] = []
        self.ends: list[dict[tuple[int, ...], list[int]]] = [{} for _ in range(LONGEST_NGRAM)]
        self._index(context)

    def propose(
        self,
        context: Sequence[int],
        length: int,
        params: SamplingParams,
        generator: torch.Generator,
        *,
        with_q: bool = False,
    ) -> Draft:
        self._index(context)
        return Draft.chain(self._lookup(context, len(context), length))

    def gamma(self, evidence: Evidence) -> np.ndarray:
        """γ = p(x̂) of the token that a lookup at each position would have proposed, 0 where it finds none."""
        self._index(evidence.context)
        gamma = np.zeros(len(evidence))
        for row, position in enumerate(range(evidence.start, len(evidence.context))):
            for token in self._lookup(evidence.context, position, 1):
                if evidence.p is None:
                    gamma[row] = float(token == evidence.context[position])
                else:
                    gamma[row] = float(evidence.p[row, token])
        return gamma

    def acceptances(self, context: Sequence[int], start: int, length: int) -> np.ndarray:
        self._index(context)
        accepted = []
        for position in range(start, len(context)):
            drafted = self._lookup(context, position, length)
            accepted.append(common_prefix(drafted, list(context[position : position + length])))
        return np.array(accepted, dtype=np.int64)

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
