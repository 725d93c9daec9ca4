"""The lean forward computes what transformers' Llama computes."""

from itertools import pairwise

import pytest
import torch
from torch.nn import functional
from transformers import BitsAndBytesConfig, MistralConfig, MistralForCausalLM

from drafters.draft import Draft
from drafters.models.llama import MAX_WINDOW, LlamaStack, unsupported
from drafters.models.target import tree_mask
from tests import tiny

IDS = [3, 7, 2, 9, 9, 4, 1, 5, 8, 2, 6, 3]

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


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=5e-5)


@pytest.mark.parametrize("settings", SHAPES.values(), ids=SHAPES.keys())
def test_logits_equal_those_of_transformers(settings):
    model = tiny.llama(1, **settings)
    stack = LlamaStack([model])
    close(stack.forward(IDS, 0)[0], tiny.logits_of(model, IDS))


def test_norm_weights_are_used():
    model = tiny.llama(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.uniform_(0.5, 1.5, generator=torch.Generator().manual_seed(len(name)))
    close(LlamaStack([model]).forward(IDS, 0)[0], tiny.logits_of(model, IDS))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_within_rounding_of_transformers(dtype):
    model = tiny.llama(1).to(dtype)
    stack = LlamaStack([model])
    logits = torch.cat([stack.forward(IDS[:5], 0)[0], stack.forward(IDS[5:], 5)[0]])
    assert logits.dtype == dtype
    torch.testing.assert_close(logits, tiny.logits_of(model, IDS), rtol=0.05, atol=0.15)


@pytest.mark.parametrize("cuts", [[1], [5], [11], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], [3, 4, 9]])
def test_feeding_in_pieces_changes_nothing(cuts):
    model = tiny.llama(1)
    stack = LlamaStack([model])
    bounds = [0, *cuts, len(IDS)]
    rows = [stack.forward(IDS[a:b], a)[0] for a, b in pairwise(bounds)]
    close(torch.cat(rows), tiny.logits_of(model, IDS))


def test_last_returns_the_last_rows_only():
    stack = LlamaStack([tiny.llama(1)])
    whole = stack.forward(IDS, 0)
    close(stack.forward(IDS, 0, last=3), whole[:, -3:])


def test_a_stack_computes_what_its_models_compute_alone():
    models = [tiny.llama(seed) for seed in range(3)]
    stack = LlamaStack(models)
    both = stack.forward(IDS, 0)
    assert both.shape == (3, len(IDS), tiny.VOCAB)
    for index, model in enumerate(models):
        close(both[index], tiny.logits_of(model, IDS))
        close(stack.forward(IDS[4:], 4, index)[0], both[index, 4:])


def test_running_one_model_leaves_the_caches_of_the_others_alone():
    stack = LlamaStack([tiny.llama(seed) for seed in range(3)])
    expected = stack.forward(IDS, 0)[:, -1]
    stack.forward([1, 1, 1], 0, 1)
    found = stack.forward(IDS[-1:], len(IDS) - 1)[:, -1]
    close(found[[0, 2]], expected[[0, 2]])
    assert not torch.allclose(found[1], expected[1], atol=1e-2)


def test_feeding_at_an_earlier_position_rolls_the_cache_back():
    model = tiny.llama(1)
    stack = LlamaStack([model])
    stack.forward([*IDS[:6], 1, 1, 1, 1], 0)
    close(stack.forward(IDS[6:], 6)[0], tiny.logits_of(model, IDS)[6:])


def test_a_tree_in_one_forward_equals_each_of_its_paths():
    model = tiny.llama(1)
    stack = LlamaStack([model])
    context = IDS[:5]
    stack.forward(context[:-1], 0)
    draft = Draft(tokens=(4, 7, 1, 4, 9), parents=(-1, -1, 0, 0, 2))
    positions = 4 + torch.tensor([0, 1, 1, 2, 2, 3])
    logits = stack.forward([context[-1], *draft.tokens], 4, positions=positions, mask=tree_mask(draft, 4))[0]
    for node in range(len(draft)):
        path = [node]
        while draft.parents[path[0]] >= 0:
            path.insert(0, draft.parents[path[0]])
        expected = tiny.logits_of(model, context + [draft.tokens[n] for n in path])[-1]
        close(logits[node + 1], expected)


def test_keep_moves_the_kept_positions_together():
    model = tiny.llama(1)
    stack = LlamaStack([model])
    context = IDS[:5]
    stack.forward(context[:-1], 0)
    draft = Draft(tokens=(4, 7, 1, 4, 9), parents=(-1, -1, 0, 1, 3))
    positions = 4 + torch.tensor([0, 1, 1, 2, 2, 3])
    stack.forward([context[-1], *draft.tokens], 4, positions=positions, mask=tree_mask(draft, 4))
    stack.keep(4, [0, 2, 4, 5])  # the path 7, 4, 9
    close(stack.forward([6], 8)[0], tiny.logits_of(model, [*context, 7, 4, 9, 6])[-1:])


def test_the_window_is_held():
    stack = LlamaStack([tiny.llama(1, window=8)])
    assert stack.window == 8
    stack.forward(IDS[:8], 0)
    with pytest.raises(ValueError, match="9 tokens exceed the context window of 8"):
        stack.forward([1], 8)


def test_parameter_count():
    for tied in (False, True):
        model = tiny.llama(1, tie_word_embeddings=tied)
        assert LlamaStack([model, model]).parameter_count == model.num_parameters()


def test_what_the_lean_forward_cannot_run():
    assert unsupported(tiny.llama()) is None
    mistral = MistralForCausalLM(MistralConfig(vocab_size=5, hidden_size=8, num_hidden_layers=1, num_attention_heads=2))
    assert "MistralForCausalLM" in unsupported(mistral)
    assert "bias" in unsupported(tiny.llama(attention_bias=True))
    assert "bias" in unsupported(tiny.llama(mlp_bias=True))
    assert "activation" in unsupported(tiny.llama(hidden_act="gelu"))
    assert "large" in unsupported(tiny.llama(window=MAX_WINDOW + 1))
    dynamic = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    assert "rotary" in unsupported(tiny.llama(rope_parameters=dynamic))
    quantised = tiny.llama()
    quantised.hf_quantizer = BitsAndBytesConfig(load_in_8bit=True)
    assert "quantised" in unsupported(quantised)
    with pytest.raises(ValueError, match="bias"):
        LlamaStack([tiny.llama(attention_bias=True)])


@pytest.mark.parametrize(
    "settings",
    [
        {"hidden": 32},
        {"layers": 1},
        {"vocab": 13},
        {"window": 32},
        {"intermediate_size": 40},
        {"num_key_value_heads": 4},
        {"num_attention_heads": 2},
        {"head_dim": 10},
        {"tie_word_embeddings": True},
        {"rms_norm_eps": 1e-3},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    ],
    ids=lambda settings: ",".join(settings),
)
def test_models_of_unlike_shape_are_not_stacked(settings):
    like, model = tiny.llama(1), tiny.llama(2, **settings)
    assert "differs" in unsupported(model, like)
    with pytest.raises(ValueError, match="differs"):
        LlamaStack([like, model])


def test_kernels_may_return_any_strides(monkeypatch):
    """Those of a GPU return the heads last but one in memory; what comes of them must not depend on that."""
    model = tiny.llama(1)
    expected = tiny.logits_of(model, IDS)
    kernel = functional.scaled_dot_product_attention

    def strided(*args, **kwargs):
        return kernel(*args, **kwargs).transpose(1, 2).contiguous().transpose(1, 2)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", strided)
    stack = LlamaStack([model])
    close(stack.forward(IDS[:5], 0)[0], expected[:5])
    close(stack.forward(IDS[5:9], 5)[0], expected[5:9])
    close(stack.forward(IDS[9:10], 9)[0], expected[9:10])
