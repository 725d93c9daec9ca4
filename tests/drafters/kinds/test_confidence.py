"""A drafter that stops when it is unsure drafts a beginning of what it would have drafted, and the tables know it."""

from collections import Counter

import numpy as np
import pytest
import torch

from drafters.base import Evidence
from drafters.draft import Draft
from drafters.errors import PoolError
from drafters.kinds.lm import make_lm_drafters
from drafters.models.window import Window
from drafters.pool import Pool, load_pool
from drafters.sampling import SamplingParams, probabilities
from drafters.tree import acceptances_of
from multidraft import generate
from multidraft.engine.drafting import Drafting
from tests import tiny
from tests.distributions import ALPHA, exact_outputs, p_value
from tests.engine_cases import GREEDY, SAMPLED, played_and_replayed, pool_of

MODELS = {"one": tiny.llama(1), "two": tiny.llama(2), "hub": tiny.causal_lm("qwen2", 4)}
CONFIDENCES = {"one": 0.5, "two": 0.1, "hub": 0.2}
PROMPTS = tiny.prompts(12, seed=5, shortest=4, longest=12)


def propose(drafter, context, length=8, **params):
    return drafter.propose(context, length, SamplingParams(**params), torch.Generator().manual_seed(0), with_q=True)


@pytest.mark.parametrize("name", list(MODELS))
def test_a_draft_ends_with_the_token_that_is_doubted(name):
    lengths = set()
    (bold,) = make_lm_drafters({name: MODELS[name]}, tiny.VOCAB)
    (cautious,) = make_lm_drafters({name: MODELS[name]}, tiny.VOCAB, confidences=CONFIDENCES)
    for context in PROMPTS:
        whole, cut = propose(bold, context), propose(cautious, context)
        product = whole.q.max(dim=-1).values.cumprod(dim=0)
        expected = min(8, int((product >= CONFIDENCES[name]).sum()) + 1)
        assert cut.tokens == whole.tokens[:expected]
        torch.testing.assert_close(cut.q, whole.q[:expected])
        lengths.add(expected)
    assert len(lengths) > 1


@pytest.mark.parametrize("name", list(MODELS))
def test_a_sampled_draft_ends_with_the_token_that_was_drawn_with_doubt(name):
    lengths = set()
    (bold,) = make_lm_drafters({name: MODELS[name]}, tiny.VOCAB)
    (cautious,) = make_lm_drafters({name: MODELS[name]}, tiny.VOCAB, confidences=dict.fromkeys(MODELS, 0.05))
    for context in PROMPTS:
        whole, cut = (propose(drafter, context, temperature=0.7) for drafter in (bold, cautious))
        product = whole.q[range(8), whole.tokens].cumprod(dim=0)
        expected = min(8, int((product >= 0.05).sum()) + 1)
        assert cut.tokens == whole.tokens[:expected] and len(whole) == 8
        torch.testing.assert_close(cut.q, whole.q[:expected])
        lengths.add(expected)
    assert len(lengths) > 1


@pytest.mark.parametrize("window", [None, Window(9, sinks=2)], ids=["all", "sliding"])
def test_gamma_of_sampled_drafts_with_a_window_knows_where_they_end(window):
    """Against those without a confidence: where the target is certain of the text, γ is what its tokens are to them."""
    models, windows = {"one": MODELS["one"], "two": MODELS["two"]}, {"one": window, "two": window}
    bold = make_lm_drafters(models, tiny.VOCAB, windows)[0].group
    cautious = make_lm_drafters(models, tiny.VOCAB, windows, confidences={"one": 0.02, "two": 0.1})[0].group
    params, start = SamplingParams(temperature=0.8, draft_length=4), 14
    context = tiny.prompts(1, seed=8, shortest=24, longest=24)[0]
    p = torch.softmax(torch.randn(10, tiny.VOCAB, generator=torch.Generator().manual_seed(1)), dim=-1)
    certain = torch.nn.functional.one_hot(torch.tensor(context[5:]), tiny.VOCAB).float()
    tokens = bold.gamma(Evidence(context, 5, certain, params))
    chances = bold.gamma(Evidence(context, start, p, params))
    found = cautious.gamma(Evidence(context, start, p, params, first=5))
    for place in range(start, 24):
        for depth in range(4):
            goes_on = tokens[place - depth - 5 : place - 5].prod(axis=0) >= [0.02, 0.1]
            assert found[place - start, depth] == pytest.approx(chances[place - start] * goes_on, abs=1e-5)
    assert 0 < (found == 0).sum() < found.size


def test_gamma_of_sampled_drafts_knows_where_they_end():
    """Of each draft begun before: the overlap at its next token, 0 once the text's tokens are too improbable to it."""
    drafters = make_lm_drafters({"one": MODELS["one"], "two": MODELS["two"]}, tiny.VOCAB, confidences={"one": 0.02})
    params = SamplingParams(temperature=0.8, draft_length=3)
    context, start = tiny.prompts(1, seed=8, shortest=20, longest=20)[0], 12
    p = torch.softmax(torch.randn(8, tiny.VOCAB, generator=torch.Generator().manual_seed(1)), dim=-1)
    found = drafters[0].group.gamma(Evidence(context, start, p, params, first=5))
    ended = 0
    for column, drafter in enumerate(drafters):
        q = probabilities(tiny.logits_of(MODELS[drafter.name], context)[:-1], params)
        for place in range(start, 20):
            overlap = float(torch.minimum(p[place - start], q[place - 1]).sum())
            for depth in range(3):
                held = range(place - depth, place)
                chance = np.prod([float(q[each - 1, context[each]]) for each in held])
                goes_on = drafter.name == "two" or chance >= 0.02
                ended += not goes_on
                assert found[place - start, depth, column] == pytest.approx(overlap * goes_on, abs=1e-5)
        if column == 0:
            alone = drafter.gamma(Evidence(context, start, p, params, first=5))
            np.testing.assert_allclose(alone, found[..., 0], atol=1e-6)
    assert 0 < ended < 24


RUNS = 400


def sampled_outputs(pool):
    params = SamplingParams(3, temperature=0.8, top_k=3, draft_length=3)
    runs = [generate(pool, "abcabcab", "fixed:alone", params, seed) for seed in range(RUNS)]
    lengths = {len(r.drafted) for run in runs for r in run.rounds}
    counts = Counter(tuple(run.token_ids) for run in runs)
    return p_value(counts, exact_outputs(pool.target.model, pool.encode("abcabcab"), params)), lengths


def test_sampled_outputs_follow_the_target(cautious: Pool):
    chance, lengths = sampled_outputs(cautious)
    assert chance > ALPHA and {1, 2} <= lengths


def test_to_leave_out_the_doubted_token_itself_is_found_out(cautious: Pool, monkeypatch: pytest.MonkeyPatch):
    """A draft may end after it, as that hangs on tokens that stay; without it, what is drafted hangs on what was."""
    drafted = Drafting.draft

    def censored(self, *asked, **named):
        draft = drafted(self, *asked, **named)
        chances = () if draft.q is None else draft.q
        doubted = any(float(q[token]) < 0.5 for token, q in zip(draft.tokens, chances, strict=True))
        return Draft.empty() if doubted else draft

    monkeypatch.setattr(Drafting, "draft", censored)
    assert sampled_outputs(cautious)[0] < ALPHA


@pytest.mark.parametrize("own", [True, False], ids=["own text", "random text"])
def test_tables_hold_what_the_drafts_would_have_been(own):
    """For texts that each drafter itself wrote, where nothing but its doubts would end a draft, and for others, where
    drafts go on beyond the first token that is refused."""
    drafters = make_lm_drafters(MODELS, tiny.VOCAB, confidences=CONFIDENCES)
    bold = make_lm_drafters(MODELS, tiny.VOCAB)
    for drafter, writer in zip(drafters, bold, strict=True):
        context = list(PROMPTS[1])
        start = len(context)
        context += propose(writer, context, 24).tokens if own else np.random.default_rng(0).integers(2, 12, 24).tolist()
        found = drafter.acceptances(context, start, 6)
        if drafter.group:
            row = list(drafter.group.members).index(drafter)
            for of_group, alone in zip(drafter.group.acceptances(context, start, 6), found, strict=True):
                np.testing.assert_array_equal(of_group[row], alone)
        drafts = [propose(drafter, context[:s], 6) for s in range(start, len(context))]
        for table, real in zip(found, acceptances_of(drafts, context, start, 6), strict=True):
            np.testing.assert_array_equal(table, real)
        assert len(set(found.drafted.tolist())) > 1
        assert own or (found.drafted > found.accepted + 1).any()


@pytest.fixture(scope="module")
def cautious():
    pool = pool_of(tiny.llama(1))
    assert pool.drafters[0].group is pool.drafters[1].group  # the same drafters, now with doubts
    for drafter, confidence in zip(pool.drafters[:2], (0.8, 0.5), strict=True):
        drafter.log_confidence = float(np.log(confidence))
    return pool


@pytest.mark.parametrize("policy", ["fixed:near", "ucb", "rate-hedge", "draft-all", "normal-hedge:warmup=1,every=2"])
def test_output_is_the_target_s(cautious: Pool, policy):
    for prompt in tiny.prompts(4, seed=9):
        plain = generate(cautious, prompt, "autoregressive", GREEDY)
        out = generate(cautious, prompt, policy, GREEDY)
        assert out.token_ids == plain.token_ids
        assert generate(cautious, prompt, policy, SAMPLED).status == "completed"
    if policy == "fixed:near":
        assert len({len(r.drafted) for r in out.rounds}) > 1


@pytest.mark.parametrize("policy", ["ucb:reward=be", "ucbspec", "normal-hedge:warmup=2,every=3", "exp3spec"])
def test_replayed_rounds_are_the_live_ones(cautious: Pool, policy):
    for prompt in tiny.prompts(4, seed=9):
        live, again, _ = played_and_replayed(cautious, prompt, policy, seed=3)
        assert again.emitted == [r.emitted for r in live.rounds]
        assert again.arms == [-1 if r.arm is None else r.arm for r in live.rounds]


def test_the_card_says_how_confident(tmp_path):
    drafters = [{"name": "near", "kind": "lm", "path": "near", "confidence": 0.25}, {"name": "copy", "kind": "pld"}]
    pool = load_pool(tiny.write_pool(tmp_path, drafters=drafters))
    assert pool.drafters[0].log_confidence == pytest.approx(np.log(0.25))
    for wrong, said in (
        ({"confidence": 1.0}, "less than 1"),
        (
            {"kind": "pld", "path": None},
            "confidence is for drafters of kind bpd, eagle, eagle-student, lm, medusa, quantized, student or suffix",
        ),
    ):
        with pytest.raises(PoolError, match=said):
            load_pool(tiny.write_pool(tmp_path, drafters=[drafters[0] | wrong]))
