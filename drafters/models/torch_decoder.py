"""Plain decoders in PyTorch: what runs them on a GPU, and in half precision on a CPU."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from drafters.draft import Draft
from drafters.models.decoder import DraftOptions
from drafters.models.families import not_plain
from drafters.models.feeds import Answer, DraftFeed, Feed, Slot, SlotDecoder, pieces_of
from drafters.models.streams import answer
from drafters.models.token_map import ConfinedHead
from drafters.models.torch_drafts import Drafts
from drafters.models.torch_model import SPARE, TorchModel

QUANTISED = ("Linear4bit", "Linear8bitLt")
"""Layers of ``bitsandbytes`` that compute without waiting for the device."""


def unsupported(model: PreTrainedModel, dtype: torch.dtype, device: str) -> str | None:
    """Why :class:`TorchDecoder` cannot run ``model`` in ``dtype`` on ``device``; ``None`` if it can."""
    if reason := not_plain(model):
        return reason
    if device.startswith("cuda") and os.environ.get("SPACES_ZERO_GPU"):
        return "weights that ZeroGPU moves to another process"  # whether views outlive that has not been tried
    if not dtype.is_floating_point or dtype.itemsize > 4:
        return f"{dtype}"
    if getattr(model, "hf_quantizer", None) is None:
        return None
    if not device.startswith("cuda"):
        return "quantised weights on a CPU"
    layers = (module for name, module in model.named_modules() if name.endswith(("_proj", "lm_head", "lm_head.rows")))
    others = {type(module).__name__ for module in layers} - {"Linear", "ConfinedHead", *QUANTISED}
    return f"weights quantised otherwise: {', '.join(sorted(others))}" if others else None


def alike(model: PreTrainedModel, other: PreTrainedModel) -> bool:
    """Whether two models can share a forward: neither is quantised, their architecture and sizes are the same, and both
    have a token map or none has."""
    if any(getattr(each, "hf_quantizer", None) is not None for each in (model, other)):
        return False
    names = """
        vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim
        max_position_embeddings rms_norm_eps tie_word_embeddings rope_parameters attention_bias mlp_bias
        sliding_window layer_types
    """.split()
    mine, others = ([getattr(each.config, name, None) for name in names] for each in (model, other))
    maps = {isinstance(each.lm_head, ConfinedHead) for each in (model, other)}
    return type(model) is type(other) and mine == others and len(maps) == 1


class Member:
    """One model of a stack, for any number of texts; see :class:`~drafters.models.feeds.Runs`."""

    def __init__(self, stack: TorchModel, drafts: Drafts, index: int):
        self.stack, self.index, self.model = stack, index, stack.models[index]
        self.drafts = drafts
        self.window, self.vocab_size, self.parameter_count = stack.window, stack.vocab_size, self.model.num_parameters()
        self.take_slot, self.release_slot, self.keep = stack.take_slot, stack.release_slot, stack.keep

    def run(self, feeds: Sequence[Feed]) -> list[Answer]:
        """One forward of several texts."""
        return self.stack.forward(feeds, self.index)


def members_of(models: Sequence[PreTrainedModel], static: bool | None) -> list[Member]:
    """A stack of models of one shape."""
    stack = TorchModel(models, static=static)
    drafts = Drafts(stack)
    return [Member(stack, drafts, index) for index in range(len(models))]


class TorchDecoder(SlotDecoder):
    """One text under one model; see :class:`~drafters.models.decoder.Decoder`.

    Args:
        model: one that :func:`unsupported` has nothing against, or what runs it already for other texts.
        static: as of :class:`~drafters.models.torch_model.TorchModel`.
    """

    runs: Member

    def __init__(self, model: PreTrainedModel | Member, slot: Slot | None = None, *, static: bool | None = None):
        super().__init__(model if isinstance(model, Member) else members_of([model], static)[0], slot)
        self.model = self.runs.model

    def draft(self, ids: Sequence[int], start: int, options: DraftOptions) -> Draft:
        """As of :class:`~drafters.models.decoder.Decoder`. On a GPU all steps are one graph; those after the token that
        is doubted are computed, too, and not looked at."""
        if not self.runs.stack.static:
            return super().draft(ids, start, options)
        self._check(start + len(ids) + options.length - 1)
        if (most := len(ids) - 1) >= SPARE:  # long ones first, without the last token
            self.forward(ids[:most], start, last=1)
            ids, start = ids[most:], start + most
        asked = self.runs.index, DraftFeed(self._slot.number, ids, start, options)
        found: Draft = answer(self.runs.drafts, asked, len(ids) + options.length - 1)
        return found


class TorchGroup:
    """Models that are :func:`alike` and read the same text in one forward, in which they share every product.

    Attributes:
        decoders: each model by itself.
    """

    def __init__(self, models: Sequence[PreTrainedModel], *, static: bool | None = None):
        self._members = members_of(models, static)
        self._stack = self._members[0].stack
        self._take_slot()

    def _take_slot(self) -> None:
        self._slot = Slot(self._members[0])
        self.decoders = [TorchDecoder(member, self._slot) for member in self._members]

    def twin(self) -> TorchGroup:
        """The same models for another text."""
        twin = copy.copy(self)
        twin._take_slot()
        return twin

    def forward(self, ids: Sequence[int], cached: Sequence[int], *, last: int) -> torch.Tensor:
        """Logits ``(models, last, V)`` of the last tokens of a text of which each model has ``cached`` so many; what
        one of them lacks all are fed."""
        start, last = min(cached), min(last, len(ids))
        if len(ids) > self._stack.window:
            raise ValueError(f"{len(ids)} tokens exceed the context window of {self._stack.window}")
        pieces = []
        for begin, end, rows in pieces_of(start, len(ids), last):
            feed = Feed(self._slot.number, ids[begin:end], begin, rows)
            pieces.append(self._stack.forward([feed], None)[0].logits.clone())
        return torch.cat(pieces, dim=1)[:, -last:]
