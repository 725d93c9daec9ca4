"""γ and acceptances of drafters that can only be judged by letting them draft, at every position anew."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Generator

from drafters.base import Acceptances, Drafter, Evidence
from drafters.draft import Draft
from drafters.sampling import SamplingParams
from drafters.tree import acceptances_of, gamma_of_drafts


def acceptances_by_proposing(drafter: Drafter, context: Sequence[int], start: int, length: int) -> Acceptances:
    """As :meth:`Drafter.acceptances`."""
    drafts = (_greedy(drafter, context[:position], length) for position in range(start, len(context)))
    return acceptances_of(drafts, context, start, length)


class PointMassDrafter(Drafter):
    """A drafter of deterministic drafts without a distribution: all it has to know is what to propose.

    How it would have done elsewhere is found by letting it draft at each position anew. Override what is known at less
    cost.
    """

    def gamma(self, evidence: Evidence) -> np.ndarray:
        length = evidence.params.draft_length
        drafts = [_greedy(self, evidence.context[:begin], length) for begin in evidence.begins()]
        return gamma_of_drafts(drafts, evidence)

    def acceptances(self, context: Sequence[int], start: int, length: int) -> Acceptances:
        return acceptances_by_proposing(self, context, start, length)


class BlockDrafter(PointMassDrafter):
    """A drafter that writes a block of tokens at once: a chain of point masses, each token the likeliest to it.

    A block has the size that its network was trained with; of a longer one than asked for the first tokens are taken.
    γ and acceptances are found by drafting at each position, one block each.
    """

    def prepare(self, context: Sequence[int]) -> None:
        self.forget()
        if len(context) > 1:
            self._block(context)

    def propose(
        self, context: Sequence[int], length: int, params: SamplingParams, generator: Generator, *, with_q: bool = False
    ) -> Draft:
        if len(context) < 2 or length < 1:  # a context of one token has no hidden states yet
            return Draft.empty()
        return Draft.chain(self._block(context)[:length])

    def gamma(self, evidence: Evidence) -> np.ndarray:
        self.read(evidence.context)
        return super().gamma(evidence)

    def acceptances(self, context: Sequence[int], start: int, length: int) -> Acceptances:
        self.read(context)
        return super().acceptances(context, start, length)

    def _block(self, context: Sequence[int]) -> list[int]:
        try:
            return self.block(list(context))
        except BaseException:  # a forward that fails leaves the cache in an undefined state
            self.forget()
            raise

    def read(self, context: Sequence[int]) -> None:
        """Let the target read once what all prefixes of ``context`` need."""
        raise NotImplementedError

    def forget(self) -> None:
        """Empty the cache."""
        raise NotImplementedError

    def block(self, context: list[int]) -> list[int]:
        """The tokens that the network puts after ``context``, which has two at least."""
        raise NotImplementedError


def _greedy(drafter: Drafter, context: Sequence[int], length: int) -> Draft:
    # Drafters of deterministic drafts draw nothing, so any generator will do.
    return drafter.propose(context, length, SamplingParams(), Generator())
