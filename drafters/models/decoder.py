"""A causal LM as a forward with a cache that can take tokens back, on one of three runtimes."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import torch
from transformers import DynamicCache, PreTrainedModel

from drafters.draft import Draft
from drafters.models import onnx_decoder, torch_decoder
from drafters.models.drafting import DraftOptions, Likeliest, step_by_step
from drafters.models.feeds import States
from drafters.models.onnx_decoder import OnnxDecoder, OnnxGroup
from drafters.models.torch_decoder import TorchDecoder, TorchGroup
from drafters.models.torch_model import room_for


class Decoder(Protocol):
    """Logits of one model, with a key-value cache.

    Attributes:
        window: most positions.
        captured: by layer, hidden states of the tokens fed last; lent with the logits.
        likeliest: the most probable tokens of the logits returned last, valid as long as lent ones; ``None`` where the
            model does not find them itself.
    """

    window: int
    parameter_count: int
    captured: Mapping[int, States]
    likeliest: Likeliest | None

    def forward(
        self,
        ids: Sequence[int],
        start: int,
        *,
        positions: torch.Tensor | None = None,
        mask: torch.Tensor | None = None,
        last: int | None = None,
        capture: Sequence[int] = (),
        lend: bool = False,
    ) -> torch.Tensor:
        """Run tokens through the model, writing the cache from ``start`` on; what was cached from there is forgotten.

        Args:
            ids: token ids.
            start: how many cached positions precede them.
            positions: rotary positions ``(T,)`` of a tree; by default ``start, start + 1, …``.
            mask: which cached positions each token of a tree sees, bool ``(T, start + T)``, all those before ``start``
                among them; causal by default. Like ``positions`` on the CPU.
            last: return the logits of the last ``last`` tokens only.
            capture: layers whose hidden states are put into :attr:`captured`: ``i`` is what enters layer ``i``, and
                the number of layers what leaves the final norm (as ``transformers`` counts them).
            lend: whether the next forward may overwrite logits and hidden states, which saves copies. Lent logits may
                be those of a token map's tokens alone; :meth:`whole` makes them logits of all.

        Returns:
            Logits ``(T or last, V)``.
        """

    def whole(self, lent: torch.Tensor) -> torch.Tensor:
        """Lent logits as those of the whole vocabulary, ``(…, V)``."""

    def draft(self, ids: Sequence[int], start: int, options: DraftOptions) -> Draft:
        """Continue ``ids`` by a chain of tokens; all of it but the last token is then cached.

        Args:
            start: how many cached positions precede ``ids``.
        """

    def twin(self) -> Decoder:
        """The same model for another text: weights are shared, the cache is its own."""

    def keep(self, start: int, kept: Sequence[int]) -> None:
        """Move the cached positions ``start + kept[0], start + kept[1], …`` to ``start, start + 1, …`` and forget what
        follows them."""


class Group(Protocol):
    """Several models that read the same text in one call."""

    window: int
    vocab_size: int

    def twin(self) -> tuple[Group, Sequence[Decoder]]:
        """The same models for another text, as a group and each by itself."""

    def forward(self, ids: Sequence[int], cached: Sequence[int], *, last: int) -> torch.Tensor:
        """Logits ``(models, last, V)`` of the last tokens of a text, of which each model has ``cached`` already."""


def runtime_of(model: PreTrainedModel, dtype: torch.dtype, device: str) -> Literal["onnx", "torch", "hub"]:
    """The fastest runtime that ``model`` has in ``dtype`` on ``device``: ONNX Runtime, our own forward in PyTorch, or
    the library's. The first one has a copy of the weights besides those of the library."""
    if onnx_decoder.unsupported(model, dtype, device) is None:
        return "onnx"
    return "torch" if torch_decoder.unsupported(model, dtype, device) is None else "hub"


def cached_positions(runtime: str, positions: int, window: int | None) -> int:
    """For how many positions a text's cache has room where it needs so many; ``window`` is the model's."""
    return room_for(positions, window or positions) if runtime == "torch" else positions


def _runtime(model: PreTrainedModel) -> str:
    return runtime_of(model, model.dtype, str(model.device))


def decoder_for(model: PreTrainedModel, int8: bool = False, *, verifies: bool = False) -> Decoder:
    """``model`` on its fastest runtime; on ONNX Runtime with int8 weights where that is asked for. Of a target, which
    ``verifies``, it is not asked how sure it is."""
    runtime = _runtime(model)
    if runtime == "onnx":
        return OnnxDecoder(model, int8, verifies=verifies)
    return TorchDecoder(model) if runtime == "torch" else HubDecoder(model)


def groups_with(model: PreTrainedModel, other: PreTrainedModel) -> bool:
    """Whether :func:`group_of` takes both, which may be the same."""
    runtime = _runtime(model)
    if runtime == "hub" or _runtime(other) != runtime:
        return False
    if runtime == "torch":
        return torch_decoder.differs(model, other) is None
    names = ("vocab_size", "max_position_embeddings")
    return all(getattr(model.config, name) == getattr(other.config, name) for name in names)


def group_of(models: Sequence[PreTrainedModel], int8: Sequence[bool]) -> tuple[Group, Sequence[Decoder]]:
    """Models that :func:`groups_with` finds to go together, as a group and each by itself; ``int8`` is, of each, as in
    :func:`decoder_for`."""
    if _runtime(models[0]) == "onnx":
        decoders = [OnnxDecoder(model, of_it) for model, of_it in zip(models, int8, strict=True)]
        return OnnxGroup(decoders), decoders
    group = TorchGroup(models)
    return group, group.decoders


class HubDecoder:
    """Any causal LM of ``transformers`` with a key-value cache, by its own forward; see :class:`Decoder`."""

    def __init__(self, model: PreTrainedModel):
        self.model = model
        self.parameter_count = model.num_parameters()
        config = model.config.get_text_config()
        self.window = int(getattr(config, "max_position_embeddings", None) or 1 << 30)
        self.last_id = int(config.vocab_size) - 1
        self.captured: Mapping[int, States] = {}
        self.likeliest: Likeliest | None = None
        self._clear()

    def _clear(self) -> None:
        # Without the model's configuration every layer keeps all it sees. Sliding-window layers of the
        # library forget on write, which no rollback could undo; their window is applied by the mask.
        self.cache, self.length = DynamicCache(), 0

    def twin(self) -> HubDecoder:
        twin = copy.copy(self)
        twin._clear()
        return twin

    @torch.inference_mode()
    def forward(
        self,
        ids: Sequence[int],
        start: int,
        *,
        positions: torch.Tensor | None = None,
        mask: torch.Tensor | None = None,
        last: int | None = None,
        capture: Sequence[int] = (),
        lend: bool = False,
    ) -> torch.Tensor:
        if start == 0:
            self._clear()
        elif start < self.length:
            self.cache.crop(start - self.length)
        extra: dict[str, Any] = {}
        if positions is not None and mask is not None:
            positions, mask = positions.to(self.model.device), mask.to(self.model.device)
            extra = {"position_ids": positions[None], "attention_mask": self._layer_masks(start, positions, mask)}
        output = self.model(
            # Tokens of the target that a drafter's smaller vocabulary lacks stand as its last one.
            input_ids=torch.tensor([list(ids)], device=self.model.device).clamp_(max=self.last_id),
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=last or 0,
            output_hidden_states=bool(capture),
            **extra,
        )
        self.captured = {layer: output.hidden_states[layer][0] for layer in capture}
        self.length = start + len(ids)
        logits: torch.Tensor = output.logits[0]
        return logits

    def _layer_masks(
        self, start: int, positions: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor | dict[str, torch.Tensor]:
        """A tree's mask as the model takes it: additive, one for each kind of layer where there are several.

        The library passes a ready mask on as it is, so the window of sliding layers has to be in it.
        """

        def additive(seen: torch.Tensor) -> torch.Tensor:
            dtype = self.model.dtype
            return torch.zeros_like(seen, dtype=dtype).masked_fill_(~seen, torch.finfo(dtype).min)[None, None]

        config = self.model.config.get_text_config()
        window = getattr(config, "sliding_window", None)
        if window is None:
            return additive(mask)
        places = torch.cat([torch.arange(start, device=positions.device), positions])
        sliding = additive(mask & (places > positions[:, None] - window))
        kinds = set(getattr(config, "layer_types", None) or ["sliding_attention"])
        if len(kinds) == 1:
            return sliding if kinds == {"sliding_attention"} else additive(mask)
        return {"full_attention": additive(mask), "sliding_attention": sliding}

    def whole(self, lent: torch.Tensor) -> torch.Tensor:
        return lent

    def draft(self, ids: Sequence[int], start: int, options: DraftOptions) -> Draft:
        return step_by_step(self, ids, start, options)

    @torch.inference_mode()
    def keep(self, start: int, kept: Sequence[int]) -> None:
        end = start + len(kept)
        if list(kept) != list(range(len(kept))):
            source = torch.tensor(kept, device=self.model.device) + start
            for layer in self.cache.layers:
                layer.keys[:, :, start:end] = layer.keys[:, :, source]
                layer.values[:, :, start:end] = layer.values[:, :, source]
        if end < self.length:
            self.cache.crop(end - self.length)
        self.length = end
