"""``medusa`` and ``bpd``: heads that guess the next few tokens at once from the target's last hidden state."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from transformers import PreTrainedModel

from drafters.base import FeatureSource
from drafters.checkpoints.digest import digest_of, file_digest
from drafters.checkpoints.medusa import MEDUSA_FILES, MOST_HEADS, medusa_sizes, read_medusa
from drafters.checkpoints.model_sizes import config_of, last_hidden_state
from drafters.checkpoints.tensor_files import stored_numbers
from drafters.draft import Draft
from drafters.kinds.base import BuildContext, Confidence, Footprint, ModelEntry, SizeContext, TreeEntry, register
from drafters.models.medusa_heads import Heads, MedusaHeads
from drafters.models.ngram import ORDER, NGram
from drafters.proposing import FeatureDrafter, PointMassDrafter
from drafters.tree import Continuations, grow

CHUNK = 64
"""Positions whose logits are held at once: those of a whole text by several heads would fill the memory."""

State = tuple[int, float, tuple[int, ...]]
"""Of a path of a draft: its tokens' number, the product of their probabilities, and the last two tokens of the text."""

Candidates = tuple[list[int], np.ndarray]
"""A head's most probable tokens, the first one first, and the logarithms of their probabilities (float64)."""


class MedusaDrafter(FeatureDrafter, PointMassDrafter):
    """Drafts what Medusa or BPD heads predict from the hidden state that the target's last token came from.

    The heads do not see each other's tokens: a path's probability is the product of theirs. A chain holds the most
    probable token of each head. A tree has all candidates of the first head at its root, then always the node of the
    largest product (:func:`~drafters.tree.grow`). With an n-gram model the candidates are weighed by what it says
    after the path that leads to them: a node's score is ``log head + weight * log n-gram``, normalised such that the
    candidates of one head share the probability that the head gave them together, so a weight of 0 changes nothing.
    Drafts are point masses at every temperature.

    Args:
        heads: the network, of Medusa or BPD.
        source: the target, whose hidden states the heads read.
        vocab_size: the target's.
        nodes: draft a tree of at most so many nodes; a chain by default.
        branches: candidates per head: children per node of a tree, and what an n-gram model chooses among.
        confidence: as of :class:`~drafters.kinds.eagle.EagleDrafter`.
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
        self.width = 1 if nodes is None and rescorer is None else min(branches, vocab_size, heads.outputs)
        self.parameter_count = heads.parameter_count
        self.layers = (heads.layer,)
        source.watch(self.layers)

    def draft(self, context: Sequence[int], length: int) -> Draft:
        if length < 1:
            return Draft.empty()
        return next(self.drafts(context, range(len(context), len(context) + 1), length))

    def drafts(self, context: Sequence[int], begins: range, length: int) -> Iterator[Draft]:
        """None at a text's first two positions, before which there is no hidden state."""
        first = max(begins.start, 2)
        yield from [Draft.empty()] * (min(first, begins.stop) - begins.start)
        if first >= begins.stop:
            return
        hidden = self.source.features(context[: begins.stop - 1], self.layers)[first - 2 :]
        for begin, lattice in enumerate(self._candidates(hidden, length), start=first):
            before = tuple(context[max(begin + 1 - ORDER, 0) : begin])
            yield grow((0, 1.0, before), self._continuations(lattice), length, self.nodes)

    def _candidates(self, hidden: torch.Tensor, length: int) -> list[list[Candidates]]:
        """For each of the hidden states ``(T, hidden)`` the candidates of the first ``length`` heads."""
        found = []
        for part in hidden.split(CHUNK):
            logits = self.heads.logits(part, length)[..., : self.vocab_size].float()
            top = logits.topk(self.width, dim=-1)
            logs = (top.values - logits.logsumexp(dim=-1, keepdim=True)).cpu().double().numpy()
            tokens = (top.indices if self.heads.to_target is None else self.heads.to_target[top.indices]).tolist()
            found += [[(ids[t], log[t]) for ids, log in zip(tokens, logs, strict=True)] for t in range(len(part))]
        return found

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


class HeadsEntry(TreeEntry, ModelEntry):
    """A drafter whose heads each predict one token from the target's last hidden state."""

    needs_target = True
    path_fields = ("path", "rescorer")

    branches: int = Field(8, ge=1, le=64, description="candidates per head: children of a node in a tree")
    confidence: Confidence = 0.0
    rescorer: str | None = Field(None, description="n-gram model that reorders candidates, relative to the card")

    def build_heads(
        self,
        context: BuildContext,
        read: Callable[[Path, PreTrainedModel], dict[str, torch.Tensor]],
        network: Callable[[Mapping[str, torch.Tensor], PreTrainedModel], Heads],
    ) -> MedusaDrafter:
        """The drafter: heads of ``network`` from the tensors that ``read`` finds, and the n-gram model if any."""
        tensors, rescorer = read(self.folder(context), context.model), None
        digests = [digest_of(tensors)]
        if self.rescorer:
            file = (context.card.parent / self.rescorer).resolve()
            rescorer = NGram.open(file, context.target.vocab_size)
            digests.append(file_digest(file))
        heads, target = network(tensors, context.model), context.target
        tree = self.nodes, self.branches, self.confidence
        drafter = MedusaDrafter(self.name, heads, target, target.vocab_size, *tree, rescorer)
        drafter.digest, drafter.outputs = digest_of(*digests), heads.outputs
        return drafter


@register
class MedusaEntry(HeadsEntry):
    """A drafter of kind ``medusa``."""

    title = "Medusa heads"
    description = "one head for each of the next tokens"

    kind: Literal["medusa"]

    def footprint(self, context: SizeContext) -> Footprint:
        config, file = config_of(self.source, context.card)
        heads, layers = medusa_sizes(config, file)
        own = context.target.config.get_text_config()
        block = own.hidden_size * (own.hidden_size + 1)
        numbers = max(heads, MOST_HEADS) * (layers * block + own.vocab_size * own.hidden_size)
        if self.path is not None:
            numbers = stored_numbers(file.parent, MEDUSA_FILES) or numbers
        return context.head(numbers, [last_hidden_state(context.target)])

    def build(self, context: BuildContext) -> MedusaDrafter:
        return self.build_heads(context, read_medusa, MedusaHeads)
