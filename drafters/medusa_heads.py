"""Heads that read the target's last hidden state and predict one token each, further and further on: Medusa and BPD.

What they read is the state after the final norm. From it the target's own output layer predicts the next token, head 0
the one after that, head ``k`` the ``k + 2``-th.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn import functional
from transformers import PreTrainedModel

from drafters.tensor_files import check_tensors, read_config, read_tensors, whole_number
from multidraft.errors import PoolError
from multidraft.projection import Projection

MEDUSA_FILES = ("medusa_lm_head.safetensors", "medusa_lm_head.pt")
"""In the order they are looked for."""
BPD_FILE = "model.safetensors"
LEGACY_PREFIX = "medusa_head."


class _Linear:
    """One linear layer of each head, computed for all heads at once, or for the first few.

    Args:
        weights: of each head, ``(out, in)``.
        biases: ``(out,)``; empty for a layer without.
        parameters: of all heads together.
    """

    def __init__(self, weights: Sequence[torch.Tensor], biases: Sequence[torch.Tensor], parameters: int):
        self.each = Projection(torch.stack(list(weights)), parameters)
        self.single = [self.each.of(head) for head in range(len(weights))]
        self.bias = torch.stack(list(biases))[:, None] if biases else None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` (n, T, in) of the first n heads to (n, T, out)."""
        if len(x) == len(self.single):
            y = self.each(x)
        else:
            y = torch.cat([one(part[None]) for one, part in zip(self.single, x, strict=False)])
        return y if self.bias is None else y + self.bias[: len(x)]


class MedusaHeads:
    """Medusa heads: residual blocks ``x + SiLU(W x + b)``, then an output layer of the head's own.

    Args:
        tensors: as :func:`read_medusa` gives them.
        target: says where to compute, in what number type, and which hidden state is its last.

    Source: Medusa (Cai et al. 2024, Sec. 2.1.1).
    """

    kind = "medusa"

    def __init__(self, tensors: Mapping[str, torch.Tensor], target: PreTrainedModel):
        self.layer, weights = _last_layer(target), _as_target(tensors, target)
        self.count = 1 + max(int(name.split(".")[0]) for name in weights)
        depth = max(int(name.split(".")[1]) for name in weights)
        self.parameter_count = sum(tensor.numel() for tensor in weights.values())

        def layer(place: int, weight: str, bias: str = "") -> _Linear:
            names = [f"{head}.{place}." for head in range(self.count)]
            return _Linear(
                [weights[name + weight] for name in names],
                [weights[name + bias] for name in names] if bias else [],
                self.parameter_count,
            )

        self.blocks = [layer(place, "linear.weight", "linear.bias") for place in range(depth)]
        self.output = layer(depth, "weight")

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor, count: int) -> torch.Tensor:
        """Logits ``(min(count, heads), T, V)`` of the first ``count`` heads for hidden states ``(T, hidden)``."""
        x = hidden.expand(min(count, self.count), -1, -1)
        for block in self.blocks:
            x = x + functional.silu(block(x))
        return self.output(x)


class BPDHeads:
    """Heads of blockwise parallel decoding: ``h + W₂ relu(W₁ h + b₁) + b₂``, read by the target's own output layer.

    Args:
        tensors: as :func:`read_bpd` gives them.
        target: lends its output layer.

    Source: Stern et al. 2018, Sec. 6 (a feed-forward layer per head with a residual connection, the vocabulary
    projection shared with the original model).
    """

    kind = "bpd"

    def __init__(self, tensors: Mapping[str, torch.Tensor], target: PreTrainedModel):
        self.layer, weights = _last_layer(target), _as_target(tensors, target)
        self.count = 1 + max(int(name.split(".")[0]) for name in weights)
        self.parameter_count = sum(tensor.numel() for tensor in weights.values())

        def layer(part: str) -> _Linear:
            names = [f"{head}.{part}." for head in range(self.count)]
            return _Linear(
                [weights[name + "weight"] for name in names],
                [weights[name + "bias"] for name in names],
                self.parameter_count,
            )

        self.up, self.down = layer("up"), layer("down")
        lent = target.get_output_embeddings()
        self.output = Projection(lent.weight.detach()[None], self.parameter_count)
        self.output_bias = getattr(lent, "bias", None)

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor, count: int) -> torch.Tensor:
        """Logits ``(min(count, heads), T, V)`` of the first ``count`` heads for hidden states ``(T, hidden)``."""
        x = hidden.expand(min(count, self.count), -1, -1)
        x = x + self.down(functional.relu(self.up(x)))
        logits = self.output(x.reshape(1, -1, x.shape[-1])).reshape(*x.shape[:2], -1)
        return logits if self.output_bias is None else logits + self.output_bias


Heads = MedusaHeads | BPDHeads


def load_heads(kind: str, folder: Path, target: PreTrainedModel) -> Heads:
    """The heads in ``folder``.

    Args:
        kind: one of :data:`KINDS`.

    Raises:
        ValueError: another kind.
        PoolError: as :func:`read_medusa` and :func:`read_bpd`.
    """
    if kind not in KINDS:
        raise ValueError(f"no such kind of heads: {kind!r}")
    read, network = KINDS[kind]
    return network(read(folder, target), target)


def read_medusa(folder: Path, target: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Tensors of Medusa heads in the layout they are published in, checked against the target.

    A folder with ``config.json`` (``medusa_num_layers``; its ``medusa_num_heads`` is wrong in many published ones, so
    heads are counted by their tensors) and ``medusa_lm_head.safetensors`` or ``.pt``, in which head ``h`` has
    ``{h}.{layer}.linear.weight`` (hidden, hidden), ``{h}.{layer}.linear.bias`` (hidden) and
    ``{h}.{medusa_num_layers}.weight`` (vocabulary, hidden). Some names begin with ``medusa_head.``, which is dropped.

    Raises:
        PoolError: files missing or unreadable, tensors missing, unknown, or of a shape that does not fit this target;
            the message names file, tensor and both shapes.
    """
    config_file = folder / "config.json"
    layers = whole_number(read_config(config_file), "medusa_num_layers", config_file, default=1)
    file = next((folder / name for name in MEDUSA_FILES if (folder / name).is_file()), None)
    if file is None:
        raise PoolError(f"{folder} holds no Medusa heads: it should have one of {', '.join(MEDUSA_FILES)}")
    tensors = {name.removeprefix(LEGACY_PREFIX): tensor for name, tensor in read_tensors(file).items()}
    heads = {match[1] for match in (re.match(r"(\d+)\.\d+\.", name) for name in tensors) if match}
    if not heads:
        raise PoolError(f"{file} holds no Medusa heads: none of its tensors is named like 0.0.linear.weight")
    vocabulary, size = _sizes(target)
    expected: dict[str, tuple[int, ...]] = {}
    for head in range(len(heads)):
        for layer in range(layers):
            expected[f"{head}.{layer}.linear.weight"] = (size, size)
            expected[f"{head}.{layer}.linear.bias"] = (size,)
        expected[f"{head}.{layers}.weight"] = (vocabulary, size)
    check_tensors(file, tensors, expected, f"Medusa heads of {layers} layers")
    return tensors


def read_bpd(folder: Path, target: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Tensors of BPD heads, checked against the target.

    No layout for them is in common use, so this one is ours: a folder with ``config.json`` (``bpd_num_heads``,
    ``hidden_size``, ``intermediate_size``) and ``model.safetensors``, in which head ``h`` has ``{h}.up.weight``
    (intermediate, hidden), ``{h}.up.bias``, ``{h}.down.weight`` (hidden, intermediate) and ``{h}.down.bias``.

    Raises:
        PoolError: as :func:`read_medusa`.
    """
    file, config_file = folder / BPD_FILE, folder / "config.json"
    config = read_config(config_file)
    count, size, inner = (
        whole_number(config, name, config_file) for name in ("bpd_num_heads", "hidden_size", "intermediate_size")
    )
    if size != _sizes(target)[1]:
        raise PoolError(f"{config_file}: hidden_size is {size}, but the target's is {_sizes(target)[1]}")
    if not file.is_file():
        raise PoolError(f"{folder} holds no BPD heads: it should have {BPD_FILE}")
    tensors = read_tensors(file)
    expected: dict[str, tuple[int, ...]] = {}
    for head in range(count):
        expected |= {f"{head}.up.weight": (inner, size), f"{head}.up.bias": (inner,)}
        expected |= {f"{head}.down.weight": (size, inner), f"{head}.down.bias": (size,)}
    check_tensors(file, tensors, expected, f"{count} BPD heads")
    return tensors


def save_medusa(folder: Path, tensors: Mapping[str, torch.Tensor], base_model: str = "") -> None:
    """Write Medusa heads in the layout of :func:`read_medusa`, as safetensors in the number type they have.

    Args:
        base_model: what the configuration calls their target; nothing here reads it.
    """
    heads = {name.split(".")[0] for name in tensors}
    layers = sum(name.startswith("0.") and name.endswith(".linear.weight") for name in tensors)
    config = {
        "base_model_name_or_path": base_model,
        "medusa_num_heads": len(heads),
        "medusa_num_layers": layers,
    }
    _save(folder, MEDUSA_FILES[0], tensors, config)


def save_bpd(folder: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write BPD heads in the layout of :func:`read_bpd`, in the number type they have."""
    inner, size = tensors["0.up.weight"].shape
    heads = {name.split(".")[0] for name in tensors}
    _save(folder, BPD_FILE, tensors, {"bpd_num_heads": len(heads), "hidden_size": size, "intermediate_size": inner})


def _save(folder: Path, name: str, tensors: Mapping[str, torch.Tensor], config: dict[str, object]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    save_file({key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}, folder / name)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _sizes(target: PreTrainedModel) -> tuple[int, int]:
    """Vocabulary and hidden size."""
    config = target.config.get_text_config()
    return int(config.vocab_size), int(config.hidden_size)


def _last_layer(target: PreTrainedModel) -> int:
    """Of the target's hidden states, the one that leaves the final norm."""
    return int(target.config.get_text_config().num_hidden_layers)


def _as_target(tensors: Mapping[str, torch.Tensor], target: PreTrainedModel) -> dict[str, torch.Tensor]:
    """On the target's device, in its number type."""
    like = target.get_output_embeddings().weight
    return {name: tensor.to(like.device, like.dtype) for name, tensor in tensors.items()}


KINDS: dict[str, tuple[Callable[[Path, PreTrainedModel], dict[str, torch.Tensor]], type[MedusaHeads] | type[BPDHeads]]]
KINDS = {"medusa": (read_medusa, MedusaHeads), "bpd": (read_bpd, BPDHeads)}
"""Of each kind of heads how its folder is read, and its network."""
