"""Train the pocket drafters by self-distillation: on the target's own answers and distributions (MetaSD App. F.1).

The target first answers prompts of every family, at several temperatures; its answers are stored with its most
probable tokens at each position. Each drafter then starts on the reference answers of the corpus, which are unlimited
and cost no forward of the target, and continues on reference answers and the target's own answers in turn.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from multidraft.training.answers import (
    Answer,
    answer_batch,
    answer_batches,
    language_model_loss,
    with_distributions,
)
from multidraft.training.data import Batch, bucket_batches
from multidraft.training.llama import make_llama
from multidraft.training.loop import Budget, train
from multidraft.training.pocket.corpus import FAMILIES
from multidraft.training.pocket.data import (
    CONTEXT_WINDOW,
    FAMILY_WEIGHTS,
    Mixture,
    encode_example,
    encode_prompt,
    reference_texts,
)
from multidraft.training.prompts import GENERALIST

DRAFTER_SHAPE = {"hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 1, "num_attention_heads": 6}
TEMPERATURES = (0.0, 0.0, 0.7)
REFERENCE_SHARE = 0.4
"""Share of a drafter's budget spent on the corpus's reference answers alone. Thereafter every other batch is of the
target's own answers; without references between them a few hundred answers would be memorised."""


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
    tokens: float = math.inf,
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
        tokens: alternative budget in trained tokens.
    """
    torch.manual_seed(0)
    model = make_llama(tokenizer, num_key_value_heads=DRAFTER_SHAPE["num_attention_heads"], **DRAFTER_SHAPE).to(device)
    if start_from is not None:
        model.load_state_dict(start_from.state_dict())
    general = family == GENERALIST
    own = [a for a in answers if general or a.family == family]
    references = reference_texts(tokenizer, family, seed=time.time_ns() % 2**32)
    rng = random.Random(0)

    loss_of = language_model_loss(model, tokenizer.pad_token_id, device)

    def stage(name: str, share: float) -> Budget:
        file = checkpoint and checkpoint.with_name(f"{family}-{name}.pt")
        return Budget(minutes * share, tokens * share, file)

    batches = bucket_batches(references, tokens_per_batch, tokenizer.pad_token_id, rng, CONTEXT_WINDOW)
    train(model, batches, loss_of, stage("reference", REFERENCE_SHARE), lr, log=log)
    both = _alternate(batches, answer_batches(own, tokens_per_batch, rng))
    train(model, both, loss_of, stage("answers", 1 - REFERENCE_SHARE), lr / 2, log=log)
    return model


def _alternate(first: Iterator[Batch], second: Iterator[list[Answer]]) -> Iterator[Batch | list[Answer]]:
    while True:
        yield next(first)
        yield next(second)
