"""Drafts of drafters that count what followed: a chain of the most frequent tokens, or a tree of the likeliest."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np
import torch

from drafters.base import Acceptances, Evidence
from drafters.draft import Draft, checked

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


def acceptances_of(drafts: Iterable[Draft], context: Sequence[int], start: int, length: int) -> Acceptances:
    """How far the text follows each of the drafts begun at ``start, start + 1, …``, of up to ``length`` tokens."""
    found = [
        (accepted_tokens(draft, context[position : position + length]), draft.depth, len(draft))
        for position, draft in enumerate((checked(draft, length) for draft in drafts), start)
    ]
    return Acceptances(*np.array(found, dtype=np.int64).reshape(-1, 3).T)


def gamma_of_drafts(drafts: Sequence[Draft], evidence: Evidence) -> np.ndarray:
    """γ ``(m, K)`` of deterministic drafts by depth: the target's probability of all tokens together that a draft holds
    after the text that follows its beginning (HedgeSpec Thm 2); 0 where it does not hold that text.

    Args:
        drafts: those begun at consecutive positions up to the last one of the evidence.
    """
    context, length = evidence.context, evidence.params.draft_length
    gamma = np.zeros((len(evidence), length))
    vocab_size = None if evidence.p is None else evidence.p.shape[1]
    first = len(context) - len(drafts) - evidence.start
    found: list[tuple[int, int, int]] = []
    for begin, draft in enumerate((checked(draft, length, vocab_size) for draft in drafts), start=first):
        node = -1
        for depth, token in enumerate(context[evidence.start + begin :][:length]):
            children = {draft.tokens[child]: child for child in draft.children(node)}
            if (row := begin + depth) >= 0:
                if evidence.p is None:
                    gamma[row, depth] = token in children
                else:
                    found += [(row, depth, child) for child in children]
            if token not in children:
                break
            node = children[token]
    if found and evidence.p is not None:
        rows, depths, tokens = map(list, zip(*found, strict=True))
        p = evidence.p[torch.tensor(rows), torch.tensor(tokens)].double().cpu().numpy()
        np.add.at(gamma, (rows, depths), p)
    return np.minimum(gamma, 1.0)


class Growth:
    """A tree while it grows: nodes in the order they were born, some of them fed to the head for children."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.scores: list[float] = []
        self.rows: list[int] = []
        """Of each node, the row of the level's logits that it was taken from, and below, of all logits so far."""
        self.all_rows: list[int] = []
        self.levels = 0
        self._seen: dict[int, list[int]] = {-1: []}

    def add(
        self, frontier: list[int], children: list[list[int]], chances: list[list[float]], least: float
    ) -> list[int]:
        """Give each node of ``frontier`` its children, but for those less probable than ``least``; returns them."""
        born = []
        for row, parent in enumerate(frontier):
            for token, chance in zip(children[row], chances[row], strict=True):
                score = chance + (self.scores[parent] if parent >= 0 else 0.0)
                if score < least and self.tokens:  # the very first is always proposed
                    break
                born.append(len(self.tokens))
                self.tokens.append(token)
                self.parents.append(parent)
                self.scores.append(score)
                self.rows.append(row)
                self.all_rows.append(self.levels + row)
        self.levels += len(frontier)
        return born

    def best(self, count: int) -> list[int]:
        """The ``count`` most probable nodes, in the order of birth.

        No child is more probable than its parent, and of equals the parent is older: what remains is a tree.
        """
        return sorted(sorted(range(len(self.tokens)), key=lambda node: (-self.scores[node], node))[:count])

    def feed(self, node: int, column: int) -> list[int]:
        """Which cached pairs ``node`` sees when it is fed as pair ``column``: those of its ancestors, and its own."""
        self._seen[node] = [*self._seen[self.parents[node]], column]
        return self._seen[node]
