"""Lookahead decoding: the window against its definition, and what the target makes of its drafts."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from drafters.base import Evidence
from drafters.draft import Draft
from drafters.kinds.lookahead import LookaheadDrafter
from drafters.pool import Pool
from drafters.sampling import SamplingParams
from multidraft.engine.decoding import generate
from multidraft.policies import NO_DRAFTER
from tests import tiny
from tests.engine_cases import (
    GREEDY,
    check_greedy,
    check_judgements,
    check_window_end,
    draft_of,
    paths_of,
    played_and_replayed,
    pool_of,
)
from tests.world import PARAMS, V, check_outputs_follow_the_target

TEXTS = st.lists(st.integers(0, 2), min_size=1, max_size=30)


def logits_for(draft, choices, vocab=100):
    """Logits whose argmax after node ``j`` is ``choices[j + 1]``."""
    logits = torch.zeros(len(draft) + 1, vocab)
    logits[torch.arange(len(draft) + 1), torch.tensor(choices)] = 1.0
    return logits


def pooled(text, ngram, guesses):
    """First tokens to the n-grams of ``text``, the newest first, by definition."""
    pool = {}
    for end in range(ngram, len(text) + 1):
        first, *rest = text[end - ngram : end]
        tails = [tail for tail in pool.get(first, []) if tail != tuple(rest)]
        pool[first] = [tuple(rest), *tails][:guesses]
    return pool


@given(text=TEXTS, ngram=st.integers(2, 4), guesses=st.integers(1, 3), length=st.integers(1, 5))
def test_the_verification_branch_holds_the_texts_own_ngrams(text, ngram, guesses, length):
    draft = draft_of(LookaheadDrafter("l", 0, ngram, guesses), text, length)
    tails = pooled(text, ngram, guesses).get(text[-1], [])
    prefixes = [tail[:n] for tail in tails for n in range(1, min(length, ngram - 1) + 1)]
    assert paths_of(draft) == list(dict.fromkeys(prefixes))
    assert draft.q is None and not draft.sampled and draft.depth <= length


def test_the_window_grows_to_its_levels_and_moves_on():
    drafter = LookaheadDrafter("l", window=3, ngram=3)
    context = [1, 2, 3]
    drafter.prepare(context)
    drafter.columns = [[11], [12], [13]]

    draft = draft_of(drafter, context)
    assert paths_of(draft) == [(11,), (11, 12), (11, 12, 13)]
    drafter.observe(draft, logits_for(draft, [4, 21, 22, 23]))

    draft = draft_of(drafter, context := [*context, 4])
    assert paths_of(draft) == [(11,), (11, 21), (11, 12), (11, 12, 22), (11, 12, 13), (11, 12, 13, 23)]
    drafter.observe(draft, logits_for(draft, [11, 5, 31, 6, 32, 7, 33]))
    assert drafter.columns == [[21, 31], [22, 32], [23, 33]]

    draft = draft_of(drafter, context := [*context, 5, 11])  # 11 begins an n-gram now: it comes first
    assert paths_of(draft)[:2] == [(21,), (21, 31)]
    assert paths_of(draft)[2:] == [(21, 22), (21, 22, 32), (21, 22, 23), (21, 22, 23, 33)]
    assert draft_of(drafter, [*context, 12]).tokens[:2] == (22, 32)


def test_what_was_not_scored_stays_as_it_is():
    drafter = LookaheadDrafter("l", window=3, ngram=3)
    drafter.prepare([1])
    drafter.columns = [[11, 21], [12, 22], [13, 23]]
    draft = draft_of(drafter, [1]).first(4)
    drafter.observe(draft, logits_for(draft, [1, 2, 31, 3, 32]))
    assert drafter.columns == [[21, 31], [22, 32], [13, 23]]
    drafter.observe(draft, logits_for(draft, [1, 2, 3, 4, 5]))  # seen before
    drafter.observe(other := Draft.chain([9, 9]), logits_for(other, [1, 2, 3]))
    drafter.observe(Draft.empty(), logits_for(Draft.empty(), [1]))
    assert drafter.columns == [[21, 31], [22, 32], [13, 23]]


@pytest.mark.parametrize(("length", "columns"), [(0, 0), (1, 0), (2, 0), (3, 1), (4, 2), (6, 4), (9, 5)])
def test_no_column_reaches_deeper_than_the_length(length, columns):
    drafter = LookaheadDrafter("l", window=5, ngram=4)
    drafter.prepare([1])
    drafter.columns = [[10 + i, 20 + i, 30 + i] for i in range(5)]
    draft = draft_of(drafter, [1], length)
    assert draft.depth <= length and len(draft) == 3 * columns


def test_sizes_that_are_too_small():
    for sizes in ((-1, 4, 4), (8, 1, 4), (8, 4, 0)):
        with pytest.raises(ValueError, match="lookahead needs window >= 0"):
            LookaheadDrafter("l", *sizes)


def test_a_new_query_forgets_the_previous_one():
    drafter, fresh = LookaheadDrafter("l"), LookaheadDrafter("l")
    drafter.prepare([1, 2, 3])
    for context in ([1, 2, 3], [1, 2, 3, 4]):
        draft = draft_of(drafter, context, 6)
        drafter.observe(draft, logits_for(draft, range(len(draft) + 1)))
    fresh.prepare([5, 6])
    assert draft_of(drafter, [5, 6]) == draft_of(fresh, [5, 6])
    drafter.prepare([1, 2, 3])
    fresh.prepare([1, 2, 3])
    assert draft_of(drafter, [1, 2, 3]) == draft_of(fresh, [1, 2, 3])


@given(text=TEXTS, data=st.data())
def test_gamma_and_acceptances_are_those_of_real_drafts(text, data):
    start = data.draw(st.integers(1, len(text)))
    drafter = LookaheadDrafter("l", 0, 3, 2)
    drafts = [draft_of(LookaheadDrafter("l", 0, 3, 2), text[:s], 4) for s in range(start, len(text))]
    check_judgements(drafter, drafts, text, start, 3)


def test_gamma_never_knows_what_the_same_round_taught():
    drafter = LookaheadDrafter("l", window=2, ngram=2)
    drafter.prepare([1, 7])
    drafter.columns = [[2], [5]]
    draft = draft_of(drafter, [1, 7])
    drafter.observe(draft, logits_for(draft, [2, 3, 8]))  # 2 accepted, then 3: the window has found the n-gram 2 3
    assert drafter.gamma(Evidence([1, 7, 2, 3], 2, None, GREEDY))[:, 0].tolist() == [0.0, 0.0]
    draft_of(drafter, [1, 7, 2, 3])
    assert drafter.gamma(Evidence([1, 7, 2, 3, 2, 3], 4, None, GREEDY))[:, 0].tolist() == [0.0, 1.0]


@pytest.fixture(scope="module")
def pool():
    pool = pool_of(tiny.llama(1))
    own = [LookaheadDrafter("lookahead"), LookaheadDrafter("text", window=0, ngram=3)]
    return Pool(pool.target, [*pool.drafters, *own], pool.tokenizer, pool.card)


POLICIES = ["fixed:lookahead", "fixed:text", "round-robin", "draft-all", "ucb:reward=bd", "normal-hedge", "rate-hedge"]


@pytest.mark.parametrize("policy", POLICIES)
def test_greedy_output_is_that_of_transformers(pool, policy):
    check_greedy(pool, [*tiny.prompts(3, seed=1), [5]], policy, 30, (1, 4, 8))


@pytest.mark.parametrize("kind", ["gpt2", "gemma2"])
def test_greedy_output_over_other_architectures(kind):
    pool = pool_of(tiny.causal_lm(kind, 8), "hub")
    pool = Pool(pool.target, [LookaheadDrafter("lookahead")], pool.tokenizer, pool.card)
    check_greedy(pool, tiny.prompts(3, seed=2), "fixed:lookahead", 24, (8,))


def test_the_window_is_cut_where_the_context_window_ends(pool):
    check_window_end(pool, "fixed:lookahead", 8)


def test_trajectories_of_the_target_are_accepted(pool):
    """More than the text's own n-grams are, and otherwise the tests above would prove little."""
    window = Pool(pool.target, [LookaheadDrafter("l", ngram=3)], pool.tokenizer, pool.card)
    rounds = {}
    for name, one in (("l", window), ("text", pool)):
        outs = [generate(one, p, f"fixed:{name}", SamplingParams(40, draft_length=8)) for p in tiny.prompts(8, seed=3)]
        rounds[name] = sum(len(out.rounds) for out in outs)
        assert any(r.accepted > 1 for out in outs for r in out.rounds)
    assert rounds["l"] < rounds["text"]


def test_without_a_window_replayed_rounds_are_the_live_ones(pool):
    for prompt in tiny.prompts(3, seed=6):
        live, again, _ = played_and_replayed(pool, prompt, "fixed:text")
        assert again.arms == [NO_DRAFTER if r.arm is None else r.arm for r in live.rounds]
        assert again.emitted == [r.emitted for r in live.rounds]


@pytest.mark.parametrize("params", ["plain", "both"])
def test_sampled_outputs_follow_the_target(params):
    drafter = LookaheadDrafter("l", window=3, ngram=3)
    check_outputs_follow_the_target(drafter, PARAMS[params], 800, length=4, drafts=V)


def test_it_learns_under_draft_all_as_alone_as_far_as_the_budget_leaves_its_draft(pool):
    """What the target made of its window reaches it through the union."""
    seen = []

    class Watched(LookaheadDrafter):
        def observe(self, draft, logits):
            seen.append((draft, logits.argmax(dim=-1).tolist()))
            super().observe(draft, logits)

    watched = Pool(pool.target, [*pool.drafters[:2], Watched("l", ngram=3)], pool.tokenizer, pool.card)
    prompt = tiny.prompts(1, seed=4)[0]
    out = generate(watched, prompt, "draft-all", SamplingParams(24, draft_length=6))
    context = list(prompt)
    assert len(seen) == sum(r.draft_length > 0 for r in out.rounds) > 3
    for (draft, choices), r in zip(seen, out.rounds):
        assert choices[0] == r.tokens[0]  # row 0 is what follows the context
        for node, parent in enumerate(draft.parents):
            path = [draft.tokens[node]]
            while parent >= 0:
                path.insert(0, draft.tokens[parent])
                parent = draft.parents[parent]
            assert choices[node + 1] == tiny.greedy(pool.target.model, [*context, *path], 1)[0]
        context += r.tokens
    seen.clear()
    cut = generate(watched, prompt, "draft-all:nodes=1", SamplingParams(24, draft_length=6))
    assert cut.token_ids == out.token_ids and all(len(draft) <= 1 for draft, _ in seen)
