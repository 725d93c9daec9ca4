"""The output is the target's, whoever drafts."""

import pytest

from drafters.draft import Draft
from drafters.sampling import SamplingParams
from multidraft.engine.decoding import generate
from tests import tiny
from tests.engine_cases import GREEDY, POLICIES, SAMPLED, check_greedy, pool_of, with_drafter


@pytest.fixture(scope="module")
def written(loaded_pool):
    """Prompts with what the target alone writes after them."""
    return [(prompt, tiny.greedy(loaded_pool.target.model, prompt, 30)) for prompt in tiny.prompts(6, seed=1)]


@pytest.mark.parametrize("policy", POLICIES)
def test_greedy_output_is_that_of_transformers(pool, written, policy):
    for prompt, expected in written:
        for length in (1, 3, 6):
            out = generate(pool, prompt, policy, SamplingParams(30, draft_length=length))
            assert out.token_ids == expected
            assert out.status == "completed"


@pytest.mark.parametrize("kind", tiny.KINDS_BY_RUNTIME)
def test_greedy_output_over_other_architectures(kind):
    name, runtime = kind.split(":")
    model = tiny.llama(8) if name == "llama" else tiny.causal_lm(name, 8)
    pool = pool_of(model, runtime)
    for policy in ("autoregressive", "round-robin", "exp3", "normal-hedge"):
        check_greedy(pool, tiny.prompts(3, seed=2), policy, 24)


def test_drafts_are_accepted_and_refused(pool):
    """Otherwise the tests above would prove little."""
    for policy in ("fixed:near", "fixed:lookup", "normal-hedge"):
        rounds = [r for prompt in tiny.prompts(6, seed=1) for r in generate(pool, prompt, policy, GREEDY).rounds]
        assert any(r.accepted == len(r.drafted) > 0 for r in rounds)
        assert any(0 < r.accepted < len(r.drafted) for r in rounds) or policy == "fixed:lookup"
        assert any(r.accepted == 0 < len(r.drafted) for r in rounds)


GARBAGE = {
    "nothing": lambda context, length: Draft.empty(),
    "one token over and over": lambda context, length: Draft.chain([3] * length),
    "the context backwards": lambda context, length: Draft.chain(context[::-1][:length]),
    "a bush": lambda context, length: Draft(tuple(range(12)), (-1,) * 12),
    "a tree": lambda context, length: Draft((2, 9, 5, 7, 1), (-1, -1, 0, 1, 1)) if length > 1 else Draft.empty(),
    "equal siblings": lambda context, length: Draft((8, 8, 8), (-1, -1, -1)),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_a_drafter_that_proposes_garbage_costs_speed_only(pool, name):
    odd = with_drafter(pool, GARBAGE[name])
    for prompt in tiny.prompts(3, seed=4, longest=12):
        out = generate(odd, prompt, "fixed:scripted", SamplingParams(30, draft_length=4))
        assert out.token_ids == tiny.greedy(pool.target.model, prompt, 30)
        again = generate(odd, prompt, "ucb", SAMPLED, seed=1)
        assert len(again.token_ids) == 40 and again.status == "completed"


def test_a_tree_is_walked_to_its_matching_branch(pool):
    """The right branch is never the first child, so each round moves cached nodes."""
    prompt = tiny.prompts(1, seed=5)[0]
    expected = tiny.greedy(pool.target.model, prompt, 30)

    def bushy(context, length):
        done = len(context) - len(prompt)
        tokens, parents, parent = [], [], -1
        for token in expected[done : done + length]:
            tokens += [(token + 1) % tiny.VOCAB, token]
            parents += [parent, parent]
            parent = len(tokens) - 1
        return Draft(tuple(tokens), tuple(parents))

    out = generate(with_drafter(pool, bushy), prompt, "fixed:scripted", SamplingParams(30, draft_length=4))
    assert out.token_ids == expected
    assert out.mean_accepted_tokens == 5.0
    assert out.acceptance_rate == 1.0
