"""Heads over targets whose layers see a sliding window: masks of trees by layer, and captured states, together.

All layers of mistral, every other one of gemma2, see six tokens; prompts are longer than that.
"""

import pytest
import torch

from drafters.checkpoints.eagle import read_head
from drafters.kinds.eagle import EagleDrafter
from drafters.kinds.medusa import MedusaDrafter
from drafters.models.eagle_head import EagleHead
from drafters.pool import Pool
from drafters.sampling import SamplingParams
from multidraft.engine.decoding import generate
from tests import heads, tiny
from tests.distributions import ALPHA, p_value_of_tokens
from tests.engine_cases import check_greedy, pool_of
from tests.medusa import bpd_tensors, load_heads, medusa_tensors, write_bpd, write_medusa

PROMPTS = tiny.prompts(2, seed=6, shortest=12, longest=18)
GREEDY = SamplingParams(20, draft_length=4)
LAYERS = [0, 1, 2]
"""What the heads read of a target with two layers."""
DRAFTERS = ["eagle-1", "eagle-1-tree", "eagle-3", "eagle-3-tree", "medusa", "medusa-tree", "bpd-tree"]
POLICIES = [*(f"fixed:{name}" for name in DRAFTERS), "draft-all", "normal-hedge:warmup=1,every=2"]


@pytest.fixture(scope="module", params=["mistral:onnx", "mistral:hub", "gemma2:hub"])
def pool(request, tmp_path_factory):
    kind, runtime = request.param.split(":")
    folder = tmp_path_factory.mktemp(kind)
    base = pool_of(tiny.causal_lm(kind, 1), runtime)
    target, drafters = base.target, []
    model = target.model
    for layout in ("eagle1", "eagle3"):
        heads.write_head(folder / layout, layout, model)
    heads.teach(folder / "eagle3", model)
    for generation in ("1", "3"):
        head = EagleHead(*read_head(folder / f"eagle{generation}", model), model)
        drafters.append(EagleDrafter(f"eagle-{generation}", head, target, tiny.VOCAB))
        drafters.append(EagleDrafter(f"eagle-{generation}-tree", head, target, tiny.VOCAB, nodes=12, branches=4))
    medusa = load_heads("medusa", write_medusa(folder / "medusa", medusa_tensors()), model)
    bpd = load_heads("bpd", write_bpd(folder / "bpd", bpd_tensors()), model)
    drafters.append(MedusaDrafter("medusa", medusa, target, tiny.VOCAB))
    drafters.append(MedusaDrafter("medusa-tree", medusa, target, tiny.VOCAB, nodes=12, branches=4))
    drafters.append(MedusaDrafter("bpd-tree", bpd, target, tiny.VOCAB, nodes=12, branches=4))
    return Pool(target, drafters, base.tokenizer, base.card)


@pytest.mark.parametrize("policy", POLICIES)
def test_greedy_output_is_that_of_transformers(pool, policy):
    rounds = check_greedy(pool, PROMPTS, policy, 20)
    assert any(r.accepted for r in rounds) or policy == "fixed:eagle-1"  # of random weights: its tree has to do


@pytest.mark.parametrize("policy", ["fixed:eagle-3-tree", "fixed:medusa-tree", "draft-all"])
def test_captured_states_are_those_of_one_forward(pool, policy, monkeypatch):
    """After many trees, of which other branches than the first were kept."""
    monkeypatch.setattr(pool.target._features, "read", None)  # all of them come from the target's own forwards
    moved, accept = [], pool.target.accept
    monkeypatch.setattr(pool.target, "accept", lambda path, own: (moved.append(tuple(path)), accept(path, own)))
    for prompt in PROMPTS:
        context = [*prompt, *generate(pool, prompt, policy, GREEDY).token_ids]
        expected = tiny.states_of(pool.target.model, context, LAYERS)[:-1]
        torch.testing.assert_close(pool.target.features(context, LAYERS), expected, rtol=1e-3, atol=1e-3)
    assert any(path != tuple(range(len(path))) for path in moved)


def test_long_sampled_outputs_follow_the_target(pool):
    params = SamplingParams(40, temperature=1.0, top_k=6, draft_length=4)
    outputs = [generate(pool, PROMPTS[0], "fixed:eagle-3-tree", params, seed).token_ids for seed in range(8)]
    assert p_value_of_tokens(pool.target.model, PROMPTS[0], outputs, params) > ALPHA
