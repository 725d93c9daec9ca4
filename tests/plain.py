"""Plain decoders of all families, a tree, and settings of Llamas: what our own forwards of them are tested with."""

from __future__ import annotations

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from drafters.draft import Draft

VOCAB, WINDOW = 97, 700
IDS = [3, 7, 2, 9, 9, 4, 1, 5, 8, 2, 6, 3]
DRAFT = Draft(tokens=(4, 7, 1, 4, 9), parents=(-1, -1, 0, 0, 2))
DEPTHS = torch.tensor([0, 1, 1, 2, 2, 3])
PATHS = ((0,), (1,), (0, 2), (0, 3), (0, 2, 4))

SHAPES = {
    "grouped queries": {},
    "one key-value head": {"num_key_value_heads": 1},
    "a key-value head each": {"num_key_value_heads": 4},
    "tied embeddings": {"tie_word_embeddings": True},
    "heads wider than hidden / heads": {"head_dim": 10},
    "linear rotary scaling": {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}},
    "llama3 rotary scaling": {
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        }
    },
}

MODELS = {
    "llama": (LlamaConfig, LlamaForCausalLM, {}),
    "llama with biases": (LlamaConfig, LlamaForCausalLM, {"attention_bias": True, "mlp_bias": True}),
    "mistral": (MistralConfig, MistralForCausalLM, {"sliding_window": None}),
    "sliding mistral": (MistralConfig, MistralForCausalLM, {"sliding_window": 5}),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, {"tie_word_embeddings": True}),
    "partly sliding qwen2": (
        Qwen2Config,
        Qwen2ForCausalLM,
        {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1},
    ),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {"head_dim": 32}),
    "yarn": (
        Qwen2Config,
        Qwen2ForCausalLM,
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0,
                             "original_max_position_embeddings": 175}},
    ),
}  # fmt: skip


def made(name: str, seed: int = 0) -> PreTrainedModel:
    """One of ``MODELS``."""
    config_class, model_class, settings = MODELS[name]
    config = config_class(
        vocab_size=VOCAB,
        hidden_size=64,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=WINDOW,
        **settings,
    )
    torch.manual_seed(seed)
    model = model_class(config).eval()
    with torch.no_grad():  # biases and norms too
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model
