"""``suffix``: what most probably follows the suffixes of the text, by how they went on before (SuffixDecoding, Oliaro
et al. 2024; by suffix automata as in SAM Decoding, Hu et al. 2024)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Literal, NamedTuple

from pydantic import Field

from drafters.base import Acceptances, Lesson
from drafters.draft import Draft
from drafters.kinds.base import BuildContext, Confidence, TreeEntry, register
from drafters.proposing import ReadingDrafter
from drafters.retrieval.automaton import LONGEST, ROOT, WIDTH, Past, SuffixAutomaton
from drafters.tree import acceptances_of, grow

ESCAPES = (0.7, 5.0)
"""How often a suffix of one token goes on in a new way, in occurrences: in the text itself and in other answers. With
these the probabilities are those that were met on texts of six kinds; see docs/LOG.md."""

Place = tuple[int, int]
"""A state of an automaton and the length of the substring meant."""

Node = tuple[float, list[Place], int | None]
"""A node of a draft: how probable it is, its token, and the places of what stands before it; without a token the end of
the text."""


class Rated(NamedTuple):
    """A draft, and how probable its likeliest first token is; 0 where it is empty."""

    draft: Draft
    chance: float


class SuffixDrafter(ReadingDrafter):
    """Drafts what most probably follows, by what followed suffixes of the text of every length, earlier in the text and
    in the answers to other prompts.

    Each suffix promises its continuations by their counts, a short one less than a long one and one of other answers
    less than one of the text (:meth:`~drafters.retrieval.automaton.SuffixAutomaton.weigh`, an escape estimate as in
    PPM, Cleary & Witten 1984); the greatest promise is believed. So of each token drafted there is a probability, and a
    draft ends where it is not worth verifying. Drafts are point masses.

    Args:
        nodes: draft a tree of at most so many nodes; a chain by default.
        past: remember up to so many tokens of the answers to other prompts. What is remembered is the pool's own: what
            one twin remembers all do. By default none, so that a query does not depend on those before.
        confidence: what has less probability than this (tokens of a path multiplied) is not proposed, but for the
            first.
    """

    def __init__(self, name: str, nodes: int | None = None, past: int = 0, confidence: float = 0.0):
        self.name, self.nodes, self.confidence = name, nodes, confidence
        self.past = Past(past) if past else None
        self.prepare(())

    def prepare(self, context: Sequence[int]) -> None:
        self.known: list[SuffixAutomaton] = self.past.begin(context) if self.past and context else []
        """Other answers, as known to this query."""
        self.length = 0
        """Longest draft asked for in this query."""
        self._index_anew(context)

    def learn(self, lesson: Lesson) -> None:
        if self.past:
            self.past.keep(lesson.prompt, lesson.answer)

    def draft(self, context: Sequence[int], length: int) -> Draft:
        return self.rated(context, length).draft

    def drafts(self, context: Sequence[int], begins: range, length: int) -> list[Draft]:
        return [rated.draft for rated in self.all_rated(context, begins, length)]

    def rated(self, context: Sequence[int], length: int) -> Rated:
        """What follows ``context``, and how probable its first token is."""
        self.length = max(self.length, length)
        if not self._catch_up(context):
            self._index_anew(context)
        return self._draft(length)

    def all_rated(self, context: Sequence[int], begins: range, length: int) -> list[Rated]:
        """Those begun at consecutive positions, as noted while the text was read, from its first evaluation on."""
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
        reader = self.fresh()
        reader.known = self.known
        drafts = reader.drafts(context, range(start, len(context)), length)
        return acceptances_of(drafts, context, start, length)

    def _draft(self, length: int) -> Rated:
        texts = [self.own, *self.known]
        width = 1 if self.nodes is None else WIDTH

        def continuations(node: Node) -> list[tuple[int, float, Node]]:
            joint, places, token = node
            ended = int(token is None)  # the end of the text is an occurrence of all its suffixes
            if token is not None:
                places = [text.advance(*place, token) for text, place in zip(texts, places, strict=True)]
            chances: dict[int, float] = {}
            self.own.weigh(chances, *places[0], ESCAPES[0], ended, width)
            for text, place in zip(texts[1:], places[1:], strict=True):
                text.weigh(chances, *place, ESCAPES[1], 0, width)
            found: list[tuple[int, float, Node]] = []
            for follower in sorted(chances, key=lambda follower: -chances[follower])[:width]:
                chance = chances[follower]
                if joint * chance < self.confidence and (found or token is not None):
                    break
                found.append((follower, chance, (joint * chance, places, follower)))
            return found

        start: Node = (1.0, [(self.own.place, self.own.matched), *self.places], None)
        first = continuations(start)
        draft = grow(start, lambda node: first if node is start else continuations(node), length, self.nodes)
        return Rated(draft, first[0][1] if first else 0.0)

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
        """Read ``context``; note drafts from the position ``first`` on, by default none."""
        self.own = SuffixAutomaton()
        self.places: list[Place] = [(ROOT, 0)] * len(self.known)
        """Of the end of the text in :attr:`known`."""
        self.indexed: list[int] = []
        self.first, self.noted = first, list[Rated]()
        self._read(context)

    def _read(self, context: Sequence[int]) -> None:
        """Read the new tokens of a context that continues the present one."""
        self.followed: Sequence[int] = context
        for token in context[len(self.indexed) :]:
            if len(self.indexed) >= self.first:
                self.noted.append(self._draft(self.length))
            self.own.extend(token)
            self.places = [text.advance(*at, token) for text, at in zip(self.known, self.places, strict=True)]
            self.indexed.append(token)


@register
class SuffixEntry(TreeEntry):
    """A drafter of kind ``suffix``: it has no weights."""

    title = "suffix automaton"
    description = "what most often followed the same words, in the text and in past answers"

    kind: Literal["suffix"]
    past: int = Field(20_000, ge=0, le=100_000, description="tokens of earlier answers to remember; 0 for none")
    confidence: Confidence = 0.3

    def build(self, context: BuildContext) -> SuffixDrafter:
        return SuffixDrafter(self.name, self.nodes, self.past, self.confidence)
