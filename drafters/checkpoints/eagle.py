"""EAGLE heads as they are published: the folders of EAGLE-1, -2 and -3, of SpecForge, of ``speculators``, and EAGLE-1
and -2 as vLLM had them converted.

All say the same in different words. What is read here comes out as one :class:`HeadShape` and one set of tensors, named
as EAGLE-1 names them (``layers.0…``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

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

WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
"""In the order they are looked for, each whole or in parts. A ``.bin`` is read without running any code it may hold."""


@dataclass(frozen=True)
class HeadShape:
    """What a head is made of.

    Attributes:
        generation: 1 for EAGLE-1 and -2, whose heads are alike, or 3.
        config: sizes of its decoder layers, a plain Llama's.
        vocab_size: tokens it can propose.
        layers: hidden states of the target that it reads (as ``transformers`` counts them).
        target_size: numbers per hidden state of the target.
        norm_before_residual: the first layer adds to the normalised hidden state instead of the raw one.
        norm_output: the next step reads normalised hidden states.
        norm_before_fc, fc_norm: hidden states are normalised before they are fused, together or each by itself.
    """

    generation: int
    config: LlamaConfig
    vocab_size: int
    layers: tuple[int, ...]
    target_size: int
    norm_before_residual: bool = False
    norm_output: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False

    @property
    def head_size(self) -> int:
        """Numbers per attention head."""
        return int(self.config.head_dim)


def read_head(
    folder: Path, target: PreTrainedModel, tokens: Sequence[int] | None = None
) -> tuple[HeadShape, dict[str, torch.Tensor]]:
    """A head and its tensors, checked against each other and against the target.

    Tensors come named ``fc.weight``, ``layers.0.self_attn.q_proj.weight`` … ``norm.weight``, ``lm_head.weight``,
    ``embed_tokens.weight`` and ``d2t``, the latter three only where the folder has them.

    Args:
        tokens: ids of the target's tokens, the only ones that a head of all is to propose; ``d2t`` then says so.
    """
    config = read_config(config_file := folder / "config.json")
    if (found := read_weights(folder, WEIGHT_FILES)) is None:
        raise PoolError(
            f"{folder} holds no EAGLE head: it should have config.json and one of {', '.join(WEIGHT_FILES)}"
        )
    file, held = found
    tensors, size = {_name(name): tensor for name, tensor in held.items()}, target.config.get_text_config().vocab_size
    if _is_vllm(config):  # whose layers have norms that they leave out
        tensors = {name: tensor for name, tensor in tensors.items() if name not in _LEFT_OUT}
    shape = _shape(config, tensors, target, config_file)
    expected = _expected(shape, target, tensors, config_file)
    if (ids := tensors.pop("token_map", None)) is not None and shape.vocab_size < size:
        tensors["d2t"] = ids.flatten().long() - torch.arange(ids.numel())
        if "lm_head.weight" in tensors and tensors["lm_head.weight"].shape[:1] == (size,):
            expected["lm_head.weight"] = (size, shape.config.hidden_size)
    _check(file, shape, tensors, expected, size)
    if tokens is not None:
        shape = _confined(shape, target, tokens, config_file)
        tensors["d2t"] = torch.tensor(tokens) - torch.arange(len(tokens))
    if len(tensors.get("lm_head.weight", ())) > shape.vocab_size:
        tensors["lm_head.weight"] = tensors["lm_head.weight"][_tokens_of(tensors["d2t"])]
    return shape, {name: tensors[name] for name in expected if name in tensors}


def head_shapes(
    config: Mapping[str, Any], target: PreTrainedModel, config_file: Path, tokens: Sequence[int] | None = None
) -> tuple[HeadShape, dict[str, tuple[int, ...]]]:
    """What a head with this configuration is made of, as far as that is known without its tensors.

    An embedding of its own is among the shapes, since no configuration says whether there is one; only a recorded
    configuration may, as ``own_embedding: false``. The target needs no weights.

    Args:
        tokens: as of :func:`read_head`.
    """
    third = config.get("speculators_model_type") == "eagle3" or "draft_vocab_size" in config
    third = third or "eagle3" in str(config.get("architectures")).lower()
    names = {"fc.weight", "layers.0.self_attn.q_proj.weight", "layers.0.hidden_norm.weight" if third else "fc.bias"}
    if config.get("qkv_bias") or config.get("attention_bias"):
        names.add("layers.0.self_attn.q_proj.bias")
    shape = _shape(config, names, target, config_file)
    if tokens is not None:
        shape = _confined(shape, target, tokens, config_file)
    shapes = _expected(shape, target, names, config_file)
    if not config.get("own_embedding", True):
        del shapes["embed_tokens.weight"]
    if shape.vocab_size == target.config.get_text_config().vocab_size:
        del shapes["d2t"]
        if not third:
            del shapes["lm_head.weight"]
    return shape, shapes


def _name(theirs: str) -> str:
    """A tensor's name in EAGLE-1's words: EAGLE-3 and SpecForge call the only layer ``midlayer``, ``speculators`` that
    of EAGLE-1 ``transformer``."""
    name = re.sub(r"^(midlayer|transformer)\.", "layers.0.", re.sub(r"^(model\.)+", "", theirs))
    return re.sub(r"^fusion_fc\.", "fc.", name)


def _is_vllm(config: Mapping[str, Any]) -> bool:
    """Whether a configuration is of an EAGLE-1 or -2 head as vLLM had them converted (``EAGLEConfig``)."""
    return isinstance(config.get("model"), dict)


_LEFT_OUT = {"layers.0.input_layernorm.weight", "norm.weight"}


def _confined(shape: HeadShape, target: PreTrainedModel, tokens: Sequence[int], config_file: Path) -> HeadShape:
    """A head of all the target's tokens as one of these alone."""
    if shape.vocab_size != target.config.get_text_config().vocab_size:
        raise PoolError(
            f"{config_file}: the head proposes {shape.vocab_size:,} of the target's tokens already; remove token_map "
            "from the card"
        )
    return replace(shape, vocab_size=len(tokens))


def _tokens_of(d2t: torch.Tensor) -> torch.Tensor:
    """Ids of the target's tokens that a head proposes."""
    return d2t.long() + torch.arange(len(d2t))


def _shape(
    config: Mapping[str, Any], tensors: Collection[str], target: PreTrainedModel, config_file: Path
) -> HeadShape:
    speculators = config.get("speculators_model_type")
    if speculators not in (None, "eagle", "eagle3"):
        raise PoolError(
            f"{config_file} is of a speculator of type {speculators!r}; eagle drafters read 'eagle' and 'eagle3'"
        )
    # Both are published, and the wrong one costs nothing but acceptance.
    if speculators and "layers.0.hidden_norm.weight" in tensors and config.get("norm_before_residual") is None:
        raise PoolError(
            f"{config_file} does not say norm_before_residual, whether the first layer adds to normalised states; "
            "write true or false there, as the head was trained"
        )
    nested = "transformer_layer_config" if speculators else "model" if _is_vllm(config) else None
    layer = dict(object_in(config, nested, config_file) if nested else config)
    for name, usual in _USUAL.items():
        if (value := layer.get(name, config.get(name))) not in (usual, None):
            raise PoolError(f"{config_file}: {name} is {quoted(value)}; EAGLE heads with it cannot be computed here")
    eagle = object_in(config, "eagle_config", config_file)
    if "sliding_attention" in str(layer.get("layer_types")):
        raise PoolError(f"{config_file}: layer_types has sliding layers; eagle drafters compute full attention")
    if eagle.get("use_aux_hidden_state") is False:
        raise PoolError(
            f"{config_file}: use_aux_hidden_state is false, so the head has EAGLE-3's layer but reads the target's "
            "last hidden state alone; eagle drafters read several fused ones"
        )
    if layer.get("hidden_act", "silu") != "silu":
        raise PoolError(f"{config_file}: hidden_act is {layer['hidden_act']!r}; eagle drafters compute 'silu'")
    target_config = target.config.get_text_config()
    count = int(target_config.num_hidden_layers)
    if layer.get("rope_theta") is None and not layer.get("rope_parameters") and not layer.get("rope_scaling"):
        layer["rope_theta"] = 10_000.0  # the default of the published code
    plain = {name: value for name, value in layer.items() if name in _LLAMA_FIELDS and value is not None}
    for name in _SIZES & set(plain):
        whole_number(plain, name, config_file, most=MOST_LAYERS if name == "num_hidden_layers" else 10**8)
    with explained(f"{config_file} is no configuration of a Llama layer"):
        llama = LlamaConfig(**plain)
    rotary = llama.rope_parameters or {}
    kind = str(rotary.get("rope_type", "default"))
    if kind not in FIXED_ROTATIONS or rotary.get("partial_rotary_factor", 1.0) != 1.0:
        kind = f"{rotary['partial_rotary_factor']:g} of each head" if kind in FIXED_ROTATIONS else f"type {kind!r}"
        known = ", ".join(sorted(FIXED_ROTATIONS))
        raise PoolError(f"{config_file}: rotary positions of {kind} are not supported, only {known} of whole heads")
    if llama.head_dim is None:  # the library would take it from the hidden size, of whatever number of heads
        llama.head_dim = llama.hidden_size // llama.num_attention_heads
    with explained(f"{config_file}: rotary positions cannot be computed from rope_theta and rope_parameters"):
        if not bool(LlamaRotaryEmbedding(llama).inv_freq.isfinite().all()):
            raise ValueError("frequencies are not finite")
    target_size = int(target_config.hidden_size)
    if "layers.0.hidden_norm.weight" not in tensors:
        if "fc.weight" not in tensors or "layers.0.self_attn.q_proj.weight" not in tensors:
            raise PoolError(
                f"{config_file.parent} is in no known layout: an EAGLE-1 or -2 head has tensors fc.weight, layers.0.…, "
                f"an EAGLE-3 head midlayer.… or layers.0.hidden_norm.weight; found {', '.join(sorted(tensors)[:4])} …"
            )
        if llama.hidden_size != target_size:
            raise PoolError(
                f"{config_file}: hidden_size is {llama.hidden_size}, but the target's, whose states an EAGLE-1 or -2 "
                f"head continues, is {target_size}"
            )
        tokens = whole_number(config, "draft_vocab_size", config_file, int(target_config.vocab_size))
        tokens = whole_number(config, "truncated_vocab_size", config_file, tokens)
        return HeadShape(1, llama, tokens, (count,), target_size)
    layers: tuple[int, ...] = (2, count // 2, count - 3)
    if named := _layer_ids(config, config_file):
        layers = tuple(named)
    elif named := _layer_ids(eagle, config_file):
        # There are two ways to count in circulation; servers distinguish them by the first: 1 means that layers are
        # named by what leaves them (SpecForge: 1, n/2 - 1, n - 4), here as elsewhere they are by what enters.
        by_output = named[0] == 1 and target_config.model_type != "gpt_oss"
        layers = tuple(i + by_output for i in named)
    if not all(0 <= layer < count for layer in layers):  # what leaves the last one is available only normalised
        raise PoolError(
            f"{config_file}: the head reads the target's hidden states {', '.join(map(str, layers))}, "
            f"but this target has {count} layers"
        )

    own = whole_number(layer, "draft_vocab_size", config_file, int(llama.vocab_size))
    return HeadShape(
        generation=3,
        config=llama,
        vocab_size=whole_number(config, "draft_vocab_size", config_file, own),
        layers=layers,
        target_size=whole_number(config, "target_hidden_size", config_file, target_size),
        norm_before_residual=_flag(config, "norm_before_residual", config_file),
        # (SpecForge once meant by the same word that logits are read from normalised states, which all heads do.)
        norm_output=_flag(config, "norm_output", config_file),
        norm_before_fc=_flag({**config, **eagle}, "norm_before_fc", config_file),
        fc_norm=_flag(config, "fc_norm", config_file),
    )


def _flag(config: Mapping[str, Any], name: str, file: Path) -> bool:
    """Whether a configuration says true; a text such as "false" would count as that, and is refused."""
    if (value := config.get(name)) not in (None, True, False):
        raise PoolError(f"{file}: {name} must be true or false, got {quoted(value)}")
    return bool(value)


def _layer_ids(config: Mapping[str, Any], file: Path) -> list[int] | None:
    """The target's layers that a configuration names, if any; Model Optimizer writes an empty list for none."""
    value = config.get(name := "eagle_aux_hidden_state_layer_ids")
    if value is not None and (not isinstance(value, list) or not all(type(number) is int for number in value)):
        raise PoolError(f"{file}: {name} must be a list of whole numbers, got {value!r}")
    return value


_SIZES = {
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
    "vocab_size", "max_position_embeddings",
}  # fmt: skip
_USUAL = {"skip_prenorm": True, "skip_output_norm": True, "add_para_norm": False, "layernorms": False, "logit_scale": 1}
"""Settings that make other networks of heads, with the values of those that are computed here: vLLM's norms, those of
``speculators``' EAGLE-1, and a factor of all logits."""
_LLAMA_FIELDS = {*_SIZES, "rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters"}
FIXED_ROTATIONS = {"default", "linear", "llama3", "yarn"}
"""Types of rotary positions that do not change with the text."""

_OPTIONAL = {"embed_tokens.weight", "lm_head.weight", "d2t"}
"""The target lends the first two."""
UNUSED = {"t2d", "verifier_norm.weight", "verifier_lm_head.weight", "rotary_emb.inv_freq"}
"""Tensors that some folders hold and no head needs."""


def _expected(
    shape: HeadShape, target: PreTrainedModel, tensors: Collection[str], config_file: Path
) -> dict[str, tuple[int, ...]]:
    """Shapes of all tensors that the head may have.

    It has biases of its fusion (EAGLE-1) or of queries, keys and values (Qwen2), and norms of queries and keys (Qwen3)
    where the names of its ``tensors`` say so.
    """
    config, size = shape.config, shape.config.hidden_size
    third = shape.generation == 3
    fused = len(shape.layers) * shape.target_size
    expected: dict[str, tuple[int, ...]] = {"fc.weight": (size, fused) if third else (size, 2 * size)}
    expected |= {"fc.bias": (size,)} if "fc.bias" in tensors and not third else {}
    expected |= {"input_norm.weight": (fused,)} if shape.norm_before_fc else {}
    if shape.fc_norm:
        expected |= {f"fc_norm.{i}.weight": (shape.target_size,) for i in range(len(shape.layers))}
    queries, keys = config.num_attention_heads * shape.head_size, config.num_key_value_heads * shape.head_size
    with torch.device("meta"), explained(f"{config_file} is no configuration of a Llama layer"):
        plain = {name: tuple(weight.shape) for name, weight in LlamaDecoderLayer(config, 0).named_parameters()}
    del plain["input_layernorm.weight"]
    for index in range(config.num_hidden_layers):
        layer: dict[str, tuple[int, ...]] = dict(plain)
        if "layers.0.self_attn.q_proj.bias" in tensors:
            layer |= {f"self_attn.{part}_proj.bias": (queries if part == "q" else keys,) for part in "qkv"}
        if third or index:  # EAGLE-1's first layer reads what fc makes, as it is
            layer["input_layernorm.weight"] = (size,)
        if third and not index:  # it reads embeddings and hidden states side by side
            layer |= {f"self_attn.{part}_proj.weight": (queries if part == "q" else keys, 2 * size) for part in "qkv"}
            layer["hidden_norm.weight"] = (size,)
        if "layers.0.self_attn.q_norm.weight" in tensors:
            layer |= {f"self_attn.{part}_norm.weight": (shape.head_size,) for part in "qk"}
        expected |= {f"layers.{index}.{name}": sizes for name, sizes in layer.items()}
    expected["embed_tokens.weight"] = (int(target.config.get_text_config().vocab_size), size)
    expected |= {"norm.weight": (size,)} if third else {}
    return expected | {"lm_head.weight": (shape.vocab_size, size), "d2t": (shape.vocab_size,)}


def _check(
    file: Path, shape: HeadShape, tensors: Mapping[str, torch.Tensor], expected: dict[str, tuple[int, ...]], tokens: int
) -> None:
    """Raise :class:`PoolError` where tensors are missing, too many, or do not fit a target of so many ``tokens``."""
    reasons: dict[str, str] = {}
    if shape.vocab_size != tokens:
        part = f"it proposes {shape.vocab_size:,} of the target's {tokens:,} tokens"
        reasons |= {"d2t": f"{part} and must say which"} | ({"lm_head.weight": part} if shape.generation == 3 else {})
    if (size := shape.config.hidden_size) != shape.target_size:
        reason = f"its hidden size of {size} differs from the target's {shape.target_size}"
        reasons |= {"embed_tokens.weight": reason, "lm_head.weight": reason}
    used = {name: tensor for name, tensor in tensors.items() if name not in UNUSED}
    what = "EAGLE-3 heads" if shape.generation == 3 else "EAGLE-1 and -2 heads"
    check_tensors(file, used, expected, what, _OPTIONAL - set(reasons), reasons)
    if "d2t" not in used:
        return
    ids = _tokens_of(tensors["d2t"])
    check_ids(file, "d2t", ids, tokens)
    if "t2d" in tensors and shape.vocab_size != tokens:
        known = tensors["t2d"].bool()
        same = known.shape == (tokens,) and int(known.sum()) == shape.vocab_size and bool(known[ids].all())
        if not same:
            raise PoolError(f"{file}: t2d and d2t do not name the same tokens")
