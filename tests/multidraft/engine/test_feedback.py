"""Block divergence and γ against their formulas, and what of them reaches a policy."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from drafters.base import Evidence
from drafters.draft import Draft
from drafters.models.teacher_forcing import gamma_of
from drafters.sampling import SamplingParams, probabilities
from multidraft.engine.decoding import Decoding, generate
from multidraft.engine.feedback import block_divergence
from multidraft.policies import Policy
from tests import tiny

V = 7
GREEDY = SamplingParams()
SAMPLED = SamplingParams(temperature=0.8, top_k=4)


def random_logits(rows, seed, width=V):
    return 2.0 * torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))


def direct(draft, accepted, logits, params, draft_length):
    """BD as MetaSD Eq. 4 writes it: total variation by its definition, position by position."""
    path = list(accepted)
    while children := draft.children(path[-1] if path else -1):
        path.append(children[0])
    total = 0.0
    for node in path:
        p = probabilities(logits[draft.parents[node] + 1], params)
        if draft.q is None:
            q = torch.zeros_like(p)
            q[draft.tokens[node]] = 1.0
        else:
            q = draft.q[node]
        total += 1.0 - 0.5 * float((p - q).abs().sum())
    return total / draft_length


@st.composite
def cases(draw):
    """A draft (chain or tree, with or without q) and an accepted path in it."""
    count = draw(st.integers(0, 7))
    tokens = draw(st.lists(st.integers(0, V - 1), min_size=count, max_size=count))
    chain = draw(st.booleans())
    parents = [node - 1 if chain else draw(st.integers(-1, node - 1)) for node in range(count)]
    q = torch.softmax(random_logits(count, draw(st.integers(0, 99))), dim=-1) if draw(st.booleans()) else None
    draft = Draft(tuple(tokens), tuple(parents), q)
    path, node = [], -1
    while (children := draft.children(node)) and draw(st.booleans()):
        node = draw(st.sampled_from(children))
        path.append(node)
    return draft, path, random_logits(count + 1, draw(st.integers(100, 199)))


@given(case=cases(), params=st.sampled_from([GREEDY, SAMPLED]), spare=st.integers(0, 3))
def test_block_divergence_follows_its_formula(case, params, spare):
    draft, accepted, logits = case
    length = max(1, draft.depth + spare)
    expected = direct(draft, accepted, logits, params, length)
    found = block_divergence(draft, accepted, logits, params, length)
    assert found == pytest.approx(expected, abs=1e-5)
    assert 0.0 <= found <= 1.0


def test_block_divergence_at_its_ends():
    logits = random_logits(4, 0)
    same = Draft.chain([1, 2, 3], probabilities(logits[:3], SAMPLED), sampled=True)
    assert block_divergence(same, (), logits, SAMPLED, 3) == pytest.approx(1.0)
    assert block_divergence(Draft.empty(), (), logits[:1], SAMPLED, 3) == 0.0
    certain = torch.full((3, V), -50.0)
    certain[:, 2] = 50.0
    assert block_divergence(Draft.chain([2, 2]), (0, 1), certain, GREEDY, 2) == pytest.approx(1.0)
    assert block_divergence(Draft.chain([3, 3]), (), certain, GREEDY, 2) == pytest.approx(0.0)


@pytest.mark.parametrize("seed", range(40))
def test_rounding_makes_no_divergence_exceed_one(seed):
    """The probabilities of some of these distributions add up to a little more than 1."""
    logits = random_logits(2, seed, width=1000)
    assert block_divergence(Draft.chain([0], probabilities(logits[:1], GREEDY)), (), logits, GREEDY, 1) <= 1.0


def test_positions_left_undrafted_count_as_nothing():
    logits = random_logits(4, 0)
    draft = Draft.chain([1, 2, 3], probabilities(logits[:3], GREEDY))
    assert block_divergence(draft, (), logits, GREEDY, 6) == pytest.approx(0.5)


def test_greedy_gamma_is_one_where_the_choice_was_emitted():
    candidates = torch.tensor([[1, 2, 3], [1, 0, 0]])
    logits = torch.nn.functional.one_hot(candidates, V).float()
    gamma = gamma_of(logits, Evidence([3, 1, 2, 0], 1, None, GREEDY))
    assert gamma.dtype == np.float64
    assert gamma.tolist() == [[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]]


def test_sampled_gamma_is_one_minus_total_variation():
    logits = torch.stack([random_logits(5, seed) for seed in (2, 3)])
    p, q = torch.softmax(random_logits(5, 1), dim=-1), torch.softmax(logits, dim=-1)
    verified = Evidence([0] * 6, 1, p, SamplingParams(temperature=1.0))
    gamma = gamma_of(logits, verified)
    assert gamma.shape == (5, 2) and gamma.dtype == np.float64
    np.testing.assert_allclose(gamma, (1.0 - 0.5 * (p - q).abs().sum(dim=-1)).T.numpy(), atol=1e-6)
    assert gamma_of(p.log()[None], verified).max() <= 1.0


class Recording(Policy):
    """Plays the arms in turn, asks for an evaluation by a schedule, keeps all it is told."""

    name = "recording"
    uses_gamma = True

    def __init__(self, arms, every):
        self.every = every
        super().__init__(arms)

    def reset(self):
        super().reset()
        self.feedback = []

    def select(self):
        return len(self.feedback) % (self.arm_count + 1) - 1  # now and then no drafter at all

    def wants_evaluation(self, emitted):
        return len(self.feedback) % self.every == self.every - 1

    def update(self, feedback):
        self.feedback.append(feedback)


def expected_gamma(pool, context, start, params, *, soft=False):
    """γ of every drafter at every position by forwards of each model without a cache."""
    rows = []
    p = probabilities(tiny.logits_of(pool.target.model, context), params)
    for position in range(start, len(context)):
        row = []
        for drafter in pool.drafters:
            drafter.prepare(())
            draft = drafter.propose(context[:position], 1, params, torch.Generator().manual_seed(0), with_q=True)
            if not draft.tokens:
                row.append(0.0)
            elif params.greedy and not soft:
                row.append(float(draft.tokens[0] == context[position]))
            elif draft.q is None:
                row.append(float(p[position - 1, draft.tokens[0]]))
            else:
                row.append(float(torch.minimum(p[position - 1], draft.q[0]).sum()))
        rows.append(row)
    return np.array(rows)


@pytest.mark.parametrize(
    "params",
    [SamplingParams(24, draft_length=6), SamplingParams(24, temperature=1.0, top_k=5, draft_length=6)],
    ids=["T=0", "T=1"],
)
@pytest.mark.parametrize("every", [1, 2, 5])
def test_a_policy_is_told_gamma_of_every_verified_position_once_and_in_order(pool, params, every):
    """Also past the window of ``alone`` (32 tokens), where its γ is 0."""
    for prompt in tiny.prompts(2, seed=12, shortest=14, longest=18):
        policy = Recording([d.name for d in pool.drafters], every)
        out = generate(pool, prompt, policy, params, seed=2)
        given_rows = [f.gamma for f in policy.feedback]
        assert [g is not None for g in given_rows] == [i % every == every - 1 for i in range(len(given_rows))]
        told = np.concatenate([g for g in given_rows if g is not None])
        evaluated = len(policy.feedback) // every * every  # without a last round that has room for one token only
        assert len(told) == sum(r.emitted for r in out.rounds[:evaluated])
        context = [*prompt, *out.token_ids]
        expected = expected_gamma(pool, context, len(prompt), params)[: len(told)]
        np.testing.assert_allclose(told[:, 0], expected, atol=1e-5)


def test_soft_acceptance_of_a_greedy_run_compares_the_distributions_at_temperature_one(pool):
    policy, params = Recording([d.name for d in pool.drafters], 2), SamplingParams(20)
    policy.uses_soft_gamma = True
    prompt = tiny.prompts(1, seed=12, shortest=6, longest=6)[0]
    out = generate(pool, prompt, policy, params)
    told = np.concatenate([f.gamma for f in policy.feedback if f.gamma is not None])
    expected = expected_gamma(pool, [*prompt, *out.token_ids], len(prompt), params, soft=True)[: len(told)]
    np.testing.assert_allclose(told[:, 0], expected, atol=1e-5)
    assert ((told > 0.01) & (told < 0.99)).any()


@pytest.mark.parametrize("span", [1, 3, 50])
@pytest.mark.parametrize(
    "params", [SamplingParams(24), SamplingParams(24, temperature=1.0, top_k=5)], ids=["T=0", "T=1"]
)
def test_a_policy_may_ask_for_the_last_positions_only(pool, params, span):
    class Short(Recording):
        evaluation_span = span

    prompt = tiny.prompts(1, seed=12, shortest=6, longest=6)[0]
    short, whole = Short([d.name for d in pool.drafters], 3), Recording([d.name for d in pool.drafters], 3)
    for policy in (short, whole):
        generate(pool, prompt, policy, params, seed=2)
    for few, all_ in zip(short.feedback, whole.feedback, strict=True):
        assert (few.gamma is None) == (all_.gamma is None)
        if few.gamma is not None:
            np.testing.assert_allclose(few.gamma, all_.gamma[-span:], atol=1e-5)


def test_no_more_probabilities_are_kept_than_an_evaluation_is_for(pool):
    class Never(Recording):
        evaluation_span = 3

        def wants_evaluation(self, emitted):
            return False

    params = SamplingParams(24, temperature=1.0, draft_length=4)
    decoding = Decoding(pool, "abcabc", Never([d.name for d in pool.drafters], 3), params)
    assert len(decoding.run().rounds) > 3
    assert len(decoding._unseen_p) == 3


@pytest.mark.parametrize("params", [SamplingParams(20), SamplingParams(20, temperature=1.0)], ids=["T=0", "T=1"])
def test_feedback_repeats_the_round(pool, params):
    policy = Recording([d.name for d in pool.drafters], 3)
    out = generate(pool, "abcabc", policy, params)
    for feedback, round_ in zip(policy.feedback, out.rounds, strict=True):
        assert feedback.arm == (-1 if round_.arm is None else round_.arm)
        assert feedback.accepted == round_.accepted
        assert feedback.emitted == round_.emitted
        assert feedback.drafted == len(round_.drafted)
        assert feedback.draft_length == round_.draft_length
        assert feedback.block_efficiency == round_.block_efficiency
        assert feedback.seconds == pytest.approx(round_.draft_seconds + round_.verify_seconds)


def test_a_policy_that_does_not_use_gamma_is_not_given_any(pool, monkeypatch):
    policy = Recording([d.name for d in pool.drafters], 1)
    policy.uses_gamma = False
    monkeypatch.setattr(pool, "gamma", lambda *arguments: pytest.fail("evaluated"))
    generate(pool, "abcabc", policy, SamplingParams(10))
    assert {f.gamma for f in policy.feedback} == {None}


def test_block_divergence_of_a_round_is_that_of_its_draft(pool):
    """BD over live rounds equals the formula applied to distributions computed without a cache."""
    policy = Recording([d.name for d in pool.drafters], 1)
    policy.uses_gamma, policy.uses_block_divergence = False, True
    params = SamplingParams(20, temperature=1.0, top_k=5, draft_length=3)
    out = generate(pool, "abcabc", policy, params)
    context = pool.encode("abcabc")
    for r in out.rounds:
        if r.drafted:
            p = probabilities(tiny.logits_of(pool.target.model, [*context, *r.drafted]), params)[len(context) - 1 :]
            q = []
            drafter = pool.drafters[r.arm]
            drafter.prepare(())
            for i in range(len(r.drafted)):
                draft = drafter.propose([*context, *r.drafted[:i]], 1, params, torch.Generator().manual_seed(0))
                one_hot = torch.nn.functional.one_hot(torch.tensor(r.drafted[i]), tiny.VOCAB).float()
                q.append(one_hot if draft.q is None else draft.q[0])
            overlap = torch.minimum(p[: len(q)], torch.stack(q)).sum()
            assert r.block_divergence == pytest.approx(float(overlap) / r.draft_length, abs=1e-5)
        context += r.tokens
