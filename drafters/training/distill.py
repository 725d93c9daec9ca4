"""Train the pocket drafters by self-distillation: on the target's own answers and distributions (MetaSD App. F.1).

The target first answers prompts of every family, at several temperatures; its answers are kept with its most probable
tokens at each position. Each drafter then starts on the reference answers of the corpus, of which there is no end and
which cost no target call, and goes on with batches of what the target really says between them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch.nn import functional
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from drafters.training.answers import (
    Answer,
    answer_batch,
    answer_batches,
    answer_logits,
    distillation_loss,
    next_answer_ids,
    with_distributions,
)
from drafters.training.corpus import FAMILIES
from drafters.training.corpus.two_tasks import tasks_of
from drafters.training.data import (
    Batch,
    Encoded,
    Mixture,
    bucket_batches,
    collate,
    encode_example,
    encode_part,
    encode_prompt,
)
from drafters.training.loop import Budget, autocast, train
from drafters.training.pretrain import CONTEXT_WINDOW, FAMILY_WEIGHTS, make_llama

DRAFTER_SHAPE = {"hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 1, "num_attention_heads": 6}
GENERALIST = "general"
TEMPERATURES = (0.0, 0.0, 0.7)
REFERENCE_SHARE = 0.4
"""Share of a drafter's budget spent on the corpus' reference answers alone. Thereafter every other batch is the
target's own words; without references between them a few hundred answers would be learnt by heart."""


TWO_TASKS_SHARE = 0.6
"""Share of a specialist's draws that are prompts with two tasks. Of every third, which holds its own, it learns that
part: it has to know when its turn has come."""


def collect_answers(
    target: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    minutes: float,
    seed: int,
    *,
    batch: int = 96,
    log: Callable[[str], None] = print,
) -> list[Answer]:
    """Let the target answer training prompts of all families, a batch of one family after the other."""
    mixture = Mixture(FAMILY_WEIGHTS, seed)
    answers: list[Answer] = []
    families = [name for name in FAMILIES if name in FAMILY_WEIGHTS]
    started, turn = time.perf_counter(), 0
    while time.perf_counter() - started < 60 * minutes:
        family = families[turn % len(families)]
        temperature = TEMPERATURES[turn // len(families) % len(TEMPERATURES)]
        examples = [FAMILIES[family].example(mixture.rng, "train") for _ in range(batch)]
        prompts = [encode_prompt(tokenizer, example.prompt) for example in examples]
        longest = max(len(encode_example(tokenizer, e).ids) - len(p) for e, p in zip(examples, prompts, strict=True))
        encoded = answer_batch(target, tokenizer, prompts, temperature, max_new_tokens=longest + 16)
        fitting = [e for e in encoded if len(e.ids) <= CONTEXT_WINDOW]
        answers.extend(with_distributions(target, family, fitting, tokenizer.pad_token_id))
        turn += 1
        if turn % len(families) == 0:
            tokens = sum(len(a.encoded.ids) - a.encoded.prompt_length for a in answers)
            log(f"{(time.perf_counter() - started) / 60:6.1f} min  {len(answers):,} answers  {tokens:,} tokens")
    return answers


def train_drafter(
    tokenizer: PreTrainedTokenizerFast,
    family: str,
    answers: Sequence[Answer],
    minutes: float,
    *,
    start_from: LlamaForCausalLM | None = None,
    checkpoint: Path | None = None,
    device: str = "cpu",
    tokens_per_batch: int = 6144,
    lr: float = 3e-3,
    log: Callable[[str], None] = print,
) -> LlamaForCausalLM:
    """Train the specialist of ``family``, or the generalist, within ``minutes``.

    Args:
        answers: the target's answers; a specialist learns from its own family's alone, and from its parts of reference
            answers to two tasks in a row.
        start_from: model to copy the first weights from (the generalist, for a specialist; itself, to be refined).
    """
    torch.manual_seed(0)
    model = make_llama(tokenizer, num_key_value_heads=DRAFTER_SHAPE["num_attention_heads"], **DRAFTER_SHAPE).to(device)
    if start_from is not None:
        model.load_state_dict(start_from.state_dict())
    general = family == GENERALIST
    own = [a for a in answers if general or a.family == family]
    references = reference_texts(tokenizer, family, seed=time.time_ns() % 2**32)
    rng = random.Random(0)

    def loss_on_reference(batch: Batch) -> tuple[torch.Tensor, int]:
        batch = batch.to(device)
        with autocast(device):
            logits = answer_logits(model, batch)
        return functional.cross_entropy(logits.float(), next_answer_ids(batch)), batch.ids.numel()

    def loss_on_answers(chosen: list[Answer]) -> tuple[torch.Tensor, int]:
        batch = collate([a.encoded for a in chosen], tokenizer.pad_token_id).to(device)
        with autocast(device):
            logits = answer_logits(model, batch)
        return distillation_loss(logits, chosen), batch.ids.numel()

    def loss_on_either(batch: Batch | list[Answer]) -> tuple[torch.Tensor, int]:
        return loss_on_reference(batch) if isinstance(batch, Batch) else loss_on_answers(batch)

    def stage(name: str, share: float) -> Budget:
        return Budget(minutes * share, checkpoint=checkpoint and checkpoint.with_name(f"{family}-{name}.pt"))

    batches = bucket_batches(references, tokens_per_batch, tokenizer.pad_token_id, rng, CONTEXT_WINDOW)
    train(model, batches, loss_on_reference, stage("reference", REFERENCE_SHARE), lr, log=log)
    both = _alternate(batches, answer_batches(own, tokens_per_batch, rng))
    train(model, both, loss_on_either, stage("answers", 1 - REFERENCE_SHARE), lr / 2, log=log)
    return model


def reference_texts(tokenizer: PreTrainedTokenizerFast, family: str, seed: int) -> Iterator[Encoded]:
    """Endless reference answers of the corpus for a specialist, its parts of two-task answers included, or for the
    generalist."""
    general = family == GENERALIST
    mixture = Mixture(FAMILY_WEIGHTS if general else {family: 1.0}, seed)
    while True:
        if general or mixture.rng.random() > TWO_TASKS_SHARE:
            yield encode_example(tokenizer, mixture.draw(real_share=0.0))
            continue
        two = FAMILIES["mixed"].example(mixture.rng, "train")
        if family in tasks_of(two):
            yield encode_part(tokenizer, two, family)


def _alternate(first: Iterator[Batch], second: Iterator[list[Answer]]) -> Iterator[Batch | list[Answer]]:
    while True:
        yield next(first)
        yield next(second)
