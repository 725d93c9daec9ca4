"""Train the pocket drafters by self-distillation: on the target's own answers and distributions (MetaSD App. F.1).

The target first answers prompts of every family, at several temperatures; its answers are kept with its most probable
tokens at each position. Each drafter then starts on the reference answers of the corpus, of which there is no end and
which cost no target call, and goes on with batches of what the target really says between them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

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
from drafters.training.pretrain import CONTEXT_WINDOW, FAMILY_WEIGHTS, answer_logits, make_llama, next_answer_ids

DRAFTER_SHAPE = {"hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 1, "num_attention_heads": 6}
GENERALIST = "general"
TOP = 8
"""Target probabilities kept per position; the rest of the mass is a fraction of a percent."""
TEMPERATURES = (0.0, 0.0, 0.7)
REFERENCE_SHARE = 0.4
"""Share of a drafter's budget spent on the corpus' reference answers alone. Thereafter every other batch is the
target's own words; without references between them a few hundred answers would be learnt by heart."""


TWO_TASKS_SHARE = 0.6
"""Share of a specialist's draws that are prompts with two tasks. Of every third, which holds its own, it learns that
part: it has to know when its turn has come."""


@dataclass(frozen=True)
class Answer:
    """An answer of the target with the target's distribution at each of its ``n`` tokens.

    Attributes:
        family: task family of the prompt.
        encoded: prompt and answer.
        top_ids: most probable tokens ``(n, TOP)`` int64.
        top_probs: their probabilities ``(n, TOP)`` float32, normalised.
    """

    family: str
    encoded: Encoded
    top_ids: torch.Tensor
    top_probs: torch.Tensor


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
        answers.extend(_with_distributions(target, tokenizer, family, encoded))
        turn += 1
        if turn % len(families) == 0:
            tokens = sum(len(a.encoded.ids) - a.encoded.prompt_length for a in answers)
            log(f"{(time.perf_counter() - started) / 60:6.1f} min  {len(answers):,} answers  {tokens:,} tokens")
    return answers


@torch.inference_mode()
def answer_batch(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    prompts: Sequence[list[int]],
    temperature: float,
    max_new_tokens: int,
) -> list[Encoded]:
    """Answers to a batch of prompts; an answer that did not end in time is left without an end token."""
    longest = max(len(p) for p in prompts)
    pad, end = tokenizer.pad_token_id, tokenizer.eos_token_id
    ids = torch.tensor([[pad] * (longest - len(p)) + p for p in prompts], device=model.device)
    output = model.generate(
        input_ids=ids,
        attention_mask=(ids != pad).long(),
        max_new_tokens=max_new_tokens,
        do_sample=temperature > 0,
        temperature=temperature or None,
        top_k=0 if temperature else None,
        pad_token_id=pad,
    )
    encoded = []
    for prompt, row in zip(prompts, output[:, longest:].tolist(), strict=True):
        answer = row[: row.index(end) + 1] if end in row else row
        encoded.append(Encoded([*prompt, *answer], len(prompt)))
    return encoded


@torch.inference_mode()
def _with_distributions(
    target: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, family: str, encoded: Sequence[Encoded]
) -> Iterator[Answer]:
    encoded = [e for e in encoded if len(e.ids) <= CONTEXT_WINDOW]
    batch = collate(encoded, tokenizer.pad_token_id).to(str(target.device))
    top = torch.softmax(answer_logits(target, batch).float(), dim=-1).topk(TOP)
    probs = (top.values / top.values.sum(dim=-1, keepdim=True)).cpu()
    lengths = [len(e.ids) - e.prompt_length for e in encoded]
    for e, ids, p in zip(encoded, top.indices.cpu().split(lengths), probs.split(lengths), strict=True):
        yield Answer(family, e, ids.clone(), p.clone())


def save_answers(answers: Sequence[Answer], path: Path) -> None:
    """Write collected answers to one file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [(a.family, a.encoded.ids, a.encoded.prompt_length, a.top_ids.short(), a.top_probs.half()) for a in answers]
    torch.save(rows, path)


def load_answers(path: Path) -> list[Answer]:
    """Read answers written by :func:`save_answers`."""
    rows = torch.load(path, weights_only=True)
    return [Answer(family, Encoded(ids, n), top.long(), probs.float()) for family, ids, n, top, probs in rows]


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
        top_ids = torch.cat([a.top_ids for a in chosen]).to(device)
        top_probs = torch.cat([a.top_probs for a in chosen]).to(device)
        kept = functional.log_softmax(logits.float(), dim=-1).gather(1, top_ids)
        return -(top_probs * kept).sum(dim=-1).mean(), batch.ids.numel()

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


def answer_batches(answers: Sequence[Answer], tokens_per_batch: int, rng: random.Random) -> Iterator[list[Answer]]:
    """Endless batches of answers of similar length, in a new order each epoch."""
    ordered = sorted(answers, key=lambda a: len(a.encoded.ids))
    while True:
        batches: list[list[Answer]] = [[]]
        for answer in ordered:
            if (len(batches[-1]) + 1) * len(answer.encoded.ids) > tokens_per_batch and batches[-1]:
                batches.append([])
            batches[-1].append(answer)
        rng.shuffle(batches)
        yield from batches
