"""Texts with what the target made of them, read once and learnt from many times."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import torch
from transformers import LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from drafters.training.answers import Answer, answer_batches
from drafters.training.data import Batch, bucket_batches, collate
from drafters.training.distill import reference_texts
from drafters.training.loop import autocast
from drafters.training.pretrain import CONTEXT_WINDOW

MEMORY = 4 * 2**30
"""Bytes of hidden states that are kept at most, by default."""
READING_SHARE = 0.15
"""Share of the training time in which the target reads."""


@dataclass(frozen=True)
class FeatureBatch:
    """A batch of texts as the target read it.

    Attributes:
        ids: the texts ``(B, T)`` int64.
        wanted: the pairs to learn from, bool ``(B, T - 1)`` with ``n`` true. Pair ``i`` is the hidden state of token
            ``i`` with token ``i + 1``; the token after is to be guessed, and is an answer's.
        features: hidden states that enter some layers (the number of layers stands for the last ones, normalised), side
            by side ``(B, T - 1, layers * hidden)``, half precision.
        last: states ``(n, hidden)`` from which the target predicts the tokens to be guessed, half precision.
    """

    ids: torch.Tensor
    wanted: torch.Tensor
    features: torch.Tensor
    last: torch.Tensor

    def to(self, device: str) -> FeatureBatch:
        """The same on ``device``."""
        return FeatureBatch(*(part.to(device) for part in (self.ids, self.wanted, self.features, self.last)))

    @property
    def nbytes(self) -> int:
        """Bytes of the hidden states."""
        return self.features.nbytes + self.last.nbytes


@torch.no_grad()
def read(target: PreTrainedModel, batch: Batch, layers: Sequence[int]) -> FeatureBatch:
    """Run ``target`` over a batch and keep the hidden states of ``layers`` and the last ones."""
    batch = batch.to(str(target.device))
    wanted = batch.predicts_answer[:, 1:]
    with autocast(target.device.type):
        states = target.get_decoder()(input_ids=batch.ids, use_cache=False, output_hidden_states=True)
    features = torch.cat([states.hidden_states[layer][:, :-1] for layer in layers], dim=-1)
    return FeatureBatch(batch.ids, wanted, features.bfloat16(), states.last_hidden_state[:, 1:][wanted].bfloat16())


def feature_batches(
    target: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    family: str,
    answers: Sequence[Answer],
    layers: Sequence[int],
    minutes: float,
    tokens_per_batch: int,
    rng: random.Random,
    log: Callable[[str], None] = print,
) -> Iterator[FeatureBatch]:
    """Endless batches: those that ``minutes`` and :data:`MEMORY` allow, at least one, in a new order each time over.

    A head is a fraction of the target, which would otherwise be most of the work of every step.

    Args:
        family: of the texts, or ``GENERALIST`` for all.
        answers: the target's own; between their batches stand reference answers of the corpus. From both its
            distribution is learnt, not the text.
    """
    pad = tokenizer.pad_token_id
    said = (collate([a.encoded for a in chosen], pad) for chosen in answer_batches(answers, tokens_per_batch, rng))
    references = reference_texts(tokenizer, family, seed=time.time_ns() % 2**32)
    others = bucket_batches(references, tokens_per_batch, pad, rng, CONTEXT_WINDOW)
    batches = (next(others if turn % 4 else said) for turn in count())
    started, size, tokens = time.perf_counter(), 0, 0
    kept: list[FeatureBatch] = []
    while not kept or (time.perf_counter() - started < 60 * minutes and size < MEMORY):
        kept.append(read(target, next(batches), layers))
        size += kept[-1].nbytes
        tokens += kept[-1].ids.numel()
    log(f"read {tokens:,} tokens in {(time.perf_counter() - started) / 60:.1f} min")
    while True:
        rng.shuffle(kept)
        yield from kept


def kept_features(
    target: PreTrainedModel,
    batches: Sequence[Sequence[Answer]],
    layers: Sequence[int],
    pad: int,
    rng: random.Random,
    memory: int = MEMORY,
) -> Iterator[FeatureBatch]:
    """The same batches of answers without end, in a new order each time over.

    What the target makes of them is kept, outside its device, as far as ``memory`` (bytes) goes; the others it reads
    again each time.
    """
    kept: dict[int, FeatureBatch] = {}
    size, order = 0, list(range(len(batches)))
    while True:
        rng.shuffle(order)
        for place in order:
            if place in kept:
                yield kept[place]
                continue
            features = read(target, collate([a.encoded for a in batches[place]], pad), layers)
            if size + features.nbytes <= memory:
                kept[place] = features.to("cpu")
                size += features.nbytes
            yield features
