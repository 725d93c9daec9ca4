"""The suffix drafter against its definition, searched without an automaton."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drafters.base import Evidence, Lesson
from drafters.kinds import suffix
from drafters.kinds.suffix import SuffixDrafter
from drafters.retrieval import automaton
from drafters.sampling import SamplingParams
from tests.engine_cases import check_judgements, draft_of, paths_of

GREEDY = SamplingParams(draft_length=8)
TOKENS = st.integers(0, 2)
CONTEXTS = st.lists(TOKENS, max_size=40)


@pytest.fixture(params=[2, 5, 32], autouse=True)
def longest(request, monkeypatch):
    """Short suffixes too, so that contexts reach beyond the longest."""
    monkeypatch.setattr(automaton, "LONGEST", request.param)
    return request.param


def occurrences(text, part):
    return [end for end in range(len(part), len(text) + 1) if text[end - len(part) : end] == part]


def followers(texts, query, ended, width=automaton.WIDTH):
    """What may follow ``query``: (token, chance), the likeliest first. ``texts``: the query's own, then others."""
    chances = {}
    for number, text in enumerate(texts):
        for m in range(min(automaton.LONGEST, len(query)), 0, -1):
            ends, seen = occurrences(text, query[-m:]), {}
            for end in ends:
                if end < len(text) and text[end] >= 0:
                    seen[text[end]] = (seen.get(text[end], (0,))[0] + 1, end)
            trials = len(ends) - (ended and not number) + suffix.ESCAPES[number > 0] / m
            for token in sorted(seen, key=seen.get, reverse=True)[:width]:
                chances[token] = max(chances.get(token, 0.0), seen[token][0] / trials)
    return sorted(chances.items(), key=lambda found: -found[1])[:width]


def naive_chain(texts, context, length, confidence=0.0):
    drafted, joint = [], 1.0
    while len(drafted) < length and (best := followers(texts, context + drafted, not drafted, 1)):
        joint *= best[0][1]
        if drafted and joint < confidence:
            break
        drafted.append(best[0][0])
    return drafted


def naive_tree(texts, context, length, nodes):
    """Paths of the tree, in the order in which they are added."""
    paths = {(token,): share for token, share in followers(texts, context, True)}
    tree = list(paths)[:nodes]
    waiting = {}

    def expand(path, share):
        if len(path) < length:
            for token, part in followers(texts, [*context, *path], False):
                waiting[(*path, token)] = share * part

    for path in tree:
        expand(path, paths[path])
    while waiting and len(tree) < nodes:
        path = max(waiting, key=waiting.get)  # ties: the first found
        share = waiting.pop(path)
        tree.append(path)
        expand(path, share)
    return tree


@pytest.mark.parametrize(
    ("context", "drafted"),
    [
        ([], []),
        ([1], []),
        ([1, 2, 3], []),
        ([1, 2, 3, 1], [2, 3, 1, 2, 3]),  # on through the loop
        ([7, 1, 8, 1, 8, 1, 9, 1], [8, 1]),  # the more frequent, not the latest
        ([1, 2, 3, 7, 3, 8, 3, 8, 3, 8, 1, 2, 3], [7]),  # the longer suffix promises more than the more frequent
        ([1, 2, 7, 2, 8, 2, 8, 2, 8, 2, 8, 2, 8, 2, 8, 2, 8, 9, 1, 2], [8]),  # or less
        ([7, 1, 8, 1, 9, 1], [9, 1, 9]),  # of equals the latest
    ],
)
def test_examples(context, drafted):
    if automaton.LONGEST > 2:
        found = list(draft_of(SuffixDrafter("s"), context, 5).tokens)
        assert found[: len(drafted)] == drafted and bool(found) == bool(drafted)


@given(context=CONTEXTS, length=st.integers(0, 6), confidence=st.sampled_from([0.0, 0.3, 0.6]))
def test_a_chain_is_the_likeliest_continuation(context, length, confidence):
    draft = draft_of(SuffixDrafter("s", confidence=confidence), context, length)
    assert list(draft.tokens) == naive_chain([context], context, length, confidence)
    assert draft.is_chain and draft.q is None and not draft.sampled


@given(context=CONTEXTS, length=st.integers(1, 5), nodes=st.integers(1, 12))
def test_a_tree_is_filled_by_likelihood(context, length, nodes):
    draft = draft_of(SuffixDrafter("s", nodes), context, length)
    assert paths_of(draft) == naive_tree([context], context, length, nodes)
    assert len(draft) <= nodes and draft.depth <= length


@settings(max_examples=40)
@given(
    calls=st.lists(
        st.tuples(st.lists(TOKENS, min_size=1, max_size=15), st.integers(0, 40), st.integers(0, 3)), max_size=6
    ),
    nodes=st.sampled_from([None, 6]),
    in_place=st.booleans(),
)
def test_no_call_order_desynchronises_it(calls, nodes, in_place):
    """Contexts that go on, shrink and diverge, handed to any of its methods: always what a fresh drafter says."""
    drafter, so_far = SuffixDrafter("s", nodes), []
    for tokens, cut, call in calls:
        so_far = so_far if in_place else so_far[:]
        so_far[cut:] = tokens
        start = max(1, min(cut, len(so_far)))
        fresh = SuffixDrafter("s", nodes)
        if call == 0:
            assert draft_of(drafter, so_far) == draft_of(fresh, so_far)
        elif call == 1:
            evidence = Evidence(so_far, start, None, GREEDY)
            assert drafter.gamma(evidence).tolist() == fresh.gamma(evidence).tolist()
        elif call == 2:
            found, expected = (d.acceptances(so_far, start, 4).accepted for d in (drafter, fresh))
            assert found.tolist() == expected.tolist()
        else:
            drafter.prepare(so_far)
        assert draft_of(drafter, so_far) == draft_of(fresh, so_far)


@pytest.mark.parametrize("nodes", [None, 5])
@given(context=st.lists(TOKENS, min_size=1, max_size=30), data=st.data())
def test_gamma_and_acceptances_are_those_of_real_drafts(nodes, context, data):
    start = data.draw(st.integers(1, len(context)))
    drafter = SuffixDrafter("s", nodes)
    drafts = [draft_of(SuffixDrafter("s", nodes), context[:s], 4) for s in range(start, len(context))]
    check_judgements(drafter, drafts, context, start, 3)


@settings(max_examples=60)
@given(
    queries=st.lists(st.tuples(st.lists(TOKENS, min_size=1, max_size=8), CONTEXTS), min_size=1, max_size=4),
    data=st.data(),
)
def test_answers_to_other_prompts_are_known_within_their_bound(queries, data):
    past = data.draw(st.integers(2, 60))
    drafter, ages, waiting = SuffixDrafter("s", past=past), [[], []], {}
    for prompt, output in queries:
        drafter.prepare(prompt)
        for other in [other for other in waiting if other != tuple(prompt)]:
            answer = waiting.pop(other)
            if not any(other == asked for age in ages for asked, _ in age):
                if sum(len(kept) for _, kept in ages[0]) + len(answer) > past // 2:
                    ages = [[], ages[0]]
                ages[0].append((other, answer))
        known = not any(tuple(prompt) == asked for age in ages for asked, _ in age)
        texts = [[t for _, kept in age for t in [*kept, -1]] for age in ages if age] if known else []
        assert sum(len(kept) for age in ages for _, kept in age) <= past
        text = prompt + output
        assert list(draft_of(drafter, text).tokens) == naive_chain([text, *texts], text, 5)
        accepted = drafter.acceptances(text, len(prompt), 3).accepted
        for i, number in enumerate(accepted):
            seen = prompt + output[:i]
            drafted = naive_chain([seen, *texts], seen, 3)
            agreeing = [drafted[:n] == output[i : i + n] for n in range(len(drafted) + 1)]
            assert number == agreeing.index(False) - 1 if False in agreeing else number == len(drafted)
        drafter.learn(Lesson(prompt, output))
        if output:
            waiting[tuple(prompt)] = output[-(past // 2) :]


def test_a_prompt_is_never_answered_from_memory():
    drafter, answer = SuffixDrafter("s", past=100), [5, 6, 7, 8, 9]

    def first_draft(prompt):
        drafter.prepare(prompt)
        return draft_of(drafter, [*prompt, 5]).tokens

    drafter.learn(Lesson([1, 2], answer))
    assert first_draft([1, 2]) == ()
    drafter.learn(Lesson([1, 2], answer))
    assert first_draft([3, 4]) == (6, 7, 8, 9), "to another prompt it is known"
    assert first_draft([1, 2]) == (), "the prompt has been answered, though others were since"
    assert drafter.twin(None).past is drafter.past


def test_by_default_a_new_query_forgets_the_previous_one():
    drafter = SuffixDrafter("s")
    drafter.prepare([1, 2])
    draft_of(drafter, [1, 2, 3, 4])
    drafter.learn(Lesson([1, 2], [3, 4]))
    drafter.prepare([9, 9, 3])
    assert draft_of(drafter, [9, 9, 3]).tokens == ()
    assert drafter.past is None


def test_a_growing_context_is_never_read_again(monkeypatch):
    context = [1, 2, 3]
    drafter = SuffixDrafter("s")
    drafter.prepare(context)
    drafter.gamma(Evidence(context, len(context) - 1, None, GREEDY))  # from the first evaluation on drafts are noted
    monkeypatch.setattr(suffix, "SuffixAutomaton", None)
    for token in range(50):
        context.append(token % 7)
        draft_of(drafter, context)
        drafter.gamma(Evidence(context, len(context) - 1, None, GREEDY))


def test_repetition_costs_no_more_than_any_other_text():
    """Counting every suffix of a long run of one token would take time with the square of its length."""
    drafter = SuffixDrafter("s")
    started = time.process_time()
    drafter.prepare([5] * 20_000)
    assert time.process_time() - started < 10
    assert draft_of(drafter, [5] * 20_000).tokens == (5,) * 5
