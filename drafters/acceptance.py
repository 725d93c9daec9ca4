"""Acceptance probabilities γ of drafters at verified positions."""

from __future__ import annotations

import numpy as np


def hits_by_depth(accepted: np.ndarray, length: int) -> np.ndarray:
    """γ at temperature 0 by depth, float64 ``(positions, K, N)``: ``[t, k, i]`` is 1 where drafter ``i``'s draft begun
    at ``t - k`` has more than ``k`` tokens accepted, else 0.

    Args:
        accepted: accepted leading tokens of the draft begun at each position, int ``(N, positions)``.
        length: K.
    """
    drafters, positions = accepted.shape
    hits = np.zeros((positions, length, drafters))
    for depth in range(min(length, positions)):
        hits[depth:, depth] = (accepted[:, : positions - depth] > depth).T
    return hits


def accepted_prefixes(
    hits: np.ndarray, log_probabilities: np.ndarray, log_confidences: np.ndarray, length: int
) -> np.ndarray:
    """How many tokens of the draft begun at each position are accepted, int64 ``(N, positions)``, where it ends with
    the token at which the sum of its log-probabilities falls below the drafter's confidence.

    Args:
        hits: whether the drafter's choice at each position is the text's token, bool ``(N, positions)``.
        log_probabilities: of these choices where they are hits, ``(N, positions)``.
        log_confidences: ``(N,)``.
        length: longest draft.
    """
    positions = hits.shape[1]
    accepted = np.zeros(hits.shape, dtype=np.int64)
    alive, sums = np.ones(hits.shape, dtype=bool), np.zeros(hits.shape)
    for depth in range(min(length, positions)):
        begun = positions - depth
        alive = alive[:, :begun] & (sums[:, :begun] >= log_confidences[:, None]) & hits[:, depth:]
        accepted[:, :begun] += alive
        sums = sums[:, :begun] + log_probabilities[:, depth:]
    return accepted
