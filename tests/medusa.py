"""Medusa and BPD heads for tests: folders as they are published, and what they compute, computed plainly."""

import json
import math

import torch
from safetensors.torch import save_file

from drafters.checkpoints.medusa import read_bpd, read_medusa
from drafters.models.medusa_heads import BPDHeads, MedusaHeads
from tests import tiny

NETWORKS = {"medusa": (read_medusa, MedusaHeads), "bpd": (read_bpd, BPDHeads)}

HIDDEN, INNER, HEADS = 24, 20, 3


def load_heads(kind, folder, target):
    """The heads of ``folder``, of one of the kinds ``NETWORKS``."""
    read, network = NETWORKS[kind]
    return network(read(folder, target), target)


def drawn(seed, **shapes):
    """Tensors of these shapes; matrices larger than biases, so that distributions are peaked."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=generator) * (2.0 / math.sqrt(HIDDEN) if len(shape) > 1 else 0.2)
        for name, shape in shapes.items()
    }


def medusa_tensors(layers=1, hidden=HIDDEN, vocab=tiny.VOCAB, heads=HEADS):
    shapes = {}
    for head in range(heads):
        for layer in range(layers):
            shapes[f"{head}.{layer}.linear.weight"] = (hidden, hidden)
            shapes[f"{head}.{layer}.linear.bias"] = (hidden,)
        shapes[f"{head}.{layers}.weight"] = (vocab, hidden)
    return drawn(layers, **shapes)


def bpd_tensors():
    shapes = {}
    for head in range(HEADS):
        shapes |= {f"{head}.up.weight": (INNER, HIDDEN), f"{head}.up.bias": (INNER,)}
        shapes |= {f"{head}.down.weight": (HIDDEN, INNER), f"{head}.down.bias": (HIDDEN,)}
    return drawn(9, **shapes)


def write_medusa(folder, tensors, layers=1, file="medusa_lm_head.pt", prefix=""):
    """A folder as the public ones are: the configuration speaks of two heads, whatever there are."""
    folder.mkdir(exist_ok=True)
    named = {prefix + name: tensor for name, tensor in tensors.items()}
    save_file(named, folder / file) if file.endswith("safetensors") else torch.save(named, folder / file)
    config = {"base_model_name_or_path": "lmsys/vicuna-7b-v1.3", "medusa_num_heads": 2, "medusa_num_layers": layers}
    (folder / "config.json").write_text(json.dumps({**config, "transformers_version": "4.31.0"}))
    return folder


def write_bpd(folder, tensors):
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    config = {"bpd_num_heads": HEADS, "hidden_size": HIDDEN, "intermediate_size": INNER}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def plain_logits(tensors, target, hidden, head):
    """By the definitions, one row and one head at a time."""
    rows = []
    for x in hidden:
        if "0.up.weight" in tensors:
            inner = (tensors[f"{head}.up.weight"] @ x + tensors[f"{head}.up.bias"]).clamp(min=0.0)
            x = x + tensors[f"{head}.down.weight"] @ inner + tensors[f"{head}.down.bias"]
            bias = target.lm_head.bias
            rows.append(target.lm_head.weight @ x + (0.0 if bias is None else bias))
            continue
        layer = 0
        while (weight := tensors.get(f"{head}.{layer}.linear.weight")) is not None:
            y = weight @ x + tensors[f"{head}.{layer}.linear.bias"]
            x, layer = x + y / (1.0 + torch.exp(-y)), layer + 1
        rows.append(tensors[f"{head}.{layer}.weight"] @ x)
    return torch.stack(rows).detach()
