"""Where an output ends."""

import pytest

from drafters.draft import Draft
from drafters.kinds.lm import make_lm_drafters
from drafters.models.target import Target
from drafters.pool import Pool
from drafters.sampling import SamplingParams
from multidraft.engine.decoding import generate
from tests import tiny
from tests.engine_cases import GREEDY, POLICIES, Scripted, pool_of, with_drafter


def test_max_new_tokens_is_met_exactly(pool):
    prompt = tiny.prompts(1, seed=6)[0]
    for tokens in range(1, 12):
        for params in (SamplingParams(tokens, draft_length=6), SamplingParams(tokens, temperature=1.0, draft_length=6)):
            out = generate(pool, prompt, "fixed:near", params)
            assert len(out.token_ids) == tokens
            assert out.status == "completed"


@pytest.mark.parametrize("policy", POLICIES)
def test_stop_tokens_end_the_output_wherever_they_come(pool, policy):
    """Every token of the vocabulary in turn: some come as own tokens, some inside an accepted path."""
    prompt = tiny.prompts(1, seed=7)[0]
    whole = tiny.greedy(pool.target.model, prompt, 40)
    for stop in range(tiny.VOCAB):
        pool.stop_ids = frozenset({stop})
        out = generate(pool, prompt, policy, GREEDY)
        expected = whole[: whole.index(stop) + 1] if stop in whole else whole
        assert out.token_ids == expected
        assert out.status == ("stopped" if stop in whole else "completed")


def test_a_stop_token_inside_an_accepted_path_leaves_no_own_token(pool):
    prompt = tiny.prompts(1, seed=7)[0]
    whole = tiny.greedy(pool.target.model, prompt, 40)
    stop = whole[2]
    pool.stop_ids = frozenset({stop})
    exact = with_drafter(pool, lambda context, length: Draft.chain(whole[len(context) - len(prompt) :][:length]))
    exact.stop_ids = pool.stop_ids
    out = generate(exact, prompt, "fixed:scripted", SamplingParams(40, draft_length=6))
    assert out.token_ids == whole[: whole.index(stop) + 1]
    assert out.status == "stopped"
    (last,) = out.rounds
    assert last.own is None
    assert last.tokens == last.drafted[: last.accepted]
    assert sum(out.drafter_shares.values()) == pytest.approx(1.0)


def test_of_a_union_that_a_stop_token_cuts_the_first_who_proposed_it_is_credited(pool):
    """Not the one whose draft would have been accepted beyond the end."""
    prompt = tiny.prompts(1, seed=7)[0]
    whole = tiny.greedy(pool.target.model, prompt, 40)
    at = whole.index(whole[2])

    def proposing(most):
        return lambda context, length: Draft.chain(whole[len(context) - len(prompt) :][: min(most, length)])

    drafters = [Scripted(f"of-{most}", proposing(most)) for most in (1, at + 1, at + 3)]
    together = Pool(pool.target, drafters, pool.tokenizer, pool.card)
    together.stop_ids = frozenset({whole[at]})
    (last,) = generate(together, prompt, "draft-all", SamplingParams(40, draft_length=6)).rounds
    assert (last.drafter, last.accepted, last.own) == (f"of-{at + 1}", at + 1, None)


@pytest.mark.parametrize("policy", ["autoregressive", "fixed:near", "fixed:alone", "normal-hedge", "fixed:lookup"])
def test_the_context_window_ends_the_output(pool, policy):
    for params in (SamplingParams(500, draft_length=5), SamplingParams(500, temperature=1.0, draft_length=5)):
        out = generate(pool, [2] * 40, policy, params)
        assert out.status == "context_limit"
        assert len(out.token_ids) == tiny.WINDOW - 40


def test_a_prompt_one_short_of_the_window_yields_one_token(pool):
    out = generate(pool, [2] * (tiny.WINDOW - 1), "normal-hedge", GREEDY)
    assert (len(out.token_ids), out.status) == (1, "context_limit")


@pytest.mark.parametrize("policy", POLICIES)
def test_a_prompt_longer_than_a_drafter_s_window(pool, policy):
    """``alone`` sees 32 tokens, the prompt has 45: that drafter has nothing to say, the output is the target's."""
    prompt = tiny.prompts(1, seed=8, shortest=45, longest=45)[0]
    out = generate(pool, prompt, policy, SamplingParams(15, draft_length=4))
    assert out.token_ids == tiny.greedy(pool.target.model, prompt, 15)


def test_a_short_windowed_drafter_that_shares_a_stack():
    model = tiny.llama(8)
    small = {name: tiny.blend(tiny.llama(i, window=24), model, 0.1) for i, name in enumerate(("one", "two"))}
    target = Target(model)
    pool = pool_of(model)
    pool.drafters = make_lm_drafters(small, target.vocab_size)
    for policy in ("fixed:one", "round-robin", "normal-hedge", "exp3"):
        for length in (5, 20, 23, 24, 25, 40):
            prompt = tiny.prompts(1, seed=9, shortest=length, longest=length)[0]
            out = generate(pool, prompt, policy, SamplingParams(20, draft_length=4))
            assert out.token_ids == tiny.greedy(model, prompt, 20)
