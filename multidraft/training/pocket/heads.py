"""Train the pocket pool's heads: EAGLE-3 heads, Medusa heads and the n-grams that rescore them."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from multidraft.training.answers import Answer, answer_batches
from multidraft.training.data import bucket_batches, collate
from multidraft.training.eagle import TrainableHead, common_tokens, fit_head
from multidraft.training.features import MEMORY, FeatureBatch, read
from multidraft.training.loop import Budget
from multidraft.training.medusa import train_medusa
from multidraft.training.pocket.data import CONTEXT_WINDOW, reference_texts
from multidraft.training.prompts import GENERALIST

SHAPE = {"intermediate_size": 384, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64}
VOCABULARY = {GENERALIST: 1536}
SPECIALIST_VOCABULARY = 768
"""Tokens that a head can propose: nearly all that the answers of a family consist of."""
READING_SHARE = 0.15
"""Share of the training time in which the target computes hidden states."""


def feature_batches(
    target: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    family: str,
    answers: Sequence[Answer],
    layers: Sequence[int],
    minutes: float,
    tokens_per_batch: int,
) -> Iterator[FeatureBatch]:
    """Endless batches: as many as the target reads in ``minutes`` and :data:`MEMORY` holds, at least one, in a new
    order each epoch.

    They are computed once: a head is a fraction of the target, whose forward would be most of the work of every step.

    Args:
        family: of the texts, or ``GENERALIST`` for all.
        answers: the target's own; three of four batches are reference answers of the corpus. From both the target's
            distribution is learnt, not the text.

    Raises:
        ValueError: there are no answers.
    """
    if not answers:
        raise ValueError(f"there are no answers of {family!r} to learn from")
    pad, rng = tokenizer.pad_token_id, random.Random(0)
    said = (collate([a.encoded for a in chosen], pad) for chosen in answer_batches(answers, tokens_per_batch, rng))
    references = reference_texts(tokenizer, family, seed=time.time_ns() % 2**32)
    others = bucket_batches(references, tokens_per_batch, pad, rng, CONTEXT_WINDOW)
    started, size = time.perf_counter(), 0
    cached: list[FeatureBatch] = []
    while not cached or (time.perf_counter() - started < 60 * minutes and size < MEMORY):
        cached.append(read(target, next(others if len(cached) % 4 else said), layers))
        size += cached[-1].nbytes
    tokens = sum(batch.ids.numel() for batch in cached)
    print(f"read {tokens:,} tokens in {(time.perf_counter() - started) / 60:.1f} min", flush=True)
    while True:
        rng.shuffle(cached)
        yield from cached


def train_head(
    target: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    family: str,
    answers: Sequence[Answer],
    budget: Budget,
    folder: Path,
    *,
    start_from: TrainableHead | None = None,
    tokens_per_batch: int = 2048,
    lr: float = 2e-3,
) -> TrainableHead:
    """Train the head of ``family``, or the generalist, within the budget, and write it to ``folder``.

    Args:
        answers: the target's own, see :func:`feature_batches`.
        start_from: head to copy the first weights from (the generalist, for a specialist).
    """
    torch.manual_seed(0)
    own = [a for a in answers if family in (GENERALIST, a.family)]
    # The same vocabulary in every run: a resumed one must find its output layer as it was.
    sample = [a.encoded for a in own] + list(islice(reference_texts(tokenizer, family, seed=0), 512))
    size = VOCABULARY.get(family, SPECIALIST_VOCABULARY)
    head = TrainableHead(target, common_tokens(sample, size, [tokenizer.eos_token_id]), SHAPE).to(target.device)
    if start_from is not None:
        head.copy(start_from)
    reading = budget.minutes * READING_SHARE
    learnt = feature_batches(target, tokenizer, family, own, head.layers, reading, tokens_per_batch)
    fit_head(head, target, learnt, replace(budget, minutes=budget.minutes - reading), lr)
    head.save(folder)
    return head


def train_medusa_heads(
    target: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    answers: Sequence[Answer],
    budget: Budget,
    folder: Path,
    tokens_per_batch: int = 2048,
) -> None:
    """Train Medusa heads for all families within the budget, and write them to ``folder``."""
    reading, last = budget.minutes * READING_SHARE, [int(target.config.num_hidden_layers)]
    learnt = feature_batches(target, tokenizer, GENERALIST, answers, last, reading, tokens_per_batch)
    train_medusa(target, learnt, replace(budget, minutes=budget.minutes - reading), folder)
