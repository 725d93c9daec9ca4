"""γ and acceptances of drafters that can only be judged by letting them draft, at every position anew."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from drafters.base import Drafter, Evidence
from drafters.tree import accepted_tokens, gamma_of_candidates
from multidraft.draft import Draft
from multidraft.sampling import SamplingParams


def gamma_by_proposing(drafter: Drafter, evidence: Evidence) -> np.ndarray:
    """γ ``(m,)`` of a drafter of deterministic drafts, by a greedy draft of the run's full length at each position."""
    length = evidence.params.draft_length
    drafts = [_greedy(drafter, evidence.context[:s], length) for s in range(evidence.start, len(evidence.context))]
    return gamma_of_candidates([[draft.tokens[child] for child in draft.children(-1)] for draft in drafts], evidence)


def acceptances_by_proposing(drafter: Drafter, context: Sequence[int], start: int, length: int) -> np.ndarray:
    """As :meth:`Drafter.acceptances`: int64 ``(len(context) - start,)``."""
    accepted = []
    for position in range(start, len(context)):
        draft = _greedy(drafter, context[:position], length)
        accepted.append(accepted_tokens(draft, context[position : position + length]))
    return np.array(accepted, dtype=np.int64)


def _greedy(drafter: Drafter, context: Sequence[int], length: int) -> Draft:
    # Drafters of deterministic drafts draw nothing, so any generator will do.
    return drafter.propose(context, length, SamplingParams(), torch.Generator())
