"""A target's answers with its own distributions: what drafters are distilled from (MetaSD App. F.1).

:func:`collect` lets a target answer prompts batch by batch, onto disk: an interruption loses one batch.
"""

from __future__ import annotations

import math
import random
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from drafters.base import TOP
from drafters.errors import TrainingError
from drafters.learning.distil import Batch, Encoded, answer_logits, collate, distillation_loss, read_out
from drafters.text import end_ids
from multidraft.training.data import by_length
from multidraft.training.loop import LOG_SECONDS, LossOf, autocast
from multidraft.training.processes import ALONE, Processes
from multidraft.training.work import claim, write_file

BYTES_PER_TOKEN = 6 * TOP + 8
"""On disk, about."""


@dataclass(frozen=True)
class Answer(Encoded):
    """An answer of the target with the target's distribution at each of its ``n`` tokens.

    Attributes:
        family: task family of the prompt.
        top_ids: most probable tokens ``(n, TOP)`` int64.
        top_probs: their probabilities ``(n, TOP)`` float32, normalised.
    """

    family: str
    top_ids: torch.Tensor
    top_probs: torch.Tensor


def language_model_loss(model: PreTrainedModel, pad: int, device: str) -> LossOf:
    """The loss of ``model`` on a batch: of reference texts the mean cross-entropy; of answers that between the target's
    distributions over its likeliest tokens and the model's."""

    def loss_of(batch: Batch | Sequence[Answer]) -> tuple[torch.Tensor, int]:
        texts = (batch if isinstance(batch, Batch) else collate(batch, pad)).to(device)
        with autocast(device):
            logits = answer_logits(model, texts)
        logits = logits.float()
        if isinstance(batch, Batch):
            next_ids = texts.ids.roll(-1, dims=1)[texts.predicts_answer]
            return functional.cross_entropy(logits, next_ids), texts.ids.numel()
        top_ids = torch.cat([answer.top_ids for answer in batch]).to(device)
        top_probs = torch.cat([answer.top_probs for answer in batch]).to(device)
        return distillation_loss(logits, top_ids, top_probs), texts.ids.numel()

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
        yield Answer(e.ids, e.prompt_length, family, ids.clone(), p.clone())


def save_answers(answers: Sequence[Answer], path: Path) -> None:
    """Write collected answers to one file."""
    rows = [(a.family, a.ids, a.prompt_length, a.top_ids.int(), a.top_probs.half()) for a in answers]
    write_file(path, lambda part: torch.save(rows, part))


def load_answers(path: Path) -> list[Answer]:
    """Read answers written by :func:`save_answers`."""
    rows = torch.load(path, weights_only=True)
    return [Answer(ids, n, family, top.long(), probs.float()) for family, ids, n, top, probs in rows]


def answer_batches(answers: Sequence[Answer], tokens_per_batch: int, rng: random.Random) -> Iterator[list[Answer]]:
    """Endless batches of answers of similar length, in a new order each epoch."""
    if not answers:
        raise ValueError("there are no answers to learn from")
    batches = by_length(answers, tokens_per_batch)
    while True:
        rng.shuffle(batches)
        yield from batches


@dataclass(frozen=True)
class Asking:
    """How prompts are put to the target.

    Attributes:
        temperatures: each prompt is answered once at each (MetaSD App. F.1: 0, 0.3, 0.7 and 1).
        batch: prompts answered at a time.
    """

    temperatures: tuple[float, ...] = (0.0, 0.3, 0.7, 1.0)
    max_new_tokens: int = 512
    batch: int = 16
    seed: int = 0

    @property
    def listed(self) -> str:
        """The temperatures in a row."""
        return ", ".join(f"{temperature:g}" for temperature in self.temperatures)


class Portion(NamedTuple):
    """Prompts of a task, of similar length, to be answered at once and stored in one file."""

    number: int
    task: str
    temperature: float
    prompts: list[list[int]]


def portions(prompts: Mapping[str, Sequence[list[int]]], asking: Asking) -> list[Portion]:
    """All there is to answer: first everything at the first temperature."""
    found: list[Portion] = []
    for temperature in asking.temperatures:
        for task, of_task in prompts.items():
            ordered = sorted(of_task, key=len)
            for start in range(0, len(ordered), asking.batch):
                found.append(Portion(len(found), task, temperature, ordered[start : start + asking.batch]))
    return found


def _answer(
    target: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    portion: Portion,
    asking: Asking,
    stop_ids: Collection[int],
) -> list[Answer]:
    """Answers to the prompts of a portion; where memory does not hold them at once, by halves."""
    prompts = portion.prompts
    try:
        encoded = answer_batch(target, tokenizer, prompts, portion.temperature, asking.max_new_tokens, stop_ids)
        return list(with_distributions(target, portion.task, encoded, pad_id(tokenizer)))
    except torch.OutOfMemoryError:
        if len(prompts) == 1:
            raise TrainingError(
                f"{target.device} has too little memory for one answer of {asking.max_new_tokens} tokens to a prompt "
                f"of {len(prompts[0]):,}: lower --max-new-tokens (in another --work), or take another device"
            ) from None
    torch.cuda.empty_cache()
    middle = len(prompts) // 2
    halves = (portion._replace(prompts=half) for half in (prompts[:middle], prompts[middle:]))
    return [answer for half in halves for answer in _answer(target, tokenizer, half, asking, stop_ids)]


def collect(
    load_target: Callable[[], PreTrainedModel],
    tokenizer: PreTrainedTokenizerBase,
    prompts: Mapping[str, Sequence[list[int]]],
    folder: Path,
    asking: Asking,
    made_by: Mapping[str, object],
    processes: Processes = ALONE,
) -> list[Answer]:
    """The target's answers to all prompts; those that ``folder`` holds are not asked for again.

    Args:
        load_target: called only if there is something to answer.
        prompts: token ids by task.
        made_by: what the answers depend on besides ``asking`` and the prompts, such as the target's name.
        processes: each answers its share.

    Raises:
        TrainingError: the folder holds answers of other settings, or cannot be written, or read; or the device has too
            little memory for a single answer.
    """
    digest = zlib.crc32(repr(sorted(prompts.items())).encode())
    settings = {**made_by, **asdict(asking), "checksum of the prompts": f"{digest:08x}"}
    if processes.first:
        claim(folder, settings)
    processes.wait()
    files = {folder / f"{portion.number:06d}-{portion.task}.pt": portion for portion in portions(prompts, asking)}
    left = [file for file in files if not file.is_file()]
    if done := len(files) - len(left):
        processes.say(f"{done:,} of {len(files):,} batches of answers are there already")
    processes.wait()  # all have seen the same files
    if left:
        target, own = load_target(), left[processes.rank :: processes.count]
        check_read_out(target)
        stop_ids = end_ids(target, tokenizer)
        started, logged, tokens = time.perf_counter(), -math.inf, 0  # the first batch is logged at once
        for done, file in enumerate(own, start=1):
            portion = files[file]
            torch.manual_seed(zlib.crc32(f"{asking.seed}/{portion.number}".encode()))
            answers = _answer(target, tokenizer, portion, asking, stop_ids)
            save_answers(answers, file)
            tokens += sum(len(a.top_ids) for a in answers)
            if (now := time.perf_counter()) - logged > LOG_SECONDS or done == len(own):
                seconds, logged = now - started, now
                remaining = seconds / done * (len(own) - done) / 60
                rate = f"{tokens / seconds:,.0f} tokens/s"
                processes.say(f"batch {done:,} of {len(own):,}, {rate}, about {remaining:.0f} min left")
    processes.wait()
    every: list[Answer] = []
    for file in files:
        try:
            every += load_answers(file)
        except Exception as error:
            raise TrainingError(f"cannot read {file}: {error}. Remove it and begin again") from None
    return every


@torch.inference_mode()
def check_read_out(target: PreTrainedModel) -> None:
    """Raise :class:`TrainingError` where the target makes its logits in a way that training does not know."""
    ids = torch.tensor([[0, 1]], device=target.device)
    theirs = target(input_ids=ids, use_cache=False).logits.float()
    ours = read_out(target, target.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state).float()
    if not torch.allclose(ours, theirs, rtol=0.05, atol=0.05 * float(theirs.abs().max())):
        raise TrainingError(
            f"{type(target).__name__} makes its logits in a way of its own (beyond an output layer and a cap), which "
            "drafters cannot be distilled from here"
        )
