"""The target's hidden states of texts: computed once, learnt from many times."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from multidraft.training.answers import Answer
from multidraft.training.data import Batch, collate
from multidraft.training.loop import autocast

MEMORY = 4 * 2**30
"""Bytes of hidden states that are cached at most, by default."""


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
    batches: Sequence[Sequence[Answer]],
    layers: Sequence[int],
    pad: int,
    rng: random.Random,
    memory: int = MEMORY,
) -> Iterator[FeatureBatch]:
    """The same batches of answers without end, in a new order each epoch.

    Hidden states are cached in main memory, up to ``memory`` bytes; those of the other batches are computed again in
    each epoch.
    """
    cached: dict[int, FeatureBatch] = {}
    order = list(range(len(batches)))
    while True:
        rng.shuffle(order)
        for place in order:
            if (features := cached.get(place)) is None:
                features = read(target, collate([a.encoded for a in batches[place]], pad), layers)
                if features.nbytes <= memory:
                    cached[place] = features.to("cpu")
                    memory -= features.nbytes
            yield features
