"""Learning a target's distributions from texts of its own (MetaSD App. F.1)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from drafters.base import Lesson
from drafters.learning.course import Course
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


def answer_logits(model: PreTrainedModel, lessons: Sequence[Lesson]) -> torch.Tensor:
    """Logits ``(answer tokens, V)`` float32 at the tokens of all answers, each after what stands before it."""
    texts = [torch.tensor([*lesson.prompt, *lesson.answer][:-1]) for lesson in lessons]
    ids = pad_sequence(texts, batch_first=True)  # causal attention sees nothing of what is padded on the right
    asked = torch.zeros(ids.shape, dtype=torch.bool)
    for row, lesson, text in zip(asked, lessons, texts, strict=True):
        row[len(lesson.prompt) - 1 : len(text)] = True
    ids, asked = ids.to(model.device), asked.to(model.device)
    hidden = model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
    return read_out(model, hidden[asked]).float()


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
        logits = answer_logits(model, lessons)
        vocabulary, device = logits.shape[-1], logits.device
        top_ids, top_probs = (part.to(device) for part in all_aims(lessons, [0] * len(lessons)))
        top_probs = top_probs.masked_fill(top_ids >= vocabulary, 0.0)  # tokens that a smaller vocabulary lacks
        return distillation_loss(logits, top_ids.clamp_max(vocabulary - 1), top_probs)

    @torch.no_grad()
    def agreed(self, model: PreTrainedModel, lesson: Lesson) -> int:
        return int((answer_logits(model, [lesson]).argmax(dim=-1).cpu() == torch.tensor(lesson.answer)).sum())
