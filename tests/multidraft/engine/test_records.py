"""Honest records of how an output came about."""

import math
import time

import pytest
import torch

from drafters.draft import Draft
from drafters.text import TextStream
from multidraft.engine.decoding import Decoding, generate
from multidraft.engine.drafting import Verified
from tests import tiny
from tests.engine_cases import GREEDY, POLICIES, SAMPLED, with_drafter


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_rounds_add_up(pool, policy, params):
    pool.stop_ids = frozenset({7})
    for seed, prompt in enumerate(tiny.texts(4, seed=11)):
        decoding = Decoding(pool, prompt, policy, params, seed)
        rounds = list(decoding)
        out = decoding.generation
        assert out.rounds == rounds and "Round(" not in repr(out), "which a notebook prints"
        assert [token for r in rounds for token in r.tokens] == out.token_ids
        assert "".join(r.text for r in rounds) == out.text == pool.decode(out.token_ids)
        assert out.prompt_tokens == len(pool.encode(prompt))
        assert out.drafters == ("near", "lookup", "far", "alone")
        assert [r.index for r in rounds] == list(range(len(rounds)))
        for r in rounds:
            check_round(out, r, params, last=r is rounds[-1])
        assert out.seconds == pytest.approx(sum(r.seconds for r in rounds))
        assert out.tokens_per_second == pytest.approx(len(out.token_ids) / out.seconds)
        assert out.mean_accepted_tokens == pytest.approx(sum(r.emitted for r in rounds) / len(rounds))
        assert 0.0 <= out.acceptance_rate <= 1.0
        assert sum(out.drafter_shares.values()) == pytest.approx(1.0)


def test_a_run_is_recorded_under_the_one_spelling_of_its_policy(pool):
    for typed, recorded in (("UCB: beta=0.010", "ucb"), ("fixed:drafter=near", "fixed:near")):
        assert generate(pool, tiny.texts(1, seed=11)[0], typed, GREEDY).policy == recorded


def check_round(out, r, params, *, last):
    assert 0 <= r.accepted <= len(r.drafted) <= r.draft_length <= params.draft_length
    assert r.tokens[: r.accepted] == r.drafted[: r.accepted]
    if r.own is None:
        assert last and len(r.tokens) == r.accepted
        assert out.status in ("stopped", "completed")
    else:
        assert r.tokens == (*r.drafted[: r.accepted], r.own)
    if r.accepted < len(r.drafted) and r.own is not None and params.greedy:
        assert r.own != r.drafted[r.accepted]
    assert len(r.pieces) == len(r.tokens)
    assert "".join(r.pieces) == r.text
    check_choices(r, params)
    assert r.nodes >= r.depth >= len(r.drafted)
    assert r.nodes > 0 or r.drafted == ()
    assert (r.arm is None) == (r.drafter is None)
    assert r.arm is not None or r.drafted == ()
    if r.arm is not None:
        assert out.drafters[r.arm] == r.drafter
    assert r.emitted == len(r.tokens)
    for value in (r.reward, r.block_divergence, r.block_efficiency):
        assert value is None or 0.0 <= value <= 1.0
    if r.probabilities is not None:
        assert len(r.probabilities) == 4
        assert math.isclose(sum(r.probabilities), 1.0, abs_tol=1e-9)
        assert r.arm is None or r.probabilities[r.arm] > 0.0
    assert min(r.draft_seconds, r.verify_seconds, r.policy_seconds, r.evaluate_seconds) >= 0.0
    assert r.verify_seconds > 0.0


def check_choices(r, params):
    assert len(r.choices) == len(r.drafted) + 1
    assert len(r.siblings) == (len(r.drafted) if r.siblings else 0)
    if params.greedy:
        assert r.choices[: r.emitted] == r.tokens
    shown = {*r.drafted, *r.choices, *(token for beside in r.siblings for token in beside)}
    assert {*r.texts} == shown - {*r.tokens}
    assert all(r.text_of(token) for token in r.texts)


def test_a_trees_other_guesses_are_recorded_beside_the_path_that_was_accepted(pool):
    rounds = generate(pool, "abcd", "draft-all", GREEDY).rounds
    beside = [r for r in rounds if any(r.siblings)]
    assert beside, "this seed draws no tree"
    for r in beside:
        assert len(r.drafted) + sum(map(len, r.siblings)) <= r.nodes
        for guess, others in zip(r.drafted, r.siblings, strict=True):
            assert guess not in others
    assert not any(r.siblings for r in generate(pool, "abcd", "ucb", GREEDY).rounds)


def test_rounds_say_whether_they_evaluated_and_how_many_tokens_were_read(pool):
    rounds = generate(pool, "abcd", "normal-hedge:every=2", GREEDY).rounds
    assert {bool(r.evaluated) for r in rounds} == {True, False}
    read = sum(r.evaluated for r in rounds)
    tokens = sum(r.emitted for r in rounds)
    assert 0 < read <= tokens
    assert all(r.evaluated == 0 for r in generate(pool, "abcd", "ucb", GREEDY).rounds)


def test_rounds_say_who_drafted_and_how_many_nodes_were_verified(pool):
    together = generate(pool, "abcd", "draft-all", GREEDY).rounds
    assert any(r.together and r.nodes > r.depth for r in together)
    assert max(pool.costs.unread.tokens) <= 2, "all have drafted in the last round, or the last but one"
    for r in generate(pool, "abcd", "ucb", GREEDY).rounds:
        assert (r.together, r.nodes, r.depth) == (False, len(r.drafted), len(r.drafted))


def test_probabilities_are_those_before_the_round(pool):
    rounds = generate(pool, "abcd", "exp3", GREEDY).rounds
    assert rounds[0].probabilities == (0.25,) * 4
    assert rounds[1].probabilities != rounds[0].probabilities


def test_block_divergence_is_measured_for_those_who_use_it(pool):
    def of(policy, params):
        return [r.block_divergence for r in generate(pool, "abcd", policy, params).rounds[:-1]]

    for params in (GREEDY, SAMPLED):
        assert None not in of("ucb", params)
        assert set(of("ucb:reward=be", params)) == {None}
        assert set(of("normal-hedge", params)) == {None}


def test_autoregressive_decoding_drafts_nothing(pool):
    out = generate(pool, "abcd", "autoregressive", GREEDY)
    assert out.mean_accepted_tokens == 1.0
    assert out.acceptance_rate == 0.0
    assert out.drafter_shares == {"target": 1.0}
    assert all((r.arm, r.drafted, r.draft_length, r.reward) == (None, (), 0, None) for r in out.rounds)


def test_autoregressive_sampling_equals_drafting_that_never_proposes(pool):
    """With no draft there is nothing but one draw from the target per token, by the same generator."""
    silent = with_drafter(pool, lambda context, length: Draft.empty())
    plain = generate(pool, "abcd", "autoregressive", SAMPLED, seed=5).token_ids
    assert generate(silent, "abcd", "fixed:scripted", SAMPLED, seed=5).token_ids == plain


def test_text_and_token_prompts_are_the_same_prompt(pool):
    ids = pool.encode("abcd")
    assert generate(pool, "abcd", "ucb", SAMPLED, 1).token_ids == generate(pool, ids, "ucb", SAMPLED, 1).token_ids
    assert generate(pool, ids, "ucb", SAMPLED).prompt == "abcd"


def test_gradients_are_never_recorded(pool):
    pool.target.prefill([1, 2])
    assert not pool.target.score(Draft.empty()).requires_grad
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("method", [(TextStream, "add"), (Verified, "record")], ids=["text", "record"])
def test_the_time_of_a_round_is_that_of_its_text_and_record_too(pool, monkeypatch, method):
    call = getattr(*method)
    monkeypatch.setattr(*method, lambda *arguments: (time.sleep(0.01), call(*arguments))[1])
    assert all(r.verify_seconds >= 0.01 for r in generate(pool, "abcd", "ucb", SAMPLED).rounds)
