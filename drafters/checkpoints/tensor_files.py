"""Files of a checkpoint: configurations and tensors."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from drafters.errors import PoolError, first_line, quoted, unreadable

MOST_LAYERS = 1000
"""More than any network has; a configuration that names more would be worked on without end."""


def read_config(file: Path) -> dict[str, Any]:
    """A configuration, a JSON object, of no more than :data:`MOST_LAYERS` layers."""
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise PoolError(f"cannot read {file}: {unreadable(error)}") from None
    if not isinstance(config, dict):
        raise PoolError(f"cannot read {file}: it is not a configuration (a JSON object)")
    for part in (config, config.get("text_config")):
        if isinstance(part, dict) and isinstance(part.get("num_hidden_layers"), int):
            whole_number(part, "num_hidden_layers", file, most=MOST_LAYERS)
    return config


def whole_number(
    config: Mapping[str, Any], name: str, file: Path, default: int | None = None, most: int = 10**8
) -> int:
    """A number from 1 to ``most`` from the configuration of ``file``; the default also where it says null."""
    value = default if (found := config.get(name)) is None else found
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise PoolError(f"{file}: {name} must be a whole number from 1 to {most:,}, got {quoted(value)}")
    return value


def object_in(config: Mapping[str, Any], name: str, file: Path) -> dict[str, Any]:
    """An object within the configuration of ``file``; empty where there is none."""
    part = config.get(name) or {}
    if not isinstance(part, dict):
        raise PoolError(f"{file}: {name} must be an object, got {quoted(part)}")
    return part


def check_parts(folder: Path) -> None:
    """Refuse weights in several files whose index names files of other folders, which the library would read."""
    for index in folder.glob("*.index.json"):
        parts = read_config(index).get("weight_map")
        for part in parts.values() if isinstance(parts, dict) else ():
            if not isinstance(part, str) or Path(part).name != part:
                raise PoolError(f"{index} names {quoted(part)}; the files of a checkpoint lie beside their index")


def read_weights(
    folder: Path, names: Sequence[str], sizes_only: bool = False
) -> tuple[Path, dict[str, torch.Tensor]] | None:
    """The first file of ``names`` in a folder with its tensors, or its index with those of all the parts that it names;
    ``None`` where there is neither.

    Args:
        sizes_only: leave numbers on the disk. Safetensors are only mapped into memory in any case.
    """
    for file in (folder / name for name in names):
        index, parts = file.with_name(file.name + ".index.json"), [file.name]
        if not file.is_file():
            if not index.is_file():
                continue
            check_parts(folder)
            file, parts = index, sorted(set(object_in(read_config(index), "weight_map", index).values()))
        tensors: dict[str, torch.Tensor] = {}
        for part in parts:
            tensors |= read_tensors(
                folder / part, "meta" if sizes_only and not part.endswith(".safetensors") else "cpu"
            )
        return file, tensors
    return None


def stored_numbers(folder: Path, names: Sequence[str], unused: Collection[str] = ()) -> int | None:
    """How many numbers :func:`read_weights` finds, but for ``unused`` tensors; ``None`` where there is no file."""
    if (found := read_weights(folder, names, sizes_only=True)) is None:
        return None
    return sum(tensor.numel() for name, tensor in found[1].items() if name not in unused)


def read_tensors(file: Path, device: str = "cpu") -> dict[str, torch.Tensor]:
    """All tensors of a ``.safetensors`` file or one of torch's, of which no code it may hold is run."""
    try:
        if file.suffix == ".safetensors":
            return load_file(file, device=device)
        tensors = torch.load(file, map_location=device, weights_only=True)
    except (SafetensorError, OSError, RuntimeError, ValueError, EOFError) as error:
        raise PoolError(f"cannot read {file}: {first_line(error)}; if it is incomplete, get it again") from None
    except Exception as error:  # unpickling raises whatever it likes
        raise PoolError(f"cannot read {file}: it is not a file of tensors ({type(error).__name__})") from None
    if not isinstance(tensors, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in tensors.values()):
        raise PoolError(f"cannot read {file}: it is not a file of named tensors")
    return {str(name): tensor for name, tensor in tensors.items()}


def stored_state(model: torch.nn.Module, folder: Path) -> dict[str, torch.Tensor] | None:
    """The ``.safetensors`` of a folder, only mapped into memory, as the state of ``model``, whose own tensors may hold
    nothing: under their names there, and in that order. ``None`` where the files lack one of them."""
    held: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        held |= read_tensors(file)
    state = model.state_dict(keep_vars=True)
    shared = {id(tensor): held[name] for name, tensor in state.items() if name in held}  # tied ones are stored once
    if any(id(t) not in shared or shared[id(t)].shape != t.shape for t in state.values()):
        return None
    return {name: shared[id(tensor)] for name, tensor in state.items()}


def check_finite(tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Raise ValueError for the first of these named tensors that holds NaN or infinity; each is read once."""
    for name, tensor in tensors:
        if tensor.is_floating_point() and tensor.numel() and not tensor.is_meta:
            numbers = tensor.detach()
            # Of NaN both are NaN. There is no such operation on numbers of 8 bits.
            least, most = (numbers if numbers.itemsize > 1 else numbers.bfloat16()).aminmax()
            if not (math.isfinite(least) and math.isfinite(most)):
                raise ValueError(f"the tensor {name} holds numbers that are NaN or infinite: the file is damaged")


def check_tensors(
    file: Path,
    tensors: Mapping[str, torch.Tensor],
    expected: Mapping[str, tuple[int, ...]],
    what: str,
    optional: Collection[str] = (),
    reasons: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Compare what ``file`` holds with the shapes that ``what`` (e.g. "Medusa heads") must have.

    Those that are ``optional`` may be missing; ``reasons`` say in messages why some are needed.
    """
    for name, shape in expected.items():
        if name not in tensors:
            if name in optional:
                continue
            reason = f": {reasons[name]}" if name in reasons else ""
            raise PoolError(f"{file} lacks the tensor {name} of shape {list(shape)}{reason}")
        if tuple(tensors[name].shape) != shape:
            raise PoolError(
                f"{file}: tensor {name} has the shape {list(tensors[name].shape)}, but {list(shape)} is expected of "
                f"{what} for this target"
            )
    try:
        check_finite(tensors.items())
    except ValueError as error:
        raise PoolError(f"{file}: {error}; get it again") from None
    if unknown := sorted(set(tensors) - set(expected)):
        raise PoolError(
            f"{file} holds the tensor {unknown[0]} of shape {list(tensors[unknown[0]].shape)}, which {what} do not "
            f"have ({len(unknown)} unknown tensors in all)"
        )


def check_ids(file: Path, name: str, ids: torch.Tensor, tokens: int) -> None:
    """Raise :class:`PoolError` unless ``ids``, which the tensor ``name`` says, are different ones of the target's."""
    if len(ids.unique()) < len(ids):
        raise PoolError(f"{file}: {name} leads from several tokens of the head to one of the target")
    low, high = int(ids.min()), int(ids.max())
    if not 0 <= low <= high < tokens:
        raise PoolError(f"{file}: {name} leads to token ids {low} to {high}, but the target has {tokens:,} tokens")
