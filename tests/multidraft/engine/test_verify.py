"""Losslessness: whatever is drafted, the output is distributed exactly as the target alone would have it.

Outputs are short enough to enumerate, so each test compares thousands of sampled outputs with their exact
probabilities by Pearson's chi-square. The last section shows that these tests can fail.
"""

import inspect
from collections import Counter
from functools import partial

import pytest
import torch

import multidraft.engine.verify as verify_module
from drafters.draft import Draft
from drafters.errors import DraftError, TargetError
from drafters.sampling import SamplingParams, draw, probabilities
from multidraft.engine.decoding import generate
from multidraft.engine.drafting import Drafting
from multidraft.engine.verify import verify
from tests.distributions import ALPHA, exact_outputs, p_value, p_value_of_tokens
from tests.world import ELSEWHERE, PARAMS, V, World, verify_changed, verify_elsewhere


def test_the_chi_square_test_itself():
    exact = {"a": 0.5, "b": 0.3, "c": 0.2}
    assert p_value(Counter(a=500, b=300, c=200), exact) == pytest.approx(1.0)
    assert p_value(Counter(a=530, b=270, c=200), exact) == pytest.approx(0.0907, abs=1e-3)  # 4.8 at 2 degrees
    assert p_value(Counter(a=600, b=200, c=200), exact) < 1e-8
    assert p_value(Counter(a=500, b=300, d=200), exact) == 0.0


DRAFTS = {
    "nothing": ((), False),
    "sampled chain": ((1, 1, 1), True),
    "point-mass chain": ((1, 1, 1), False),
    "deterministic tree": ((3, 2), False),
    "sampled tree": ((3, 2), True),
}
"""Children per node at each depth, and whether they are sampled."""


def grown(world, kind):
    widths, sampled = DRAFTS[kind]
    return partial(world.grow, widths=widths, sampled=sampled)


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS.keys())
@pytest.mark.parametrize("kind", DRAFTS)
def test_outputs_follow_the_target_whatever_is_drafted(kind, params):
    world = World(params)
    assert world.p_value(grown(world, kind)) > ALPHA


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS.keys())
@pytest.mark.parametrize("kind", DRAFTS)
def test_a_cpu_and_other_devices_verify_alike(kind, params):
    world = World(params)
    for seed in range(200):
        draft = grown(world, kind)((), torch.Generator().manual_seed(seed))
        logits, found = world.score(draft), []
        for verifies in (verify, verify_elsewhere):
            found.append(verifies(draft, logits, params, torch.Generator().manual_seed(seed)))
        here, elsewhere = found
        assert (here.path, here.own) == (elsewhere.path, elsewhere.own)
        assert torch.equal(here.probs, elsewhere.probs)


def test_a_sampled_draft_of_no_tokens_is_none():
    logits = one_hot(3) * 100.0
    draft = Draft.chain([], torch.empty(0, V), sampled=True)
    for verifies in (verify, verify_elsewhere):
        assert verifies(draft, logits, PARAMS["plain"], torch.Generator()).own == 3


def test_truncated_tokens_never_come_out():
    params = SamplingParams(temperature=1.0, top_k=1)
    world = World(params)
    best = max(world.exact().items(), key=lambda item: item[1])[0]
    for kind in DRAFTS:
        assert {world.sample(grown(world, kind), seed) for seed in range(20)} == {best}


def test_a_drafter_equal_to_the_target_is_always_accepted():
    world = World(PARAMS["plain"])
    generator = torch.Generator().manual_seed(0)
    world.q = world.p
    for _ in range(200):
        draft = world.grow((), generator, (1, 1, 1), sampled=True)
        assert verify(draft, world.score(draft), world.params, generator).path == (0, 1, 2)


def test_acceptance_probability_of_a_sampled_token_is_the_overlap():
    """P(accept) = Σ min(p, q) = 1 − TV(p, q) (Leviathan et al. 2023, Thm 3.5)."""
    world = World(PARAMS["plain"])
    p, q = world.p[V, V], world.q[V, V]
    overlap = float(torch.minimum(p, q).sum())
    generator = torch.Generator().manual_seed(1)
    accepted = 0
    for _ in range(4000):
        draft = Draft.chain([draw(q, generator)], q[None], sampled=True)
        logits = torch.stack([world.logits[V, V], world.logits[V, 0]])
        accepted += len(verify(draft, logits, world.params, generator).path)
    deviation = (overlap * (1 - overlap) / 4000) ** 0.5
    assert abs(accepted / 4000 - overlap) < 4 * deviation


def test_target_probabilities_come_with_the_verdict():
    params = SamplingParams(temperature=0.7, top_k=3)
    logits = torch.randn(3, V, generator=torch.Generator().manual_seed(0))
    verdict = verify(Draft.chain([1, 2]), logits, params, torch.Generator().manual_seed(0))
    assert torch.equal(verdict.probs, probabilities(logits, params))
    assert verify(Draft.chain([1, 2]), logits, SamplingParams(), torch.Generator()).probs is None


@pytest.mark.parametrize("verifies", [verify, verify_elsewhere], ids=["CPU", "elsewhere"])
@pytest.mark.parametrize("factor", [float("nan"), 0.0, 2.0, -1.0])
def test_what_is_no_distribution_is_refused(verifies, factor):
    p = torch.full((3, V), 1.0 / V)
    scaled = torch.tensor([[1.0], [factor]]) * p[:2]
    for q in (scaled, scaled.flip(0)):  # also of a token that would not be reached
        with pytest.raises(DraftError):
            verifies(Draft.chain([1, 2], q, sampled=True), p.log(), PARAMS["plain"], torch.Generator().manual_seed(0))
    with pytest.raises(DraftError):  # a token that q cannot have drawn
        verifies(Draft.chain([1], one_hot(2), sampled=True), p[:2].log(), PARAMS["plain"], torch.Generator())
    for draft in (Draft.empty(), Draft.chain([1], p[:1], sampled=True)):
        with pytest.raises(TargetError):
            verifies(draft, p[: len(draft) + 1] * float("nan"), PARAMS["plain"], torch.Generator())


def one_hot(*tokens):
    return torch.nn.functional.one_hot(torch.tensor(tokens), V).float()


@pytest.mark.parametrize(
    ("draft", "choices", "path", "own"),
    [
        (Draft.empty(), [3], (), 3),
        (Draft.chain([1, 2, 3]), [1, 2, 3, 4], (0, 1, 2), 4),
        (Draft.chain([1, 2, 3]), [1, 4, 3, 0], (0,), 4),
        (Draft.chain([1, 2, 3]), [0, 2, 3, 4], (), 0),
        (Draft((1, 2, 3, 4), (-1, -1, 1, 1)), [2, 0, 4, 0, 1], (1, 3), 1),  # second child, then its second child
        (Draft((1, 2, 3, 4), (-1, -1, 0, 1)), [2, 3, 0, 4, 4], (1,), 0),  # the other branch's 3 is not taken
        (Draft((1, 1, 3), (-1, -1, 1)), [1, 2, 3, 4], (0,), 2),  # of equal siblings the first
    ],
)
def test_greedy_walk(draft, choices, path, own):
    verdict = verify(draft, one_hot(*choices), SamplingParams(), torch.Generator())
    assert (verdict.path, verdict.own) == (path, own)


def test_greedy_ties_go_to_the_lowest_id():
    logits = torch.tensor([[0.0, 2.0, 2.0, 1.0], [5.0, 0.0, 5.0, 5.0]])
    verdict = verify(Draft.chain([1]), logits, SamplingParams(), torch.Generator())
    assert (verdict.path, verdict.own) == ((0,), 0)
    assert verify(Draft.chain([2]), logits, SamplingParams(), torch.Generator()).path == ()


def test_greedy_draws_nothing():
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    verify(Draft.chain([1]), one_hot(1, 2), SamplingParams(), generator)
    assert torch.equal(generator.get_state(), before)


# Through the engine: real caches, real drafters, policies that switch.

PROMPT = "abcabcab"
RUNS = 250
"""A sampler whose outputs are off by a total variation of 0.3 fails with probability 0.99, a correct one with ALPHA."""


def exact(pool, params):
    return exact_outputs(pool.target.model, pool.encode(PROMPT), params)


def outputs_of(pool, policy, params, runs=RUNS):
    return Counter(tuple(generate(pool, PROMPT, policy, params, seed).token_ids) for seed in range(runs))


@pytest.mark.parametrize(
    ("policy", "settings"),
    [
        ("autoregressive", {"temperature": 1.0}),
        ("fixed:far", {"temperature": 1.5, "top_k": 3}),
        ("fixed:alone", {"temperature": 1.5, "top_k": 2}),
        ("fixed:lookup", {"temperature": 1.3}),
        ("round-robin", {"temperature": 2.5, "top_k": 3}),
        ("exp3", {"temperature": 2.0, "top_p": 0.6}),
        ("ucb", {"temperature": 1.5, "top_k": 4, "top_p": 0.8}),
        ("normal-hedge", {"temperature": 1.5, "top_k": 3}),
        ("normal-hedge:loss=acceptance", {"temperature": 1.5, "top_k": 2}),
    ],
)
def test_generated_outputs_follow_the_target(pool, policy, settings):
    params = SamplingParams(3, draft_length=2, **settings)
    assert p_value(outputs_of(pool, policy, params), exact(pool, params)) > ALPHA


@pytest.mark.parametrize("policy", ["round-robin", "exp3", "normal-hedge"])
def test_long_outputs_follow_the_target(pool, policy):
    """Deep into an output, after many rollbacks and switches, each token still follows the target's distribution."""
    params = SamplingParams(40, temperature=1.0, top_k=6)
    runs = [generate(pool, PROMPT, policy, params, seed) for seed in range(30)]
    assert sum(r.accepted for run in runs for r in run.rounds) > 150  # speculation took place
    outputs = [run.token_ids for run in runs]
    assert p_value_of_tokens(pool.target.model, pool.encode(PROMPT), outputs, params) > ALPHA


# These tests can fail.

MUTANTS = {
    "accept every token": ("points[kept] * drafted[kept] <", "0 <", "sampled chain"),
    "accept likely tokens": ("points[kept] * drafted[kept] <", "points[kept] <", "sampled chain"),
    "correct from p": ("np.maximum(p[kept] - q[kept], 0.0)", "p[kept]", "sampled chain"),
    "correct by what is before": (
        "np.maximum(p[kept] - q[kept], 0.0)",
        "np.maximum(p[kept] - q[0], 0.0)",
        "sampled chain",
    ),
    "accept every token elsewhere": ("u[:-1] * q.gather(1, tokens)[:, 0] <", "0 * u[:-1] <", "sampled chain"),
    "accept likely tokens elsewhere": ("u[:-1] * q.gather(1, tokens)[:, 0] <", "u[:-1] <", "sampled chain"),
    "accept what follows a rejection elsewhere": (".cumprod(dim=0)", "", "sampled chain"),
    "correct from p elsewhere": ("residual = (p - q).clamp_(min=0.0)\n    #", "residual = p\n    #", "sampled chain"),
    "correct from p in a tree": (
        "residual = (p - q).clamp_(min=0.0)\n        mass",
        "residual = p; mass",
        "sampled tree",
    ),
    "accept every token of a tree": ("if u * float(q[token]) < float(p[token]):", "if True:", "sampled tree"),
    "do not normalise the residual": ("residual / mass if", "residual if", "sampled tree"),
    "leave tried tokens in q": ("if tried:", "if False:", "sampled tree"),
    "draw once for all": (
        "uniforms(len(probs), generator)",
        "uniforms(1, generator).expand(len(probs))",
        "point-mass chain",
    ),
}
"""What is replaced by what in the source of ``verify``, and the kind of draft that shows it."""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_verification_is_found_out(name):
    old, new, kind = MUTANTS[name]
    assert inspect.getsource(verify_module).count(old) == 1
    changes = {old: new} | (ELSEWHERE if name.endswith("elsewhere") else {})
    world = World(PARAMS["plain"])
    assert world.p_value(grown(world, kind), verify=verify_changed(changes)) < ALPHA


def test_a_wrong_verification_is_found_out_through_the_engine(pool, monkeypatch):
    wrong = verify_changed({"np.maximum(p[kept] - q[kept], 0.0)": "p[kept]"})
    monkeypatch.setattr("multidraft.engine.decoding.verify", wrong)
    params = SamplingParams(3, temperature=1.5, top_k=3, draft_length=2)
    assert p_value(outputs_of(pool, "fixed:far", params, 2 * RUNS), exact(pool, params)) < ALPHA


def test_choosing_among_drafts_after_sampling_them_is_found_out(pool, monkeypatch):
    """Why a policy chooses before drafts are sampled: picking the draft that q finds likelier biases the output."""
    params, draft = SamplingParams(3, temperature=1.0, top_k=3, draft_length=1), Drafting.draft

    def peeking(*asked, **named):
        return min((draft(*asked, **named) for _ in range(4)), key=lambda draft: draft.tokens)

    monkeypatch.setattr(Drafting, "draft", peeking)
    assert p_value(outputs_of(pool, "fixed:near", params, 2 * RUNS), exact(pool, params)) < ALPHA


def test_draws_do_not_depend_on_the_default_type():
    """Which the library changes for the whole process while it loads a model in half precision."""
    draft = Draft.chain([1, 2], torch.tensor([[0.1, 0.5, 0.4], [0.2, 0.2, 0.6]]), sampled=True)
    logits = torch.tensor([[0.3, 0.6, 0.1], [0.5, 0.1, 0.4], [0.2, 0.4, 0.4]]).log()

    def verdicts():
        generator = torch.Generator().manual_seed(3)
        found = [verify(draft, logits, SamplingParams(temperature=1.0), generator) for _ in range(300)]
        return [(verdict.path, verdict.own) for verdict in found]

    expected = verdicts()
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert verdicts() == expected
    finally:
        torch.set_default_dtype(torch.float32)
