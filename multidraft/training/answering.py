"""Let a target answer prompts at several temperatures, batch by batch, onto disk: an interruption loses one batch."""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from drafters.chat import end_ids
from drafters.errors import TrainingError
from multidraft.training.answers import (
    TOP,
    Answer,
    answer_batch,
    load_answers,
    pad_id,
    read_out,
    save_answers,
    with_distributions,
)
from multidraft.training.processes import ALONE, Processes
from multidraft.training.work import claim

BYTES_PER_TOKEN = 6 * TOP + 8
"""On disk, about."""
LOG_SECONDS = 20.0


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
    """Prompts of a task, of similar length, to be answered at once and kept in one file."""

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
    prompts: list[list[int]],
    asking: Asking,
    stop_ids: Collection[int],
) -> list[Answer]:
    """Answers to ``prompts`` of a portion; where memory does not hold them at once, by halves."""
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
    halves = (prompts[:middle], prompts[middle:])
    return [answer for half in halves for answer in _answer(target, tokenizer, portion, half, asking, stop_ids)]


def collect(
    load_target: Callable[[], PreTrainedModel],
    tokenizer: PreTrainedTokenizerBase,
    prompts: Mapping[str, Sequence[list[int]]],
    folder: Path,
    asking: Asking,
    made_by: Mapping[str, object],
    log: Callable[[str], None] = print,
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
        log(f"{done:,} of {len(files):,} batches of answers are there already")
    processes.wait()  # all have seen the same files
    if left:
        target, own = load_target(), left[processes.rank :: processes.count]
        check_read_out(target)
        stop_ids = end_ids(target, tokenizer)
        started, logged, tokens = time.perf_counter(), -math.inf, 0  # the first batch is logged at once
        for done, file in enumerate(own, start=1):
            portion = files[file]
            torch.manual_seed(zlib.crc32(f"{asking.seed}/{portion.number}".encode()))
            answers = _answer(target, tokenizer, portion, portion.prompts, asking, stop_ids)
            save_answers(answers, file)
            tokens += sum(len(a.top_ids) for a in answers)
            if (now := time.perf_counter()) - logged > LOG_SECONDS or done == len(own):
                seconds, logged = now - started, now
                remaining = seconds / done * (len(own) - done) / 60
                log(f"batch {done:,} of {len(own):,}, {tokens / seconds:,.0f} tokens/s, about {remaining:.0f} min left")
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
