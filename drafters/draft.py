"""A draft: the tokens a drafter proposes for one round, as a tree."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple

import torch

from drafters.errors import DraftError, quoted

MOST_NODES = 1024
"""Of a draft: the target computes scores over the vocabulary for each."""

OWN = "target"
"""The target's name where tokens are counted by who wrote them."""


@dataclass(frozen=True)
class Draft:
    """A tree of proposed tokens; a chain is a tree of width 1.

    Attributes:
        tokens: token ids ``(n,)``, parents before children.
        parents: for each node the index of its parent, -1 for a child of the context's last token.
        q: drafter probabilities ``(n, V)`` float32, row ``j`` being the distribution that node ``j`` was
            taken from; ``None`` for drafters without one (point mass on the token).
            In sampled runs these are the probabilities *after* temperature, top-k and top-p, since of a sampled
            draft losslessness depends on them; in greedy ones they are taken at temperature 1 and serve the
            feedback only.
        sampled: whether the tokens were drawn from ``q`` (speculative sampling) or chosen
            deterministically (argmax, lookup).
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    q: torch.Tensor | None = None
    sampled: bool = False

    def __post_init__(self) -> None:
        for name in ("tokens", "parents"):
            try:  # of torch two equal ones differ as keys of a dictionary
                object.__setattr__(self, name, tuple(map(operator.index, getattr(self, name))))
            except TypeError:
                raise DraftError(f"its {name} must be whole numbers, got {quoted(getattr(self, name))}") from None
        if len(self) != len(self.parents):
            raise ValueError(f"a draft of {len(self)} tokens has {len(self.parents)} parents")
        if any(not -1 <= parent < node for node, parent in enumerate(self.parents)):
            raise ValueError("every parent must stand before its child (or be -1 for the context)")
        if self.sampled and self.q is None:
            raise ValueError("a sampled draft needs the probabilities q it was sampled from")
        if self.q is not None and len(self.q) != len(self):
            raise ValueError(f"q has {len(self.q)} rows for {len(self)} tokens")

    @classmethod
    def chain(cls, tokens: Sequence[int], q: torch.Tensor | None = None, *, sampled: bool = False) -> Draft:
        """A draft without branches."""
        return cls(tuple(tokens), tuple(range(-1, len(tokens) - 1)), q, sampled)

    @classmethod
    @cache
    def empty(cls) -> Draft:
        """Nothing proposed: the round is one step of autoregressive decoding."""
        return cls((), ())

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def is_chain(self) -> bool:
        """Whether no node has a sibling."""
        return self.parents == tuple(range(-1, len(self.tokens) - 1))

    @property
    def depths(self) -> tuple[int, ...]:
        """Depth of each node, 0 for children of the context's last token."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(depths[parent] + 1 if parent >= 0 else 0)
        return tuple(depths)

    @property
    def depth(self) -> int:
        """Length of the longest path: the most tokens a round with this draft can accept."""
        return len(self) if self.is_chain else max(self.depths) + 1

    def children(self, node: int) -> list[int]:
        """Children of ``node`` (-1: of the context), in the order they are to be tried."""
        if self.is_chain:
            return [node + 1] if node + 1 < len(self) else []
        return [child for child, parent in enumerate(self.parents) if parent == node]

    def only(self, nodes: Sequence[int]) -> Draft:
        """The draft of these nodes, ascending and with all their parents."""
        place = {node: index for index, node in enumerate(nodes)} | {-1: -1}
        parents = tuple(place[self.parents[node]] for node in nodes)
        q = None if self.q is None else self.q[list(nodes)]
        return Draft(tuple(self.tokens[node] for node in nodes), parents, q, self.sampled)

    def first(self, nodes: int) -> Draft:
        """The draft's first nodes, at most ``nodes``: parents stand before children, so they are a draft too."""
        return self if len(self) <= nodes else self.only(range(nodes))

    def main_chain(self) -> Draft:
        """Its main path alone."""
        return self.only(self.main_path(()))

    def siblings(self, path: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """The tokens that were proposed beside each node of ``path``; empty for a chain."""
        if self.is_chain:
            return ()
        beside = ((child for child in self.children(self.parents[node]) if child != node) for node in path)
        return tuple(tuple(self.tokens[child] for child in children) for children in beside)

    def main_path(self, accepted: Sequence[int]) -> list[int]:
        """The accepted path continued by the first child of each further node: the chain that BD compares."""
        if self.is_chain:
            return list(range(len(self)))
        path = list(accepted)
        while children := self.children(path[-1] if path else -1):
            path.append(children[0])
        return path


def checked(draft: object, length: int, vocab_size: int | None = None) -> Draft:
    """``draft``, if it is one of at most ``length`` tokens in depth, from a vocabulary of that size where it is known:
    anybody may write a drafter.

    Raises:
        DraftError: it is not.
    """
    if not isinstance(draft, Draft):
        raise DraftError(f"it proposed {type(draft).__name__!r}, which is no Draft")
    if len(draft) > MOST_NODES:
        raise DraftError(f"it proposed a tree of {len(draft):,} tokens; there may be {MOST_NODES:,}")
    if draft.depth > length:  # it would overrun max_new_tokens or the context window
        raise DraftError(f"it proposed {draft.depth} tokens, asked for at most {length}")
    if draft.q is not None and not isinstance(draft.q, torch.Tensor):
        raise DraftError(f"its q is a {type(draft.q).__name__}; it must be a torch tensor")
    if vocab_size is not None:
        foreign = next((token for token in draft.tokens if not 0 <= token < vocab_size), None)
        if foreign is not None:
            raise DraftError(f"it proposed the token {foreign}, which the target does not have")
    return draft


class Union(NamedTuple):
    """Several drafts as one.

    Attributes:
        draft: the tree; deterministic, without ``q``.
        places: for each of the drafts the nodes of the tree that its own became, ``None`` where the budget cut them.
        authors: for each node the first draft that holds it.
    """

    draft: Draft
    places: list[list[int | None]]
    authors: list[int]

    def author(self, path: Sequence[int]) -> int:
        """The first draft that holds the nodes of ``path``; of an empty one the first of all."""
        return self.authors[path[-1]] if path else 0

    def main_chain(self) -> Union:
        """Its tree's main path alone."""
        path = self.draft.main_path(())
        place = {node: index for index, node in enumerate(path)}
        places = [[None if node is None else place.get(node) for node in nodes] for nodes in self.places]
        return Union(self.draft.main_chain(), places, [self.authors[node] for node in path])


def unite(drafts: Sequence[Draft], nodes: int) -> Union:
    """Merge drafts into one tree of at most ``nodes`` nodes.

    Paths that several drafts share are shared in the tree. The budget goes to shallow nodes first, since a node can be
    accepted only after all above it, and among those of one depth to what more of the drafts propose.
    """
    edges = dict[tuple[int, int], int]()  # (parent, token) of each node in the order in which they were found
    depths, voters, found = list[int](), list[list[int]](), list[list[int]]()
    for index, draft in enumerate(drafts):
        ids: list[int] = []
        found.append(ids)
        for token, parent in zip(draft.tokens, draft.parents, strict=True):
            above = ids[parent] if parent >= 0 else -1
            ids.append(node := edges.setdefault((above, token), len(edges)))
            if node == len(depths):
                depths.append(depths[above] + 1 if above >= 0 else 0)
                voters.append([])
            voters[node].append(index)
    kept = sorted(range(len(edges)), key=lambda node: (depths[node], -len(voters[node]), node))[:nodes]
    place = {node: index for index, node in enumerate(kept)}
    pairs = list(edges)
    tree = Draft(tuple(pairs[n][1] for n in kept), tuple(place.get(pairs[n][0], -1) for n in kept))
    return Union(tree, [[place.get(node) for node in ids] for ids in found], [voters[node][0] for node in kept])
