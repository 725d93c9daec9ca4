"""Our forward in PyTorch, padded as on a GPU and as it is: what it has besides a plain decoder's."""

import pytest
import torch
from torch.nn import functional
from transformers import BitsAndBytesConfig

from drafters.models.feeds import CHUNK
from drafters.models.runtimes import runtime_of
from drafters.models.torch_decoder import TorchDecoder, TorchGroup, alike, unsupported
from drafters.models.torch_model import SPARE
from tests import tiny
from tests.plain import IDS, MODELS, VOCAB, check_texts_run_together, check_two_chains_by_turns, close, made


@pytest.fixture(params=[False, True], ids=["as it is", "padded"])
def static(request):
    return request.param


def test_a_tree_of_more_nodes_than_the_widest_graph(static):
    model = made("sliding mistral")
    check_two_chains_by_turns(TorchDecoder(model, static=static), model, 80)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", MODELS)
def test_half_precision_stays_within_rounding_of_transformers(name, dtype, static):
    model = made(name)
    ids = torch.randint(0, VOCAB, (110,), generator=torch.Generator().manual_seed(1)).tolist()
    half = made(name).to(dtype)
    decoder = TorchDecoder(half, static=static)
    logits = torch.cat([decoder.forward(ids[:100], 0), decoder.forward(ids[100:], 100)])
    assert logits.dtype == dtype
    exact = tiny.logits_of(model, ids)
    possible = exact.isfinite()
    assert torch.equal(logits.isfinite(), possible)
    ours, theirs = ((each.float() - exact)[possible].abs().max() for each in (logits, tiny.logits_of(half, ids)))
    assert ours <= 2 * theirs + 1e-3 * exact[possible].abs().max()


def test_weights_are_held_once():
    models = [tiny.llama(1, attention_bias=True), tiny.llama(2, attention_bias=True)]
    expected = [tiny.logits_of(model, IDS) for model in models]
    stack = TorchGroup(models).decoders[0].runs.stack
    parameters = {p.untyped_storage().data_ptr() for model in models for p in model.parameters()}
    for weights in (stack.weights, *stack.each):
        products = [p for layer in weights.layers for p in (layer.qkv, layer.out, layer.gate_up, layer.down)]
        held = [t for p in [*products, weights.head] for t in (p.weight, p.bias) if t is not None]
        held += [t for layer in weights.layers for t in (layer.norm1, layer.norm2)]
        held += [weights.embedding, weights.final_norm]
        assert {t.untyped_storage().data_ptr() for t in held} == parameters
    for model, logits in zip(models, expected, strict=True):
        close(tiny.logits_of(model, IDS), logits)  # the library's forward still computes it


def test_texts_of_one_model_are_run_together(static):
    model = made("sliding mistral")
    check_texts_run_together(TorchDecoder(model, static=static), model)


@pytest.mark.parametrize("kind", ["llama", "llama with a token map", "qwen2", "qwen3", "sliding mistral"])
def test_a_group_computes_what_its_models_compute_alone(kind, static):
    models = [made(kind, seed) for seed in range(3)]
    expected = [tiny.logits_of(model, [*IDS, 5, 6]) for model in models]
    group = TorchGroup(models, static=static)
    found = group.forward(IDS, [0, 0, 0], last=3)
    assert found.shape == (3, 3, VOCAB)
    close(found, torch.stack([logits[len(IDS) - 3 : len(IDS)] for logits in expected]))
    close(group.forward([*IDS, 5, 6], [12, 12, 10], last=1)[:, -1], torch.stack([logits[-1] for logits in expected]))
    for decoder, logits in zip(group.decoders, expected, strict=True):
        close(decoder.forward([*IDS[4:], 5, 6], 4), logits[4:])
    group.decoders[1].forward([1, 1, 1], 0)
    close(group.decoders[2].forward([6], len(IDS) + 1)[0], expected[2][-1])  # the others' caches are left alone
    twin = group.twin()
    twin.forward([5, 5], [0, 0, 0], last=1)
    close(twin.decoders[0].forward([6], 2), tiny.logits_of(models[0], [5, 5, 6])[-1:])
    close(group.decoders[0].forward([6], len(IDS) + 1)[0], expected[0][-1])


def test_a_group_reads_long_texts_in_pieces(static):
    models = [made("llama", seed) for seed in range(2)]
    ids = [i % VOCAB for i in range(CHUNK + 90)]
    found = TorchGroup(models, static=static).forward(ids, [0, 0], last=100)
    close(found, torch.stack([tiny.logits_of(model, ids)[-100:] for model in models]))


def test_what_it_cannot_run():
    def reason(model, dtype=torch.bfloat16, device="cpu"):
        return unsupported(model, dtype, device)

    assert reason(tiny.llama()) is None and reason(tiny.llama(), device="cuda") is None
    assert "GPT2LMHeadModel" in reason(tiny.causal_lm("gpt2"))
    quantised = tiny.llama()
    quantised.hf_quantizer = BitsAndBytesConfig(load_in_8bit=True)
    assert "quantised" in reason(quantised) and reason(quantised, device="cuda:0") is None
    quantised.lm_head = type("OtherLinear", (torch.nn.Module,), {})()
    assert "OtherLinear" in reason(quantised, device="cuda:0")


def test_on_zerogpu_the_library_s_own_forward_is_used(monkeypatch):
    """Weights are moved to another process there; whether views of them outlive that has not been tried."""
    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    assert runtime_of(tiny.llama(), torch.bfloat16, "cuda") == "hub"
    assert runtime_of(tiny.llama(), torch.bfloat16, "cpu") == "torch"


def test_what_is_made_anew_has_room_for_the_texts_that_are_left(static):
    model = tiny.llama(1, window=4096)
    first = TorchDecoder(model, static=static)
    runs, others = first.runs.stack, [first.twin() for _ in range(4)]
    ids = [n % tiny.VOCAB for n in range(600)]
    for decoder in (first, *others):
        decoder.forward(ids[:20], 0, last=1)
    others[1].forward(ids, 0, last=1)
    assert runs._cache.shape[1:4:2] == (8, 1024 + SPARE)
    others[1].forward(ids[:5], 0)  # another text
    del others[2:], decoder
    first.forward([1], 20)
    assert runs._cache.shape[1:4:2] == (8, 1024 + SPARE), "as long as there is room nothing is made anew"
    others[0].forward(ids * 2, 20, last=1)
    assert runs._cache.shape[1:4:2] == (4, 2048 + SPARE)
    expected = [*ids[:20], *ids, *ids, 7]
    close(others[0].forward([7], 1220)[-1], tiny.logits_of(model, expected)[-1])
    close(others[1].forward([7], 5)[-1], tiny.logits_of(model, [*ids[:5], 7])[-1])
    close(first.forward([7], 21)[-1], tiny.logits_of(model, [*ids[:20], 1, 7])[-1])


def test_a_text_whose_numbers_were_nan_spoils_no_later_one(static):
    model = tiny.llama(1)
    decoder = TorchDecoder(model, static=static)
    decoder.forward([1] * 20, 0)
    with torch.inference_mode():
        decoder.runs.stack._cache.fill_(torch.nan)
    close(decoder.forward([2, 3, 4], 0), tiny.logits_of(model, [2, 3, 4]))


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
        {"attention_bias": True},
        {"rms_norm_eps": 1e-3},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    ],
    ids=lambda settings: ",".join(settings),
)
def test_models_of_unlike_shape_share_no_forward(settings):
    assert not alike(tiny.llama(1), tiny.llama(2, **settings)) and alike(tiny.llama(1), tiny.llama(2))


def test_models_of_other_kinds_share_no_forward():
    assert not alike(tiny.llama(), tiny.causal_lm("qwen2"))
    quantised = tiny.llama()
    quantised.hf_quantizer = BitsAndBytesConfig(load_in_8bit=True)
    assert not alike(quantised, quantised)


def test_kernels_may_return_any_strides(monkeypatch, static):
    """Those of a GPU return the heads last but one in memory; what comes of them must not depend on that."""
    model = tiny.llama(1)
    expected = tiny.logits_of(model, IDS)
    kernel = functional.scaled_dot_product_attention

    def strided(*args, **kwargs):
        return kernel(*args, **kwargs).transpose(1, 2).contiguous().transpose(1, 2)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", strided)
    decoder = TorchDecoder(model, static=static)
    close(decoder.forward(IDS[:5], 0), expected[:5])
    close(decoder.forward(IDS[5:9], 5), expected[5:9])
    close(decoder.forward(IDS[9:10], 9), expected[9:10])
