"""EAGLE heads as arms of a pool: chains and trees, lossless, with exact replays and full information."""

import math
import shutil
from collections import Counter

import numpy as np
import pytest
import torch

from drafters.base import Evidence
from drafters.pool import load_pool
from drafters.sampling import SamplingParams
from multidraft.engine.decoding import generate
from multidraft.replay.regret import gamma_table
from tests import heads, tiny
from tests.distributions import ALPHA, exact_outputs, p_value
from tests.engine_cases import check_greedy, check_replayed_trees, played_and_replayed

GREEDY = SamplingParams(24, draft_length=4)
PROMPTS = tiny.texts(4, 11, 3)
DRAFTERS = [
    {"name": "near", "kind": "lm", "path": "near"},
    {"name": "first", "kind": "eagle", "path": "eagle1", "nodes": 12, "branches": 4},
    {"name": "chain", "kind": "eagle", "path": "eagle3"},
    {"name": "tree", "kind": "eagle", "path": "eagle3", "nodes": 14, "branches": 5},
    {"name": "sure", "kind": "eagle", "path": "specforge", "nodes": 14, "branches": 5, "confidence": 0.2},
    {"name": "other", "kind": "eagle", "path": "speculators-qwen3", "confidence": 0.3},
]
EAGLES = [entry["name"] for entry in DRAFTERS[1:]]


def card_in(folder):
    card = tiny.write_pool(folder, drafters=DRAFTERS[:1])
    target = load_pool(card).target.model
    for seed, layout in enumerate(heads.LAYOUTS):
        heads.write_head(folder / layout, layout, target, seed)
        if layout != "eagle1":
            heads.teach(folder / layout, target)
    return tiny.change_card(card, drafters=DRAFTERS)


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    return card_in(tmp_path_factory.mktemp("eagles"))


@pytest.fixture(scope="module", params=tiny.RUNTIMES)
def pool(request, card):
    """A pool whose target runs on each of the runtimes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("drafters.models.target.decoder_for", lambda model, **_: tiny.RUNTIMES[request.param](model))
        return tiny.load(card)


@pytest.fixture(scope="module")
def tables(pool):
    """Acceptance tables of what the pool has written."""
    return {}


@pytest.mark.parametrize(
    "policy", [*(f"fixed:{name}" for name in EAGLES), "round-robin", "ucb", "normal-hedge", "draft-all", "rate-hedge"]
)
def test_greedy_output_is_that_of_transformers(pool, policy):
    check_greedy(pool, PROMPTS[:2], policy, GREEDY.max_new_tokens)


def test_each_of_them_has_drafts_accepted(pool, tables):
    """Otherwise the tests here would prove little; and a tree has more of them than a chain."""
    table = np.concatenate([played_and_replayed(pool, p, "fixed:near", GREEDY, tables=tables)[2] for p in PROMPTS], 1)
    assert (table.sum(axis=1) > 0).all()
    assert table[3].sum() > table[2].sum()


@pytest.mark.parametrize("spec", [*(f"fixed:{name}" for name in EAGLES), "round-robin", "normal-hedge:every=1"])
def test_replayed_rounds_are_the_live_ones(pool, tables, spec):
    for prompt in PROMPTS[2:]:
        check_replayed_trees(pool, prompt, spec, GREEDY, tables)


def test_gamma_is_what_the_first_tokens_of_its_drafts_hold(pool):
    """Greedy: whether the token is among the first proposed; sampled: the target's probability of them, or overlap."""
    prompt = pool.encode(PROMPTS[0])
    context = [*prompt, *generate(pool, PROMPTS[0], "autoregressive", GREEDY).token_ids]
    start = len(prompt)
    generator = torch.Generator()
    greedy = pool.gamma(Evidence(context, start, None, GREEDY))
    sampled = SamplingParams(30, temperature=1.0, draft_length=4)
    p = torch.softmax(tiny.logits_of(pool.target.model, context)[start - 1 : -1], dim=-1)
    soft = pool.gamma(Evidence(context, start, p, sampled))
    for column, drafter in enumerate(pool.drafters[1:], 1):
        for row, position in enumerate(range(start, len(context))):
            draft = drafter.propose(context[:position], GREEDY.draft_length, GREEDY, generator)
            first = [draft.tokens[node] for node in draft.children(-1)]
            assert greedy[row, 0, column] == (context[position] in first)
            if drafter.nodes is not None:
                assert soft[row, 0, column] == pytest.approx(float(p[row, first].sum()), abs=1e-5)
            else:
                q = drafter.propose(context[:position], 1, sampled, generator).q
                assert soft[row, 0, column] == pytest.approx(float(torch.minimum(p[row], q[0]).sum()), abs=1e-5)


def test_a_sampled_chain_ends_where_what_it_drew_is_doubted_and_gamma_knows(pool):
    eagle, params, least = pool.drafters[2], SamplingParams(24, temperature=0.7, draft_length=4), 0.1
    bold, cautious = (type(eagle)("", eagle.head, pool.target, tiny.VOCAB, confidence=c) for c in (0.0, least))
    context, lengths = [*pool.encode(PROMPTS[0])], Counter()
    for seed in range(20):
        whole, cut = (
            drafter.propose(context, 4, params, torch.Generator().manual_seed(seed)) for drafter in (bold, cautious)
        )
        product = whole.q[range(4), whole.tokens].cumprod(dim=0)
        expected = min(4, int((product >= least).sum()) + 1)
        assert cut.tokens == whole.tokens[:expected] and cut.sampled
        torch.testing.assert_close(cut.q, whole.q[:expected])
        lengths[expected] += 1
    assert len(lengths) > 1
    text = [*context, *generate(pool, PROMPTS[0], "autoregressive", params, seed=1).token_ids]
    start = len(context) + 4
    for first in (len(context), start):
        certain = torch.nn.functional.one_hot(torch.tensor(text[first:]), tiny.VOCAB).float()
        tokens = bold.gamma(Evidence(text, first, certain, params))  # what the text's tokens are to each draft
        p = torch.softmax(
            torch.randn(len(text) - start, tiny.VOCAB, generator=torch.Generator().manual_seed(2)), dim=-1
        )
        whole, cut = (each.gamma(Evidence(text, start, p, params, first=first)) for each in (bold, cautious))
        for row, place in enumerate(range(start, len(text))):
            for depth in range(min(4, place - first + 1)):
                held = np.prod([tokens[place - depth + each - first, each] for each in range(depth)])
                assert cut[row, depth] == pytest.approx(whole[row, depth] * (held >= least), abs=1e-6)
    assert 0 < (cut > 0).sum() < (whole > 0).sum()


def test_trees_hold_the_most_probable_nodes_within_their_budget(pool):
    """Against all paths of three tokens, each scored by itself along a chain of its own."""
    context, generator = pool.encode("abcdefgh"), torch.Generator()
    wide = pool.drafters[3]
    draft = wide.propose(context, 3, GREEDY, generator, with_q=True)
    assert len(draft) == 14 and draft.depth <= 3 and draft.q.shape == (14, tiny.VOCAB)
    scores = []
    for token, parent, q in zip(draft.tokens, draft.parents, draft.q, strict=True):
        scores.append(math.log(float(q[token])) + (scores[parent] if parent >= 0 else 0.0))
        assert float(q.sum()) == pytest.approx(1.0, abs=1e-5)
        assert {index for index, chance in enumerate(q.tolist()) if chance > 0} == set(heads.DRAFT_IDS)
    bigger = type(wide)("bigger", wide.head, pool.target, tiny.VOCAB, nodes=200, branches=5)
    everything = bigger.propose(context, 3, GREEDY, generator, with_q=True)
    all_scores = []
    for token, parent, q in zip(everything.tokens, everything.parents, everything.q, strict=True):
        all_scores.append(math.log(float(q[token])) + (all_scores[parent] if parent >= 0 else 0.0))
    assert sorted(scores, reverse=True) == pytest.approx(sorted(all_scores, reverse=True)[:14], abs=1e-4)


def test_a_chain_is_the_first_branch_of_its_tree(pool):
    context, generator = pool.encode("abcdefgh"), torch.Generator()
    chain = pool.drafters[2].propose(context, 4, GREEDY, generator)
    one = type(pool.drafters[2])("one", pool.drafters[2].head, pool.target, tiny.VOCAB, nodes=4, branches=1)
    narrow = one.propose(context, 4, GREEDY, generator)
    assert (narrow.tokens, narrow.parents) == (chain.tokens, chain.parents)


def test_what_is_unlikely_is_not_proposed(pool):
    context, generator = pool.encode("hgfedcba"), torch.Generator()
    for index, least in ((4, 0.2), (5, 0.3)):
        drafter = pool.drafters[index]
        draft = drafter.propose(context, 4, GREEDY, generator, with_q=True)
        scores = []
        for token, parent, q in zip(draft.tokens, draft.parents, draft.q, strict=True):
            scores.append(float(q[token]) * (scores[parent] if parent >= 0 else 1.0))
        if drafter.nodes is not None:
            assert all(score >= least for score in scores[1:])
        assert all(score >= least for score in scores[:-1])


def test_texts_too_short_for_a_hidden_state(pool):
    generator = torch.Generator()
    for drafter in pool.drafters[1:]:
        assert len(drafter.propose([3], 4, GREEDY, generator)) == 0
        assert drafter.gamma(Evidence([3, 4, 5], 1, None, GREEDY)).shape == (2, GREEDY.draft_length)
        assert drafter.acceptances([3, 4, 5], 1, 4).accepted.shape == (2,)
    expected = tiny.greedy(pool.target.model, [3], 10)
    assert generate(pool, [3], "fixed:tree", SamplingParams(10, draft_length=4)).token_ids == expected


def test_a_context_that_changes_under_the_drafter(pool):
    """Rolled back, replaced, or grown: what was cached of another text is never used."""
    generator = torch.Generator()
    texts = [pool.encode(text) for text in ("abcdef", "abcdefghi", "abcd", "abdddd", "hh")]
    for drafter in pool.drafters[1:]:
        fresh = []
        for text in texts:
            drafter.prepare(text)
            fresh.append(drafter.propose(text, 4, GREEDY, generator))
        drafter.prepare(texts[0])
        for text, expected in zip(texts, fresh, strict=True):
            found = drafter.propose(text, 4, GREEDY, generator)
            assert (found.tokens, found.parents) == (expected.tokens, expected.parents)


def test_chain_and_tree_share_a_head_and_what_it_has_read(pool):
    """In turn, each proposes what it would with a head of its own, and reads only what the other has not."""
    chain, tree = (next(d for d in pool.drafters if d.name == name) for name in ("chain", "tree"))
    assert chain.head is tree.head
    text, generator, alone = pool.encode("abcdefghiabc"), torch.Generator(), {}
    for drafter in (chain, tree):
        drafter.prepare(text[:4])
        alone[drafter.name] = [drafter.propose(text[:n], 4, GREEDY, generator) for n in range(4, len(text))]
    fed, step = [], chain.head.first_step
    chain.head.first_step = lambda ids, *args, **more: fed.append(len(ids)) or step(ids, *args, **more)
    try:
        pool.prepare(prompt := text[:4], [pool.drafters.index(chain), pool.drafters.index(tree)])
        assert fed == [3, 1], "pairs of the prompt: all of them once, the last one again"
        fed.clear()
        pool.prepare(list(prompt), [pool.drafters.index(tree)])
        assert fed == [3], "another query, whatever it holds"
        for n in range(4, len(text)):
            for drafter in (chain, tree):
                fed.clear()
                found, expected = drafter.propose(text[:n], 4, GREEDY, generator), alone[drafter.name][n - 4]
                assert (found.tokens, found.parents) == (expected.tokens, expected.parents)
                assert fed == [1], "the pair of the last token; all others are cached"
    finally:
        del chain.head.first_step


def test_twins_of_drafters_that_share_a_head_share_its_twin(pool):
    first, second = pool.twin(), pool.twin()
    heads = [{id(d.head) for d in of.drafters if d.name in ("chain", "tree")} for of in (pool, first, second)]
    assert [len(found) for found in heads] == [1, 1, 1], "one cache for each text"
    assert len(set.union(*heads)) == 3, "and none for two"


@pytest.fixture(scope="module")
def exact(card):
    """A pool, and the probability of each output of three tokens to a prompt."""
    pool, params = tiny.load(card), SamplingParams(3, draft_length=2, temperature=1.5, top_k=3)
    return pool, params, exact_outputs(pool.target.model, pool.encode("abcabcab"), params)


@pytest.mark.parametrize("policy", ["fixed:chain", "fixed:tree", "fixed:first", "normal-hedge", "ucb:reward=bd"])
def test_sampled_outputs_follow_the_target(exact, policy):
    pool, params, expected = exact
    seeds = range(100 if policy == "normal-hedge" else 200)
    counts = Counter(tuple(generate(pool, "abcabcab", policy, params, seed).token_ids) for seed in seeds)
    assert p_value(counts, expected) > ALPHA


def test_a_sampled_run_learns_from_them(pool):
    params = SamplingParams(30, temperature=1.0, top_k=8, draft_length=4)
    out = generate(pool, PROMPTS[0], "normal-hedge", params, seed=3)
    assert len(out.token_ids) == 30
    gamma = gamma_table(pool, pool.encode(PROMPTS[0]), out.token_ids, params)
    assert gamma.shape == (30, 4, 6) and (gamma >= 0).all() and (gamma <= 1).all()


def test_the_target_makes_no_forward_for_hidden_states_alone(card):
    """Also where a stop token inside the accepted draft ends the output, and all are evaluated after it."""
    pool, read, statuses = load_pool(card), [], []
    pool.target._features.read = lambda ids, layers: read.append(len(ids))
    pool.stop_ids = frozenset({9, 10})
    for prompt in tiny.texts(12, 21, 3):
        for spec in ("fixed:near", "normal-hedge:every=1"):
            out = generate(pool, prompt, spec, SamplingParams(30, draft_length=4))
            statuses += [(out.status, out.rounds[-1].own is None)]
    assert ("stopped", True) in statuses and not read


def test_the_hash_covers_heads(card, tmp_path):
    copy = shutil.copytree(card.parent, tmp_path / "copy")
    before = load_pool(copy).card_hash
    heads.write_head(copy / "eagle3", "eagle3", load_pool(copy).target.model, seed=99)
    assert load_pool(copy).card_hash != before
