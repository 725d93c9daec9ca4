"""Train the pocket drafters by self-distillation: on the target's own answers and distributions (MetaSD App. F.1).

The target first answers prompts of every family, at several temperatures; its answers are stored with its most
probable tokens at each position. Each drafter then starts on the reference answers of the corpus, which are unlimited
and cost no forward of the target, and continues on reference answers and the target's own answers in turn.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from itertools import cycle

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from multidraft.training.answers import (
    Answer,
    answer_batch,
    answer_batches,
    language_model_loss,
    with_distributions,
)
from multidraft.training.data import bucket_batches
from multidraft.training.loop import Budget, train
from multidraft.training.plan import make_llama
from multidraft.training.pocket.corpus import FAMILIES
from multidraft.training.pocket.data import (
    CONTEXT_WINDOW,
    FAMILY_WEIGHTS,
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
    batch: int = 96,
) -> list[Answer]:
    """Let the target answer training prompts of all families, a batch of one family after the other."""
    rng, answers = random.Random(seed), list[Answer]()
    started, families = time.perf_counter(), [name for name in FAMILIES if name in FAMILY_WEIGHTS]
    for temperature in cycle(TEMPERATURES):
        for family in families:
            if time.perf_counter() - started >= 60 * minutes:
                return answers
            examples = [FAMILIES[family].example(rng, "train") for _ in range(batch)]
            prompts = [encode_prompt(tokenizer, example.prompt) for example in examples]
            longest = max(len(encode_example(tokenizer, e).ids) - len(p) for e, p in zip(examples, prompts))
            encoded = answer_batch(target, tokenizer, prompts, temperature, max_new_tokens=longest + 16)
            fitting = [e for e in encoded if len(e.ids) <= CONTEXT_WINDOW]
            answers.extend(with_distributions(target, family, fitting, tokenizer.pad_token_id))
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
