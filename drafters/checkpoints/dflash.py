"""DFlash networks as they are published, put into the class that ``transformers`` has for such a network.

The public folders (``z-lab/…-DFlash…``) bring code of their own, which is not run. Their network is the library's
``MuseGlimmerAssistantModel`` under other names: Qwen3 layers whose keys and values also come from the target's hidden
states, fused by one matrix and a norm. Those of ``speculators`` hold the same, and may have an output layer for some of
the target's tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import MuseGlimmerAssistantConfig, MuseGlimmerAssistantModel, PreTrainedModel

from drafters.checkpoints.loading import explained
from drafters.checkpoints.tensor_files import (
    MOST_LAYERS,
    check_ids,
    check_tensors,
    object_in,
    read_config,
    read_weights,
    whole_number,
)
from drafters.errors import PoolError, quoted

_PUBLISHED = {"encoder.fc.weight": "fc.weight", "encoder.output_norm_enc.weight": "hidden_norm.weight"}
"""By the library's names the published ones, where they differ."""
_SIZES = dict.fromkeys(
    ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
     "max_position_embeddings", "mask_token_id"), 10**8,
) | {"num_hidden_layers": MOST_LAYERS, "block_size": 1000}  # fmt: skip
"""What a configuration must name, and how large it may be."""
_HARMLESS = {
    "attention_sink_bias": False,
    "input_embedding_scale": 1.0,
    "is_neox_style": True,
    "projector_type": "dflash",
    "sample_from_anchor": False,
    "shift_label": False,
    "use_aux_hidden_state": True,
}
"""Settings that make other networks of the same tensors, with the values of those that are computed here."""


def is_published_dflash(config: Mapping[str, Any]) -> bool:
    """Whether a configuration is of a published folder rather than one of the library's; also of those that
    :func:`dflash_config` refuses."""
    others = {"dflash_config", "speculators_model_type"} & set(config)
    return bool(others) or "DFlashDraftModel" in str(config.get("architectures"))


def dflash_config(config: Mapping[str, Any], file: Path) -> MuseGlimmerAssistantConfig:
    """The library's configuration that says what a published one, from ``file``, does."""
    if kind := config.get("speculators_model_type"):
        if kind != "dflash":
            raise PoolError(f"{file} is of a speculator of type {quoted(kind)}; dflash drafters read 'dflash'")
        config = _flat(config, file)
    if "DFlashDraftModel" not in (names := str(config.get("architectures"))):  # such as Domino, DSpark
        raise PoolError(f"{file}: architectures is {names}; dflash drafters read DFlashDraftModel")
    rotation = object_in(config, "rope_scaling", file) | object_in(config, "rope_parameters", file)
    theta = rotation.get("rope_theta", config.get("rope_theta", 10_000.0))
    moved = rotation.get("rope_type", rotation.get("type", "default")) != "default" or "factor" in rotation
    if moved or config.get("attention_bias") or config.get("hidden_act", "silu") != "silu":
        raise PoolError(
            f"{file}: DFlash networks with attention biases, scaled rotations or another activation than silu "
            "cannot be computed here"
        )
    own = {**config, **object_in(config, "dflash_config", file)}
    own.setdefault("target_layer_ids", _spread_layers(config, file))
    layers = own["target_layer_ids"]
    if not isinstance(layers, list) or not layers or not all(type(i) is int and i >= 0 for i in layers):
        raise PoolError(
            f"{file}: target_layer_ids must list the target's layers that the network reads, got {layers!r}"
        )
    sizes = {name: whole_number(own, name, file, most=_SIZES[name]) for name in _SIZES}
    attention = _attention(config, own, file)
    with explained(f"{file} is no configuration of a DFlash network"):
        return MuseGlimmerAssistantConfig(
            **sizes,
            target_layer_ids=layers,
            **attention,
            rms_norm_eps=float(config.get("rms_norm_eps", 1e-6)),
            rope_parameters={"rope_type": "default", "rope_theta": float(theta)},
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        )


def _flat(config: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """A configuration of ``speculators`` in the words of the others; what it says outside of its layers goes first."""
    layers = object_in(config, "transformer_layer_config", file)
    flat = layers | {name: value for name, value in config.items() if value is not None}
    return {**flat, "architectures": ["DFlashDraftModel"], "target_layer_ids": flat.get("aux_hidden_state_layer_ids")}


def _spread_layers(config: Mapping[str, Any], file: Path) -> list[int] | None:
    """The target's layers that are read where a configuration names none: spread evenly from the second to the third
    from the last (``build_target_layer_ids`` of the published code); ``None`` if it does not say how many there are."""
    if "num_target_layers" not in config:
        return None
    count, own = (
        whole_number(config, name, file, most=MOST_LAYERS) for name in ("num_target_layers", "num_hidden_layers")
    )
    if own == 1:
        return [count // 2]
    return [round(1 + index * (count - 4) / (own - 1)) for index in range(own)]


def _attention(config: Mapping[str, Any], own: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """Which layers slide, over how many positions, and whether a block's tokens see only those before them: in sliding
    layers they do and in others not, unless the configuration says what holds for all (``causal``)."""
    count = whole_number(own, "num_hidden_layers", file)
    kinds = config.get("layer_types") or ["full_attention"] * count
    if not isinstance(kinds, list) or len(kinds) != count or not all(isinstance(kind, str) for kind in kinds):
        raise PoolError(f"{file}: layer_types must name the kinds of {count} layers, got {quoted(kinds)}")
    if other := sorted(set(kinds) - {"full_attention", "sliding_attention"}):
        raise PoolError(
            f"{file}: layer_types has {other[0]!r}; DFlash networks are read with full and sliding attention"
        )
    slides, window = "sliding_attention" in kinds, config.get("sliding_window")
    if slides and (window is None or config.get("use_sliding_window") is False):
        raise PoolError(
            f"{file}: layer_types has sliding layers, but there is no sliding_window to say how far they see"
        )
    if own.get("use_swa") and not (slides and own.get("swa_window_size", window) == window):
        raise PoolError(
            f"{file}: use_swa with swa_window_size {own.get('swa_window_size')!r} is read differently by different "
            "programs; it is understood only where layer_types names the sliding layers and sliding_window is the same"
        )
    for name, harmless in _HARMLESS.items():
        if own.get(name) not in (harmless, None):
            raise PoolError(f"{file}: {name} is {own[name]!r}; DFlash networks with it cannot be computed here")
    causal = next((own[name] for name in ("is_causal", "causal") if own.get(name) is not None), None)
    if causal not in (None, True, False):
        raise PoolError(f"{file}: is_causal (or causal) must be true or false, got {causal!r}")
    return {
        "layer_types": kinds,
        "sliding_window": whole_number(config, "sliding_window", file) if slides else 2048,
        "causal": {
            "full_attention": bool(causal),
            "sliding_attention": not own.get("sliding_window_non_causal") if causal is None else causal,
        },
    }


@dataclass(frozen=True)
class Output:
    """An output layer of some of the target's tokens.

    Attributes:
        weight: ``(tokens, hidden)``.
        ids: the target's token ids ``(tokens,)``.
    """

    weight: torch.Tensor
    ids: torch.Tensor


def own_outputs(config: Mapping[str, Any], file: Path, tokens: int) -> int:
    """Of how many of the target's ``tokens`` a network has an output layer; 0 where it takes the target's."""
    if "speculators_model_type" not in config:
        return 0
    own = whole_number(config, "draft_vocab_size", file, tokens)
    return own if own != tokens else 0


_LENT = {"embed_tokens.weight", "lm_head.weight", "d2t", "t2d", "verifier_norm.weight", "verifier_lm_head.weight"}
"""Tensors of ``speculators``' folders that are the target's or not needed."""


def read_dflash(folder: Path, target: PreTrainedModel) -> tuple[MuseGlimmerAssistantModel, Output | None]:
    """The network of a published folder, on the target's device in its dtype, and its output layer if it has one:
    ``config.json`` and safetensors named ``layers.0…``, ``norm.weight``, ``fc.weight`` and ``hidden_norm.weight``;
    ``lm_head.weight`` and ``d2t``."""
    file = folder / "config.json"
    published, size = read_config(file), int(target.config.get_text_config().vocab_size)
    config = dflash_config(published, file)
    with torch.device("meta"), explained(f"{file} is no configuration of a DFlash network"):
        model = MuseGlimmerAssistantModel(config)
    if (found := read_weights(folder, ["model.safetensors"])) is None:
        raise PoolError(f"{folder} holds no DFlash network: it should have model.safetensors")
    tensors = found[1]
    names = {name: _PUBLISHED.get(name, name) for name, _ in model.named_parameters()}
    expected = {names[name]: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    if outputs := own_outputs(published, file, size):
        expected |= {"lm_head.weight": (outputs, config.hidden_size), "d2t": (outputs,)}
    if "speculators_model_type" in published:
        tensors = {name: tensor for name, tensor in tensors.items() if name in expected or name not in _LENT}
    check_tensors(found[0], tensors, expected, "DFlash networks")
    state = {name: tensors[theirs].to(target.dtype) for name, theirs in names.items()}
    model.load_state_dict(state, assign=True)
    model.rotary_emb = type(model.rotary_emb)(model.config)  # its frequencies are in no file
    model.eval().to(target.device)
    if not outputs:
        return model, None
    ids = tensors["d2t"].long() + torch.arange(outputs)
    check_ids(found[0], "d2t", ids, size)
    return model, Output(tensors["lm_head.weight"].to(target.device, target.dtype), ids.to(target.device))
