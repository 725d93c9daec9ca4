"""Plain decoders of all families, a tree, and settings of Llamas: what our own forwards of them are tested with."""

from collections.abc import Callable

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
from drafters.models.feeds import Feed
from drafters.models.target import tree_mask
from drafters.models.token_map import ConfinedHead
from drafters.models.torch_decoder import TorchDecoder
from tests import tiny

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
    "llama with a token map": (LlamaConfig, LlamaForCausalLM, {"tie_word_embeddings": True}),
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


def made(name: str, seed: int = 0, layers: int = 3) -> PreTrainedModel:
    """One of ``MODELS``."""
    config_class, model_class, settings = MODELS[name]
    config = config_class(
        vocab_size=VOCAB,
        hidden_size=64,
        intermediate_size=48,
        num_hidden_layers=layers,
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
    if "token map" in name:
        model.lm_head = ConfinedHead(model.lm_head, [(seed + 5 * place) % VOCAB for place in range(40)])
    return model


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Whether what PyTorch's or Triton's kernels made is what the library made on the CPU."""
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=5e-5)


def read(decoder: TorchDecoder, ids: list[int]) -> None:
    """Feed a text of which nothing is looked at."""
    decoder.forward(ids, 0, last=1)


def check_two_chains_by_turns(
    decoder: TorchDecoder, model: PreTrainedModel, nodes: int, read: Callable[[TorchDecoder, list[int]], None] = read
) -> None:
    """A tree of many nodes is scored as each of its paths is by the library, on the CPU by ``model``."""
    tokens = [1 + i % 9 for i in range(nodes)]
    draft = Draft(tuple(tokens), (-1, -1, *range(nodes - 2)))
    read(decoder, IDS)
    positions = len(IDS) + torch.tensor([0, *(depth + 1 for depth in draft.depths)])
    scores = decoder.forward([5, *tokens], len(IDS), positions=positions, mask=tree_mask(draft, len(IDS)))
    for first in (0, 1):
        close(scores[nodes - 1 + first], tiny.logits_of(model, [*IDS, 5, *tokens[first::2]])[-1])


def check_texts_run_together(
    decoder: TorchDecoder, model: PreTrainedModel, read: Callable[[TorchDecoder, list[int]], None] = read
) -> None:
    """Texts of several lengths, one of them a tree, with a text between them that feeds nothing: each is scored as by
    the library, on the CPU by ``model``."""
    texts = [decoder, *(decoder.twin() for _ in range(3))]
    contexts = tiny.prompts(4, seed=2, shortest=9, longest=30)
    for each, context in zip(texts, contexts, strict=True):
        read(each, context)
    tree = len(contexts[2]) + DEPTHS, tree_mask(DRAFT, len(contexts[2]))
    feeds = [
        Feed(0, [1, 2, 3], len(contexts[0]), 3),
        Feed(2, [4, *DRAFT.tokens], len(contexts[2]), len(DRAFT) + 1, *tree, (1, 2)),
        Feed(3, [9], len(contexts[3]), 1),
    ]
    first, second, third = decoder.runs.run(feeds)
    close(first.logits, tiny.logits_of(model, [*contexts[0], 1, 2, 3])[-3:])
    for path in PATHS:
        expected = tiny.logits_of(model, [*contexts[2], 4, *(DRAFT.tokens[node] for node in path)])[-1]
        close(second.logits[path[-1] + 1], expected)
    assert {layer: states.shape for layer, states in second.hidden.items()} == dict.fromkeys((1, 2), (6, 64))
    close(third.logits, tiny.logits_of(model, [*contexts[3], 9])[-1:])
    close(texts[1].forward([7], len(contexts[1])), tiny.logits_of(model, [*contexts[1], 7])[-1:])
