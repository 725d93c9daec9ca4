"""Drafters on ONNX Runtime with weights in 8 bits: what they compute, and that outputs are the target's."""

import pytest
import torch
import yaml
from transformers import LlamaForCausalLM

from drafters.models.int8 import BLOCK, ZERO, in_blocks, int8_bytes, products_of
from drafters.models.onnx_decoder import OnnxDecoder
from drafters.pool import load_pool
from drafters.sampling import SamplingParams, probabilities
from multidraft import PoolError, generate
from tests import heads, tiny

IDS = [3, 7, 2, 9, 9, 4, 1, 5, 8, 2]


def rounded(weight):
    codes, scales = in_blocks(weight)
    return ((codes.float() - ZERO) * scales[..., None]).flatten(1)[:, : weight.shape[1]]


@pytest.mark.parametrize("columns", [1, BLOCK - 1, BLOCK, 3 * BLOCK, 3 * BLOCK + 5])
def test_a_weight_is_off_by_half_a_step_at_most(columns):
    weight = torch.randn(7, columns, generator=torch.Generator().manual_seed(columns))
    weight[2] = 0
    weight[3] *= 1e-30
    codes, scales = in_blocks(weight)
    assert codes.shape == (7, -(-columns // BLOCK), BLOCK) and scales.shape == codes.shape[:2]
    assert codes.nbytes + scales.nbytes == int8_bytes([(7, columns)])
    steps = scales.repeat_interleave(BLOCK, dim=1)[:, :columns]
    assert ((rounded(weight) - weight).abs() <= 0.5001 * steps).all() and not rounded(weight)[2].any()


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "mistral"])
def test_logits_are_those_of_the_rounded_weights(family):
    """Up to the rounding of activations; hidden sizes of the tiny models fill no block."""
    model, plain = (tiny.llama(1) if family == "llama" else tiny.causal_lm(family) for _ in range(2))
    decoder = OnnxDecoder(plain, int8=True)
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, torch.nn.Linear):
                layer.weight = torch.nn.Parameter(rounded(layer.weight))
    expected, found = tiny.logits_of(model, IDS), decoder.forward(IDS, 0)
    exact = tiny.logits_of(plain, IDS)
    assert not torch.equal(found, exact) and torch.equal(found.argmax(-1), decoder.forward(IDS, 0).argmax(-1))
    assert (found - expected).norm() < 0.06 * expected.norm()


def test_a_token_s_logits_do_not_depend_on_what_else_is_fed():
    decoder = OnnxDecoder(tiny.llama(1), int8=True)
    whole = decoder.forward(IDS, 0)
    other = decoder.twin()
    for place, token in enumerate(IDS):
        torch.testing.assert_close(other.forward([token], place)[0], whole[place], rtol=1e-3, atol=1e-3)


def test_a_session_holds_what_is_counted():
    model = tiny.llama(1)
    decoder = OnnxDecoder(model, int8=True)
    decoder.forward(IDS, 0)
    shapes, others = products_of(model)
    assert sum(weight.nbytes for weight in decoder.runs._graph.weights.values()) == int8_bytes(shapes) + others


def write_pool(folder):
    """A pool of language models and an EAGLE-3 head, all in 8 bits, and a card that the test may change."""
    path = tiny.write_pool(folder)
    target = LlamaForCausalLM.from_pretrained(folder / "target")
    heads.write_head(folder / "head", "eagle3", target)
    heads.teach(folder / "head", target)
    card = yaml.safe_load(path.read_text())
    card["drafters"] += [
        {"name": "eagle", "kind": "eagle", "path": "head"},
        {"name": "eagle-tree", "kind": "eagle", "path": "head", "nodes": 6, "branches": 2},
    ]
    for entry in card["drafters"]:
        if entry["kind"] in ("lm", "eagle"):
            entry["quantization"] = "int8"
    return path, card


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    path, card = write_pool(tmp_path_factory.mktemp("int8"))
    path.write_text(yaml.safe_dump(card))
    with pytest.MonkeyPatch.context() as patch:  # no other library has to be there
        patch.setattr("drafters.checkpoints.loading.is_bitsandbytes_available", lambda: False)
        pool = load_pool(path, device="cpu")
    pool.stop_ids = frozenset()
    return pool


@pytest.mark.parametrize("policy", ["fixed:near", "fixed:alone", "fixed:eagle", "fixed:eagle-tree", "rate-hedge"])
def test_outputs_are_the_target_s(pool, policy):
    accepted = 0
    for prompt in tiny.texts(3):
        found = generate(pool, prompt, policy, SamplingParams(24, draft_length=5))
        assert found.token_ids == tiny.greedy(pool.target.model, pool.encode(prompt), 24)
        accepted += sum(round.accepted for round in found.rounds)
    assert accepted > (2 if policy == "rate-hedge" else 10)


def test_sampled_drafts_say_what_they_were_drawn_from(pool):
    near, ids = pool.drafters[0], pool.encode(tiny.texts(1)[0])
    params, generator = SamplingParams(24, temperature=1.0), torch.Generator().manual_seed(0)
    draft = near.propose(ids, 4, params, generator, with_q=True)
    for place, q in enumerate(draft.q):
        logits = near.logits([*ids, *draft.tokens[:place]], last=1)
        torch.testing.assert_close(q, probabilities(logits, params)[0], rtol=1e-2, atol=1e-4)


def test_history_and_page_tell(pool):
    assert pool.dtype == "float32, int8 drafters"
    near, eagle = pool.drafters[0], pool.drafters[-2]
    assert near.stored_bytes < 4 * near.parameter_count and eagle.stored_bytes < 4 * eagle.parameter_count
    assert eagle.head is pool.drafters[-1].head and pool.drafters[1].stored_bytes is None


def test_a_head_in_8_bits_is_refused_where_onnx_runtime_does_not_run_it(tmp_path):
    path, card = write_pool(tmp_path)
    path.write_text(yaml.safe_dump({**card, "dtype": "bfloat16"}))
    why = r"drafter 'eagle': heads have int8 weights on ONNX Runtime alone \(.*bfloat16 on cpu.*remove its quantization"
    with pytest.raises(PoolError, match=why):
        load_pool(path, device="cpu")
