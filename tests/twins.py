"""Small twins of the bundled cards' models: the same layouts, files and settings, a few kilobytes each."""

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import torch
import yaml
from safetensors.torch import save_file
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, MuseGlimmerAssistantModel, PreTrainedModel

from drafters.card import find_card, load_card
from drafters.checkpoints.dflash import dflash_config
from drafters.checkpoints.model_sizes import RECORDED
from drafters.models.graph import Graph
from tests import heads, tiny
from tests.medusa import medusa_tensors, write_medusa

CONFIGS: dict[str, dict[str, Any]] = json.loads(RECORDED.read_text())
HIDDEN, WINDOW, LONG_WINDOW = 64, 512, 16384  # caches on ONNX Runtime have room for 512 positions at least
HEAD_LAYOUTS = {
    "RedHatAI/Qwen3-8B-speculator.eagle3": "speculators",
    "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B": "eagle3",
    "yuhuili/EAGLE-Vicuna-7B-v1.3": "eagle1",
}


def shrunk(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration of the same kind with small sizes; grouped queries, tied and padded embeddings stay.

    A Llama too large for a stack becomes one whose window is too long for it, so that both run the same way.
    """
    large = config["model_type"] == "llama" and config["num_hidden_layers"] > 8
    heads_of_a_key = config["num_attention_heads"] // config.get("num_key_value_heads", config["num_attention_heads"])
    return {
        **config,
        "hidden_size": HIDDEN,
        "intermediate_size": 3 * HIDDEN,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 4 // min(heads_of_a_key, 4),
        **({"head_dim": 32} if "head_dim" in config else {}),
        "vocab_size": 320 if config["vocab_size"] == 152064 else 304,
        "max_position_embeddings": LONG_WINDOW if large else WINDOW,
        "bos_token_id": None,
        "eos_token_id": tiny.END,
        "pad_token_id": None,
    }


def write_model(folder: Path, config: dict[str, Any], seed: int = 0) -> PreTrainedModel:
    """A model of this configuration with peaked random weights."""
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[config["model_type"]].from_dict(config))
    tiny.spread(model, seed).save_pretrained(folder)
    return model


def write_dflash(folder: Path, config: dict[str, Any], target: PreTrainedModel) -> Path:
    """A DFlash network as it is published."""
    folder.mkdir(parents=True)
    own = {**shrunk(config), "num_hidden_layers": 2, "block_size": 8, "head_dim": 16}
    own["dflash_config"] = {"mask_token_id": target.config.vocab_size - 1, "target_layer_ids": [0, 2]}
    (folder / "config.json").write_text(json.dumps(own))
    generator = torch.Generator().manual_seed(5)
    model = MuseGlimmerAssistantModel(dflash_config(own, folder / "config.json"))
    names = {"encoder.fc.weight": "fc.weight", "encoder.output_norm_enc.weight": "hidden_norm.weight"}
    tensors = {names.get(n, n): torch.randn(p.shape, generator=generator) * 0.2 for n, p in model.named_parameters()}
    save_file(tensors, folder / "model.safetensors")
    return folder


def write_pool(folder: Path, name: str, **changes: Any) -> Path:
    """The bundled card ``name`` with twins beside it in place of the Hub's models.

    Returns:
        The card's path.
    """
    card, _ = load_card(find_card(name))
    content = card.model_dump(exclude_unset=True)
    folder.mkdir(parents=True, exist_ok=True)
    target = write_model(folder / "target", shrunk(CONFIGS[str(card.target.id)]), 1)
    tiny.tokenizer().save_pretrained(folder / "target")
    content["target"] = {"path": "target"}
    for entry in content["drafters"]:
        if repository := entry.pop("id", None):
            entry.pop("revision", None)
            entry["path"] = repository.replace("/", "--")
            _write_drafter(folder / entry["path"], entry["kind"], repository, target)
        if "window" in entry:
            entry["window"] = WINDOW // 2
    content |= {"device": "cpu", "context_window": WINDOW, "draft_length": 4, "examples": [], **changes}
    path = folder / "card.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def _write_drafter(folder: Path, kind: str, repository: str, target: PreTrainedModel) -> None:
    if folder.exists():
        return
    config = CONFIGS[repository]
    if kind == "lm":
        write_model(folder, shrunk(config), 2)
    elif kind == "eagle":
        heads.write_head(folder, HEAD_LAYOUTS[repository], target)
    elif kind == "dflash":
        write_dflash(folder, config, target)
    else:
        sizes = {"heads": config["medusa_num_heads"], "hidden": HIDDEN, "vocab": target.config.vocab_size}
        write_medusa(folder, medusa_tensors(**sizes))


def objects_in(*roots: object) -> Iterator[object]:
    """All that these objects hold, each once."""
    seen: set[int] = set()
    waiting: list[object] = list(roots)
    while waiting:
        item = waiting.pop()
        if id(item) in seen or isinstance(item, (type, ModuleType, FunctionType, str, bytes, int, float)):
            continue
        seen.add(id(item))
        waiting.extend(gc.get_referents(item))
        if isinstance(item, torch.Tensor):  # those of ``bitsandbytes`` have attributes
            waiting.extend(vars(item).values())
        yield item


def held_bytes(*roots: object) -> int:
    """Bytes of all tensors that these objects hold, each storage once, and of the packed copies that ONNX Runtime makes
    of the weights of products; of an embedding beside int8 weights too, as resident memory shows of large ones."""
    found = list(objects_in(*roots))
    tensors = [item for item in found if isinstance(item, torch.Tensor) and item.device.type != "meta"]
    graphs = [graph for graph in found if isinstance(graph, Graph)]
    inputs = {"FusedMatMul": [1], "MatMulNBits": [1, 2]}
    packed = [
        graph.weights[node.input[place]].nbytes
        for graph in graphs
        for node in graph.proto.graph.node
        for place in (inputs | ({"Gather": [0]} if graph.int8 else {})).get(node.op_type, [])
        if node.input[place] in graph.weights
    ]
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values()) + sum(packed)
