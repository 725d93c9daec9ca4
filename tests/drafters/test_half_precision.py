"""All drafters that compute, in half precision: nothing breaks, and greedy outputs differ by near-ties alone."""

import pytest
import torch

from drafters.base import Evidence
from drafters.sampling import SamplingParams
from multidraft.engine.decoding import generate
from multidraft.engine.lossless import greedy_differences
from tests import kinds, tiny

NETWORKS = [name for name in kinds.NAMES if not name.startswith(("suffix", "rest", "lookup"))]
POLICIES = [*(f"fixed:{name}" for name in NETWORKS), "draft-all", "ucb:reward=bd", "normal-hedge"]
PROMPT = tiny.prompts(1, seed=4, shortest=8)[0]
TOKENS = 10


@pytest.fixture(scope="module", params=["bfloat16", "float16"])
def pool(request, kinds_card):
    return kinds.load(kinds_card, dtype=request.param)


@pytest.mark.parametrize("policy", POLICIES)
def test_greedy_outputs_differ_from_plain_decoding_by_near_ties_alone(pool, policy):
    out = generate(pool, PROMPT, policy, SamplingParams(TOKENS, draft_length=4))
    assert len(out.token_ids) == TOKENS and out.status == "completed"
    assert sum(len(r.drafted) for r in out.rounds) > 0
    differences = greedy_differences(pool, PROMPT, out.token_ids)
    assert all(difference.rounding for difference in differences) and len(differences) < 4


@pytest.mark.parametrize("policy", POLICIES)
def test_sampled_runs_reach_their_length(pool, policy):
    params = SamplingParams(TOKENS, temperature=1.0, top_p=0.95, draft_length=4)
    out = generate(pool, PROMPT, policy, params, seed=1)
    assert len(out.token_ids) == TOKENS and set(out.token_ids) <= set(range(tiny.VOCAB))
    if policy == "ucb:reward=bd":
        divergences = [r.block_divergence for r in out.rounds if r.drafter]
        assert divergences and all(0.0 <= divergence <= 1.0 for divergence in divergences)


def test_networks_compute_in_half_precision_and_distributions_are_float32(pool):
    dtype = getattr(torch, pool.dtype)
    drafters = {drafter.name: drafter for drafter in pool.drafters}
    for params in (SamplingParams(8, draft_length=4), SamplingParams(8, temperature=1.0, draft_length=4)):
        generator = torch.Generator().manual_seed(0)
        for name in ("near", "hub", "eagle-1", "eagle-3", "eagle-1-tree", "eagle-3-tree"):
            draft = drafters[name].propose(PROMPT, 4, params, generator, with_q=True)
            assert draft.q.dtype == torch.float32 and draft.q.shape == (len(draft), tiny.VOCAB)
            assert torch.allclose(draft.q.sum(dim=-1), torch.ones(len(draft)), atol=1e-5)
    hidden = pool.target.features(PROMPT, [drafters["medusa"].heads.layer])
    assert pool.target.model.dtype == drafters["dflash"].model.dtype == hidden.dtype == dtype
    assert {parameter.dtype for parameter in drafters["mtp"].model.parameters()} == {dtype}
    for name in ("medusa", "bpd"):
        assert drafters[name].heads.logits(hidden, 1).dtype == dtype
    for name in ("eagle-1", "eagle-3"):
        head = drafters[name].head
        fused = head.fuse(pool.target.features(PROMPT, head.shape.layers))
        made = head.step(torch.tensor(PROMPT[1:]), fused, 0)
        assert head.onnx is None and fused.dtype == made.hidden.dtype == made.logits.dtype == dtype


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_gamma_is_a_probability(pool, temperature):
    params = SamplingParams(TOKENS, temperature=temperature, draft_length=4)
    context = [*PROMPT, *generate(pool, PROMPT, "autoregressive", params).token_ids]
    p = torch.softmax(tiny.logits_of(pool.target.model, context)[len(PROMPT) - 1 : -1].float(), dim=-1)
    gamma = pool.gamma(Evidence(context, len(PROMPT), p if temperature else None, params))
    assert gamma.shape == (TOKENS, 4, len(pool.drafters)) and (gamma >= 0.0).all() and (gamma <= 1.0).all()
    assert gamma[..., 0].sum() > 0.0
