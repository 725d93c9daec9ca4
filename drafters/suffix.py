"""``suffix``: the most frequent continuation of the longest suffix seen before (SuffixDecoding, Oliaro et al. 2024;
by a suffix automaton as in SAM Decoding, Hu et al. 2024)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
import torch

from drafters.automaton import LONGEST, WIDTH, SuffixAutomaton
from drafters.base import Drafter, Evidence
from drafters.tree import accepted_tokens, gamma_of_candidates, grow
from multidraft.draft import Draft
from multidraft.sampling import SamplingParams

Place = tuple[int, int]
"""A state of the automaton and the length of the substring meant."""

Node = tuple[Place, int | None]
"""A node of a draft: its token, after what stands at a place; without a token the place itself."""


class SuffixDrafter(Drafter):
    """Drafts what has most often followed the last tokens, in the context and in past outputs.

    Unlike prompt lookup it counts: of several continuations the most frequent is taken (ties: the latest), and where
    one ends with the context the draft goes on after the next shorter suffix, so that it can run through a loop.
    Drafts are point masses.

    Args:
        name: the arm's name.
        nodes: draft a tree of at most so many nodes; a chain by default.
        past: keep up to so many tokens of the outputs of earlier queries, the oldest go first. Outputs are kept as far
            as the drafter has read them. By default nothing is kept, so that a query does not depend on those before.
    """

    kind = "suffix"

    def __init__(self, name: str, nodes: int | None = None, past: int = 0):
        self.name, self.nodes, self.past = name, nodes, past
        self.outputs: deque[list[int]] = deque()
        self.indexed: list[int] = []
        self.followed: Sequence[int] = self.indexed
        self.prompt: list[int] = []
        self._index_anew([])

    def prepare(self, context: Sequence[int]) -> None:
        self._keep_output()
        self.prompt = list(context)
        self._index_anew(self.prompt)

    def propose(
        self,
        context: Sequence[int],
        length: int,
        params: SamplingParams,
        generator: torch.Generator,
        *,
        with_q: bool = False,
    ) -> Draft:
        if not self._catch_up(context):
            self._index_anew(context)
        return self._draft(self.automaton, length)

    def gamma(self, evidence: Evidence) -> np.ndarray:
        """γ of the first tokens that it would have proposed at each position; they were noted when it was read."""
        context = evidence.context
        ahead = len(self.indexed) > len(context)
        known = self.indexed[: len(context)] == list(context) if ahead else self._catch_up(context)
        if not known:
            self._index_anew(context)
        return gamma_of_candidates(self.candidates[evidence.start : len(context)], evidence)

    def acceptances(self, context: Sequence[int], start: int, length: int) -> np.ndarray:
        """Reads the text once more in an automaton of its own, which at each position knows what stood before only."""
        automaton = self._automaton()
        for token in context[:start]:
            automaton.extend(token)
        accepted = []
        for position in range(start, len(context)):
            draft = self._draft(automaton, length)
            accepted.append(accepted_tokens(draft, context[position : position + length]))
            automaton.extend(context[position])
        return np.array(accepted, dtype=np.int64)

    def _draft(self, automaton: SuffixAutomaton, length: int) -> Draft:
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
        self.followed = context
        self._read(context[known:])
        self.indexed.extend(context[known:])
        return True

    def _index_anew(self, context: Sequence[int]) -> None:
        self.automaton = self._automaton()
        self.candidates: list[list[int]] = []
        self.indexed, self.followed = list(context), context
        self._read(self.indexed)

    def _read(self, tokens: Sequence[int]) -> None:
        automaton, width = self.automaton, 1 if self.nodes is None else min(WIDTH, self.nodes)
        for token in tokens:
            state, matched = automaton.match()
            self.candidates.append(automaton.top[state][:width] if matched else [])
            automaton.extend(token)

    def _automaton(self) -> SuffixAutomaton:
        """One that has read the past outputs."""
        automaton = SuffixAutomaton()
        for output in self.outputs:
            for token in output:
                automaton.extend(token)
            automaton.cut()
        return automaton

    def _keep_output(self) -> None:
        """Keep what followed the prompt of the query that ends, at most the last ``past`` tokens of it."""
        output = self.indexed[len(self.prompt) :]
        if not self.past or not output or self.indexed[: len(self.prompt)] != self.prompt:
            return
        self.outputs.append(output[-self.past :])
        surplus = sum(map(len, self.outputs)) - self.past
        while surplus > 0:
            oldest = self.outputs.popleft()
            if len(oldest) > surplus:
                self.outputs.appendleft(oldest[surplus:])
            surplus -= len(oldest)
