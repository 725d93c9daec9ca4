"""``suffix``: the most frequent continuation of the longest suffix seen before (SuffixDecoding, Oliaro et al. 2024;
by a suffix automaton as in SAM Decoding, Hu et al. 2024)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from drafters.base import Acceptances, FeatureSource
from drafters.draft import Draft
from drafters.kinds.base import BuildContext, TreeEntry, register
from drafters.proposing import PointMassDrafter
from drafters.retrieval.automaton import LONGEST, SuffixAutomaton
from drafters.tree import acceptances_of, grow

Place = tuple[int, int]
"""A state of the automaton and the length of the substring meant."""

Node = tuple[Place, int | None]
"""A node of a draft: its token, after what stands at a place; without a token the place itself."""


class SuffixDrafter(PointMassDrafter):
    """Drafts what has most often followed the last tokens, in the context and in past outputs.

    Unlike prompt lookup it counts: of several continuations the most frequent is taken (ties: the latest), and where
    one ends with the context the draft goes on after the next shorter suffix, so that it can run through a loop.
    Drafts are point masses.

    Args:
        nodes: draft a tree of at most so many nodes; a chain by default.
        past: remember up to so many tokens of the outputs of earlier queries, as far as the drafter has read them; the
            oldest are forgotten first. By default none, so that a query does not depend on those before.
    """

    kind = "suffix"

    def __init__(self, name: str, nodes: int | None = None, past: int = 0):
        self.name, self.nodes, self.past = name, nodes, past
        self.outputs: list[list[int]] = []
        self.prompt: list[int] = []
        self.length = 0
        """Longest draft asked for in this query."""
        self._index_anew([])

    def twin(self, target: FeatureSource) -> SuffixDrafter:
        twin = SuffixDrafter(self.name, self.nodes, self.past)
        twin.outputs = self.outputs  # what one of them remembers all do
        return twin

    def forget(self) -> None:
        self.prepare(())

    def prepare(self, context: Sequence[int]) -> None:
        self._keep_output()
        self.prompt = list(context)
        self.length = 0
        self._index_anew(self.prompt)

    def draft(self, context: Sequence[int], length: int) -> Draft:
        self.length = max(self.length, length)
        if not self._catch_up(context):
            self._index_anew(context)
        return self._draft(length)

    def drafts(self, context: Sequence[int], begins: range, length: int) -> list[Draft]:
        """Those that were noted while the text was read, from the first evaluation of it on."""
        self.length = max(self.length, length)
        known = self.first <= begins.start
        if known and len(self.indexed) > len(context):
            known = self.indexed[: len(context)] == list(context)
        elif known:
            known = self._catch_up(context)
        if not known:
            self._index_anew(context, begins.start)
        return self.noted[begins.start - self.first : begins.stop - self.first]

    def acceptances(self, context: Sequence[int], start: int, length: int) -> Acceptances:
        """Reads the text once more in an automaton of its own, which at each position knows what stood before only."""
        reader = SuffixDrafter(self.name, self.nodes)
        reader.outputs = self.outputs
        drafts = reader.drafts(context, range(start, len(context)), length)
        return acceptances_of(drafts, context, start, length)

    def _draft(self, length: int) -> Draft:
        automaton = self.automaton
        counts, transitions = automaton.count, automaton.next

        def continuations(node: Node) -> list[tuple[int, float, Node]]:
            place, token = node
            state, matched = place if token is None else automaton.step(*place, token)
            if not matched:
                return []
            children = transitions[state]
            return [(c, counts[children[c]] / counts[state], ((state, matched), c)) for c in automaton.top[state]]

        start: Node = (automaton.match(), None)
        return grow(start, continuations, length, self.nodes)

    def _catch_up(self, context: Sequence[int]) -> bool:
        """Read the new tokens of ``context``; False, and nothing read, unless it continues what was read."""
        known = len(self.indexed)
        if known > len(context):
            return False
        # The list of last time has most likely just grown: comparing a long one would take most of a draft's time.
        compared = max(known - LONGEST, 0) if context is self.followed else 0
        if self.indexed[compared:] != list(context[compared:known]):
            return False
        self._read(context)
        return True

    def _index_anew(self, context: Sequence[int], first: int = sys.maxsize) -> None:
        """Read the past outputs and ``context``; note drafts from the position ``first`` on, by default none."""
        self.automaton = SuffixAutomaton()
        for output in self.outputs:
            for token in output:
                self.automaton.extend(token)
            self.automaton.cut()
        self.indexed: list[int] = []
        self.first, self.noted = first, list[Draft]()
        self._read(context)

    def _read(self, context: Sequence[int]) -> None:
        """Read the new tokens of a context that continues the present one."""
        self.followed: Sequence[int] = context
        for token in context[len(self.indexed) :]:
            if len(self.indexed) >= self.first:
                self.noted.append(self._draft(self.length))
            self.automaton.extend(token)
            self.indexed.append(token)

    def _keep_output(self) -> None:
        """Keep what followed the prompt of the query that ends, at most the last ``past`` tokens of it."""
        output = self.indexed[len(self.prompt) :]
        if not (self.past and self.prompt and output) or self.indexed[: len(self.prompt)] != self.prompt:
            return
        self.outputs.append(output[-self.past :])
        while (surplus := sum(map(len, self.outputs)) - self.past) > 0:
            if oldest := self.outputs.pop(0)[surplus:]:
                self.outputs.insert(0, oldest)


@register
class SuffixEntry(TreeEntry):
    """A drafter of kind ``suffix``: it has no weights."""

    title = "suffix automaton"
    description = "what most often followed the same words in the text"

    kind: Literal["suffix"]
    past: int = Field(0, ge=0, le=100_000, description="tokens of earlier outputs to remember")

    def build(self, context: BuildContext) -> SuffixDrafter:
        return SuffixDrafter(self.name, self.nodes, self.past)
