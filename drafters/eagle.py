"""``eagle``: a head that continues the target's hidden states (EAGLE-1 to -3), drafting chains or dynamic trees."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch.nn import functional

from drafters.base import Drafter, Evidence
from drafters.eagle_head import EagleHead
from drafters.proposing import acceptances_by_proposing
from drafters.teacher_forcing import gamma_of
from drafters.tree import gamma_of_candidates
from multidraft.draft import Draft
from multidraft.features import FeatureSource
from multidraft.sampling import SamplingParams, draw, probabilities


class EagleDrafter(Drafter):
    """Drafts with an EAGLE head on the target's hidden states.

    A chain follows the head's most probable tokens, or, in sampled runs, is drawn from its distribution. A tree is
    EAGLE-2's: level by level the ``branches`` most probable nodes grow ``branches`` children each, and of all of them
    the most probable are proposed; it is the same in sampled runs, where verification draws from the target. Unlike
    EAGLE-2's it always holds the whole first level: so γ, which counts just that, is known from one forward.

    Args:
        name: the arm's name.
        head: the network; a chain and a tree may share one.
        source: the target, whose hidden states the head reads.
        vocab_size: the target's.
        nodes: draft a tree of at most so many nodes; a chain by default.
        branches: children per node, and nodes that grow any per level. A tree of one branch is a chain, and drafted as
            one, of at most ``nodes`` tokens.
        confidence: what has less probability than this (tokens of a path multiplied) is not continued; in a tree it is
            not proposed either. See :class:`~drafters.lm.LMDrafter`.

    Source: EAGLE-2 (Li et al. 2024, Sec. 4), EAGLE-3 (2025).
    """

    kind = "eagle"

    def __init__(
        self,
        name: str,
        head: EagleHead,
        source: FeatureSource,
        vocab_size: int,
        nodes: int | None = None,
        branches: int = 8,
        confidence: float = 0.0,
    ):
        self.name, self.head, self.source, self.vocab_size = name, head, source, vocab_size
        self.nodes, self.branches = nodes if branches > 1 else None, branches
        self.longest = None if branches > 1 else nodes
        self.log_confidence = math.log(confidence) if confidence else -math.inf
        self.parameter_count = head.parameter_count
        source.watch(head.shape.layers)

    def prepare(self, context: Sequence[int]) -> None:
        self.head.begin(context)
        self.head.read(context, self.source, last=1)

    def propose(
        self,
        context: Sequence[int],
        length: int,
        params: SamplingParams,
        generator: torch.Generator,
        *,
        with_q: bool = False,
    ) -> Draft:
        if len(context) < 2 or length < 1:  # the first token has no hidden state before it
            return Draft.empty()
        hidden = self.head.read(context, self.source, last=1)
        start = len(context) - 1
        if self.nodes is not None:
            return self._tree(hidden, start, length, self.nodes, params, with_q=with_q)
        return self._chain(hidden, start, min(length, self.longest or length), params, generator, with_q=with_q)

    def gamma(self, evidence: Evidence) -> np.ndarray:
        """γ from the target's own hidden states at every position; 0 at a text's first two, which have none before."""
        known = min(len(evidence), len(evidence.context) - 2)
        judged = np.zeros(len(evidence))
        if known < 1:
            return judged
        logits = self.head.logits(self.head.read(evidence.context[:-1], self.source, last=known))
        first = len(evidence.context) - known
        part = Evidence(evidence.context, first, None if evidence.p is None else evidence.p[-known:], evidence.params)
        if self.nodes is None:
            judged[-known:] = gamma_of(self._in_target_vocabulary(logits)[None], part)[:, 0]
        else:
            judged[-known:] = gamma_of_candidates(self._first_children(logits), part)
        return judged

    def acceptances(self, context: Sequence[int], start: int, length: int) -> np.ndarray:
        self.source.features(context, self.head.shape.layers)  # read once what all prefixes need
        return acceptances_by_proposing(self, context, start, length)

    def _chain(
        self,
        hidden: torch.Tensor,
        start: int,
        length: int,
        params: SamplingParams,
        generator: torch.Generator,
        *,
        with_q: bool,
    ) -> Draft:
        tokens: list[int] = []
        rows: list[torch.Tensor] = []
        sure = 0.0
        while len(tokens) < length and sure >= self.log_confidence:
            if tokens:
                ids = torch.tensor(tokens[-1:], device=self.head.device)
                hidden = self.head.step(ids, hidden, start + len(tokens) - 1)
            logits = self.head.logits(hidden)
            if params.greedy:
                best = int(logits[0].argmax())
                tokens.append(best if self.head.to_target is None else int(self.head.to_target[best]))
                if self.log_confidence > -math.inf:
                    row = logits[0].float()
                    sure += float(row[best] - row.logsumexp(dim=-1))
                if with_q:
                    rows.append(probabilities(self._in_target_vocabulary(logits), params))
            else:
                rows.append(probabilities(self._in_target_vocabulary(logits), params))
                tokens.append(draw(rows[-1][0], generator))
        return Draft.chain(tokens, torch.cat(rows) if rows else None, sampled=not params.greedy)

    def _tree(
        self, hidden: torch.Tensor, start: int, length: int, nodes: int, params: SamplingParams, *, with_q: bool
    ) -> Draft:
        """EAGLE-2's dynamic tree: grow by levels, then keep the first level and the most probable of the others."""
        grown = _Growth()
        rows: list[torch.Tensor] = []
        frontier = [-1]
        for level in range(length):
            logits = self.head.logits(hidden)
            rows.extend(logits if with_q else ())
            children, chances = self._likeliest(logits)
            born = grown.add(frontier, children, chances, self.log_confidence)
            frontier = sorted(born, key=lambda node: -grown.scores[node])[: self.branches]
            frontier = [node for node in frontier if grown.scores[node] >= self.log_confidence]
            if not frontier or level == length - 1:
                break
            fed = len(grown.fed)
            ids = torch.tensor([grown.tokens[node] for node in frontier], device=self.head.device)
            mask = grown.feed(frontier, start).to(self.head.device)
            positions = torch.full_like(ids, start + level)
            parents = torch.tensor([grown.rows[node] for node in frontier], device=self.head.device)
            hidden = self.head.step(ids, hidden[parents], start + fed, positions=positions, mask=mask)
        kept = grown.best(nodes)
        places = {node: place for place, node in enumerate(kept)} | {-1: -1}
        q = None
        if with_q:
            chosen = torch.stack([rows[grown.all_rows[node]] for node in kept])
            q = probabilities(self._in_target_vocabulary(chosen), params)
        return Draft(tuple(grown.tokens[node] for node in kept), tuple(places[grown.parents[node]] for node in kept), q)

    def _likeliest(self, logits: torch.Tensor) -> tuple[list[list[int]], list[list[float]]]:
        """Of each row the ``branches`` most probable tokens of the target and the logarithms of their chances."""
        top = functional.log_softmax(logits.float(), dim=-1).topk(min(self.branches, logits.shape[-1]), dim=-1)
        ids = top.indices if self.head.to_target is None else self.head.to_target[top.indices]
        return ids.tolist(), top.values.tolist()

    def _first_children(self, logits: torch.Tensor) -> list[list[int]]:
        """The tokens that a tree begins with after each row."""
        found = []
        for tokens, chances in zip(*self._likeliest(logits), strict=True):
            sure = sum(chance >= self.log_confidence for chance in chances)
            found.append(tokens[: max(min(sure, self.nodes or 1), 1)])
        return found

    def _in_target_vocabulary(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits ``(m, V)``; tokens that the head cannot propose have none."""
        if self.head.to_target is not None:
            full = logits.new_full((len(logits), self.vocab_size), -torch.inf)
            full[:, self.head.to_target] = logits
            return full
        missing = self.vocab_size - logits.shape[-1]
        return logits if missing == 0 else functional.pad(logits, (0, missing), value=-torch.inf)


class _Growth:
    """A tree while it grows: nodes in the order they were born, some of them fed to the head for children."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.scores: list[float] = []
        self.rows: list[int] = []
        """Of each node, the row of the level's logits that it was taken from, and below, of all logits so far."""
        self.all_rows: list[int] = []
        self.levels = 0
        self.fed: list[int] = []
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
        """The first level and of all other nodes the most probable, ``count`` in all, in the order of birth.

        No child is more probable than its parent, and of equals the parent is older: what is kept is a tree.
        """
        roots = [node for node, parent in enumerate(self.parents) if parent < 0][:count]
        others = [node for node, parent in enumerate(self.parents) if parent >= 0]
        others.sort(key=lambda node: (-self.scores[node], node))
        return sorted([*roots, *others[: count - len(roots)]])

    def feed(self, frontier: list[int], start: int) -> torch.Tensor:
        """Which cached pairs the nodes of ``frontier`` see when they are fed together behind ``start`` others: all of
        those, their ancestors, and themselves; bool ``(n, start + fed before + n)``."""
        before = len(self.fed)
        mask = torch.zeros(len(frontier), start + before + len(frontier), dtype=torch.bool)
        mask[:, :start] = True
        for row, node in enumerate(frontier):
            self._seen[node] = [*self._seen[self.parents[node]], before + row]
            mask[row, [start + place for place in self._seen[node]]] = True
        self.fed.extend(frontier)
        return mask
