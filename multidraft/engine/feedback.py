"""Alignment feedback: how well a draft, or each drafter, agreed with the target."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from drafters.draft import Draft
from drafters.errors import DraftError
from drafters.sampling import SamplingParams, probabilities


def block_divergence(
    draft: Draft, accepted: Sequence[int], logits: torch.Tensor | None, params: SamplingParams, draft_length: int
) -> float:
    """BD = (1/K) Σ_j (1 − TV(p_j, q_j)) over the drafted positions, those after a rejection too (MetaSD Eq. 4).

    Since ``1 − TV(p, q) = Σ_v min(p_v, q_v)``, a drafter without a distribution (point mass on its token)
    scores ``p_j(token)``. At temperature 0 both distributions are taken at temperature 1, which keeps the
    reward dense. Positions that the drafter left undrafted count as 0: they yield no tokens either.

    Args:
        draft: the draft; of a tree the chain meant is the accepted path continued by first children.
        accepted: the accepted path.
        logits: target logits ``(n + 1, V)`` from the verification. Where they are unknown what is left of BD is
            whether tokens were accepted: BE.
        draft_length: draft length K asked for, >= 1.

    Returns:
        A number in [0, 1].

    Raises:
        DraftError: probabilities of the draft that are none.
    """
    path = draft.main_path(accepted)
    if not path:
        return 0.0
    if logits is None:
        return len(accepted) / draft_length
    rows = [draft.parents[node] + 1 for node in path]
    chain = rows == list(range(len(rows)))  # a slice copies nothing
    p = probabilities(logits[: len(rows)] if chain else logits[rows], params)
    if draft.q is None:
        overlap = p[torch.arange(len(path)), [draft.tokens[node] for node in path]]
    else:
        q = draft.q if len(path) == len(draft) else draft.q[path]
        overlap = torch.minimum(p[:, : q.shape[1]], q[:, : p.shape[1]])
    total = float(overlap.sum())
    if not total >= 0.0:  # nor is NaN
        raise DraftError("it proposed with probabilities that are negative or no numbers")
    return min(1.0, total / draft_length)
