"""Plain decoders: the families whose forward we compute ourselves, and what their configurations say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import LlamaForCausalLM, MistralForCausalLM, PreTrainedModel, Qwen2ForCausalLM, Qwen3ForCausalLM

from drafters.checkpoints.eagle import FIXED_ROTATIONS

DECODERS = (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)


def not_plain(model: PreTrainedModel) -> str | None:
    """Why ``model`` is none of these families' plain decoders; ``None`` if it is."""
    if type(model) not in DECODERS:
        return f"{type(model).__name__} is not a plain decoder"
    config = model.config
    if (config.rope_parameters or {}).get("rope_type", "default") not in FIXED_ROTATIONS:
        return "rotary frequencies that depend on the length"
    return None if config.hidden_act == "silu" else f"activation {config.hidden_act}"


def sliding_window_of(config: Any) -> int | None:
    """Most positions that sliding layers see; ``None`` where there are none or they see all the model knows."""
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"]
    if window is None or "sliding_attention" not in kinds or window >= config.max_position_embeddings:
        return None
    return int(window)


def sliding_layers(config: Any) -> list[bool]:
    """Of each layer whether it sees a sliding window only."""
    count = int(config.num_hidden_layers)
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"] * count
    return [sliding_window_of(config) is not None and kind == "sliding_attention" for kind in kinds]


def joined(*parts: torch.nn.Parameter) -> torch.Tensor:
    """Parameters one after the other as one tensor, of which they become views: memory holds them once, however often
    they are joined."""
    first, ends = parts[0].detach(), [part.data_ptr() + part.nbytes for part in parts]
    alike = all(part.is_contiguous() for part in parts) and len({p.untyped_storage().data_ptr() for p in parts}) == 1
    if alike and ends[:-1] == [part.data_ptr() for part in parts[1:]]:
        return first.as_strided((sum(map(len, parts)), *first.shape[1:]), first.stride())
    whole = torch.cat([part.detach() for part in parts])
    become_views(parts, whole)
    return whole


def become_views(parts: Sequence[torch.nn.Parameter], whole: torch.Tensor) -> None:
    """Let parameters be views of a tensor that holds them one after the other."""
    for part, view in zip(parts, whole.split([len(part) for part in parts]), strict=True):
        part.data = view
