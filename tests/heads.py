"""Small EAGLE heads of random weights, written in each of the layouts they are published in."""

import functools
import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch.nn import functional
from transformers import PreTrainedModel

from drafters.checkpoints.eagle import read_head
from drafters.models.eagle_head import EagleHead
from tests import tiny

LAYOUTS = ("eagle1", "eagle3", "specforge", "speculators", "speculators-qwen3", "eagle3.1")
"""``eagle3.1`` stands for the variants of EAGLE-3 that servers read: normalised before the projection and after each
step, biases, scaled rotations, two layers, the target's whole vocabulary."""
DRAFT_IDS = [1, 2, 4, 5, 6, 7, 8, 9, 10]
"""Of the twelve tokens of the tiny target those that reduced heads can propose."""


def tensors_of(layout: str, target: PreTrainedModel, seed: int, hidden: int) -> dict[str, torch.Tensor]:
    """Tensors of a head, named as its layout names them."""
    generator = torch.Generator().manual_seed(seed)
    size = target.config.hidden_size
    wide, head_size, heads, kv_heads = 2 * hidden, 16, 4, 2
    third, full = layout != "eagle1", layout == "eagle3.1"
    layer = "midlayer." if layout in ("eagle3", "specforge") else "layers.0."
    read = 2 * hidden if third else hidden

    def matrix(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * 1.5 / math.sqrt(shape[-1])

    def norm(length: int) -> torch.Tensor:
        return torch.rand(length, generator=generator) + 0.5

    tensors = {
        "fc.weight": matrix(hidden, 3 * size if third else 2 * hidden),
        layer + "self_attn.q_proj.weight": matrix(heads * head_size, read),
        layer + "self_attn.k_proj.weight": matrix(kv_heads * head_size, read),
        layer + "self_attn.v_proj.weight": matrix(kv_heads * head_size, read),
        layer + "self_attn.o_proj.weight": matrix(hidden, heads * head_size),
        layer + "mlp.gate_proj.weight": matrix(wide, hidden),
        layer + "mlp.up_proj.weight": matrix(wide, hidden),
        layer + "mlp.down_proj.weight": matrix(hidden, wide),
        layer + "post_attention_layernorm.weight": norm(hidden),
    }
    if full:
        biases = {f"{layer}self_attn.{p}_proj.bias": matrix(1, n * head_size)[0] for p, n in zip("qkv", (4, 2, 2))}
        second = {
            name.replace("layers.0.", "layers.1."): matrix(*t.shape) for name, t in tensors.items() if layer in name
        }
        second |= {
            "layers.1." + name: norm(hidden) for name in ("input_layernorm.weight", "post_attention_layernorm.weight")
        }
        second |= {
            f"layers.1.self_attn.{p}_proj.weight": matrix(n * head_size, hidden) for p, n in zip("qkv", (4, 2, 2))
        }
        second |= {name.replace("layers.0.", "layers.1."): 2.0 * bias for name, bias in biases.items()}
        tensors |= {**biases, **second, "input_norm.weight": norm(3 * size)}
    if layout not in ("eagle3", "eagle3.1"):
        tensors["embed_tokens.weight"] = matrix(target.config.vocab_size, hidden) * math.sqrt(hidden)
    if not third:
        tensors["fc.bias"] = matrix(1, hidden)[0]
        return tensors
    ids = torch.arange(target.config.vocab_size) if full else torch.tensor(DRAFT_IDS)
    known = torch.zeros(target.config.vocab_size, dtype=torch.bool)
    known[ids] = True
    tensors |= {
        layer + "input_layernorm.weight": norm(hidden),
        layer + "hidden_norm.weight": norm(hidden),
        "norm.weight": norm(hidden),
        "lm_head.weight": 3.0 * matrix(len(ids), hidden),
    }
    if not full:
        tensors |= {"d2t": ids - torch.arange(len(ids)), "t2d": known}
    if layout == "speculators-qwen3":
        tensors |= {
            layer + "self_attn.q_norm.weight": norm(head_size),
            layer + "self_attn.k_norm.weight": norm(head_size),
        }
        tensors |= {f"fc_norm.{i}.weight": norm(size) for i in range(3)}
    return tensors


def config_of(layout: str, target: PreTrainedModel, hidden: int) -> dict[str, Any]:
    """A head's config.json in its layout."""
    layer = {
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "vocab_size": target.config.vocab_size,
        "max_position_embeddings": tiny.WINDOW,
        "rope_theta": 10000.0,
    }
    if layout == "eagle1":
        return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **layer}
    if layout in ("eagle3", "specforge"):
        config = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", **layer}
        config |= {"draft_vocab_size": len(DRAFT_IDS), "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 1]}}
        return config | ({"target_hidden_size": target.config.hidden_size} if layout == "specforge" else {})
    if layout == "eagle3.1":
        scaled = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        return {
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "llama",
            **layer,
            "num_hidden_layers": 2,
            "rope_scaling": {**scaled, "original_max_position_embeddings": 64},
            "qkv_bias": True,
            "norm_output": True,
            "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 1], "norm_before_fc": True},
        }
    qwen = layout == "speculators-qwen3"
    return {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "transformer_layer_config": {"model_type": "qwen3" if qwen else "llama", **layer},
        "draft_vocab_size": len(DRAFT_IDS),
        "norm_before_residual": True,
        "norm_output": qwen,
        "fc_norm": qwen,
        "target_hidden_size": target.config.hidden_size,
        "eagle_aux_hidden_state_layer_ids": [0, 1, 1],
        "speculators_config": {"algorithm": "eagle3", "verifier": {"name_or_path": "tiny", "architectures": []}},
    }


def write_head(folder: Path, layout: str, target: PreTrainedModel, seed: int = 0) -> Path:
    """Write a head to ``folder`` as its layout has it; those of EAGLE itself are pickled."""
    hidden = target.config.hidden_size if layout in ("eagle1", "eagle3", "eagle3.1") else 32
    folder.mkdir(parents=True, exist_ok=True)
    tensors = tensors_of(layout, target, seed, hidden)
    (folder / "config.json").write_text(json.dumps(config_of(layout, target, hidden)))
    for name in ("pytorch_model.bin", "model.safetensors"):
        (folder / name).unlink(missing_ok=True)
    if layout in ("eagle1", "eagle3"):
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        save_file(tensors, folder / "model.safetensors")
    return folder


@functools.lru_cache(maxsize=1)
def answers(target: PreTrainedModel) -> list[list[int]]:
    """Prompts, each with what the target writes after it: what drafters of all kinds can be made from."""
    prompts = tiny.prompts(30, seed=7, shortest=6, longest=6)
    return [[*prompt, *answer] for prompt, answer in zip(prompts, tiny.greedy_batch(target, prompts, 40), strict=True)]


def teach(folder: Path, target: PreTrainedModel) -> None:
    """Fit the output layer of an EAGLE-3 head to the target's own words, so that some of its drafts are accepted."""
    shape, tensors = read_head(folder, target)
    head = EagleHead(shape, tensors, target)
    states, wanted = [], []
    for ids in answers(target):
        features = tiny.states_of(target, ids, shape.layers)
        state = head.step(torch.tensor(ids[1:]), head.fuse(features[:-1]), 0).hidden
        states.append(state if shape.norm_output else head.norm(state, head.weights.final_norm))
        wanted.append(tiny.logits_of(target, ids)[1:].argmax(dim=-1))
    x = torch.cat(states)
    y = (torch.cat(wanted)[:, None] == torch.tensor(DRAFT_IDS)).float()
    fitted = torch.linalg.solve(x.T @ x + 0.1 * torch.eye(x.shape[1]), x.T @ y)
    tensors["lm_head.weight"] = 10.0 * fitted.T.contiguous()
    known = torch.zeros(target.config.vocab_size, dtype=torch.bool)
    known[DRAFT_IDS] = True
    (folder / "pytorch_model.bin").unlink(missing_ok=True)
    save_file({**tensors, "t2d": known}, folder / "model.safetensors")


def plain(config, tensors, target, path):
    """Logits and state after the last of the pairs ``path``: (hidden state or None for the state before it, token).

    ``path`` is the whole history of one node: real pairs first, then the drafted ones.
    """
    layer_config = config.get("transformer_layer_config", config)
    third, eps = "norm.weight" in tensors, layer_config["rms_norm_eps"]
    tensors = {name.replace("midlayer.", "layers.0."): tensor for name, tensor in tensors.items()}

    def norm(x, name):
        return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * tensors[name]

    def attended(part, read, position, keys, values):
        parts = {}
        for p in "qkv":
            made = tensors[f"{part}self_attn.{p}_proj.weight"] @ read
            parts[p] = (made + tensors.get(f"{part}self_attn.{p}_proj.bias", 0.0)).view(-1, 16)
        if part + "self_attn.q_norm.weight" in tensors:
            parts["q"] = norm(parts["q"], part + "self_attn.q_norm.weight")
            parts["k"] = norm(parts["k"], part + "self_attn.k_norm.weight")
        query, key = (turned(parts[p], position, layer_config.get("rope_scaling")) for p in "qk")
        keys.append(key)
        values.append(parts["v"])
        of_heads = []
        for head in range(4):
            scores = torch.stack([query[head] @ k[head // 2] for k in keys]) / 16**0.5
            of_heads.append(scores.softmax(0) @ torch.stack([v[head // 2] for v in values]))
        return torch.cat(of_heads)

    embedding = tensors.get("embed_tokens.weight", target.get_input_embeddings().weight.detach())
    keys, values, state = {}, {}, None
    for position, (feature, token) in enumerate(path):
        embedded = embedding[token]
        if not third:
            x = tensors["fc.weight"] @ torch.cat([embedded, state if feature is None else feature]) + tensors["fc.bias"]
            read = residual = x
        else:
            hidden = state
            if feature is not None:
                if "input_norm.weight" in tensors:
                    feature = norm(feature, "input_norm.weight")
                if "fc_norm.0.weight" in tensors:
                    parts = feature.chunk(3)
                    feature = torch.cat([norm(part, f"fc_norm.{i}.weight") for i, part in enumerate(parts)])
                hidden = tensors["fc.weight"] @ feature
            normed = norm(hidden, "layers.0.hidden_norm.weight")
            residual = normed if config.get("norm_before_residual") else hidden
            read = torch.cat([norm(embedded, "layers.0.input_layernorm.weight"), normed])
        for layer in range(layer_config["num_hidden_layers"]):
            part = f"layers.{layer}."
            if layer:
                residual, read = x, norm(x, part + "input_layernorm.weight")
            x = attended(part, read, position, keys.setdefault(layer, []), values.setdefault(layer, []))
            x = residual + tensors[part + "self_attn.o_proj.weight"] @ x
            read = norm(x, part + "post_attention_layernorm.weight")
            gate, up = (tensors[f"{part}mlp.{p}_proj.weight"] @ read for p in ("gate", "up"))
            x = x + tensors[part + "mlp.down_proj.weight"] @ (functional.silu(gate) * up)
        state = x
        if config.get("norm_output"):
            state = norm(state, "norm.weight")
    if not third:
        return target.lm_head.weight.detach() @ state
    final = state if config.get("norm_output") else norm(state, "norm.weight")
    return tensors["lm_head.weight"] @ final


def turned(x, position, scaled):
    """Rotary position embedding of ``x`` (heads, 16), by Llama 3.1's scaled frequencies if asked for."""
    frequencies = 10000.0 ** (-torch.arange(0, 16, 2) / 16)
    if scaled:
        waves = scaled["original_max_position_embeddings"] * frequencies / (2 * torch.pi)  # in the original window
        low, high = scaled["low_freq_factor"], scaled["high_freq_factor"]
        kept = ((waves - low) / (high - low)).clamp(0, 1)
        frequencies = kept * frequencies + (1 - kept) * frequencies / scaled["factor"]
    angles = position * frequencies
    low, high = x[:, :8], x[:, 8:]
    return torch.cat([low * angles.cos() - high * angles.sin(), high * angles.cos() + low * angles.sin()], dim=1)
