"""The target in 8 bits drafts what the target rounded to 8 bits would write, with weights that are held once."""

import pytest
import torch
from torch import nn

from drafters.card import load_card
from drafters.errors import PoolError
from drafters.memory import estimate
from drafters.models.families import joined
from drafters.models.int8 import ZERO, in_blocks, int8_bytes, products_of
from drafters.sampling import SamplingParams
from tests import tiny
from tests.engine_cases import check_greedy, played_and_replayed

DRAFTERS = [{"name": "self", "kind": "quantized"}, {"name": "lookup", "kind": "pld"}]
PROMPTS = tiny.texts(4, 6, 3)


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    return tiny.load(tiny.write_pool(tmp_path_factory.mktemp("quantized"), drafters=DRAFTERS))


def rounded(model):
    """The model with its matrices rounded as an int8 drafter's are."""
    copy = type(model)(model.config).eval()
    copy.load_state_dict(model.state_dict())
    copy.lm_head.weight = nn.Parameter(copy.lm_head.weight.detach().clone())  # embeddings are not rounded
    for layer in copy.modules():
        if isinstance(layer, nn.Linear):
            codes, scales = in_blocks(layer.weight)
            weight = (codes.float() - ZERO) * scales[..., None]
            layer.weight.data = weight.view(len(weight), -1)[:, : layer.in_features]
    return copy


def test_it_drafts_what_the_rounded_target_writes(pool):
    drafter, model = pool.drafters[0], rounded(pool.target.model)
    same = total = 0
    for prompt in tiny.prompts(12, seed=5, shortest=4, longest=12):
        draft = drafter.propose(prompt, 6, SamplingParams(), torch.Generator())
        written = tiny.greedy(model, prompt, 6)
        agree = [a == b for a, b in zip(draft.tokens, written, strict=True)]
        same += agree.index(False) if False in agree else 6
        total += 6
    assert same > 0.9 * total  # activations are rounded too, which decides between tokens that are near a tie


def test_its_weights_are_the_target_s(pool):
    drafter = pool.drafters[0]
    assert drafter.model.model is pool.target.model
    assert drafter.parameter_count == pool.target.model.num_parameters()
    assert drafter.stored_bytes == int8_bytes(*products_of(pool.target.model))
    assert pool.card.precision() == "float32, int8 drafters"


def test_joined_weights_are_held_once_by_both_runtimes(pool):
    """Queries, keys and values are one product: whoever joins them first, the other shares the joined matrix."""
    for runs in (pool.target.decoder.runs, pool.drafters[0].model.runs):
        runs._load(set())
    layer = pool.target.model.model.layers[0].self_attn
    rows = joined(layer.q_proj.weight, layer.k_proj.weight, layer.v_proj.weight)
    assert rows.data_ptr() == layer.q_proj.weight.data_ptr()
    torch.testing.assert_close(rows[-len(layer.v_proj.weight) :], layer.v_proj.weight, rtol=0, atol=0)
    held = {weight.data_ptr() for weight in pool.target.decoder.runs._graph.weights.values()}
    assert rows.data_ptr() in held


def test_outputs_are_the_target_s(pool):
    check_greedy(pool, PROMPTS, "fixed:self", 32)
    check_greedy(pool, PROMPTS, "rate-hedge", 32)


def test_replays_know_its_drafts(pool):
    for prompt in PROMPTS:
        live, again, _ = played_and_replayed(pool, prompt, "round-robin")
        assert again.emitted == [r.emitted for r in live.rounds]


@pytest.mark.parametrize("changes", [{"dtype": "bfloat16"}, {"target": {"path": "target", "quantization": "nf4"}}])
def test_it_is_refused_where_onnx_runtime_does_not_run_the_target(changes, tmp_path):
    card = tiny.write_pool(tmp_path, drafters=DRAFTERS, **changes)
    with pytest.raises(PoolError, match="drafter 'self': kind quantized needs a target that ONNX Runtime can run; it"):
        tiny.load(card)


def test_the_memory_of_a_card_that_cannot_be_loaded_is_refused_likewise(tmp_path):
    path = tiny.write_pool(tmp_path, drafters=DRAFTERS, target={"path": "target", "quantization": "nf4"})
    with pytest.raises(PoolError, match="kind quantized needs a target that ONNX Runtime can run; it cannot run this"):
        estimate(load_card(path)[0], path, "cpu")
