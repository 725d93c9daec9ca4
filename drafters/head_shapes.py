"""Sizes of what reads the target's hidden states, by the files where those are at hand, else by the configurations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedModel
from transformers.modeling_layers import MtpModel

from drafters.card import DrafterCard
from drafters.dflash_checkpoint import dflash_config, is_published_dflash
from drafters.eagle_checkpoint import UNUSED, WEIGHT_FILES, head_shapes
from drafters.medusa_heads import BPD_FILE, MEDUSA_FILES
from drafters.shapes import cache_numbers, config_of, skeleton, text_config
from drafters.tensor_files import tensor_sizes, whole_number
from multidraft.errors import PoolError

MEDUSA_HEADS = 5
"""As many as the published folders hold at most; what their configurations say is often less than there are."""


class HeadSize(NamedTuple):
    """What a drafter on the target's hidden states needs.

    Attributes:
        parameters: numbers that it loads.
        cached: numbers that it caches for each token.
        layers: which of the target's hidden states it reads.
    """

    parameters: int
    cached: int
    layers: frozenset[int]


def head_size(entry: DrafterCard, card: Path, target: PreTrainedModel) -> HeadSize:
    """The size of a drafter of kind ``eagle``, ``medusa``, ``bpd``, ``dflash`` or ``mtp``.

    Args:
        card: the file that ``entry`` stands in.
        target: the target's skeleton.

    Raises:
        PoolError: its configuration cannot be read or is none of its kind.
    """
    if entry.kind == "mtp":
        return _mtp(target)
    config, file = config_of(entry.source, card)
    size = _SIZES[entry.kind](config, file, target)
    held = _held(entry, file.parent) if entry.path is not None else None
    return size if held is None else size._replace(parameters=held)


def _held(entry: DrafterCard, folder: Path) -> int | None:
    """Numbers in the files of a local folder that are loaded; ``None`` where there are none to look at."""
    names = {"eagle": WEIGHT_FILES, "medusa": MEDUSA_FILES, "bpd": (BPD_FILE,)}.get(entry.kind, ())
    file = next((folder / name for name in names if (folder / name).is_file()), None)
    return None if file is None else sum(size for name, size in tensor_sizes(file).items() if name not in UNUSED)


def _eagle(config: Mapping[str, Any], file: Path, target: PreTrainedModel) -> HeadSize:
    shape, tensors = head_shapes(config, target, file)
    numbers = sum(math.prod(sizes) for name, sizes in tensors.items() if name not in UNUSED)
    own = shape.config
    cached = 2 * own.num_hidden_layers * own.num_key_value_heads * shape.head_size
    # A head's cache is given twice the room that it needs, so that it seldom has to grow.
    return HeadSize(numbers, 2 * cached, frozenset(shape.layers))


def _medusa(config: Mapping[str, Any], file: Path, target: PreTrainedModel) -> HeadSize:
    heads = max(whole_number(config, "medusa_num_heads", file, default=MEDUSA_HEADS), MEDUSA_HEADS)
    layers = whole_number(config, "medusa_num_layers", file, default=1)
    own = text_config(target)
    block = own.hidden_size * (own.hidden_size + 1)
    return HeadSize(heads * (layers * block + own.vocab_size * own.hidden_size), 0, _last(target))


def _bpd(config: Mapping[str, Any], file: Path, target: PreTrainedModel) -> HeadSize:
    heads, size, inner = (
        whole_number(config, name, file) for name in ("bpd_num_heads", "hidden_size", "intermediate_size")
    )
    return HeadSize(heads * (2 * size * inner + size + inner), 0, _last(target))


def _dflash(config: Mapping[str, Any], file: Path, target: PreTrainedModel) -> HeadSize:
    if is_published_dflash(config):
        config = dflash_config(config, file).to_dict()
    model = skeleton(config, file, language_model=False)
    layers = getattr(model.config, "target_layer_ids", None)
    if layers is None:
        raise PoolError(f"{file} is no configuration of a DFlash network: it lacks target_layer_ids")
    return HeadSize(model.num_parameters(), cache_numbers(model.config), frozenset(int(i) + 1 for i in layers))


def _mtp(target: PreTrainedModel) -> HeadSize:
    count = int(getattr(text_config(target), "num_mtp_layers", None) or 0)
    if not count:
        return HeadSize(0, 0, _last(target))
    with torch.device("meta"):
        model = MtpModel(target, count)
    numbers = sum(parameter.numel() for parameter in model.layers.parameters())
    per_layer = cache_numbers(text_config(target)) // int(text_config(target).num_hidden_layers)
    return HeadSize(numbers, count * per_layer, _last(target))


def _last(target: PreTrainedModel) -> frozenset[int]:
    return frozenset({int(text_config(target).num_hidden_layers)})


_SIZES: dict[str, Callable[[Mapping[str, Any], Path, PreTrainedModel], HeadSize]] = {
    "eagle": _eagle,
    "medusa": _medusa,
    "bpd": _bpd,
    "dflash": _dflash,
}
