"""``eagle``: a head that continues the target's hidden states (EAGLE-1 to -3), drafting chains or dynamic trees."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, Self

import numpy as np
import torch
from pydantic import Field
from torch import Generator
from torch.nn import functional
from transformers import PreTrainedModel

from drafters.base import Evidence, FeatureSource
from drafters.checkpoints.digest import digest_of
from drafters.checkpoints.eagle import UNUSED, WEIGHT_FILES, HeadShape, head_shapes, read_head
from drafters.checkpoints.model_sizes import cache_numbers, config_of
from drafters.checkpoints.tensor_files import stored_numbers
from drafters.draft import Draft
from drafters.errors import PoolError
from drafters.kinds.base import BuildContext, Confidence, Footprint, ModelEntry, SizeContext, TreeEntry, register
from drafters.models.decoder import aligned
from drafters.models.eagle_head import EagleHead, Made
from drafters.models.int8 import COPIES, int8_bytes
from drafters.models.onnx_head import unsupported
from drafters.models.teacher_forcing import gamma_of
from drafters.models.token_map import read_token_map, spread
from drafters.proposing import FeatureDrafter
from drafters.sampling import SamplingParams, certainties, draw_by, probabilities, uniforms
from drafters.source import Source
from drafters.tree import Growth, gamma_of_drafts


class EagleDrafter(FeatureDrafter):
    """Drafts with an EAGLE head on the target's hidden states.

    A chain follows the head's most probable tokens, or, in sampled runs, is drawn from its distribution. A tree is
    EAGLE-2's: level by level the ``branches`` most probable nodes grow ``branches`` children each, and of all of them
    the most probable are proposed; it is the same in sampled runs, where verification draws from the target.

    Args:
        head: the network; a chain and a tree may share one.
        source: the target, whose hidden states the head reads.
        vocab_size: the target's.
        nodes: draft a tree of at most so many nodes; a chain by default.
        branches: children per node, and nodes that grow any per level. A tree of one branch is a chain, and drafted as
            one, of at most ``nodes`` tokens.
        confidence: what has less probability than this (tokens of a path multiplied) is not continued; in a tree it is
            not proposed either. See :class:`~drafters.kinds.lm.LMDrafter`.

    Source: EAGLE-2 (Li et al. 2024, Sec. 4), EAGLE-3 (2025).
    """

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
        self.layers = head.shape.layers
        source.watch(self.layers)

    def twin(self, target: FeatureSource) -> Self:
        twin = super().twin(target)
        twin.head = self.head.twin(target)
        return twin

    def forget(self) -> None:
        self.head.cached = []

    def prepare(self, context: Sequence[int]) -> None:
        self.head.begin(context)
        self.head.read(context, self.source, last=1)

    def propose(
        self, context: Sequence[int], length: int, params: SamplingParams, generator: Generator, *, with_q: bool = False
    ) -> Draft:
        if len(context) < 2 or length < 1:  # the first token has no hidden state before it
            return Draft.empty()
        made = self.head.read(context, self.source, last=1)
        start = len(context) - 1
        if self.nodes is not None:
            return self._trees(made, [start], length, self.nodes, params, with_q=with_q)[0]
        return self._chain(made, start, min(length, self.longest or length), params, generator, with_q=with_q)

    def gamma(self, evidence: Evidence) -> np.ndarray:
        """γ by depth: at each position the head reads the target's hidden states, then goes on from its own along the
        text, all positions together. 0 at a text's first two, which have no hidden state before them.
        Trees are drafted at all positions together.
        """
        context, begins = evidence.context, evidence.begins(first=2)
        if not begins:
            return np.zeros((len(evidence), evidence.params.draft_length))
        return self._gamma(evidence, begins, self.head.read(context[:-1], self.source, last=len(begins)))

    def _gamma(self, evidence: Evidence, begins: range, made: Made) -> np.ndarray:
        """γ of the drafts begun at ``begins``, from what the head made of the last pair before each."""
        context, length = evidence.context, evidence.params.draft_length
        gamma = np.zeros((len(evidence), length))
        if self.nodes is not None:
            trees = self._trees(made, [begin - 1 for begin in begins], length, self.nodes, evidence.params)
            return gamma_of_drafts([*[Draft.empty()] * (len(evidence.begins()) - len(trees)), *trees], evidence)
        starts = torch.arange(begins.start, begins.stop, device=self.head.device) - 1
        text = torch.tensor(context[begins.start :], device=self.head.device)
        fed, blocks = len(context) - 2, list[int]()  # pairs so far, and where those of each depth begin
        sure = np.zeros(len(begins))
        for depth in range(min(length, len(begins), self.longest or length)):
            count = len(begins) - depth
            if depth:  # feed the text's token after each draft, which sees what its own beginning saw and itself
                columns = torch.arange(fed + count, device=self.head.device)
                mask = columns < starts[:count, None]
                rows = torch.arange(count, device=self.head.device)
                blocks.append(fed)
                for block in blocks:
                    mask[rows, block + rows] = True
                ids, positions = text[depth - 1 : depth - 1 + count], starts[:count] + depth - 1
                made = self.head.step(ids, made.hidden[:count], fed, positions=positions, mask=mask)
                fed += count
            place = begins.start + depth
            seen = max(evidence.start - place, 0)
            p = None if evidence.p is None else evidence.p[place + seen - evidence.start :]
            part = Evidence(context, place + seen, p, evidence.params)
            judged, sure = self._accepted(made.logits, sure[:count], text[depth:], seen, part)
            gamma[place + seen - evidence.start :, depth] = judged
        return gamma

    def _accepted(
        self, logits: torch.Tensor, sure: np.ndarray, text: torch.Tensor, seen: int, part: Evidence
    ) -> tuple[np.ndarray, np.ndarray]:
        """γ of the tokens that follow at one depth, and how probable the drafts with the text's token are.

        Args:
            logits: ``(n, tokens)`` of the drafts begun at consecutive positions.
            sure: logarithm of the probability of each draft so far, ``(n,)``.
            text: the token that the text goes on with after each.
            seen: drafts at the beginning of those whose token is not asked for.
            part: the positions of the others.
        """
        if part.p is not None:
            whole = self._in_target_vocabulary(logits)
            chances = gamma_of(whole[None, seen:], part)[:, 0] * (sure[seen:] >= self.log_confidence)
            if self.log_confidence > -math.inf:
                q = probabilities(whole, part.params).gather(-1, text[: len(whole), None])[:, 0]
                sure = sure + q.log().double().cpu().numpy()
            return chances, sure
        best = logits.argmax(dim=-1)
        tokens_of_target = best if self.head.to_target is None else self.head.to_target[best]
        hits = (tokens_of_target == text[: len(best)]).cpu().numpy() & (sure >= self.log_confidence)
        if self.log_confidence > -math.inf:
            sure = sure + certainties(logits)
        return hits[seen:].astype(np.float64), np.where(hits, sure, -np.inf)

    def _chain(
        self, made: Made, start: int, length: int, params: SamplingParams, generator: Generator, *, with_q: bool
    ) -> Draft:
        if params.greedy:
            tokens, logits = self.head.draft(made, start, length, self.log_confidence, with_logits=with_q)
            q = probabilities(self._in_target_vocabulary(torch.cat(logits)), params) if with_q else None
            return Draft.chain(tokens, q)
        tokens, rows, sure = list[int](), list[torch.Tensor](), 0.0
        points = uniforms(length, generator).tolist()
        while len(tokens) < length and sure >= self.log_confidence:
            if tokens:
                ids = torch.tensor(tokens[-1:], device=self.head.device)
                made = self.head.step(ids, made.hidden, start + len(tokens) - 1)
            rows.append(probabilities(self._in_target_vocabulary(made.logits), params))
            tokens.append(draw_by(rows[-1][0], points[len(tokens)]))
            sure += float(rows[-1][0, tokens[-1]].log())
        return Draft.chain(tokens, torch.cat(rows), sampled=True)

    def _trees(
        self,
        made: Made,
        starts: Sequence[int],
        length: int,
        nodes: int,
        params: SamplingParams,
        *,
        with_q: bool = False,
    ) -> list[Draft]:
        """EAGLE-2's dynamic trees, grown together level by level: of each the most probable nodes are kept.

        Args:
            made: of the last pair before each tree.
            starts: how many cached pairs precede each, ascending.
            with_q: of a single tree only.
        """
        trees = [Growth() for _ in starts]
        rows: list[torch.Tensor] = []
        frontiers: list[list[int]] = [[-1] for _ in starts]
        fed = starts[-1]
        for level in range(length):
            rows.extend(made.logits if with_q else ())
            children, chances = self._likeliest(made.logits)
            begin, parents, chosen = 0, list[int](), list[tuple[int, int]]()
            for place, (tree, frontier) in enumerate(zip(trees, frontiers, strict=True)):
                end = begin + len(frontier)
                born = tree.add(frontier, children[begin:end], chances[begin:end], self.log_confidence)
                best = sorted(born, key=lambda node: -tree.scores[node])[: self.branches]
                frontiers[place] = [node for node in best if tree.scores[node] >= self.log_confidence]
                parents += [begin + tree.rows[node] for node in frontiers[place]]
                chosen += [(place, node) for node in frontiers[place]]
                begin = end
            if not chosen or level == length - 1:
                break
            mask = torch.zeros(len(chosen), fed + len(chosen), dtype=torch.bool)
            for row, (place, node) in enumerate(chosen):
                mask[row, : starts[place]] = True
                mask[row, trees[place].feed(node, fed + row)] = True
            device = self.head.device
            made = self.head.step(
                torch.tensor([trees[place].tokens[node] for place, node in chosen], device=device),
                made.hidden[torch.tensor(parents, device=device)],
                fed,
                positions=torch.tensor([starts[place] + level for place, _ in chosen], device=device),
                mask=mask.to(device),
            )
            fed += len(chosen)
        return [self._kept(tree, nodes, params, rows) for tree in trees]

    def _kept(self, tree: Growth, nodes: int, params: SamplingParams, rows: list[torch.Tensor]) -> Draft:
        """The draft of a tree's best nodes, with the distributions that they were taken from if ``rows`` has them."""
        kept = tree.best(nodes)
        places = {node: place for place, node in enumerate(kept)} | {-1: -1}
        q = None
        if rows:
            q = probabilities(
                self._in_target_vocabulary(torch.stack([rows[tree.all_rows[node]] for node in kept])), params
            )
        return Draft(tuple(tree.tokens[node] for node in kept), tuple(places[tree.parents[node]] for node in kept), q)

    def _likeliest(self, logits: torch.Tensor) -> tuple[list[list[int]], list[list[float]]]:
        """Of each row the ``branches`` most probable tokens of the target and the logarithms of their chances."""
        top = functional.log_softmax(logits.float(), dim=-1).topk(min(self.branches, logits.shape[-1]), dim=-1)
        ids = top.indices if self.head.to_target is None else self.head.to_target[top.indices]
        return ids.tolist(), top.values.tolist()

    def _in_target_vocabulary(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits ``(m, V)``; tokens that the head cannot propose have none."""
        if self.head.to_target is None:
            return aligned(logits, self.vocab_size)
        return spread(logits, self.head.to_target, self.vocab_size)


def footprint_of(
    source: Source, context: SizeContext, tokens: Sequence[int] | None = None
) -> tuple[Footprint, HeadShape]:
    """Memory of a head, and what it is made of; ``tokens`` as of :func:`~drafters.checkpoints.eagle.read_head`."""
    config, file = config_of(source, context.card)
    shape, tensors = head_shapes(config, context.target, file, tokens)
    numbers = sum(math.prod(sizes) for name, sizes in tensors.items() if name not in UNUSED)
    if source.path is not None and (stored := stored_numbers(file.parent, WEIGHT_FILES, UNUSED)):
        numbers = stored + len(tokens or ()) * shape.config.hidden_size
    on_onnx = unsupported(shape, context.dtype, context.device) is None  # which has copies
    copies = 2 if on_onnx and not source.quantization else 1
    # A head's cache is given twice the room that it needs, so that it seldom has to grow.
    found = context.head(numbers, shape.layers, 2 * cache_numbers(shape.config), copies)
    if source.quantization:
        found = replace(found, weights=found.weights + int8_bytes(*_products(shape, tensors), COPIES))
    return found, shape


def _products(shape: HeadShape, tensors: Mapping[str, Sequence[int]]) -> tuple[list[tuple[int, ...]], int]:
    """Shapes of the matrices that a head multiplies by, of the target's output layer too where that is lent to it; and
    how many numbers all its other weights have.

    Args:
        tensors: the head's own, by shape.
    """
    weights = {name: tuple(sizes) for name, sizes in tensors.items() if name not in {*UNUSED, "d2t"}}
    products: list[tuple[int, ...]] = []
    products += [sizes for name, sizes in weights.items() if len(sizes) == 2 and name != "embed_tokens.weight"]
    others = sum(map(math.prod, weights.values())) - sum(map(math.prod, products))
    if "lm_head.weight" not in weights:
        products.append((shape.vocab_size, int(shape.config.hidden_size)))
    return products, others


@register
class EagleEntry(TreeEntry, ModelEntry):
    """A drafter of kind ``eagle``. Several may use one head, as a chain and as a tree: it is loaded once."""

    title = "EAGLE head"
    description = "continues the target's hidden states"
    needs_target = True

    path_fields = ("path", "token_map")

    kind: Literal["eagle"]
    token_map: str | None = Field(None, description="path of a list of token ids, the only ones that it drafts")
    branches: int = Field(8, ge=1, le=64, description="children of a node in a tree, and nodes grown per level")
    confidence: Confidence = 0.0
    quantization: Literal["int8"] | None = Field(None, description="int8, for a CPU in float32; by default none")

    @property
    def shared_weights(self) -> Hashable:
        return self.source, self.token_map

    def _tokens(self, card: Path, target: PreTrainedModel) -> list[int] | None:
        size = target.config.get_text_config().vocab_size
        return read_token_map(card.parent / self.token_map, size) if self.token_map else None

    def footprint(self, context: SizeContext) -> Footprint:
        found, shape = footprint_of(self.source, context, self._tokens(context.card, context.target))
        self._check(shape, context.dtype, context.device)
        return found

    def _check(self, shape: HeadShape, dtype: torch.dtype, device: str) -> None:
        if self.quantization and (reason := unsupported(shape, dtype, device)):
            raise PoolError(
                f"drafter {self.name!r}: a head has int8 weights on ONNX Runtime only, which cannot run it here "
                f"({reason}); remove its quantization"
            )

    def build(self, context: BuildContext) -> EagleDrafter:
        if self.shared_weights not in context.shared:
            tokens = self._tokens(context.card, context.model)
            shape, tensors = read_head(self.folder(context), context.model, tokens)
            self._check(shape, context.model.dtype, str(context.target.device))
            head, stored = EagleHead(shape, tensors, context.model, self.quantization is not None), None
            if self.quantization:
                stored = int8_bytes(*_products(shape, {name: tensor.shape for name, tensor in tensors.items()}))
            context.shared[self.shared_weights] = head, digest_of(tensors), stored
        head, digest, stored = context.shared[self.shared_weights]
        vocab_size = context.target.vocab_size
        drafter = EagleDrafter(self.name, head, context.target, vocab_size, self.nodes, self.branches, self.confidence)
        drafter.digest, drafter.stored_bytes, drafter.outputs = digest, stored, head.vocab_size
        return drafter
