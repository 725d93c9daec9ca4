"""Drafts of drafters that count what followed: a chain of the most frequent tokens, or a tree of the likeliest."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import torch

from drafters.base import Evidence
from multidraft.draft import Draft

State = TypeVar("State")
Continuations = Callable[[State], Sequence[tuple[int, float, State]]]
"""Of a state: tokens that may follow, the most frequent first, each with its share and the state it leads to."""


def grow(start: State, continuations: Continuations[State], length: int, nodes: int | None) -> Draft:
    """A draft of up to ``length`` tokens in depth.

    Args:
        nodes: ``None`` makes a chain, of the most frequent continuation of each token. Otherwise a tree of at most so
            many nodes: all continuations of the context, then always the node that is reached with the largest product
            of shares (as REST and SuffixDecoding fill their budgets). Any first part of its nodes is a tree as well.
    """
    if length < 1:
        return Draft.empty()
    width, budget = (1, length) if nodes is None else (None, nodes)
    tokens: list[int] = []
    parents: list[int] = []
    # Ties go to what was found first, and no two entries compare beyond that number.
    waiting = [(-2.0, n, share, -1, 1, token, state) for n, (token, share, state) in enumerate(continuations(start))]
    waiting = waiting[:width]  # ordered as they are, which is all that a heap needs
    found = len(waiting)
    while waiting and len(tokens) < budget:
        _, _, share, parent, depth, token, state = heapq.heappop(waiting)
        tokens.append(token)
        parents.append(parent)
        if depth < length and len(tokens) < budget:
            for child, part, further in continuations(state)[:width]:
                joint = share * part
                heapq.heappush(waiting, (-joint, found, joint, len(tokens) - 1, depth + 1, child, further))
                found += 1
    return Draft(tuple(tokens), tuple(parents))


def accepted_tokens(draft: Draft, text: Sequence[int]) -> int:
    """How many tokens of ``text`` the draft holds from its root on: what greedy verification would accept."""
    places = {(parent, token): node for node, (parent, token) in enumerate(zip(draft.parents, draft.tokens))}
    node, accepted = -1, 0
    for token in text:
        if (node, token) not in places:
            break
        node = places[node, token]
        accepted += 1
    return accepted


def gamma_of_candidates(candidates: Sequence[Sequence[int]], evidence: Evidence) -> np.ndarray:
    """γ ``(m,)`` of deterministic drafts: the target's probability of all first tokens together (HedgeSpec Thm 2).

    Args:
        candidates: for each verified position the tokens that were proposed first, all different.
    """
    gamma = np.zeros(len(evidence))
    if evidence.p is None:
        emitted = evidence.context[evidence.start :]
        gamma[:] = [token in tokens for token, tokens in zip(emitted, candidates, strict=True)]
    elif found := [(row, token) for row, tokens in enumerate(candidates) for token in tokens]:
        rows, tokens = map(list, zip(*found, strict=True))
        p = evidence.p[torch.tensor(rows), torch.tensor(tokens)].double().cpu().numpy()
        np.add.at(gamma, rows, p)
    return np.minimum(gamma, 1.0)
