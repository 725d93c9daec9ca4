"""``medusa`` and ``bpd``: heads that guess the next few tokens at once from the target's last hidden state."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from drafters.base import Drafter, Evidence
from drafters.medusa_heads import Heads
from drafters.ngram import ORDER, NGram
from drafters.tree import Continuations, accepted_tokens, gamma_of_candidates, grow
from multidraft.draft import Draft
from multidraft.features import FeatureSource
from multidraft.sampling import SamplingParams

CHUNK = 64
"""Positions whose logits are held at once: those of a whole text by several heads would fill the memory."""

State = tuple[int, float, tuple[int, ...]]
"""Of a path of a draft: its tokens' number, the product of their probabilities, and the last two tokens of the text."""

Candidates = tuple[list[int], np.ndarray]
"""A head's most probable tokens, the first one first, and the logarithms of their probabilities (float64)."""


class MedusaDrafter(Drafter):
    """Drafts what Medusa or BPD heads predict from the hidden state that the target's last token came from.

    The heads do not see each other's tokens: a path's probability is the product of theirs. A chain holds the most
    probable token of each head. A tree has all candidates of the first head at its root, then always the node of the
    largest product (:func:`~drafters.tree.grow`). With an n-gram model the candidates are weighed by what it says
    after the path that leads to them: a node's score is ``log head + weight * log n-gram``, normalised such that the
    candidates of one head share the probability that the head gave them together, so a weight of 0 changes nothing.
    Drafts are point masses at every temperature.

    Args:
        name: the arm's name.
        heads: the network; it says whether the drafter's kind is ``medusa`` or ``bpd``.
        source: the target, whose hidden states the heads read.
        vocab_size: the target's.
        nodes: draft a tree of at most so many nodes; a chain by default.
        branches: candidates per head: children per node of a tree, and what an n-gram model chooses among.
        confidence: what has less probability than this (tokens of a path multiplied) is not continued; in a tree it is
            not proposed either. See :class:`~drafters.lm.LMDrafter`.
        rescorer: an n-gram model of the target's tokens (R-Medusa, R-BPD).
        weight: how much it counts.

    Source: Medusa (Cai et al. 2024), its tree in the form of best-first search; blockwise parallel decoding (Stern et
    al. 2018); rescoring of the heads' top-k lattice by an n-gram model (Kim et al. 2024), which is there a search for
    the p best paths through the whole lattice, here the same scores in a greedy chain or in the tree.
    """

    def __init__(
        self,
        name: str,
        heads: Heads,
        source: FeatureSource,
        vocab_size: int,
        nodes: int | None = None,
        branches: int = 8,
        confidence: float = 0.0,
        rescorer: NGram | None = None,
        weight: float = 0.3,
    ):
        self.name, self.heads, self.source, self.vocab_size = name, heads, source, vocab_size
        self.nodes, self.confidence = nodes, confidence
        self.rescorer, self.weight = rescorer, weight
        self.width = 1 if nodes is None and rescorer is None else min(branches, vocab_size)
        self.kind = heads.kind
        self.parameter_count = heads.parameter_count
        source.watch([heads.layer])

    def prepare(self, context: Sequence[int]) -> None:
        pass

    def propose(
        self,
        context: Sequence[int],
        length: int,
        params: SamplingParams,
        generator: torch.Generator,
        *,
        with_q: bool = False,
    ) -> Draft:
        if len(context) < 2 or length < 1:  # a single token has no hidden state before it
            return Draft.empty()
        hidden = self.source.features(context, [self.heads.layer])[len(context) - 2 :]
        return self._draft(self._candidates(hidden, length)[0], context[1 - ORDER :], length)

    def gamma(self, evidence: Evidence) -> np.ndarray:
        """γ of the first tokens that it would have proposed at each position; 0 at a text's first two, which have no
        hidden state before them."""
        context = evidence.context
        candidates: list[list[int]] = [[] for _ in range(len(evidence))]
        known = min(len(evidence), len(context) - 2)
        if known > 0:
            hidden = self.source.features(context[:-1], [self.heads.layer])[-known:]
            most = 1 if self.nodes is None else self.nodes
            for place, lattice in enumerate(self._candidates(hidden, 1), start=len(evidence) - known):
                position = evidence.start + place
                begin: State = (0, 1.0, tuple(context[max(position + 1 - ORDER, 0) : position]))
                candidates[place] = [token for token, _, _ in self._continuations(lattice)(begin)[:most]]
        return gamma_of_candidates(candidates, evidence)

    def acceptances(self, context: Sequence[int], start: int, length: int) -> np.ndarray:
        accepted = np.zeros(len(context) - start, dtype=np.int64)
        first = max(start, 2)
        if first >= len(context):
            return accepted
        hidden = self.source.features(context, [self.heads.layer])[first - 2 : len(context) - 2]
        for position, lattice in enumerate(self._candidates(hidden, length), start=first):
            draft = self._draft(lattice, context[max(position + 1 - ORDER, 0) : position], length)
            accepted[position - start] = accepted_tokens(draft, context[position : position + length])
        return accepted

    def _candidates(self, hidden: torch.Tensor, length: int) -> list[list[Candidates]]:
        """For each of the hidden states ``(T, hidden)`` the candidates of the first ``length`` heads."""
        found = []
        for part in hidden.split(CHUNK):
            logits = self.heads.logits(part, length)[..., : self.vocab_size].float()
            top = logits.topk(self.width, dim=-1)
            logs = (top.values - logits.logsumexp(dim=-1, keepdim=True)).cpu().double().numpy()
            tokens = top.indices.tolist()
            found += [[(ids[t], log[t]) for ids, log in zip(tokens, logs, strict=True)] for t in range(len(part))]
        return found

    def _draft(self, lattice: list[Candidates], before: Sequence[int], length: int) -> Draft:
        """The draft after a text that ends with the tokens ``before``."""
        return grow((0, 1.0, tuple(before)), self._continuations(lattice), length, self.nodes)

    def _continuations(self, lattice: list[Candidates]) -> Continuations[State]:
        """What may follow a path through the candidates of each head."""

        def following(state: State) -> list[tuple[int, float, State]]:
            depth, joint, before = state
            if depth == len(lattice) or joint < self.confidence:
                return []
            found: list[tuple[int, float, State]] = []
            for token, share in self._weighed(*lattice[depth], before):
                reached = joint * share
                # A chain ends with the first doubtful token, a tree leaves them out; there is always one to propose.
                if reached < self.confidence and self.nodes is not None and (depth or found):
                    break
                found.append((token, share, (depth + 1, reached, (*before, token)[1 - ORDER :])))
            return found

        return following

    def _weighed(self, tokens: list[int], logs: np.ndarray, before: tuple[int, ...]) -> list[tuple[int, float]]:
        """Candidates with their probabilities after the tokens ``before``, the most probable first."""
        if self.rescorer is None:
            return [(token, math.exp(log)) for token, log in zip(tokens, logs.tolist(), strict=True)]
        scores = logs + self.weight * self.rescorer.log_probabilities(before, tokens)
        shares = np.exp(scores - scores.max())
        shares *= np.exp(logs).sum() / shares.sum()
        return [(tokens[place], float(shares[place])) for place in np.argsort(-shares, kind="stable").tolist()]
