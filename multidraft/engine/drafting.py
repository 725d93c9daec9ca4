"""What a round proposes: one drafter's draft, or the union of all; and what became of it. Whoever fails is benched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Generator

from drafters.benched import Benched
from drafters.draft import Draft, checked, unite
from drafters.sampling import SamplingParams
from multidraft.engine.feedback import block_divergence
from multidraft.engine.verify import Choose, Verdict
from multidraft.policies import ALL_DRAFTERS

if TYPE_CHECKING:
    from drafters.pool import Pool


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

    def record(self, texts: Mapping[int, str], choose: Choose) -> dict[str, Any]:
        """What a :class:`~storage.records.Round` has of it, enough to be shown step by step; ``texts`` has those of all
        tokens, ``choose`` finds the most probable ones."""
        likeliest, path = self.verdict.choices, self.main_path
        if likeliest is None and self.logits is not None:
            likeliest = choose(self.logits)[0]
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


class Drafting:
    """The drafts of one text.

    A drafter that raises, or proposes what cannot be verified, is benched for the query: from then on it is an arm that
    drafts nothing, as one may that has nothing to say, which every policy copes with. The output stays the target's
    whatever drafters do, so long as those that sample tell the truth about what they sampled from.

    Attributes:
        benched: the drafters that have failed, and why.
        union: of the last round in which all drafted.
    """

    def __init__(self, pool: Pool, params: SamplingParams, generator: Generator):
        self.pool, self.params, self._generator = pool, params, generator
        self.benched = Benched(pool.drafter_names)

    def draft(self, arm: int, context: Sequence[int], length: int, *, with_q: bool, nodes: int) -> Draft:
        """The draft of an arm.

        Args:
            length: at most so many tokens in depth.
            with_q: as of :meth:`~drafters.base.Drafter.propose`.
            nodes: of the union of all drafts at most.
        """
        if not length:
            return Draft.empty()
        target = self.pool.target
        room = target.window - len(context)  # the target's cache holds no more nodes
        if arm == ALL_DRAFTERS:
            greedy = replace(self.params, temperature=0.0)
            self._drafts = [self._proposed(i, context, length, greedy) for i in range(len(self.pool.drafters))]
            union = unite(self._drafts, min(nodes, room))
            self.union = union if target.trees else union.main_chain()
            return self.union.draft
        draft = self._proposed(arm, context, length, self.params, with_q=with_q)
        return (draft if target.trees else draft.main_chain()).first(room)

    def _proposed(
        self, arm: int, context: Sequence[int], length: int, params: SamplingParams, *, with_q: bool = False
    ) -> Draft:
        """A drafter's draft, if the target can verify it: anybody may write a drafter."""
        if arm not in self.benched:
            with self.benched.by(arm):
                drafter = self.pool.drafters[arm]
                draft = drafter.propose(context, length, params, self._generator, with_q=with_q)
                return checked(draft, length, self.pool.target.vocab_size)
        return Draft.empty()

    def observe(self, arm: int, draft: Draft, logits: torch.Tensor) -> None:
        """Show the drafter what the target made of its draft; of a union every drafter, as far as its own is in it."""
        if arm != ALL_DRAFTERS:
            return self._show(arm, draft, logits)
        for i, (draft, places) in enumerate(zip(self._drafts, self.union.places, strict=True)):
            whole = places[: places.index(None)] if None in places else places
            rows = [0, *(place + 1 for place in whole if place is not None)]
            self._show(i, draft.first(len(whole)), logits[rows])

    def _show(self, arm: int, draft: Draft, logits: torch.Tensor) -> None:
        if arm not in self.benched:
            with self.benched.by(arm):
                self.pool.drafters[arm].observe(draft, logits)

    def divergence(self, done: Verified) -> float:
        """BD of a drafter's draft; 0 where its probabilities are none."""
        with self.benched.by(done.arm):
            return block_divergence(done.draft, done.verdict.path, done.logits, self.params, done.length)
        return 0.0
