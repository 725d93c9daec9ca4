"""Prompt lookup against its definition, searched without an index."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drafters.draft import Draft
from drafters.kinds.lookahead import LookaheadDrafter
from drafters.kinds.pld import PromptLookup
from drafters.kinds.suffix import SuffixDrafter
from drafters.sampling import SamplingParams
from tests.engine_cases import check_judgements

GREEDY = SamplingParams()
CONTEXTS = st.lists(st.integers(0, 3), max_size=30)


def propose(drafter, context, length):
    return list(drafter.propose(context, length, GREEDY, torch.Generator()).tokens)


def found_at(context, longest, shortest, back):
    """Where the longest suffix of so many tokens ended before: nearest to ``back`` tokens ago, else at first."""
    for n in [n for n in (4, 2, 1) if longest >= n >= shortest]:
        ends = [end for end in range(n, len(context)) if context[end - n : end] == context[-n:]]
        if ends:
            return ends[0] if back is None else min(ends, key=lambda end: abs(end - (len(context) - back)))
    return None


def naive(context, length):
    """The earlier occurrence of the longest suffix (4, 2, 1 tokens) nearest to where the last four tokens that had
    occurred before were found, and copied token by token, so that the copy is read on where the context ends."""
    back = None
    for end in range(4, len(context) + 1):
        at = found_at(context[:end], 4, 4, back)
        back = back if at is None else end - at
    place = found_at(context, 4, 1, back)
    if place is None:
        return []
    text = list(context)
    for at in range(place, place + length):
        text.append(text[at])
    return text[len(context) :]


@pytest.mark.parametrize(
    ("context", "length", "copied"),
    [
        ([], 3, []),
        ([1], 3, []),
        ([1, 2, 3], 3, []),
        ([1, 2, 3, 1], 3, [2, 3, 1]),
        ([1, 2, 3, 1], 1, [2]),
        ([1, 1], 4, [1, 1, 1, 1]),  # what followed ends with the context, and goes on with the copy
        ([7, 1, 2, 3, 1, 2], 5, [3, 1, 2, 3, 1]),
        ([5, 1, 2, 7, 8, 9, 1, 2], 2, [7, 8]),
        ([2, 5, 1, 2, 7, 4, 1, 2], 2, [7, 4]),  # two tokens beat the earlier one
        ([1, 7, 1, 8, 1], 1, [7]),  # of equals the first
        ([9, 7, 1, 2, 3, 4, 9, 8, 1, 2, 3, 4, 9], 1, [8]),  # unless a copy goes on
        ([6, 9, 1, 2, 3, 4, 6, 5, 1, 2, 3, 4, 0, 6], 1, [5]),  # also after a word that differs
    ],
)
def test_examples(context, length, copied):
    assert propose(PromptLookup(), context, length) == copied == naive(context, length)


@given(context=CONTEXTS, length=st.integers(1, 6))
def test_any_context(context, length):
    assert propose(PromptLookup(), context, length) == naive(context, length)


@settings(max_examples=60)
@given(contexts=st.lists(st.tuples(CONTEXTS, st.booleans(), st.integers(0, 30)), max_size=5), length=st.integers(1, 6))
def test_the_index_follows_contexts_that_go_on_shrink_or_diverge(contexts, length):
    drafter, so_far = PromptLookup(), []
    for tokens, goes_on, cut in contexts:
        so_far = so_far[:cut] + tokens if goes_on else tokens
        assert propose(drafter, so_far, length) == naive(so_far, length)
        assert drafter.indexed == so_far


def test_a_new_query_forgets_the_previous_one():
    drafter = PromptLookup()
    drafter.prepare([1, 2, 3, 4])
    drafter.prepare([9, 9, 1])
    assert propose(drafter, [9, 9, 1], 3) == []


def test_its_draft_is_a_point_mass():
    draft = PromptLookup("copy").propose([1, 2, 1], 2, SamplingParams(temperature=1.0), torch.Generator(), with_q=True)
    assert draft.tokens == (2, 1)
    assert draft.q is None and not draft.sampled and draft.is_chain


@given(context=st.lists(st.integers(0, 3), min_size=1, max_size=25), data=st.data())
def test_gamma_and_acceptances_look_only_at_what_stood_before(context, data):
    start = data.draw(st.integers(1, len(context)))
    drafts = [Draft.chain(naive(context[:s], 4)) for s in range(start, len(context))]
    check_judgements(PromptLookup(), drafts, context, start, 4)


@pytest.mark.parametrize("kind", [PromptLookup, SuffixDrafter, LookaheadDrafter])
def test_the_twin_of_a_drafter_derived_from_it_is_one_too(kind):
    class Own(kind):
        pass

    drafter, context = Own("own"), [1, 2, 3, 4] * 3
    drafter.prepare(context)
    twin = drafter.twin(None)
    assert type(twin) is Own
    twin.prepare([1, 5, 6, 7] * 3)
    assert propose(drafter, [*context, 1], 2) == [2, 3], "the twin has read another text"
