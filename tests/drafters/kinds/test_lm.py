"""A drafter's cache is never seen: whatever it was asked before, it answers as a fresh one would."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drafters.base import Evidence
from drafters.kinds.lm import LMGroup, make_lm_drafters
from drafters.models.token_map import ConfinedHead
from drafters.sampling import SamplingParams, draw, probabilities
from tests import tiny

V = tiny.VOCAB
GREEDY = SamplingParams(draft_length=8)
SAMPLED = SamplingParams(temperature=0.9, top_k=5, top_p=0.95)
WINDOW = 20


def models():
    """Two Llamas of one shape, one that drafts half of the tokens, one of another shape, and a GPT-2; the last two see
    fewer tokens."""
    mapped = tiny.llama(5, layers=1, window=WINDOW)
    mapped.lm_head = ConfinedHead(mapped.lm_head, range(1, V, 2))
    return {
        "one": tiny.llama(1),
        "two": tiny.llama(2),
        "other": tiny.llama(3, layers=1, window=WINDOW),
        "mapped": mapped,
        "hub": tiny.causal_lm("gpt2", 4, window=WINDOW),
    }


MODELS = models()
NAMES = list(MODELS)


@pytest.fixture(scope="module")
def drafters():
    return dict(zip(MODELS, make_lm_drafters(MODELS, V), strict=True))


def propose(drafter, context, length, params=GREEDY, seed=0, **kw):
    return drafter.propose(context, length, params, torch.Generator().manual_seed(seed), **kw)


def reference(model, context, length, params=GREEDY, seed=0):
    """The tokens and their distributions by forwards without a cache."""
    generator = torch.Generator().manual_seed(seed)
    tokens, rows = [], []
    for _ in range(length):
        logits = tiny.logits_of(model, [*context, *tokens])[-1]
        rows.append(probabilities(logits, params))
        if params.greedy:
            tokens.append(int(logits.argmax()))
        else:
            tokens.append(draw(rows[-1], generator))
    return tuple(tokens), torch.stack(rows)


TOKENS = st.integers(0, V - 1)
CONTEXTS = st.lists(TOKENS, min_size=1, max_size=12)
CALLS = st.lists(
    st.tuples(
        st.sampled_from(["prepare", "propose", "gamma", "group prepare", "group gamma"]),
        CONTEXTS,
        st.booleans(),  # continue the previous context, or start elsewhere
        st.integers(1, 5),
    ),
    max_size=6,
)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)
@given(calls=CALLS, context=CONTEXTS, params=st.sampled_from([GREEDY, SAMPLED]))
def test_no_order_of_calls_changes_a_proposal(drafters, name, calls, context, params):
    drafter = drafters[name]
    so_far = [1]
    for call, tokens, goes_on, length in calls:
        so_far = [*so_far, *tokens][:WINDOW] if goes_on else tokens
        group = drafter.group
        if call == "prepare" or (group is None and call == "group prepare"):
            drafter.prepare(so_far)
        elif call == "group prepare":
            group.prepare(so_far)
        elif call == "propose":
            propose(drafter, so_far, length, params)
        elif len(so_far) > 1:
            judge = group if group is not None and call == "group gamma" else drafter
            judge.gamma(Evidence(so_far, max(1, len(so_far) - length), None, GREEDY))
    context = [*so_far, *context][: WINDOW - 5] if len(context) % 2 else context
    draft = propose(drafter, context, 4, params, with_q=True)
    tokens, q = reference(MODELS[name], context, 4, params)
    assert draft.tokens == tokens
    assert draft.is_chain and draft.sampled == (not params.greedy)
    torch.testing.assert_close(draft.q, q, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_greedy_drafts_carry_probabilities_only_when_asked(drafters, name):
    assert propose(drafters[name], [1, 2, 3], 3).q is None
    assert propose(drafters[name], [1, 2, 3], 3, with_q=True).q.shape == (3, V)
    assert propose(drafters[name], [1, 2, 3], 3, SAMPLED).q.shape == (3, V)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_gamma_follows_its_definition(drafters, name, params):
    context = tiny.prompts(1, seed=30, shortest=15, longest=15)[0]
    p = None if params.greedy else torch.softmax(torch.randn(9, V, generator=torch.Generator().manual_seed(1)), dim=-1)
    gamma = drafters[name].gamma(Evidence(context, 6, p, params))
    logits = tiny.logits_of(MODELS[name], context)[5:-1]
    if params.greedy:
        expected = (logits.argmax(dim=-1) == torch.tensor(context[6:])).double()
    else:
        expected = 1.0 - 0.5 * (p - probabilities(logits, params)).abs().sum(dim=-1)
    assert gamma.shape == (9,) and gamma.dtype == np.float64
    np.testing.assert_allclose(gamma, expected.numpy(), atol=1e-5)


@settings(max_examples=20)
@given(context=st.lists(TOKENS, min_size=2, max_size=30), data=st.data(), sampled=st.booleans())
def test_a_group_judges_as_its_members_do(drafters, context, data, sampled):
    start = data.draw(st.integers(1, len(context)))
    count = len(context) - start
    p = torch.softmax(torch.randn(count, V, generator=torch.Generator().manual_seed(count)), dim=-1)
    evidence = Evidence(context, start, p if sampled else None, SAMPLED if sampled else GREEDY)
    for group in {id(d.group): d.group for d in drafters.values() if d.group}.values():
        found = group.gamma(evidence)
        assert found.shape == (count, len(group.members))
        for column, member in enumerate(group.members):
            np.testing.assert_allclose(found[:, column], member.gamma(evidence), atol=1e-5)
        accepted = group.acceptances(context, start, 3).accepted
        assert accepted.shape == (len(group.members), count)
        for row, member in zip(accepted, group.members, strict=True):
            assert row.tolist() == member.acceptances(context, start, 3).accepted.tolist()


def test_models_of_one_shape_share_a_group_and_the_rest_stand_alone(drafters):
    assert drafters["one"].group is drafters["two"].group
    assert [d.name for d in drafters["one"].group.members] == ["one", "two"]
    assert drafters["other"].group is not drafters["one"].group
    assert drafters["hub"].group is None
    assert [d.name for d in make_lm_drafters(MODELS, V)] == NAMES
    assert all(d.parameter_count == MODELS[name].num_parameters() for name, d in drafters.items())


# Windows.


@pytest.mark.parametrize("name", ["other", "hub"])
@pytest.mark.parametrize("length", [1, 10, WINDOW - 3, WINDOW - 1, WINDOW, WINDOW + 1, 50])
def test_a_drafter_proposes_as_far_as_its_window_reaches(drafters, name, length):
    drafter = drafters[name]
    context = tiny.prompts(1, seed=31, shortest=length, longest=length)[0]
    drafter.prepare(context)
    draft = propose(drafter, context, 4)
    reach = max(0, min(4, WINDOW - length + 1))
    assert len(draft) == reach
    if reach:
        assert draft.tokens == reference(MODELS[name], context, reach)[0]


@pytest.mark.parametrize("name", ["other", "hub"])
def test_positions_beyond_the_window_are_judged_zero_and_those_before_it_as_ever(drafters, name):
    drafter = drafters[name]
    context = tiny.prompts(1, seed=32, shortest=WINDOW + 8, longest=WINDOW + 8)[0]
    context[12] = int(tiny.logits_of(MODELS[name], context[:12])[-1].argmax())  # a hit before the window's end
    expected = np.zeros(len(context) - 10)
    logits = tiny.logits_of(MODELS[name], context[:WINDOW])[9:]
    expected[: WINDOW - 9] = (logits.argmax(dim=-1) == torch.tensor(context[10 : WINDOW + 1])).double().numpy()
    assert expected.sum() >= 1.0
    evidence = Evidence(context, 10, None, GREEDY)
    assert drafter.gamma(evidence).tolist() == expected.tolist()
    if drafter.group:
        assert drafter.group.gamma(evidence)[:, 0].tolist() == expected.tolist()
    beyond = Evidence(context, WINDOW + 2, None, GREEDY)
    assert drafter.gamma(beyond).tolist() == [0.0] * 6
    assert propose(drafter, context[:10], 3).tokens == reference(MODELS[name], context[:10], 3)[0]


# Vocabularies.


@pytest.mark.parametrize("theirs", [V - 3, V + 4])
def test_a_vocabulary_of_another_size_is_aligned_to_the_target_s(theirs):
    """A smaller one gives the missing tokens probability 0, of a larger one the surplus is cut before the softmax."""
    model = tiny.llama(5, vocab=theirs)
    (drafter,) = make_lm_drafters({"odd": model}, V)
    context = [1, 5, 3, 7]
    for params in (GREEDY, SAMPLED, SamplingParams(temperature=1.0)):
        for seed in range(20):
            draft = propose(drafter, context, 3, params, seed, with_q=True)
            assert max(draft.tokens) < V
            assert draft.q.shape == (3, V)
            torch.testing.assert_close(draft.q.sum(dim=-1), torch.ones(3))
            assert (draft.q[:, theirs:] == 0).all()
    logits = tiny.logits_of(model, context)[-1][:V]
    expected = torch.zeros(V)
    expected[: len(logits)] = torch.softmax(logits, dim=-1)
    torch.testing.assert_close(propose(drafter, context, 1, with_q=True).q[0], expected, rtol=1e-4, atol=1e-5)
    p = torch.softmax(torch.randn(2, V, generator=torch.Generator().manual_seed(1)), dim=-1)
    gamma = drafter.gamma(Evidence(context, 2, p, SAMPLED))
    assert ((gamma >= 0) & (gamma <= 1)).all()


def test_a_context_with_tokens_that_a_smaller_vocabulary_lacks():
    """Padding rows differ between members of a family; such a token must not break the drafter."""
    (drafter,) = make_lm_drafters({"odd": tiny.llama(5, vocab=V - 3)}, V)
    context = [1, 5, V - 1, 7]
    drafter.prepare(context)
    draft = propose(drafter, context, 3)
    assert all(0 <= token < V for token in draft.tokens)
    assert drafter.gamma(Evidence(context, 1, None, GREEDY)).shape == (3,)


# Pieces.


@pytest.mark.parametrize("name", NAMES)
def test_a_forward_that_breaks_off_leaves_no_trace(name, monkeypatch):
    drafter = dict(zip(MODELS, make_lm_drafters(MODELS, V), strict=True))[name]
    context = [3, 1, 4, 1, 5, 9]
    propose(drafter, context[:4], 3)
    model = drafter.model
    broken, method = (model.runs, "run") if hasattr(model, "runs") else (model, "forward")
    forward = getattr(broken, method)

    def breaking(*arguments, **settings):
        forward(*arguments, **settings)
        raise RuntimeError("out of memory")

    monkeypatch.setattr(broken, method, breaking)
    with pytest.raises(RuntimeError, match="out of memory"):
        propose(drafter, context, 3)
    monkeypatch.undo()
    assert propose(drafter, context, 3).tokens == reference(MODELS[name], context, 3)[0]


def test_a_group_takes_possession_of_its_members():
    drafters = make_lm_drafters({"a": MODELS["one"], "b": MODELS["two"]}, V)
    assert isinstance(drafters[0].group, LMGroup)
    drafters[0].group.prepare([4, 5, 6, 7])
    assert [d.cached for d in drafters] == [[4, 5, 6]] * 2
