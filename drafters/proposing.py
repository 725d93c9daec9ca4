"""γ and acceptances of drafters that can only be judged by letting them draft, at every position anew."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from drafters.base import Drafter, Evidence
from drafters.tree import accepted_tokens, gamma_of_candidates
from multidraft.draft import Draft
from multidraft.sampling import SamplingParams


def acceptances_by_proposing(drafter: Drafter, context: Sequence[int], start: int, length: int) -> np.ndarray:
    """As :meth:`Drafter.acceptances`: int64 ``(len(context) - start,)``."""
    accepted = []
    for position in range(start, len(context)):
        draft = _greedy(drafter, context[:position], length)
        accepted.append(accepted_tokens(draft, context[position : position + length]))
    return np.array(accepted, dtype=np.int64)


class PointMassDrafter(Drafter):
    """A drafter of deterministic drafts without a distribution: all it has to know is what to propose.

    How it would have done elsewhere is found by letting it draft at each position anew. Override what is known at less
    cost.
    """

    def prepare(self, context: Sequence[int]) -> None:
        """Nothing is kept."""

    def gamma(self, evidence: Evidence) -> np.ndarray:
        """γ = p(x̂) of the first tokens of the draft that each position would have got, 0 where there are none."""
        begins = range(evidence.start, len(evidence.context))
        drafts = [_greedy(self, evidence.context[:s], evidence.params.draft_length) for s in begins]
        first = [[draft.tokens[child] for child in draft.children(-1)] for draft in drafts]
        return gamma_of_candidates(first, evidence)

    def acceptances(self, context: Sequence[int], start: int, length: int) -> np.ndarray:
        return acceptances_by_proposing(self, context, start, length)


def _greedy(drafter: Drafter, context: Sequence[int], length: int) -> Draft:
    # Drafters of deterministic drafts draw nothing, so any generator will do.
    return drafter.propose(context, length, SamplingParams(), torch.Generator())
