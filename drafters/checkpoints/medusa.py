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
    check_tensors,
    read_config,
    read_tensors,
    read_weights,
    whole_number,
)
from drafters.errors import PoolError

MEDUSA_FILES = ("medusa_lm_head.safetensors", "medusa_lm_head.pt")
"""In the order they are looked for."""
BPD_FILE = "model.safetensors"


def read_medusa(folder: Path, target: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Tensors of Medusa heads in the layout they are published in, checked against the target.

    A folder with ``config.json`` (``medusa_num_layers``; its ``medusa_num_heads`` is wrong in many published ones, so
    heads are counted by their tensors) and ``medusa_lm_head.safetensors`` or ``.pt``, in which head ``h`` has
    ``{h}.{layer}.linear.weight`` (hidden, hidden), ``{h}.{layer}.linear.bias`` (hidden) and
    ``{h}.{medusa_num_layers}.weight`` (vocabulary, hidden). Some names begin with ``medusa_head.``, which is dropped.
    """
    config_file = folder / "config.json"
    layers = whole_number(read_config(config_file), "medusa_num_layers", config_file, default=1, most=MOST_LAYERS)
    if (found := read_weights(folder, MEDUSA_FILES)) is None:
        raise PoolError(f"{folder} holds no Medusa heads: it should have one of {', '.join(MEDUSA_FILES)}")
    file, held = found
    tensors = {name.removeprefix("medusa_head."): tensor for name, tensor in held.items()}
    heads = {match[1] for match in (re.match(r"(\d+)\.\d+\.", name) for name in tensors) if match}
    if not heads:
        raise PoolError(f"{file} holds no Medusa heads: none of its tensors is named like 0.0.linear.weight")
    target_config = target.config.get_text_config()
    size = target_config.hidden_size
    expected: dict[str, tuple[int, ...]] = {}
    for head in range(len(heads)):
        for layer in range(layers):
            expected |= {f"{head}.{layer}.linear.weight": (size, size), f"{head}.{layer}.linear.bias": (size,)}
        expected[f"{head}.{layers}.weight"] = (target_config.vocab_size, size)
    check_tensors(file, tensors, expected, f"Medusa heads of {layers} layers")
    return tensors


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
