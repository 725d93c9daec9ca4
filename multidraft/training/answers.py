"""A target's answers with its own distributions: what drafters are distilled from (MetaSD App. F.1)."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from multidraft.training.data import Batch, Encoded, by_length, collate
from multidraft.training.loop import LossOf, autocast
from multidraft.training.work import write_file

TOP = 8
"""Target probabilities stored per position. What is left out is a fraction of a percent of the probability mass where
the target is certain, a few percent where it is not."""


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


def read_out(model: PreTrainedModel, hidden: torch.Tensor) -> torch.Tensor:
    """Logits ``(..., vocabulary)`` of last hidden states ``(..., hidden)``, capped where the model caps them."""
    logits = model.get_output_embeddings()(hidden)
    cap = getattr(model.config.get_text_config(), "final_logit_softcapping", None)
    return torch.tanh(logits / cap) * cap if cap else logits


def answer_logits(model: PreTrainedModel, batch: Batch) -> torch.Tensor:
    """Logits ``(answer tokens, vocabulary)`` at the positions that predict an answer token.

    Prompts are given, never predicted, so the output layer is spared their positions: about half its cost.
    """
    hidden = model.get_decoder()(input_ids=batch.ids, use_cache=False).last_hidden_state
    return read_out(model, hidden[batch.predicts_answer])


def next_answer_ids(batch: Batch) -> torch.Tensor:
    """Ids ``(answer tokens,)`` that :func:`answer_logits` predicts."""
    return batch.ids.roll(-1, dims=1)[batch.predicts_answer]


def distillation_loss(logits: torch.Tensor, chosen: Sequence[Answer]) -> torch.Tensor:
    """Mean cross-entropy between the target's distributions over its likeliest tokens and the drafter's.

    Args:
        logits: of the drafter ``(n, vocabulary)`` at all answer tokens of ``chosen``, one answer after the other.
    """
    top_ids = torch.cat([a.top_ids for a in chosen]).to(logits.device)
    top_probs = torch.cat([a.top_probs for a in chosen]).to(logits.device)
    logits = logits.float()
    kept = logits.gather(1, top_ids) - logits.logsumexp(dim=-1, keepdim=True)
    return -(top_probs * kept).sum(dim=-1).mean()


def language_model_loss(model: PreTrainedModel, pad: int, device: str) -> LossOf:
    """The loss of ``model`` on a batch: of answers the distillation loss, of reference texts the cross-entropy."""

    def loss_of(batch: Batch | Sequence[Answer]) -> tuple[torch.Tensor, int]:
        texts = batch if isinstance(batch, Batch) else collate([answer.encoded for answer in batch], pad)
        texts = texts.to(device)
        with autocast(device):
            logits = answer_logits(model, texts)
        if isinstance(batch, Batch):
            loss = functional.cross_entropy(logits.float(), next_answer_ids(texts))
        else:
            loss = distillation_loss(logits, batch)
        return loss, texts.ids.numel()

    return loss_of


@torch.inference_mode()
def answer_batch(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[list[int]],
    temperature: float,
    max_new_tokens: int,
    stop_ids: Collection[int] | None = None,
) -> list[Encoded]:
    """Answers to a batch of prompts; an answer that did not end in time is left without an end token.

    Sampled answers are draws from the whole distribution, whatever the model's own ``generation_config`` would leave
    out of it.

    Args:
        stop_ids: tokens that end an answer; by default the tokenizer's end token.
    """
    longest = max(len(p) for p in prompts)
    stops = {tokenizer.eos_token_id} if stop_ids is None else set(stop_ids)
    pad = pad_id(tokenizer)
    ids = torch.tensor([[pad] * (longest - len(p)) + p for p in prompts], device=model.device)
    padding = torch.tensor([longest - len(p) for p in prompts], device=model.device)
    output = model.generate(
        input_ids=ids,
        attention_mask=(torch.arange(longest, device=model.device) >= padding[:, None]).long(),
        max_new_tokens=max_new_tokens,
        do_sample=temperature > 0,
        temperature=temperature or None,
        top_k=0 if temperature else None,
        top_p=1.0 if temperature else None,
        repetition_penalty=1.0,
        eos_token_id=sorted(stops) or None,
        pad_token_id=pad,
    )
    encoded = []
    for prompt, row in zip(prompts, output[:, longest:].tolist(), strict=True):
        end = next((place for place, token in enumerate(row) if token in stops), len(row) - 1)
        encoded.append(Encoded([*prompt, *row[: end + 1]], len(prompt)))
    return encoded


def pad_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """What fills up short rows: masked or behind the text, so that any token will do where there is none for it."""
    return next((i for i in (tokenizer.pad_token_id, tokenizer.eos_token_id) if i is not None), 0)


@torch.inference_mode()
def with_distributions(target: PreTrainedModel, family: str, encoded: Sequence[Encoded], pad: int) -> Iterator[Answer]:
    """The target's distributions at every token of its answers."""
    batch = collate(encoded, pad).to(str(target.device))
    top = torch.softmax(answer_logits(target, batch).float(), dim=-1).topk(min(TOP, target.config.vocab_size))
    probs = (top.values / top.values.sum(dim=-1, keepdim=True)).cpu()
    lengths = [len(e.ids) - e.prompt_length for e in encoded]
    for e, ids, p in zip(encoded, top.indices.cpu().split(lengths), probs.split(lengths), strict=True):
        yield Answer(family, e, ids.clone(), p.clone())


def save_answers(answers: Sequence[Answer], path: Path) -> None:
    """Write collected answers to one file."""
    rows = [(a.family, a.encoded.ids, a.encoded.prompt_length, a.top_ids.int(), a.top_probs.half()) for a in answers]
    write_file(path, lambda part: torch.save(rows, part))


def load_answers(path: Path) -> list[Answer]:
    """Read answers written by :func:`save_answers`."""
    rows = torch.load(path, weights_only=True)
    return [Answer(family, Encoded(ids, n), top.long(), probs.float()) for family, ids, n, top, probs in rows]


def similar_lengths(answers: Sequence[Answer], tokens_per_batch: int) -> list[list[Answer]]:
    """All answers in batches of similar length, each of at most ``tokens_per_batch`` padded tokens or one answer."""
    return by_length(answers, lambda answer: len(answer.encoded.ids), tokens_per_batch)


def answer_batches(answers: Sequence[Answer], tokens_per_batch: int, rng: random.Random) -> Iterator[list[Answer]]:
    """Endless batches of answers of similar length, in a new order each epoch."""
    if not answers:
        raise ValueError("there are no answers to learn from")
    batches = similar_lengths(answers, tokens_per_batch)
    while True:
        rng.shuffle(batches)
        yield from batches
