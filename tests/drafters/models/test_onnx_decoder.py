"""ONNX Runtime: the likeliest tokens that its forward finds, its buffers and sessions, and its groups."""

import os
from functools import cache

import numpy as np
import pytest
import torch
from transformers import BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM

from drafters.models import onnx_model, onnx_session
from drafters.models.decoder_graph import DecoderGraph
from drafters.models.onnx_decoder import OnnxDecoder, unsupported
from drafters.models.onnx_session import HELD_BUFFERS, NO_TILES
from tests import tiny


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("last", [1, 4])
def test_the_likeliest_tokens_are_those_of_the_logits(last):
    decoder = OnnxDecoder(tiny.llama(1))
    logits = decoder.forward([3, 7, 2, 9, 9, 4], 0, last=last)
    tokens, chances = decoder.likeliest
    assert tokens.tolist() == logits.argmax(dim=-1).tolist()
    close(torch.from_numpy(chances), logits.log_softmax(dim=-1).amax(dim=-1))


def test_a_target_finds_its_likeliest_tokens_and_that_all_logits_are_finite():
    decoder = OnnxDecoder(tiny.llama(1), verifies=True)
    logits = decoder.forward([3, 7, 2, 9, 9, 4], 0)
    tokens, chances = decoder.likeliest
    assert tokens.tolist() == logits.argmax(dim=-1).tolist() and np.isfinite(chances).all()


def test_of_equal_logits_the_first_is_the_likeliest():
    model = tiny.llama(1)
    model.lm_head.weight.data.zero_()
    decoder = OnnxDecoder(model)
    decoder.forward([3, 7, 2], 0)
    assert decoder.likeliest[0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("token", [0, 5, -1])
@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_logits_that_are_not_finite_have_no_likeliest_token(wrong, token):
    model = tiny.llama(1)
    model.lm_head.weight.data[token] = wrong
    decoder = OnnxDecoder(model, verifies=True)
    logits = decoder.forward([3, 7, 2], 0)
    assert not logits[:, token].isfinite().any() and not np.isfinite(decoder.likeliest[1]).any()


def test_the_shared_threads_are_as_many_as_torch_had_when_a_decoder_was_made(monkeypatch):
    """Not as many as it has while it decodes, where it is held to one."""
    made, first = [], cache(onnx_session.shared_threads.__wrapped__)
    monkeypatch.setattr("onnxruntime.set_global_thread_pool_sizes", lambda *sizes: made.append(sizes))
    for module in (onnx_session, onnx_model):
        monkeypatch.setattr(module, "shared_threads", first)
    torch.set_num_threads(3)
    try:
        decoder = OnnxDecoder(tiny.llama())
    finally:
        torch.set_num_threads(1)
    assert made == [(3, 1)]
    decoder.forward([3, 4], 0)
    assert made == [(3, 1)] and first() == 3


def test_buffers_are_held_for_a_few_inputs_only():
    decoder, ids = OnnxDecoder(tiny.llama(1)), [3, 7, 2, 9, 9, 4, 1, 5, 8, 2]
    expected = tiny.logits_of(tiny.llama(1), ids)
    for length in range(1, len(ids) + 1):
        for last in range(1, length + 1):
            close(decoder.forward(ids[:length], 0, last=last), expected[length - last : length])
    assert len(decoder.runs._buffers) == HELD_BUFFERS


def test_a_session_that_cannot_be_made_leaves_the_one_before(monkeypatch):
    decoder = OnnxDecoder(tiny.llama(1))
    first = decoder.forward([3, 4], 0)
    with monkeypatch.context() as patch:
        patch.setattr("onnxruntime.InferenceSession", lambda *_, **__: (_ for _ in ()).throw(MemoryError()))
        with pytest.raises(MemoryError):
            decoder.forward([3, 4], 0, capture=(1,))
    close(decoder.forward([3, 4], 0), first)
    decoder.forward([3, 4], 0, capture=(1,))
    assert decoder.captured[1].shape == (2, 24)


@pytest.mark.parametrize(("capture", "products"), [((), 5), ((0, 1), 5), ((2,), 1)])
def test_tokens_whose_logits_nobody_wants_end_with_the_last_keys_and_values(capture, products):
    """Unless their last hidden states are wanted: after the others were left behind there are ``products`` more."""
    graph = DecoderGraph(tiny.llama(1), capture, False, verifies=False)
    kinds = [node.op_type for node in graph.proto.graph.node]
    first = next(i for i, node in enumerate(graph.proto.graph.node) if "rows" in node.input)
    assert graph.config.num_hidden_layers == 2 and kinds[first:].count("FusedMatMul") == products


def test_weights_are_shared_with_the_model():
    model = tiny.llama(1)
    decoder = OnnxDecoder(model)
    decoder.forward([3, 4], 0)
    held = {weight.untyped_storage().data_ptr() for weight in decoder.runs._graph.weights.values()}
    assert held == {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    close(decoder.forward([3, 4, 5], 0), tiny.logits_of(model, [3, 4, 5]))  # the library's forward still computes it


def reason(model, dtype=torch.float32, device="cpu"):
    return unsupported(model, dtype, device)


def test_what_it_cannot_run():
    assert reason(tiny.llama()) is None
    assert "float32 on the CPU" in reason(tiny.llama(), torch.bfloat16)
    assert "float32 on the CPU" in reason(tiny.llama(), device="cuda")
    assert "GPT2LMHeadModel" in reason(tiny.causal_lm("gpt2"))
    assert "activation gelu" in reason(tiny.llama(hidden_act="gelu"))
    assert "no multiple of 16" in reason(tiny.llama(head_dim=8))
    dynamic = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    assert "rotary" in reason(tiny.llama(rope_parameters=dynamic))
    quantised = tiny.llama()
    quantised.hf_quantizer = BitsAndBytesConfig(load_in_8bit=True)
    assert "quantised" in reason(quantised)
    with torch.device("meta"):
        large = LlamaForCausalLM(LlamaConfig(vocab_size=100_000, hidden_size=4096, num_hidden_layers=1))
    assert "large" in reason(large)


def test_long_contexts_are_fed_in_smaller_pieces(monkeypatch):
    """Which changes nothing but the memory of scores."""
    ids = [1 + place % (tiny.VOCAB - 1) for place in range(200)]
    decoder, model = OnnxDecoder(tiny.llama(1, window=256)), tiny.llama(1, window=256)
    decoder.forward(ids[:2], 0)
    assert decoder.runs.room == 512
    assert [decoder.most(end) for end in (1, 2048, 4096, 100_000)] == [512, 512, 256, 64]
    fed = []
    run = decoder.runs.run
    monkeypatch.setattr(decoder.runs, "run", lambda feeds: fed.append(len(feeds[0].ids)) or run(feeds))
    monkeypatch.setattr("drafters.models.onnx_decoder.SCORES", 512 * 70)
    torch.testing.assert_close(decoder.forward(ids, 0), tiny.logits_of(model, ids), rtol=1e-4, atol=2e-5)
    assert fed == [70, 70, 60]


def test_sessions_leave_the_environment_as_it_is(monkeypatch):
    for before in (None, "0"):
        if before is not None:
            monkeypatch.setenv(NO_TILES, before)
        OnnxDecoder(tiny.llama(1)).forward([1], 0)
        assert os.environ.get(NO_TILES) == before
