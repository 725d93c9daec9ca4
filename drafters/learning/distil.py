"""Learning a target's distributions from texts of its own (MetaSD App. F.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from drafters.base import Lesson
from drafters.learning.learner import Course
from drafters.learning.memory import size
from drafters.models.decoder import Decoder
from drafters.models.runtimes import decoder_for


def read_out(model: PreTrainedModel, hidden: torch.Tensor) -> torch.Tensor:
    """Logits ``(..., vocabulary)`` of last hidden states ``(..., hidden)``, capped where the model caps them."""
    logits: torch.Tensor = model.get_output_embeddings()(hidden)
    cap = getattr(model.config.get_text_config(), "final_logit_softcapping", None)
    return torch.tanh(logits / cap) * cap if cap else logits


def distillation_loss(logits: torch.Tensor, top_ids: torch.Tensor, top_probs: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy between a target's probabilities ``top_probs (n, k)`` of its likeliest tokens ``top_ids`` and
    the distributions of ``logits (n, V)``, float32."""
    log_probs = logits.gather(1, top_ids) - logits.logsumexp(dim=-1, keepdim=True)
    return -(top_probs * log_probs).sum(dim=-1).mean()


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

    def to(self, device: torch.device | str) -> Batch:
        """The same on ``device``."""
        return Batch(self.ids.to(device), self.predicts_answer.to(device))


def collate(sequences: Sequence[Encoded], pad: int) -> Batch:
    """Pad to the longest; right padding needs no attention mask under causal attention."""
    ids = pad_sequence([torch.tensor(s.ids) for s in sequences], batch_first=True, padding_value=pad)
    mask = torch.zeros(ids.shape, dtype=torch.bool)
    for row, s in zip(mask, sequences, strict=True):
        row[s.prompt_length - 1 : len(s.ids) - 1] = True
    return Batch(ids, mask)


def batch_of(lessons: Sequence[Lesson], device: torch.device) -> Batch:
    """Lessons as a batch on ``device``."""
    texts = [Encoded([*lesson.prompt, *lesson.answer], len(lesson.prompt)) for lesson in lessons]
    return collate(texts, 0).to(device)


def answer_logits(model: PreTrainedModel, batch: Batch) -> torch.Tensor:
    """Logits ``(answer tokens, vocabulary)`` at the positions that predict an answer token.

    Prompts are given, never predicted, so the output layer is spared their positions: about half its cost.
    """
    hidden = model.get_decoder()(input_ids=batch.ids, use_cache=False).last_hidden_state
    return read_out(model, hidden[batch.predicts_answer])


def aims(lesson: Lesson) -> tuple[torch.Tensor, torch.Tensor]:
    """What is to be learnt at the tokens of an answer: token ids and their shares, ``(answer, k)`` each."""
    if lesson.top_ids is None or lesson.top_probs is None:
        ids = torch.tensor(lesson.answer)[:, None]
        return ids, torch.ones(ids.shape)
    return lesson.top_ids, lesson.top_probs / lesson.top_probs.sum(dim=-1, keepdim=True)


def all_aims(lessons: Sequence[Lesson], first: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Those of several answers one after the other, each from its token number ``first`` on; of the widest's width."""
    found = [[part[begin:] for part in aims(lesson)] for lesson, begin in zip(lessons, first, strict=True)]
    width = max(ids.shape[1] for ids, _ in found)

    def joined(place: int) -> torch.Tensor:
        return torch.cat([functional.pad(parts[place], (0, width - parts[place].shape[1])) for parts in found])

    return joined(0), joined(1)


class ModelCourse(Course[PreTrainedModel, Decoder]):
    """How a small language model is taught."""

    def runner(self, model: PreTrainedModel) -> Decoder:
        decoder = decoder_for(model)
        decoder.forward([0], 0, last=1)  # the first forward makes the session, which the next query should not pay
        self.window = decoder.window
        return decoder

    def fits(self, lesson: Lesson) -> bool:
        return size(lesson) <= self.window

    def loss(self, model: PreTrainedModel, lessons: Sequence[Lesson]) -> torch.Tensor:
        """By the target's distributions, or by its tokens where it is they alone that are known."""
        logits = answer_logits(model, batch_of(lessons, model.device)).float()
        vocabulary, device = logits.shape[-1], logits.device
        top_ids, top_probs = (part.to(device) for part in all_aims(lessons, [0] * len(lessons)))
        top_probs = top_probs.masked_fill(top_ids >= vocabulary, 0.0)  # tokens that a smaller vocabulary lacks
        return distillation_loss(logits, top_ids.clamp_max(vocabulary - 1), top_probs)

    @torch.no_grad()
    def agreed(self, model: PreTrainedModel, lesson: Lesson) -> int:
        logits = answer_logits(model, batch_of([lesson], model.device))
        return int((logits.argmax(dim=-1).cpu() == torch.tensor(lesson.answer)).sum())
