"""Drafters that fail are left out for the query, with a note, and the output is the target's all the same."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from drafters.draft import Draft
from drafters.errors import TargetError
from drafters.pool import Pool
from drafters.proposing import PointMassDrafter
from drafters.sampling import SamplingParams
from drafters.supervised import Supervised
from multidraft.bench.measure import Measurement, Request
from multidraft.engine.batch import generate_batch
from multidraft.engine.decoding import Decoding, generate
from multidraft.replay.regret import acceptance_table, regret_of
from multidraft.replay.walk import replay
from storage.run import Run
from tests import tiny
from tests.engine_cases import GREEDY, SAMPLED, Scripted

pytestmark = pytest.mark.benched

PROMPT = [2, 3, 4, 5]
ROW = torch.full((1, tiny.VOCAB), 1 / tiny.VOCAB)
POLICIES = ["fixed:bad", "exp3", "round-robin", "normal-hedge:every=2", "rate-hedge", "draft-all", "router"]


def failing(context, length):
    if len(context) > 8:
        raise RuntimeError("out of ideas")
    return Draft.chain([3])


def beside(pool, draft_of, *names):
    """The pool with a scripted drafter ``bad``, its own ``near`` and others of its drafters."""
    others = [drafter for drafter in pool.drafters if drafter.name in ("near", *names)]
    router = type("Router", (), {"suited": lambda self, prompt, names: [1.0, *[0.0] * (len(names) - 1)]})()
    return Pool(pool.target, [Scripted("bad", draft_of), *others], pool.tokenizer, pool.card, router=router)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_text_goes_on_without_it(pool, policy):
    expected = tiny.greedy(pool.target.model, PROMPT, GREEDY.max_new_tokens)
    out = generate(beside(pool, failing), PROMPT, policy, GREEDY)
    assert (out.token_ids, out.status, out.error) == (expected, "completed", None)
    assert "bad" in out.benched and "near" not in out.benched
    if policy != "draft-all":  # there others' drafts may be told as the first drafter's
        last = [r for r in out.rounds if r.drafter == "bad"][-1]
        assert not last.drafted and last.own is not None
    assert out.failures.startswith("Drafter bad failed and drafted no more: ")


@pytest.mark.parametrize(
    ("draft", "said"),
    [
        (Draft.chain([99]), "proposed the token 99, which the target does not have"),
        (Draft.chain([3], ROW.numpy(), sampled=True), "its q is a ndarray; it must be a torch tensor (after"),
        (Draft.chain([3] * 9), "proposed 9 tokens, asked for at most 4"),
        (Draft((3,) * 2000, (-1,) * 2000), "a tree of 2,000 tokens"),
        ("abc", "proposed 'str', which is no Draft"),
        (Draft.chain([3], ROW * float("nan"), sampled=True), "its q is no probability distribution"),
        (Draft.chain([3], ROW * 0, sampled=True), "its q is no probability distribution"),
        (Draft.chain([3], ROW * 2, sampled=True), "its q is no probability distribution"),
        (Draft.chain([3], ROW[:, :5], sampled=True), "of other tokens than the target's"),
        (Draft((3, 3), (-1, -1), torch.cat([ROW, ROW]), True), "its q is no probability distribution"),
        (Draft((3, 4), (-1, -1), torch.cat([ROW, -ROW]), True), "its q is no probability distribution"),
    ],
)
def test_what_cannot_be_verified_is_refused(pool, draft, said):
    out = generate(beside(pool, lambda context, length: draft), PROMPT, "fixed:bad", SAMPLED)
    assert said in out.benched["bad"] and "after 0 tokens" in out.benched["bad"]
    assert out.status == "completed" and not any(r.drafted for r in out.rounds)
    plain = generate(pool, PROMPT, "autoregressive", SAMPLED)
    assert len(out.token_ids) == len(plain.token_ids)


def test_a_drafter_of_ones_own_is_told_what_it_lacks(pool):
    class Bad(PointMassDrafter):
        def draft(self, context, length):
            return Draft.chain([3], ROW.numpy(), sampled=True)

    class Fractions(PointMassDrafter):
        def draft(self, context, length):
            return Draft.chain([2.5])

    for kind, said in (
        (Bad, "its q is a ndarray; it must be a torch tensor"),
        (Fractions, "its tokens must be whole numbers, got (2.5,) (after"),
        (PointMassDrafter, "NotImplementedError: PointMassDrafter needs a method draft(self, context, length)"),
    ):
        mixed = Pool(pool.target, [Supervised(kind(), "bad", Path(__file__), 30.0)], pool.tokenizer, pool.card)
        assert generate(mixed, PROMPT, "fixed:bad", SAMPLED).benched["bad"].startswith(said)


@pytest.mark.parametrize(("tokens", "said"), [([3] * 5, "it proposed 5 tokens, asked for at most 4"), ([3, 99], "99")])
def test_so_is_what_would_be_a_part_of_a_union(pool, tokens, said):
    out = generate(beside(pool, lambda context, length: Draft.chain(tokens)), PROMPT, "draft-all", GREEDY)
    assert out.status == "completed" and said in out.benched["bad"]


@pytest.mark.parametrize(
    ("draft", "said"), [([3], "it proposed 'list', which is no Draft"), (Draft.chain([3] * 9), "it proposed 9 tokens")]
)
def test_so_is_what_is_only_evaluated(pool, draft, said):
    """Under a policy that plays another drafter first; a drafter of one's own is told about in the same words."""

    class Bad(PointMassDrafter):
        name = "bad"

        def draft(self, context, length):
            return draft

    for bad in (Bad(), Supervised(Bad(), "bad", Path(__file__), 30.0)):
        mixed = Pool(pool.target, [pool.drafters[near(pool)], bad], pool.tokenizer, pool.card)
        out = generate(mixed, PROMPT, "normal-hedge:every=1", GREEDY)
        assert out.benched["bad"].startswith(said) and out.status == "completed"
        assert not any(r.drafted for r in out.rounds if r.drafter == "bad")


def test_its_row_of_an_acceptance_table_can_be_left_out(pool):
    mixed = beside(pool, lambda context, length: 1 / 0)
    prompt, out = pool.encode("abc"), generate(mixed, "abc", "ucb", GREEDY)
    with pytest.raises(NotImplementedError) as raised:
        acceptance_table(mixed, prompt, out.token_ids, 4)
    assert raised.value.__notes__ == ["drafter bad"]
    table = acceptance_table(mixed, prompt, out.token_ids, 4, without=out.benched)
    assert not table[0].any() and (table[1] == acceptance_table(pool, prompt, out.token_ids, 4)[near(pool)]).all()


def near(pool):
    return pool.drafter_names.index("near")


def test_probabilities_that_only_the_policy_sees(pool):
    def draft_of(context, length):
        return Draft.chain([3], ROW * float("nan"))

    out = generate(beside(pool, draft_of), PROMPT, "ucb:reward=bd", GREEDY)
    assert "negative or no numbers" in out.benched["bad"] and out.status == "completed"
    assert all(r.block_divergence is None or 0 <= r.block_divergence <= 1 for r in out.rounds)


@pytest.mark.parametrize("wrong", [float("nan"), -1.0, 2.0])
def test_of_a_group_the_one_is_found_that_fails(pool, wrong, monkeypatch):
    group = pool.drafters[0].group
    far = next(drafter for drafter in pool.drafters if drafter.name == "far")
    assert far in group.members
    gamma, alone = group.gamma, far.gamma
    monkeypatch.setattr(group, "gamma", lambda evidence: gamma(evidence) + wrong)
    monkeypatch.setattr(far, "gamma", lambda evidence: alone(evidence) + wrong)
    out = generate(pool, PROMPT, "normal-hedge:every=1", GREEDY)
    assert list(out.benched) == ["far"]
    assert out.token_ids == tiny.greedy(pool.target.model, PROMPT, GREEDY.max_new_tokens)


def test_in_a_batch_it_is_left_out_where_it_failed(pool):
    prompts = tiny.prompts(3, seed=4, shortest=3, longest=6)
    mixed = beside(pool, lambda c, length: failing(c, length) if c[0] == prompts[1][0] else Draft.empty())
    out = generate_batch(mixed, prompts, "round-robin", GREEDY, size=3)
    assert [bool(g.benched) for g in out] == [prompt[0] == prompts[1][0] for prompt in prompts]
    assert [g.token_ids for g in out] == [tiny.greedy(pool.target.model, p, GREEDY.max_new_tokens) for p in prompts]


@pytest.mark.parametrize("policy", ["ucb:reward=be", "exp3:reward=be", "normal-hedge:every=1", "round-robin"])
def test_its_replays_and_its_regret_are_those_of_a_drafter_that_drafts_nothing(pool, policy):
    mixed = beside(pool, lambda context, length: 1 / 0, "lookup")
    request = Request(PROMPT, policy, GREEDY, measures_baseline=False)
    run = Measurement(mixed, request).compute()
    table = run.scores.acceptance.accepted
    assert run.generation.error is None and run.scores.lossless and not table[0].any() and table[1].any()
    names, prompt = run.generation.drafters, run.generation.prompt
    known = {"drafters": names, "prompt": prompt, "route": mixed.route, "draft_length": 4}
    played = replay(run.scores.acceptance, policy, **known)
    assert played.arms == [-1 if r.arm is None else r.arm for r in run.generation.rounds]
    assert played.regret == run.scores.regret_rounds == regret_of(run.generation, table).regret_rounds
    assert Run.from_json(json.loads(json.dumps(run.to_json()))).generation.benched == run.generation.benched


def test_a_sampled_run_with_one_has_a_regret_too(pool):
    run = Measurement(beside(pool, failing), Request(PROMPT, "round-robin", SAMPLED, measures_baseline=False)).compute()
    assert run.generation.error is None and np.isfinite(run.scores.expected_regret)
    assert run.scores.best_drafter == "near"


def test_the_next_query_tries_again(pool):
    mixed = beside(pool, failing)
    assert generate(mixed, PROMPT, "fixed:bad", GREEDY).benched
    out = generate(mixed, PROMPT, "fixed:bad", SamplingParams(2, draft_length=4))
    assert not out.benched and out.rounds[0].drafted == (3,)


@pytest.mark.parametrize("params", [GREEDY, SAMPLED])
@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
@pytest.mark.parametrize("policy", ["autoregressive", "fixed:near", "draft-all"])
def test_a_target_without_numbers_stops_with_an_explanation(pool, monkeypatch, params, wrong, policy):
    score = pool.target.score

    def damaged(draft):
        logits = score(draft).clone()
        if pool.target.context_length > 8:
            logits[0, 5] = wrong
        pool.target.decoder.likeliest = None  # it would be of the logits without the damage
        return logits

    monkeypatch.setattr(pool.target, "score", damaged)
    decoding = Decoding(pool, PROMPT, policy, params)
    with pytest.raises(TargetError, match="scores are not finite numbers: its weights are damaged"):
        decoding.run()
    assert decoding.generation.status == "error" and not decoding.generation.benched
    assert len(decoding.generation.token_ids) >= 4


def test_scores_after_a_token_that_was_not_accepted_do_not_matter(pool, monkeypatch):
    expected, score = tiny.greedy(pool.target.model, PROMPT, 40), pool.target.score
    wrong = (expected[0] + 1) % tiny.VOCAB

    def damaged(draft):
        logits = score(draft).clone()
        logits[1:] = float("nan")
        return logits

    monkeypatch.setattr(pool.target, "score", damaged)
    mixed = beside(pool, lambda context, length: Draft.chain([wrong] if context == PROMPT else []))
    assert generate(mixed, PROMPT, "fixed:bad", GREEDY).token_ids == expected
