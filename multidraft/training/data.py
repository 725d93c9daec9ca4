"""Tokenised prompts with their answers, and batches of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import torch

T = TypeVar("T")


@dataclass(frozen=True)
class Encoded:
    """Token ids of a prompt with its answer; the first ``prompt_length`` ids are the prompt."""

    ids: list[int]
    prompt_length: int


@dataclass
class Batch:
    """Right-padded ids ``(B, T)`` int64 with the mask ``(B, T)`` of positions whose *next* token is an answer token."""

    ids: torch.Tensor
    predicts_answer: torch.Tensor

    def to(self, device: str) -> Batch:
        """The same on ``device``."""
        return Batch(self.ids.to(device), self.predicts_answer.to(device))


def collate(sequences: Sequence[Encoded], pad: int) -> Batch:
    """Pad to the longest; right padding needs no attention mask under causal attention."""
    longest = max(len(s.ids) for s in sequences)
    ids = torch.full((len(sequences), longest), pad)
    mask = torch.zeros((len(sequences), longest), dtype=torch.bool)
    for row, s in enumerate(sequences):
        ids[row, : len(s.ids)] = torch.tensor(s.ids)
        mask[row, s.prompt_length - 1 : len(s.ids) - 1] = True
    return Batch(ids, mask)


def by_length(items: Iterable[T], length: Callable[[T], int], tokens_per_batch: int) -> list[list[T]]:
    """All items in batches of similar length, each of at most ``tokens_per_batch`` padded tokens or one item."""
    batches: list[list[T]] = []
    for item in sorted(items, key=length):
        if not batches or (len(batches[-1]) + 1) * length(item) > tokens_per_batch:
            batches.append([])
        batches[-1].append(item)
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
        batches = by_length(window, lambda s: len(s.ids), tokens_per_batch)
        rng.shuffle(batches)
        yield from (collate(b, pad) for b in batches)
