"""How large models are by their configurations alone: nothing is loaded, and of the Hub nothing but ``config.json``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import hf_hub_download
from transformers import CONFIG_MAPPING, AutoModel, AutoModelForCausalLM, PreTrainedModel

from drafters.checkpoints.hub import folder_of, problem
from drafters.checkpoints.loading import explained
from drafters.checkpoints.tensor_files import read_config
from drafters.errors import PoolError
from drafters.source import Quantization, Source

RECORDED = Path(__file__).parents[1] / "pools" / "configs.json"
"""Configurations of the models that the bundled cards name, so that their sizes are known without a network."""


@cache
def _recorded() -> dict[str, dict[str, Any]]:
    return dict(json.loads(RECORDED.read_text(encoding="utf-8")))


def config_of(source: Source, card: Path) -> tuple[dict[str, Any], Path]:
    """A model's configuration, and the file that it stands in: beside the card, recorded, or fetched from the Hub."""
    if source.path is not None:
        file = folder_of(source, card) / "config.json"
        return read_config(file), file
    if (id := str(source.id)) in _recorded():
        return _recorded()[id], RECORDED
    try:
        file = Path(hf_hub_download(id, "config.json", revision=source.revision))
    except Exception as error:
        raise problem(error, source) from error
    return read_config(file), file


def skeleton(config: Mapping[str, Any], file: Path, *, language_model: bool = True) -> PreTrainedModel:
    """The model of a configuration, read from ``file``, without its weights (on torch's ``meta`` device)."""
    with explained(f"cannot determine the size of the model in {file}"):
        return _skeleton(json.dumps(config, sort_keys=True), language_model)


@lru_cache(maxsize=64)
def _skeleton(config: str, language_model: bool) -> PreTrainedModel:
    content: dict[str, Any] = json.loads(config)
    own = CONFIG_MAPPING[content["model_type"]].from_dict(content)
    auto = AutoModelForCausalLM if language_model else AutoModel
    with torch.device("meta"):
        return auto.from_config(own, trust_remote_code=False)


def weight_bytes(model: torch.nn.Module, itemsize: int, quantization: Quantization | None = None) -> int:
    """Bytes of a model's weights with ``itemsize`` bytes per number, shared ones counted once; quantised as
    ``bitsandbytes`` stores the matrices of linear layers: embeddings and output layer stay."""
    plain = sum(weight.numel() * itemsize for weight in model.parameters())
    if quantization is None:
        return plain
    output = getattr(model, "get_output_embeddings", lambda: None)()
    output = getattr(output, "rows", output)  # of a token map
    linear = {id(m.weight): m.weight.shape for m in model.modules() if type(m) is torch.nn.Linear and m is not output}
    return plain + sum(_quantised_bytes(shape, quantization) - shape.numel() * itemsize for shape in linear.values())


def _quantised_bytes(shape: torch.Size, quantization: Quantization) -> int:
    """Bytes of a quantised matrix ``(out, in)``, with scales of 32 bits."""
    numbers = shape.numel()
    if quantization == "nf4":  # a scale per 64 numbers, and with each matrix what the 16 values of 4 bits stand for
        return math.ceil(numbers / 2) + 4 * math.ceil(numbers / 64) + 4 * 16
    return numbers + 4 * shape[0]


def head_size_of(config: Any) -> int:
    """Numbers per attention head."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def kv_heads_of(config: Any) -> int:
    """Heads of keys and values."""
    return int(getattr(config, "num_key_value_heads", None) or config.num_attention_heads)


def inner_size_of(config: Any) -> int:
    """Numbers in the middle of a feed-forward layer; where the configuration does not say, as is usual."""
    return int(getattr(config, "intermediate_size", None) or 4 * config.hidden_size)


def cache_numbers(config: Any) -> int:
    """Numbers that a model of this configuration caches for each token: keys and values of all layers."""
    if not getattr(config, "num_attention_heads", None):
        raise PoolError(f"a model of type {config.model_type} keeps no keys and values")
    return 2 * int(config.num_hidden_layers) * kv_heads_of(config) * head_size_of(config)


def window_of(model: PreTrainedModel) -> int | None:
    """Positions that a model knows; ``None`` where its configuration names no bound."""
    own = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return None if own is None else int(own)


def last_hidden_state(model: PreTrainedModel) -> int:
    """Which of a model's hidden states leaves its final norm, as ``transformers`` counts them."""
    return int(model.config.get_text_config().num_hidden_layers)


def prefill_bytes(model: PreTrainedModel, tokens: int, itemsize: int, all_states: bool = False) -> int:
    """Bytes that a forward over so many tokens needs besides weights and cache.

    At its largest it holds the three products of an MLP, and some six copies of the hidden states (residual, norms in
    float32, attention); with ``all_states`` also those of all layers, as the library returns them for heads.
    """
    config = model.config.get_text_config()
    hidden = int(config.hidden_size)
    states = (int(config.num_hidden_layers) + 1) * hidden if all_states else 0
    return itemsize * tokens * (3 * inner_size_of(config) + 6 * hidden + states)
