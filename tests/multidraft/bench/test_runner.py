"""The runner: interleaved, honest about losses and failures."""

from collections import Counter

import pytest

from multidraft.bench import runner
from multidraft.bench.runner import run_suite
from multidraft.bench.suites import SuiteItem
from multidraft.errors import PolicyError, UserError
from multidraft.lossless import Difference
from multidraft.policies import POLICIES
from multidraft.regret import acceptance_table, regret_of
from multidraft.sampling import SamplingParams
from tests import tiny

GREEDY = SamplingParams(12, draft_length=4)
ITEMS = [SuiteItem(str(i), text, "even" if i % 2 == 0 else "odd") for i, text in enumerate(tiny.texts(4, 50, 3))]
TOO_LONG = SuiteItem("long", "a" * 200, "odd")
ASKED = ["ucb", "autoregressive", "fixed:near", "ucb"]
SPECS = ["autoregressive", "ucb", "fixed:near"]


def run(pool, items=ITEMS, policies=ASKED, params=GREEDY, **kw):
    return list(run_suite(pool, items, policies, params, **kw))


@pytest.fixture
def generated(monkeypatch):
    """The (prompt, policy) pairs in the order in which they were generated, warm-up apart."""
    order = []
    generate = runner._generate

    def recording(pool, prompt, policy, *rest):
        order.append((prompt, policy))
        return generate(pool, prompt, policy, *rest)

    monkeypatch.setattr(runner, "_generate", recording)
    return order


def test_every_prompt_meets_every_policy_once(pool):
    runs = run(pool)
    assert Counter((r.item.id, r.policy) for r in runs) == Counter((i.id, s) for i in ITEMS for s in SPECS)


def test_policies_are_interleaved_prompt_by_prompt_in_turns(pool, generated):
    run(pool)
    by_prompt = [generated[start : start + 3] for start in range(0, len(generated), 3)]
    assert [{prompt for prompt, _ in group} for group in by_prompt] == [{item.prompt} for item in ITEMS]
    assert all({policy for _, policy in group} == set(SPECS) for group in by_prompt)
    assert [group[0][1] for group in by_prompt] == ["autoregressive", "ucb", "fixed:near", "autoregressive"]


def test_the_baseline_is_that_of_the_same_prompt(pool):
    for r in run(pool):
        assert r.baseline.policy == "autoregressive"
        assert r.baseline.prompt == r.item.prompt
        assert (r.generation is r.baseline) == (r.policy == "autoregressive")


def test_repeats(pool):
    runs = run(pool, ITEMS[:2], repeat=3)
    counts = Counter((r.item.id, r.repeat) for r in runs)
    assert counts == {(item.id, repeat): len(SPECS) for item in ITEMS[:2] for repeat in range(3)}


def test_greedy_runs_are_checked_for_losses_and_their_regret_is_exact(pool):
    for r in run(pool):
        assert r.lossless is True
        if r.policy == "autoregressive":
            assert r.regret is None
        else:
            table = acceptance_table(pool, pool.encode(r.item.prompt), r.baseline.token_ids, 4)
            assert r.regret == regret_of(r.generation, table)


def test_a_loss_is_reported(pool, monkeypatch):
    generate = runner._generate

    def lossy(pool, prompt, policy, *rest):
        out = generate(pool, prompt, policy, *rest)
        if policy == "ucb" and prompt == ITEMS[1].prompt:
            out.token_ids[-1] ^= 1
        return out

    monkeypatch.setattr(runner, "_generate", lossy)
    lossless = {(r.item.id, r.policy): (r.lossless, r.regret is None) for r in run(pool)}
    assert lossless.pop(("1", "ucb")) == (False, True)
    assert {found for found, _ in lossless.values()} == {True}


def test_sampled_runs_have_an_expected_regret_only(pool):
    for r in run(pool, params=SamplingParams(12, temperature=1.0, draft_length=3), seed=3):
        assert r.lossless is None and r.regret is None
        assert (r.expected_regret is None) == (r.policy == "autoregressive")
        assert len(r.generation.token_ids) == 12


def test_a_prompt_that_does_not_fit_is_counted_with_its_message(pool):
    runs = run(pool, [TOO_LONG, *ITEMS[:1]])
    failed = [r for r in runs if r.item is TOO_LONG]
    assert {r.policy for r in failed} == set(SPECS)
    for r in failed:
        assert r.generation.status == "error"
        assert "200 tokens" in r.generation.error
        assert r.lossless is None and r.regret is None and r.baseline is None
    assert all(r.generation.status == "completed" for r in runs if r.item is not TOO_LONG)


def test_a_suite_in_which_nothing_fits(pool):
    assert {r.generation.status for r in run(pool, [TOO_LONG])} == {"error"}


def test_a_bad_policy_is_refused_before_anything_runs(pool, generated):
    with pytest.raises(PolicyError, match="unknown policy"):
        run(pool, policies=["ucb", "no-such"])
    assert generated == []


def test_runs_come_as_they_happen(pool, generated):
    runs = run_suite(pool, ITEMS, ASKED, GREEDY)
    assert generated == []
    next(runs)
    assert len(generated) == 3


def test_the_baseline_alone(pool):
    runs = run(pool, policies=[])
    assert [r.policy for r in runs] == ["autoregressive"] * 4
    assert all(r.lossless for r in runs)


def test_each_prompt_and_repeat_has_its_own_seed_the_same_for_all_policies(pool):
    params = SamplingParams(12, temperature=1.0, draft_length=4)
    runs = run(pool, ITEMS, ["random"], params, repeat=3)
    seeds = {(r.item.id, r.repeat): r.seed for r in runs}
    assert len(set(seeds.values())) == len(ITEMS) * 3
    assert all(r.seed == seeds[r.item.id, r.repeat] for r in runs)
    played = [r for r in runs if r.policy == "random"]
    assert len({tuple(g.generation.token_ids) for g in played if g.item.id == "0"}) == 3
    assert len({tuple(x.arm for x in g.generation.rounds[:3]) for g in played}) > 3


def test_a_suite_in_another_order_has_the_same_seeds(pool):
    first, second = (run(pool, items, []) for items in (ITEMS, ITEMS[::-1]))
    assert {r.item.id: r.seed for r in first} == {r.item.id: r.seed for r in second}


def test_a_drafter_that_breaks_fails_its_runs_alone(pool, monkeypatch):
    propose, calls = pool.drafters[0].propose, iter(range(100))

    def breaking(*arguments, **settings):
        if next(calls) == 10:
            raise RuntimeError("out of memory")
        return propose(*arguments, **settings)

    monkeypatch.setattr(pool.drafters[0], "propose", breaking)
    runs = run(pool, ITEMS, ["fixed:near"])
    failed = [r for r in runs if r.generation.status == "error"]
    assert len(runs) == 2 * len(ITEMS) and len(failed) == 1
    assert failed[0].policy == "fixed:near" and failed[0].generation.error == "RuntimeError: out of memory"
    assert [r.failed for r in runs] == [r is failed[0] for r in runs]
    assert [r.measured for r in runs] == [r is not failed[0] for r in runs]


def test_a_policy_that_misbehaves_fails_alone_and_the_others_are_warmed_up(pool, monkeypatch, caplog):
    begun = []
    decode = runner.Decoding._decode

    def recording(decoding):
        begun.append(decoding.generation.policy)
        return decode(decoding)

    monkeypatch.setattr(runner.Decoding, "_decode", recording)
    monkeypatch.setattr(POLICIES["round-robin"], "select", lambda policy: 99)
    runs = run(pool, ITEMS[:2], ["round-robin", "fixed:near"])
    assert begun[:3] == ["autoregressive", "round-robin", "fixed:near"]
    said = "policy 'round-robin' chose drafter 99; there are 0 to 3"
    assert [r.generation.error for r in runs if r.failed] == [said] * 2
    assert Counter(r.policy for r in runs if r.measured) == {"autoregressive": 2, "fixed:near": 2}
    assert caplog.text == ""  # the report tells it


def test_plain_decoding_that_breaks_is_no_measure_for_the_others(pool, monkeypatch):
    score, calls = pool.target.score, iter(range(1000))

    def breaking(draft):
        if next(calls) == 8 + 8 + 3:  # after the warm-up of both, in the first prompt's plain decoding
            raise RuntimeError("out of memory")
        return score(draft)

    monkeypatch.setattr(pool.target, "score", breaking)
    plain, other = run(pool, ITEMS[:1], ["random"], SamplingParams(12, draft_length=1))
    assert plain.generation.status == "error" and plain.generation.rounds
    assert other.generation.status == "completed" and other.baseline is None and other.lossless is None
    assert not (plain.measured or other.measured or plain.failed or other.failed)


def test_a_seed_that_is_none(pool):
    with pytest.raises(UserError, match="the seed must be a whole number from 0"):
        run(pool, seed=-1)


@pytest.mark.parametrize(
    ("rounding", "fault", "lossless"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_a_near_tie_is_no_loss_and_is_told(pool, monkeypatch, lossy_ucb, rounding, fault, lossless):
    """An output that parts from the baseline's where their logits are within rounding, whichever the target prefers."""
    monkeypatch.setattr(runner, "parting", lambda *arguments: Difference(11, 1e-5, rounding))
    monkeypatch.setattr(runner, "greedy_differences", lambda *arguments: [Difference(12, 3.0, False)] * fault)
    found = {r.policy: r for r in run(pool, ITEMS[:1])}
    assert found["ucb"].lossless is lossless and found["ucb"].regret is None
    assert found["ucb"].near_tie == (Difference(11, 1e-5, True) if lossless else None)
    assert found["fixed:near"].near_tie is None


def test_every_spelling_of_a_policy_is_the_same(pool):
    asked = ["UCB", "ucb:beta=0.01", "Autoregressive", "fixed:drafter=near", "Draft-All"]
    params = SamplingParams(12, temperature=1.0, draft_length=3)
    runs = run(pool, [TOO_LONG, ITEMS[0]], asked, params)
    assert Counter(r.policy for r in runs) == dict.fromkeys([*SPECS, "draft-all"], 2)
    assert all(r.policy == r.generation.policy for r in runs)
    assert [r.expected_regret for r in runs if r.policy == "draft-all"] == [None, None]


def test_an_output_that_cannot_be_scored_fails_alone(pool, monkeypatch):
    regret_of = runner.regret_of

    def broken(generation, table):
        if generation.policy == "ucb":
            raise ZeroDivisionError
        return regret_of(generation, table)

    monkeypatch.setattr(runner, "regret_of", broken)
    runs = run(pool)
    assert {r.policy for r in runs if r.failed} == {"ucb"} and len(runs) == len(SPECS) * len(ITEMS)
    errors = {r.generation.error for r in runs if r.failed}
    assert errors == {"its output cannot be scored: ZeroDivisionError"}
    assert all(r.generation.rounds for r in runs) and all(r.measured for r in runs if r.policy != "ucb")
