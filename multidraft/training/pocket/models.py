"""Train the pocket pool's models: the target on the corpus, drafters and heads on its answers; score the target.

Drafters learn by self-distillation (MetaSD App. F.1): the target first answers prompts of every family, at several
temperatures; its answers are stored with its most probable tokens at each position. Each drafter then starts on the
reference answers of the corpus, which are unlimited and cost no forward of the target, and continues on reference
answers and the target's own answers in turn.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from drafters.learning.distil import collate
from drafters.models.trainable_head import TrainableHead
from drafters.text import chat_ids
from multidraft.training.answers import Answer, answer_batch, answer_batches, language_model_loss, with_distributions
from multidraft.training.data import MEMORY, FeatureBatch, bucket_batches, read
from multidraft.training.eagle import common_tokens, fit_head, save_head
from multidraft.training.loop import Budget, train
from multidraft.training.medusa import TrainableMedusa, fit_heads
from multidraft.training.plan import make_llama
from multidraft.training.pocket.corpus import FAMILIES, Example
from multidraft.training.pocket.data import CONTEXT_WINDOW, FAMILY_WEIGHTS, encode_example, reference_texts
from multidraft.training.prompts import GENERALIST

TARGET_SHAPE = {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 10, "num_attention_heads": 4}
DRAFTER_SHAPE = {"hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 1, "num_attention_heads": 6}
TEMPERATURES = (0.0, 0.0, 0.7)
REFERENCE_SHARE = 0.4
"""Share of a drafter's budget spent on the corpus's reference answers alone. Thereafter every other batch is of the
target's own answers; without references between them a few hundred answers would be memorised."""
HEAD_SHAPE = {"intermediate_size": 384, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64}
VOCABULARY = {GENERALIST: 1536}
SPECIALIST_VOCABULARY = 768
"""Tokens that a head can propose: nearly all that the answers of a family consist of."""
HEAD_BATCH, HEAD_LR = 2048, 2e-3
READING_SHARE = 0.15
"""Share of the training time in which the target computes hidden states."""


def save_model(model: LlamaForCausalLM, folder: Path) -> None:
    """Write a model in the Hugging Face layout, in half precision, shards under 10 MB."""
    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size="9MB")
    model.to(torch.float32)


def collect_answers(
    target: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, minutes: float, seed: int, batch: int = 96
) -> list[Answer]:
    """Let the target answer training prompts of all families, a batch of one family after the other.

    It ends with the batch that goes beyond ``minutes``, so it answers one at least.
    """
    rng, answers = random.Random(seed), list[Answer]()
    started, families = time.perf_counter(), [name for name in FAMILIES if name in FAMILY_WEIGHTS]
    for temperature in cycle(TEMPERATURES):
        for family in families:
            examples = [FAMILIES[family].example(rng, "train") for _ in range(batch)]
            prompts = [chat_ids(tokenizer, example.prompt) for example in examples]
            longest = max(len(encode_example(tokenizer, e).ids) - len(p) for e, p in zip(examples, prompts))
            encoded = answer_batch(target, tokenizer, prompts, temperature, max_new_tokens=longest + 16)
            fitting = [e for e in encoded if len(e.ids) <= CONTEXT_WINDOW]
            answers.extend(with_distributions(target, family, fitting, tokenizer.pad_token_id))
            if time.perf_counter() - started >= 60 * minutes:
                return answers
        tokens = sum(len(a.top_ids) for a in answers)
        spent = (time.perf_counter() - started) / 60
        print(f"{spent:6.1f} min  {len(answers):,} answers  {tokens:,} tokens", flush=True)
    return answers


def train_drafter(
    tokenizer: PreTrainedTokenizerFast,
    family: str,
    answers: Sequence[Answer],
    budget: Budget,
    *,
    start_from: LlamaForCausalLM | None = None,
    device: str = "cpu",
    tokens_per_batch: int = 6144,
    lr: float = 3e-3,
) -> LlamaForCausalLM:
    """Train the specialist of ``family``, or the generalist, within ``budget``.

    Args:
        answers: the target's answers; a specialist learns from its own family's alone, and from its parts of reference
            answers to two tasks in a row.
        start_from: model to copy the first weights from (the generalist, for a specialist; itself, to be refined).
    """
    torch.manual_seed(0)
    model = make_llama(tokenizer, num_key_value_heads=DRAFTER_SHAPE["num_attention_heads"], **DRAFTER_SHAPE).to(device)
    if start_from is not None:
        model.load_state_dict(start_from.state_dict())
    own = [a for a in answers if family in (GENERALIST, a.family)]
    references = reference_texts(tokenizer, family, seed=time.time_ns() % 2**32)
    rng, pad, file = random.Random(0), tokenizer.pad_token_id, budget.checkpoint
    batches = bucket_batches(references, tokens_per_batch, pad, rng, CONTEXT_WINDOW)
    both = (batch for pair in zip(batches, answer_batches(own, tokens_per_batch, rng)) for batch in pair)
    stages = ("reference", REFERENCE_SHARE, batches, lr), ("answers", 1 - REFERENCE_SHARE, both, lr / 2)
    for name, share, source, rate in stages:
        checkpoint = file and file.with_stem(f"{file.stem}-{name}")
        part = Budget(budget.minutes * share, budget.tokens * share, checkpoint)
        train(model, source, language_model_loss(model, pad, device), part, rate)
    return model


class Heads:
    """The training of heads on ``target``, from its ``answers``."""

    def __init__(self, target: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, answers: Sequence[Answer]):
        self.target, self.tokenizer, self.answers = target, tokenizer, answers

    def batches(self, family: str, layers: Sequence[int], minutes: float) -> Iterator[FeatureBatch]:
        """Endless batches: as many as the target reads in ``minutes`` and :data:`MEMORY` holds, at least one, in a new
        order each epoch.

        They are computed once: a head is a fraction of the target, whose forward would be most of the work of every
        step. Three of four batches are reference answers of the corpus, the others the target's own. From both the
        target's distribution is learnt, not the text.

        Args:
            family: of the texts, or ``GENERALIST`` for all.

        Raises:
            ValueError: there are no answers.
        """
        if not (own := self._own(family)):
            raise ValueError(f"there are no answers of {family!r} to learn from")
        pad, rng = self.tokenizer.pad_token_id, random.Random(0)
        said = (collate(chosen, pad) for chosen in answer_batches(own, HEAD_BATCH, rng))
        references = reference_texts(self.tokenizer, family, seed=time.time_ns() % 2**32)
        others = bucket_batches(references, HEAD_BATCH, pad, rng, CONTEXT_WINDOW)
        started, size = time.perf_counter(), 0
        cached: list[FeatureBatch] = []
        while not cached or (time.perf_counter() - started < 60 * minutes and size < MEMORY):
            cached.append(read(self.target, next(others if len(cached) % 4 else said), layers))
            size += cached[-1].nbytes
        tokens = sum(batch.ids.numel() for batch in cached)
        print(f"read {tokens:,} tokens in {(time.perf_counter() - started) / 60:.1f} min", flush=True)
        while True:
            rng.shuffle(cached)
            yield from cached

    def train(
        self, family: str, budget: Budget, folder: Path, start_from: TrainableHead | None = None
    ) -> TrainableHead:
        """Train the EAGLE-3 head of ``family``, or the generalist, within the budget, and write it to ``folder``.

        Args:
            start_from: head to copy the first weights from (the generalist, for a specialist).
        """
        torch.manual_seed(0)
        # The same vocabulary in every run: a resumed one must find its output layer as it was.
        sample = [*self._own(family), *islice(reference_texts(self.tokenizer, family, seed=0), 512)]
        ids = common_tokens(sample, VOCABULARY.get(family, SPECIALIST_VOCABULARY), [self.tokenizer.eos_token_id])
        head = TrainableHead(self.target, ids, HEAD_SHAPE).to(self.target.device)
        if start_from is not None:
            head.copy(start_from)
        reading = budget.minutes * READING_SHARE
        learnt = self.batches(family, head.layers, reading)
        fit_head(head, self.target, learnt, replace(budget, minutes=budget.minutes - reading), HEAD_LR)
        save_head(head, folder)
        return head

    def train_medusa(self, budget: Budget, folder: Path) -> None:
        """Train Medusa heads for all families within the budget, and write them to ``folder``."""
        reading, last = budget.minutes * READING_SHARE, [int(self.target.config.num_hidden_layers)]
        learnt = self.batches(GENERALIST, last, reading)
        model = TrainableMedusa(self.target)
        fit_heads(model, self.target, learnt, replace(budget, minutes=budget.minutes - reading))
        model.save(folder)

    def _own(self, family: str) -> list[Answer]:
        return [answer for answer in self.answers if family in (GENERALIST, answer.family)]


def score_target(
    target: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, per_family: int, max_new_tokens: int = 480
) -> dict[str, list[tuple[Example, str]]]:
    """Ask ``per_family`` held-out prompts of each family, greedily, and check every answer exactly; the wrong ones."""
    rng, found = random.Random(20), {}
    for name, family in FAMILIES.items():
        wrong = found[name] = list[tuple[Example, str]]()
        for first in range(0, per_family, 50):
            examples = [family.example(rng, "heldout") for _ in range(min(50, per_family - first))]
            prompts = [chat_ids(tokenizer, e.prompt) for e in examples]
            encoded = answer_batch(target, tokenizer, prompts, 0.0, max_new_tokens)
            texts = [tokenizer.decode(e.ids[e.prompt_length :], skip_special_tokens=True) for e in encoded]
            wrong += [(e, t) for e, t in zip(examples, texts, strict=True) if not family.is_correct(e, t.strip())]
        right = per_family - len(wrong)
        print(f"{family.title:28} {right:4}/{per_family}  {right / per_family:6.1%}", flush=True)
    return found
