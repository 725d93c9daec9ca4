"""Drafters on ONNX Runtime with weights in 8 bits: what they compute, and that outputs are the target's."""

import shutil

import pytest
import torch
import yaml

from drafters.hardware import format_bytes
from drafters.memory import estimate
from drafters.models.int8 import BLOCK, ZERO, in_blocks, int8_bytes, products_of
from drafters.models.onnx_decoder import OnnxDecoder
from drafters.pool import load_pool
from drafters.sampling import SamplingParams, probabilities
from multidraft import PoolError, generate, generate_batch
from multidraft.ui.tabs.pool.tab import pool_html
from tests import tiny, twins

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
    assert sum(weight.nbytes for weight in decoder.runs._graph.weights.values()) == int8_bytes(*products_of(model))


QUANTISED = {"near", "bridged", "eagle-1", "eagle-1-tree", "eagle-3", "eagle-3-tree"}


def int8_card(card):
    """The card of a pool of all kinds, its language models and EAGLE heads in 8 bits; ``far`` stays in float32."""
    entries = yaml.safe_load(card.read_text())["drafters"]
    assert {entry["name"] for entry in entries} > QUANTISED
    return tiny.change_card(
        shutil.copy(card, card.with_name("int8.yaml")),
        drafters=[{**each, "quantization": "int8"} if each["name"] in QUANTISED else each for each in entries],
    )


@pytest.fixture(scope="module")
def pool(kinds_card):
    with pytest.MonkeyPatch.context() as patch:  # no other library has to be there
        patch.setattr("drafters.checkpoints.loading.is_bitsandbytes_available", lambda: False)
        return tiny.load(int8_card(kinds_card), device="cpu")


def drafter(pool, name):
    return next(drafter for drafter in pool.drafters if drafter.name == name)


@pytest.mark.parametrize("name", sorted(QUANTISED))
def test_outputs_are_the_target_s(pool, name):
    prompts, params = tiny.texts(3), SamplingParams(24, draft_length=5)
    expected = [tiny.greedy(pool.target.model, pool.encode(prompt), 24) for prompt in prompts]
    found = [generate(pool, prompt, f"fixed:{name}", params) for prompt in prompts]
    assert [one.token_ids for one in found] == expected
    assert name.startswith("eagle-1") or sum(round.accepted for one in found for round in one.rounds) > 5
    together = generate_batch(pool, prompts, f"fixed:{name}", params)
    assert [one.token_ids for one in together] == expected


def test_all_are_judged_together(pool):
    prompt = tiny.texts(1)[0]
    out = generate(pool, prompt, "normal-hedge", SamplingParams(24, draft_length=5))
    assert out.token_ids == tiny.greedy(pool.target.model, pool.encode(prompt), 24)
    assert drafter(pool, "near").group is drafter(pool, "far").group is not None


def test_sampled_drafts_say_what_they_were_drawn_from(pool):
    near, ids = drafter(pool, "near"), pool.encode(tiny.texts(1)[0])
    params, generator = SamplingParams(24, temperature=1.0), torch.Generator().manual_seed(0)
    draft = near.propose(ids, 4, params, generator, with_q=True)
    for place, q in enumerate(draft.q):
        logits = near.logits([*ids, *draft.tokens[:place]], last=1)
        torch.testing.assert_close(q, probabilities(logits, params)[0], rtol=1e-2, atol=1e-4)


def memory(card, entry):
    """Bytes that a pool of one drafter holds once a context is full, and that its drafter's weights are thought to."""
    pool = tiny.load(tiny.change_card(card, drafters=[entry]), device="cpu")
    generate(pool, [5] * (pool.target.window - 8), f"fixed:{entry['name']}", SamplingParams(8))
    return twins.held_bytes(pool.target, pool.drafters), estimate(pool.card, card, "cpu").parts[1].weights


@pytest.mark.parametrize("name", ["near", "eagle-1", "eagle-3"])
def test_memory_differs_from_that_in_float32_as_the_estimate_says(kinds_card, name):
    """By codes and scales and what ONNX Runtime packs of them, in place of packed copies in float32."""
    card = int8_card(kinds_card)
    entry = next(entry for entry in yaml.safe_load(card.read_text())["drafters"] if entry["name"] == name)
    plain = memory(card, {**entry, "quantization": None})
    held, said = (ours - theirs for ours, theirs in zip(memory(card, entry), plain, strict=True))
    assert said and held == pytest.approx(said, abs=1500)


def test_history_and_page_tell(pool):
    assert pool.dtype == "float32, int8 drafters"
    html = pool_html(pool, "a CPU", "1")
    for name in ("near", "eagle-1", "eagle-3"):
        one = drafter(pool, name)
        assert 0 < one.stored_bytes < 4 * one.parameter_count and format_bytes(one.stored_bytes) in html
    assert drafter(pool, "bridged").stored_bytes == drafter(pool, "near").stored_bytes
    assert drafter(pool, "far").stored_bytes is drafter(pool, "lookup").stored_bytes is None
    assert drafter(pool, "eagle-3").head is drafter(pool, "eagle-3-tree").head


def test_where_onnx_runtime_does_not_run_them(kinds_card):
    """Language models are quantised by ``bitsandbytes``; a head is refused."""
    card = int8_card(kinds_card)
    entries = {entry["name"]: entry for entry in yaml.safe_load(card.read_text())["drafters"]}
    loaded = load_pool(tiny.change_card(card, dtype="bfloat16", drafters=[entries["near"]]), device="cpu")
    assert loaded.drafters[0].model.model.is_quantized and loaded.dtype == "bfloat16, int8 drafters"
    why = r"drafter 'eagle-3': a head has int8 weights on ONNX Runtime only.*bfloat16 on cpu.*remove its quantization"
    with pytest.raises(PoolError, match=why):
        load_pool(tiny.change_card(card, drafters=[entries["eagle-3"]]), device="cpu")
