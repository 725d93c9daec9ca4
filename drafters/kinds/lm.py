"""``lm``: a small causal LM with a key-value cache of its own (SpS: Leviathan et al. 2023, Chen et al. 2023)."""

from __future__ import annotations

import copy
import math
from collections.abc import Container, Sequence
from typing import Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Generator
from transformers import PreTrainedModel

from drafters.base import Acceptances, Drafter, Evidence, FeatureSource, common_prefix
from drafters.bridge import BridgedDrafter
from drafters.checkpoints.digest import digest_of
from drafters.checkpoints.hub import MODEL_FILES
from drafters.checkpoints.loading import drafter_tokenizer, load_model, same_tokens
from drafters.checkpoints.model_sizes import cache_numbers, config_of, prefill_bytes, skeleton, weight_bytes, window_of
from drafters.draft import Draft
from drafters.errors import PoolError
from drafters.kinds.base import BuildContext, Confidence, Footprint, ModelEntry, SizeContext, register
from drafters.models.decoder import Decoder, DraftOptions, aligned
from drafters.models.int8 import int8_bytes, packed_bytes, products_of
from drafters.models.runtimes import cached_positions, decoder_for, group_of, groups_with, runtime_of
from drafters.models.teacher_forcing import Judged, follow, judge
from drafters.models.token_map import confine, outputs_of
from drafters.models.torch_decoder import TorchGroup
from drafters.models.window import Window
from drafters.retrieval.datastore import tokenizer_fingerprint
from drafters.sampling import SamplingParams, likeliest
from drafters.source import Quantization, Source


class LMDrafter(Drafter):
    """Drafts with a causal LM that shares the target's token ids.

    Args:
        model: where the logits come from.
        vocab_size: the target's vocabulary size; padded or missing rows of the drafter's are aligned to it.
        window: what it reads of long contexts; by default all that fits its model, and nothing longer.
        confidence: a draft ends with the token at which the drafter's probabilities of its tokens, multiplied, fall
            below this, 0 for never; of a sampled draft, those that its tokens were drawn with.
    """

    def __init__(
        self, name: str, model: Decoder, vocab_size: int, window: Window | None = None, confidence: float = 0.0
    ):
        self.name = name
        self.model = model
        self.window = window or Window(model.window)
        self.vocab_size = vocab_size
        self.log_confidence = math.log(confidence) if confidence else -math.inf
        self.parameter_count = model.parameter_count
        self.cached: list[int] = []
        self.judged = Judged(1)

    def twin(self, target: FeatureSource) -> LMDrafter:
        return self._twin(self.model.twin())

    def _twin(self, model: Decoder) -> LMDrafter:
        twin = copy.copy(self)
        twin.model, twin.cached, twin.group, twin.judged = model, [], None, Judged(1)
        return twin

    def forget(self) -> None:
        self.cached = []
        self.judged.forget()
        if isinstance(self.group, LMGroup):
            self.group.judged.forget()

    def prepare(self, context: Sequence[int]) -> None:
        self.forget()
        if self.window.covers(len(context)):
            self.logits(self.window.view(context)[:-1], last=1)

    def propose(
        self, context: Sequence[int], length: int, params: SamplingParams, generator: Generator, *, with_q: bool = False
    ) -> Draft:
        if not self.window.covers(len(context)):
            return Draft.empty()
        context = self.window.view(context)
        length = min(length, self.model.window - len(context) + 1)
        keep = min(common_prefix(self.cached, context), len(context) - 1)
        self.cached = []  # a forward that fails leaves the cache in an undefined state
        options = DraftOptions(length, params, generator, self.vocab_size, self.log_confidence, with_q)
        draft = self.model.draft(context[keep:], keep, options)
        self.cached = [*context, *draft.tokens[:-1]]
        return draft

    def gamma(self, evidence: Evidence) -> np.ndarray:
        return judge(self.window, evidence, [self.log_confidence], self._teacher_forced, self.judged)[..., 0]

    def acceptances(self, context: Sequence[int], start: int, length: int) -> Acceptances:
        window = self.model.window
        found = follow(self.window, context, start, length, [self], self._teacher_forced, window)
        return Acceptances(*(rows[0] for rows in found))

    def goes_on(self, context: Sequence[int], most: int, sure: float) -> list[float]:
        tokens, chances = list(context), list[float]()
        while len(chances) < most and sure >= self.log_confidence:
            token, chance = likeliest(self.logits(tokens, last=1)[0])
            tokens.append(token)
            chances.append(chance)
            sure += chance
        return chances

    def _teacher_forced(self, part: Evidence) -> torch.Tensor:
        return self.logits(part.context[:-1], last=len(part))[None]

    def logits(self, context: Sequence[int], last: int) -> torch.Tensor:
        """Logits ``(last, V)`` after the last ``last`` tokens of ``context``, valid until the next forward; feeds only
        what the cache lacks."""
        if not context:
            return torch.empty(0, self.vocab_size)
        keep = min(common_prefix(self.cached, context), len(context) - last)
        self.cached = []  # a forward that fails leaves the cache in an undefined state
        logits = self.model.whole(self.model.forward(context[keep:], keep, last=last, lend=True))
        self.cached = list(context)
        return aligned(logits, self.vocab_size)


class LMGroup:
    """LM drafters that read contexts alike, evaluated in one call that also catches all of them up.

    Args:
        together: what runs their models in one forward; ``None`` where each has its own.
    """

    def __init__(self, members: Sequence[LMDrafter], together: TorchGroup | None):
        self.members, self.together = members, together
        self.window = members[0].window
        self.judged = Judged(len(members))
        for member in members:
            member.group = self

    def twin(self, target: FeatureSource) -> LMGroup:
        if self.together is None:
            return LMGroup([member.twin(target) for member in self.members], None)
        together = self.together.twin()
        return LMGroup([m._twin(own) for m, own in zip(self.members, together.decoders, strict=True)], together)

    def prepare(self, context: Sequence[int]) -> None:
        for member in self.members:
            member.forget()
        if self.window.covers(len(context)):
            self._logits(self.window.view(context)[:-1], last=1)

    def gamma(self, evidence: Evidence) -> np.ndarray:
        confidences = [member.log_confidence for member in self.members]
        return judge(self.window, evidence, confidences, self._teacher_forced, self.judged)

    def acceptances(self, context: Sequence[int], start: int, length: int) -> Acceptances:
        window = self.members[0].model.window
        return follow(self.window, context, start, length, self.members, self._teacher_forced, window)

    def _teacher_forced(self, part: Evidence) -> torch.Tensor:
        return self._logits(part.context[:-1], last=len(part))

    def _logits(self, context: Sequence[int], last: int) -> torch.Tensor:
        if self.together is None or not context:
            logits = torch.empty(len(self.members), min(last, len(context)), self.members[0].vocab_size)
            for rows, member in zip(logits, self.members, strict=True):
                rows.copy_(member.logits(context, last))  # before other texts' forwards may overwrite them
            return logits
        cached = [min(common_prefix(member.cached, context), len(context) - last) for member in self.members]
        for member in self.members:
            member.cached = []
        logits = self.together.forward(context, cached, last=last)
        for member in self.members:
            member.cached = list(context)
        return logits


def make_lm_drafters(
    models: dict[str, PreTrainedModel],
    vocab_size: int,
    windows: dict[str, Window] | None = None,
    confidences: dict[str, float] | None = None,
    int8: Container[str] = (),
) -> list[LMDrafter]:
    """Drafters for named models; those that can are evaluated together.

    Args:
        windows: what drafters read of long contexts, by name; only those with the same window are evaluated together.
        confidences: how unsure drafters may get before their draft ends, by name; see :class:`LMDrafter`.
        int8: names of those that ONNX Runtime is to run with int8 weights (:mod:`drafters.models.int8`).
    """
    windows, confidences = windows or {}, confidences or {}
    drafters: dict[str, LMDrafter] = {}
    while waiting := {name: model for name, model in models.items() if name not in drafters}:
        name, model = next(iter(waiting.items()))
        same = {n: m for n, m in waiting.items() if windows.get(n) == windows.get(name) and groups_with(model, m)}
        padded = model.config.get_text_config().vocab_size != vocab_size
        alike = {name: model} if padded or not same else same
        together = group_of(list(alike.values()))
        decoders = together.decoders if together else [decoder_for(m, n in int8) for n, m in alike.items()]
        members = [
            LMDrafter(n, decoder, vocab_size, windows.get(n), confidences.get(n, 0.0))
            for n, decoder in zip(alike, decoders, strict=True)
        ]
        drafters |= {member.name: member for member in members}
        if len(members) > 1:
            LMGroup(members, together)
    return [drafters[name] for name in models]


def footprint_of(
    source: Source, context: SizeContext, window: int | None = None, token_map: str | None = None
) -> Footprint:
    """Memory of a language model that drafts, the tokens of ``token_map`` if there is one, and reads at most ``window``
    tokens of a context."""
    itemsize = context.dtype.itemsize
    model = skeleton(*config_of(source, context.card))
    if token_map:
        model = copy.deepcopy(model)
        confine(model, context.card.parent / token_map)
    read = min(window or context.tokens, window_of(model) or context.tokens, context.tokens)
    runtime = runtime_of(model, context.dtype, context.device)
    if runtime == "onnx" and source.quantization != "nf4":
        weights = weight_bytes(model, itemsize) + packed_bytes(model, source.quantization == "int8")
    else:
        weights = weight_bytes(model, itemsize, source.quantization)
    cached = cached_positions(runtime, min(context.tokens, read + context.draft_length), window_of(model))
    cache = itemsize * cache_numbers(model.config.get_text_config()) * cached
    return Footprint(model.num_parameters(), weights, cache, prefill_bytes(model, read, itemsize))


PADDING = 1024
"""By how many tokens the vocabularies of models with one tokenizer differ at most: rows that no token uses."""


@register
class LMEntry(ModelEntry):
    """A drafter of kind ``lm``. One whose tokenizer differs from the target's is bridged through text."""

    title = "small language model"
    description = "a causal LM with a cache of its own"
    source_files = MODEL_FILES
    path_fields = ("path", "token_map")

    kind: Literal["lm"]
    quantization: Quantization | None = Field(None, description="nf4 (4 bits per weight) or int8; by default none")
    window: int | None = Field(None, ge=2, description="most tokens of a context it reads; longer ones slide by")
    token_map: str | None = Field(None, description="path of a list of ids of its tokens, the only ones that it drafts")
    sinks: int = Field(4, ge=0, description="first tokens of the context that a sliding window always reads")
    confidence: Confidence = 0.0

    @model_validator(mode="after")
    def _room_beside_sinks(self) -> Self:
        if self.window is not None and self.sinks >= self.window:
            raise ValueError("window must be larger than sinks")
        return self

    def footprint(self, context: SizeContext) -> Footprint:
        return footprint_of(self.source, context, self.window, self.token_map)

    def build(self, context: BuildContext) -> Drafter:
        return self.build_all([self], context)[0]

    @classmethod
    def build_all(cls, entries: Sequence[Self], context: BuildContext) -> list[Drafter]:
        """Those of one shape share a forward; those with another tokenizer than the target's go through text."""
        models: dict[str, PreTrainedModel] = {}
        drafters: dict[str, Drafter] = {}
        known: dict[str, tuple[str, int, int | None]] = {}
        quantised: list[str] = []
        for entry in entries:
            context.steps.begin("loading", f"drafter {entry.name!r}")
            model, int8 = entry._load(context)
            if bridge := entry._bridged(model, int8, context):
                drafters[entry.name] = bridge
                continue
            models[entry.name] = model  # what is to be known of it is looked up before any are stacked
            known[entry.name] = digest_of(model.state_dict()), outputs_of(model), entry._stored_bytes(model, int8)
            if int8:
                quantised.append(entry.name)
        windows = {entry.name: entry._window for entry in entries if entry._window}
        confidences = {entry.name: entry.confidence for entry in entries}
        for drafter in make_lm_drafters(models, context.target.vocab_size, windows, confidences, quantised):
            drafter.digest, drafter.outputs, drafter.stored_bytes = known[drafter.name]
            drafters[drafter.name] = drafter
        return [drafters[entry.name] for entry in entries]

    @property
    def _window(self) -> Window | None:
        return Window(self.window, self.sinks) if self.window else None

    def _load(self, context: BuildContext) -> tuple[PreTrainedModel, bool]:
        """The model, and whether ONNX Runtime is to quantise it; others are quantised by ``bitsandbytes`` here."""
        source, who, device = self.source, f"drafter {self.name!r}", str(context.target.device)
        int8 = self.quantization == "int8"
        if int8:
            skeletal = skeleton(*config_of(source, context.card))
            int8 = runtime_of(skeletal, context.model.dtype, device) == "onnx"
        if int8:
            source = source.model_copy(update={"quantization": None})
        model = load_model(source, context.card, context.model.dtype, device, who)
        if self.token_map:
            confine(model, context.card.parent / self.token_map)
        if int8 and runtime_of(model, model.dtype, device) != "onnx":
            raise PoolError(f"{who}: the weights in its files are quantised already; remove quantization from the card")
        positions = window_of(model)
        if self.window and positions and self.window + context.draft_length - 1 > positions:
            raise PoolError(
                f"{who} is to read {self.window} tokens and to draft {context.draft_length} more, "
                f"but its model has {positions} positions"
            )
        return model, int8

    def _bridged(self, model: PreTrainedModel, int8: bool, context: BuildContext) -> BridgedDrafter | None:
        """The drafter of a model whose tokens are not the target's."""
        target, tokenizer, size = context.target, context.tokenizer, int(model.config.get_text_config().vocab_size)
        own = drafter_tokenizer(self.source, context.card)
        if own is None and abs(size - target.vocab_size) > PADDING:
            raise PoolError(
                f"drafter {self.name!r} has a vocabulary of {size:,} tokens, the target one of {target.vocab_size:,}, "
                "and no tokenizer says what they stand for; put the drafter's tokenizer into its folder"
            )
        if own is None or same_tokens(own, tokenizer):
            return None
        inner = LMDrafter(self.name, decoder_for(model, int8), size, self._window, self.confidence)
        inner.stored_bytes = self._stored_bytes(model, int8)
        bridge = BridgedDrafter(self.name, inner, own, tokenizer, target.vocab_size)
        bridge.digest = digest_of(model.state_dict(), tokenizer_fingerprint(own))
        return bridge

    def _stored_bytes(self, model: PreTrainedModel, int8: bool) -> int | None:
        """Bytes of the weights that it drafts with, where they are quantised."""
        if int8:
            return int8_bytes(*products_of(model))
        return int(model.get_memory_footprint()) if self.quantization else None
