"""A round after its verification: whose draft it was, what became of it, and what of it is recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch

from drafters.draft import Draft
from drafters.sampling import choices
from multidraft.engine.verify import Verdict


@dataclass
class Verified:
    """A draft and what it has brought.

    Attributes:
        arm: whose draft it is; of the union of all drafts, whose path was accepted.
        together: whether it is that union.
        length: the draft length asked for, as far as the draft was scored.
        draft, verdict: what was proposed, and the outcome.
        logits: of the target ``(n + 1, V)``; ``None`` where they are unknown.
        tokens: the emitted tokens.
        own: the last of them, where it is the target's own.
        rows: of the logits, one for each emitted token.
        main_path: the nodes of the draft's main path.
    """

    arm: int
    together: bool
    length: int
    draft: Draft
    verdict: Verdict
    logits: torch.Tensor | None
    tokens: list[int]
    own: int | None

    def __post_init__(self) -> None:
        self.rows = [0, *(node + 1 for node in self.verdict.path)][: len(self.tokens)]
        self.main_path = self.draft.main_path(self.verdict.path)

    @property
    def accepted(self) -> int:
        """How many of the emitted tokens were drafted."""
        return len(self.tokens) - (self.own is not None)

    def record(self, texts: Mapping[int, str]) -> dict[str, Any]:
        """What a :class:`~storage.records.Round` has of it, enough to be shown step by step; ``texts`` has those of all
        tokens."""
        likeliest, path = self.verdict.choices, self.main_path
        if likeliest is None and self.logits is not None:
            likeliest = choices(self.logits)[0]
        chosen = () if likeliest is None else tuple(likeliest[node + 1] for node in (-1, *path))
        drafted, siblings = tuple(self.draft.tokens[node] for node in path), self.draft.siblings(path)
        others = {*chosen, *drafted, *chain.from_iterable(siblings)} - {*self.tokens}
        return {
            "drafted": drafted,
            "accepted": self.accepted,
            "tokens": tuple(self.tokens),
            "own": self.own,
            "draft_length": self.length,
            "nodes": len(self.draft),
            "depth": self.draft.depth,
            "together": self.together,
            "choices": chosen,
            "siblings": siblings,
            "texts": {token: texts[token] for token in sorted(others)},
        }
