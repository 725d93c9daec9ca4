"""Folders of Medusa and BPD heads, read and checked against the target; Medusa's are written too."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import PreTrainedModel

from drafters.checkpoints.tensor_files import (
    MOST_LAYERS,
    check_ids,
    check_tensors,
    read_config,
    read_tensors,
    read_weights,
    whole_number,
)
from drafters.errors import PoolError, quoted

MEDUSA_FILES = ("medusa_lm_head.safetensors", "medusa_lm_head.pt", "model.safetensors")
"""In the order they are looked for."""
MOST_HEADS = 5
"""As many as the published folders hold at most; their configurations often name fewer than there are."""
BPD_FILE = "model.safetensors"


def read_medusa(folder: Path, target: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Tensors of Medusa heads in the layout they are published in, checked against the target.

    A folder with ``config.json`` (``medusa_num_layers``; its ``medusa_num_heads`` is wrong in many published ones, so
    heads are counted by their tensors) and ``medusa_lm_head.safetensors`` or ``.pt``, in which head ``h`` has
    ``{h}.{layer}.linear.weight`` (hidden, hidden), ``{h}.{layer}.linear.bias`` (hidden) and
    ``{h}.{medusa_num_layers}.weight`` (vocabulary, hidden). Some names begin with ``medusa_head.``, which is dropped.

    Or as vLLM has them converted: ``model.safetensors`` with ``blocks.{h}.layers.{layer}.weight``, biases if
    ``medusa_fc_bias`` says so, and ``lm_heads.{h}.weight``; with ``original_lm_head`` the first of these, or
    ``lm_head.weight``, is that of all heads. With a ``truncated_vocab_size`` there are so many ids in ``token_map``,
    and output layers hold the rows of these tokens, or of all.

    Returns:
        By Medusa's own names, ``token_map`` only where output layers have the rows of some tokens; an output layer of
        all heads is that of head 0.
    """
    config = read_config(config_file := folder / "config.json")
    if (found := read_weights(folder, MEDUSA_FILES)) is None:
        raise PoolError(f"{folder} holds no Medusa heads: it should have one of {', '.join(MEDUSA_FILES)}")
    (file, held), layers = found, medusa_sizes(config, config_file)[1]
    tensors = {_name(name, layers): tensor for name, tensor in held.items()}
    heads = {match[1] for match in (re.match(r"(\d+)\.\d+\.", name) for name in tensors) if match}
    if not heads:
        raise PoolError(f"{file} holds no Medusa heads: none of its tensors is named like 0.0.linear.weight")
    own, vllm = target.config.get_text_config(), any("blocks." in name for name in held)
    if vllm and (scale := config.get("logit_scale", 1)) != 1:
        raise PoolError(f"{config_file}: logit_scale is {quoted(scale)}; Medusa heads with it cannot be computed here")
    size, tokens, shared = own.hidden_size, own.vocab_size, vllm and bool(config.get("original_lm_head"))
    outputs = whole_number(config, "truncated_vocab_size", config_file, tokens) if vllm else tokens
    last = [f"{head}.{layers}.weight" for head in range(len(heads))]
    if shared:
        if "lm_head.weight" in tensors:
            tensors[last[0]] = tensors.pop("lm_head.weight")
        tensors, last = {name: tensor for name, tensor in tensors.items() if name not in last[1:]}, last[:1]
    if outputs == tokens:
        tensors.pop("token_map", None)
    expected: dict[str, tuple[int, ...]] = {}
    for part in (f"{head}.{layer}.linear" for head in range(len(heads)) for layer in range(layers)):
        expected[f"{part}.weight"] = (size, size)
        if not vllm or config.get("medusa_fc_bias"):
            expected[f"{part}.bias"] = (size,)
    whole = last[0] in tensors and tensors[last[0]].shape[:1] == (tokens,)
    expected |= dict.fromkeys(last, (tokens if whole else outputs, size))
    expected |= {"token_map": (outputs,)} if outputs != tokens else {}
    check_tensors(file, tensors, expected, f"Medusa heads of {layers} layers")
    if (ids := tensors.get("token_map")) is not None:
        check_ids(file, "token_map", ids := ids.long(), tokens)
        tensors |= {name: tensors[name][ids] for name in last if whole}
    return tensors


def _name(theirs: str, layers: int) -> str:
    """A tensor's name in Medusa's own words."""
    name = re.sub(r"^medusa_heads?\.", "", theirs)
    name = re.sub(r"^blocks\.(\d+)\.layers\.(\d+)\.", r"\1.\2.linear.", name)
    return re.sub(r"^lm_heads\.(\d+)\.", rf"\1.{layers}.", name)


def medusa_sizes(config: Mapping[str, Any], file: Path) -> tuple[int, int]:
    """Number of Medusa heads and of the layers of each by the configuration in ``file``, or Medusa's defaults."""
    if config.get("model_type") == "medusa":  # vLLM's
        config = {
            "medusa_num_heads": config.get("num_heads"),
            "medusa_num_layers": config.get("num_hidden_layers"),
            **config,
        }
    heads = whole_number(config, "medusa_num_heads", file, MOST_HEADS, MOST_LAYERS)
    return heads, whole_number(config, "medusa_num_layers", file, 1, MOST_LAYERS)


def read_bpd(folder: Path, target: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Tensors of BPD heads, checked against the target.

    No layout for them is in common use, so this one is ours: a folder with ``config.json`` (``bpd_num_heads``,
    ``hidden_size``, ``intermediate_size``) and ``model.safetensors``, in which head ``h`` has ``{h}.up.weight``
    (intermediate, hidden), ``{h}.up.bias``, ``{h}.down.weight`` (hidden, intermediate) and ``{h}.down.bias``.
    """
    file, config_file = folder / BPD_FILE, folder / "config.json"
    count, size, inner = bpd_sizes(read_config(config_file), config_file)
    if size != (own := target.config.get_text_config().hidden_size):
        raise PoolError(f"{config_file}: hidden_size is {size}, but the target's is {own}")
    if not file.is_file():
        raise PoolError(f"{folder} holds no BPD heads: it should have {BPD_FILE}")
    tensors = read_tensors(file)
    expected: dict[str, tuple[int, ...]] = {}
    for head in range(count):
        expected |= {f"{head}.up.weight": (inner, size), f"{head}.up.bias": (inner,)}
        expected |= {f"{head}.down.weight": (size, inner), f"{head}.down.bias": (size,)}
    check_tensors(file, tensors, expected, f"{count} BPD heads")
    return tensors


def bpd_sizes(config: Mapping[str, Any], file: Path) -> tuple[int, int, int]:
    """Number of BPD heads, hidden and intermediate size by the configuration in ``file``."""
    count = whole_number(config, "bpd_num_heads", file, most=MOST_LAYERS)
    return count, whole_number(config, "hidden_size", file), whole_number(config, "intermediate_size", file)


def save_medusa(folder: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write Medusa heads in the layout of :func:`read_medusa`, as safetensors in the dtype they have."""
    heads = {name.split(".")[0] for name in tensors}
    layers = sum(name.startswith("0.") and name.endswith(".linear.weight") for name in tensors)
    config = {"base_model_name_or_path": "", "medusa_num_heads": len(heads), "medusa_num_layers": layers}
    folder.mkdir(parents=True, exist_ok=True)
    save_file({key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}, folder / MEDUSA_FILES[0])
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
