"""Does everything run on a CUDA device? ``pytest tests/test_cuda.py`` checks a machine that has one.

The same tests run on the CPU too, so that they keep up with the code where no device is at hand.
"""

import gc
import weakref

import numpy as np
import pytest
import torch

from drafters.base import Evidence
from drafters.sampling import SamplingParams
from multidraft.engine.decoding import generate
from multidraft.engine.lossless import greedy_differences
from tests import kinds, tiny
from tests.distributions import ALPHA, p_value_of_tokens

CUDA = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"))
PROMPT = tiny.prompts(1, seed=4, shortest=8)[0]
TOKENS = 16
GREEDY = SamplingParams(TOKENS, draft_length=4)
SAMPLED = SamplingParams(TOKENS, temperature=1.0, top_k=8, draft_length=4)
TOGETHER = ["draft-all", "ucb:reward=bd", "normal-hedge", "rate-hedge"]


@pytest.fixture(scope="module", params=["cpu", CUDA])
def device(request):
    return request.param


@pytest.fixture(scope="module")
def pool(device, kinds_card):
    return kinds.load(kinds_card, device=device)


@pytest.fixture(scope="module")
def expected(pool):
    return tiny.greedy(pool.target.model, PROMPT, TOKENS)


def test_what_is_computed_is_computed_there(pool, device):
    assert pool.device.type == pool.target.model.device.type == device
    generate(pool, PROMPT, "draft-all", GREEDY)
    generator = torch.Generator(device=device).manual_seed(0)
    for drafter in pool.drafters:
        draft = drafter.propose(PROMPT, 4, SAMPLED, generator, with_q=True)
        assert draft.q is None or draft.q.device.type == device


@pytest.mark.parametrize("policy", [*(f"fixed:{name}" for name in kinds.NAMES), *TOGETHER])
def test_greedy_output_is_that_of_transformers(pool, expected, policy):
    out = generate(pool, PROMPT, policy, GREEDY)
    assert out.token_ids == expected
    # rate-hedge goes by the clock: where drafts do not pay, as with models this small, it does without.
    assert sum(len(r.drafted) for r in out.rounds) > 0 or policy == "rate-hedge"


@pytest.mark.parametrize("policy", [*(f"fixed:{name}" for name in kinds.NAMES), *TOGETHER])
def test_sampled_runs_reach_their_length(pool, policy):
    out = generate(pool, PROMPT, policy, SAMPLED, seed=2)
    assert len(out.token_ids) == TOKENS and out.status == "completed"
    if "bd" in policy:
        divergences = [r.block_divergence for r in out.rounds if r.drafter]
        assert divergences and all(0.0 <= divergence <= 1.0 for divergence in divergences)


@pytest.mark.parametrize("policy", ["fixed:near", "fixed:eagle-3-tree"])
def test_sampled_outputs_follow_the_target(pool, policy):
    outputs = [generate(pool, PROMPT, policy, SAMPLED, seed).token_ids for seed in range(20)]
    assert outputs[0] == generate(pool, PROMPT, policy, SAMPLED, seed=0).token_ids
    assert p_value_of_tokens(pool.target.model, PROMPT, outputs, SAMPLED) > ALPHA


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_gamma_is_that_of_the_cpu(pool, kinds_card, expected, params):
    context, start = [*PROMPT, *expected], len(PROMPT)
    gammas = []
    for each in (pool, kinds.load(kinds_card)):
        p = torch.softmax(tiny.logits_of(each.target.model, context)[start - 1 : -1], dim=-1)
        gammas.append(each.gamma(Evidence(context, start, None if params.greedy else p, params)))
    np.testing.assert_allclose(*gammas, atol=1e-3)


@pytest.fixture(scope="module")
def half(device, kinds_card):
    return kinds.load(kinds_card, dtype="bfloat16", device=device)


@pytest.mark.parametrize("policy", ["fixed:eagle-3-tree", *TOGETHER])
def test_half_precision(half, policy):
    out = generate(half, PROMPT, policy, GREEDY)
    assert len(out.token_ids) == TOKENS
    assert all(difference.rounding for difference in greedy_differences(half, PROMPT, out.token_ids))
    assert len(generate(half, PROMPT, policy, SAMPLED).token_ids) == TOKENS


def test_a_pool_that_is_let_go_frees_its_memory(device, kinds_card):
    """All of it: its parts are gone, and the next pool takes no more than the first."""

    def used_and_dropped():
        pool = kinds.load(kinds_card, device=device)
        generate(pool, PROMPT, "normal-hedge:warmup=1,every=2", SamplingParams(6, temperature=1.0))
        generate(pool, PROMPT, "draft-all", SamplingParams(6))
        return [weakref.ref(part) for part in (pool, pool.target, pool.target.model, *pool.drafters)]

    allocated = []
    for _ in range(2):
        parts = used_and_dropped()
        gc.collect()
        assert not [part() for part in parts if part() is not None]
        # The libraries keep workspaces of their own from the first use on.
        allocated.append(torch.cuda.memory_allocated() if device == "cuda" else 0)
    assert allocated[1] <= allocated[0]
