"""What drafters read of contexts longer than their window."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from drafters.base import Evidence, common_prefix
from drafters.kinds.lm import make_lm_drafters
from drafters.models.window import Window
from drafters.pool import Pool, load_pool
from drafters.sampling import SamplingParams
from multidraft import PoolError, generate
from tests import tiny
from tests.engine_cases import GREEDY, SAMPLED, pool_of

MODELS = {
    "one": tiny.llama(1, layers=1, window=24),
    "two": tiny.llama(2, layers=1, window=24),
    "hub": tiny.causal_lm("qwen2", 4, window=24),
}
WINDOW = Window(20, sinks=3)
CONTEXT = tiny.prompts(1, seed=9, shortest=90, longest=90)[0]


@pytest.fixture
def drafters():
    return dict(zip(MODELS, make_lm_drafters(MODELS, tiny.VOCAB, dict.fromkeys(MODELS, WINDOW)), strict=True))


@pytest.mark.parametrize(("size", "rows"), [(9, 4), (8, 4), (7, 3), (5, 1), (4, 0), (1, 0)])
def test_a_window_that_does_not_slide_ends(size, rows):
    evidence = Evidence([1, 2, 3, 4, 5, 6, 7, 8, 9], 5, torch.eye(4), GREEDY)
    parts = list(Window(size).parts(evidence))
    assert [(count, len(part)) for count, part in parts] == [(rows, rows)] * bool(rows)
    for _, part in parts:
        assert list(part.context) == [1, 2, 3, 4, 5, 6, 7, 8, 9][: 5 + rows]
        assert torch.equal(part.p, torch.eye(4)[:rows])
    assert Window(size).covers(size) and not Window(size).covers(size + 1)


@given(size=st.integers(2, 30), sinks=st.integers(0, 29), tokens=st.integers(0, 200))
def test_a_sliding_window_holds_sinks_and_the_last_tokens(size, sinks, tokens):
    window, context = Window(size, min(sinks, size - 1)), list(range(tokens))
    view = list(window.view(context))
    assert window.covers(tokens) and len(view) <= size
    if tokens <= size:
        assert view == context
        return
    kept = min(sinks, size - 1)
    assert view[:kept] == context[:kept]
    assert view[kept:] == context[len(context) - len(view) + kept :]
    assert len(view) > (size + kept) // 2 - 1  # at least the sinks and half of what slides


@given(start=st.integers(1, 60), count=st.integers(0, 60))
def test_parts_are_the_positions_in_order_each_in_the_view_a_draft_would_have(start, count):
    context = list(range(start + count))
    evidence = Evidence(context, start, torch.arange(float(count))[:, None], GREEDY)
    position = start
    for _, part in WINDOW.parts(evidence):
        for row in range(len(part)):
            assert list(part.context[: part.start + row]) == list(WINDOW.view(context[:position]))
            assert part.context[part.start + row] == context[position]
            assert float(part.p[row]) == position - start
            position += 1
    assert position == start + count


@pytest.mark.parametrize("name", MODELS)
def test_drafts_and_judgements_are_those_of_the_view(drafters, name):
    drafter, context = drafters[name], list(CONTEXT)
    for end in (30, 31, 44, 45, 60, 90):
        chain = [*WINDOW.view(context[:end])]
        drafted = drafter.propose(context[:end], 3, SamplingParams(draft_length=3), torch.Generator()).tokens
        for token in drafted:
            assert int(tiny.logits_of(MODELS[name], chain)[-1].argmax()) == token
            chain.append(token)
        assert len(drafted) == 3
    expected = [
        float(int(tiny.logits_of(MODELS[name], [*WINDOW.view(context[:s])])[-1].argmax()) == context[s])
        for s in range(15, 90)
    ]
    assert drafter.gamma(Evidence(context, 15, None, GREEDY)).tolist() == expected
    if drafter.group:
        column = [member.name for member in drafter.group.members].index(name)
        assert drafter.group.gamma(Evidence(context, 15, None, GREEDY))[:, column].tolist() == expected


def test_sliding_costs_about_two_tokens_per_token(drafters, monkeypatch):
    fed = 0
    drafter = drafters["one"]
    forward = drafter.model.forward

    def counted(ids, *arguments, **options):
        nonlocal fed
        fed += len(ids)
        return forward(ids, *arguments, **options)

    monkeypatch.setattr(drafter.model, "forward", counted)
    for end in range(1, 90):
        drafter.logits(WINDOW.view(CONTEXT[:end]), last=1)
    assert fed < 2.5 * 90


@pytest.mark.parametrize("policy", ["ucb", "normal-hedge:warmup=1,every=2", "fixed:alone"])
def test_output_is_the_target_s_beyond_the_window(policy):
    pool = pool_of(tiny.llama(1))
    models = {"near": MODELS["one"], "alone": MODELS["hub"]}
    slid = make_lm_drafters(models, tiny.VOCAB, dict.fromkeys(models, Window(12, 2)))
    sliding = Pool(pool.target, slid, pool.tokenizer, pool.card)
    plain = generate(pool, CONTEXT[:20], "autoregressive", GREEDY)
    assert generate(sliding, CONTEXT[:20], policy, GREEDY).token_ids == plain.token_ids
    rounds = generate(sliding, CONTEXT[:20], policy, SAMPLED).rounds
    assert sum(len(r.drafted) for r in rounds) > 20  # it drafts there


def test_the_card_gives_the_window(tmp_path):
    drafters = [{"name": "near", "kind": "lm", "path": "near", "window": 16, "sinks": 2}]
    pool = load_pool(tiny.write_pool(tmp_path, drafters=drafters))
    assert pool.drafters[0].window == Window(16, 2)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"window": 4, "sinks": 4}, "larger than sinks"),
        ({"window": 1}, "greater than or equal to 2"),
        ({"window": 10_000}, "is to read 10000 tokens and to draft 4 more, but its model has"),
        ({"kind": "pld", "path": None, "window": 8}, "window is for drafters of kind lm"),
    ],
)
def test_windows_that_cannot_be(tmp_path, settings, said):
    card = tiny.write_pool(tmp_path, drafters=[{"name": "near", "kind": "lm", "path": "near", **settings}])
    with pytest.raises(PoolError, match=said):
        load_pool(card)


@pytest.mark.parametrize("length", [1, 4, 7])
def test_the_acceptance_table_is_that_of_drafts_from_everywhere(drafters, length):
    """Also where the window slides within a draft, or the model's positions end."""
    output = CONTEXT[15:]
    for name, drafter in drafters.items():
        expected, sizes = [], []
        for s in range(len(output)):
            drafter.prepare(())
            context = CONTEXT[: 15 + s]
            drafted = drafter.propose(context, length, SamplingParams(draft_length=length), torch.Generator()).tokens
            expected.append(common_prefix(list(drafted), CONTEXT[15 + s :]))
            sizes.append(len(drafted))
        found = drafter.acceptances(CONTEXT, 15, length)
        assert (found.accepted.tolist(), found.drafted.tolist()) == (expected, sizes), name
        if drafter.group:
            row = [member.name for member in drafter.group.members].index(name)
            found = drafter.group.acceptances(CONTEXT, 15, length)
            assert (found.accepted[row].tolist(), found.drafted[row].tolist()) == (expected, sizes), name
