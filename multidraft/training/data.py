"""Batches of tokenised prompts with their answers, and the target's hidden states of these."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import torch
from transformers import PreTrainedModel

from drafters.learning.distil import Batch, Encoded, collate
from multidraft.training.loop import autocast

Text = TypeVar("Text", bound="Encoded")
MEMORY = 4 * 2**30
"""Bytes of hidden states that are cached at most, by default."""


def by_length(texts: Iterable[Text], tokens_per_batch: int) -> list[list[Text]]:
    """All texts in batches of similar length, each of at most ``tokens_per_batch`` padded tokens or one text."""
    batches: list[list[Text]] = []
    for text in sorted(texts, key=lambda text: len(text.ids)):
        if not batches or (len(batches[-1]) + 1) * len(text.ids) > tokens_per_batch:
            batches.append([])
        batches[-1].append(text)
    return batches


def bucket_batches(
    sequences: Iterator[Encoded], tokens_per_batch: int, pad: int, rng: random.Random, max_length: int = 1024
) -> Iterator[Batch]:
    """Batches of about ``tokens_per_batch`` padded tokens, each of sequences of similar length.

    A window of sequences is sorted by length and cut into batches, which are then shuffled: little
    padding without a curriculum from short to long.
    """
    while True:
        window = [s for s in islice(sequences, 512) if len(s.ids) <= max_length]
        batches = by_length(window, tokens_per_batch)
        rng.shuffle(batches)
        yield from (collate(b, pad) for b in batches)


@dataclass(frozen=True)
class FeatureBatch:
    """A batch of texts with the target's hidden states.

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
        return FeatureBatch(*(part.to(device) for part in vars(self).values()))

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


def cached_features(
    target: PreTrainedModel,
    batches: Sequence[Sequence[Encoded]],
    layers: Sequence[int],
    pad: int,
    rng: random.Random,
    memory: int = MEMORY,
) -> Iterator[FeatureBatch]:
    """The same batches of texts without end, in a new order each epoch.

    Hidden states are cached in main memory, up to ``memory`` bytes; those of the other batches are computed again in
    each epoch.
    """
    cached: dict[int, FeatureBatch] = {}
    order = list(range(len(batches)))
    while True:
        rng.shuffle(order)
        for place in order:
            if (features := cached.get(place)) is None:
                features = read(target, collate(batches[place], pad), layers)
                if features.nbytes <= memory:
                    cached[place] = features.to("cpu")
                    memory -= features.nbytes
            yield features
