"""The three runtimes of decoders, and the fastest that a model has."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Literal

import torch
from transformers import DynamicCache, PreTrainedModel

from drafters.checkpoints.loading import cache_argument
from drafters.checkpoints.model_sizes import window_of
from drafters.models import onnx_decoder, torch_decoder
from drafters.models.decoder import Decoder
from drafters.models.onnx_decoder import OnnxDecoder
from drafters.models.torch_decoder import TorchDecoder, TorchGroup
from drafters.models.torch_model import room_for


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
    """Whether drafters with both, which may be the same, can be evaluated together."""
    runtime = _runtime(model)
    if runtime == "hub" or _runtime(other) != runtime:
        return False
    if runtime == "torch":
        return torch_decoder.alike(model, other)
    names = ("vocab_size", "max_position_embeddings")
    return all(getattr(model.config, name) == getattr(other.config, name) for name in names)


def group_of(models: Sequence[PreTrainedModel]) -> TorchGroup | None:
    """What runs models that :func:`groups_with` finds to go together in one forward; ``None`` where each has its
    own, as on ONNX Runtime: products batched over models are no faster on a CPU."""
    return TorchGroup(models) if len(models) > 1 and _runtime(models[0]) == "torch" else None


class HubDecoder(Decoder):
    """Any causal LM of ``transformers`` with a key-value cache, by its own forward; see :class:`Decoder`."""

    def __init__(self, model: PreTrainedModel):
        self.model = model
        self.parameter_count = model.num_parameters()
        self._cache_argument = cache_argument(model)
        self.window = window_of(model) or 1 << 30
        self.last_id = int(model.config.get_text_config().vocab_size) - 1
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
            use_cache=True,
            logits_to_keep=last or 0,
            output_hidden_states=bool(capture),
            **{self._cache_argument: self.cache},
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
