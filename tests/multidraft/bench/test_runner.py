"""The runner: interleaved, honest about losses and failures."""

from collections import Counter

import pytest

from drafters.errors import PolicyError, UserError
from drafters.sampling import SamplingParams
from multidraft.bench import measure, runner
from multidraft.bench.measure import Measurement
from multidraft.bench.runner import SuiteRun
from multidraft.bench.suites import SuiteItem
from multidraft.engine.lossless import Difference
from multidraft.policies import POLICIES
from multidraft.replay.regret import acceptance_table, regret_of
from storage.run import Baseline, Origin
from tests import tiny

GREEDY = SamplingParams(12, draft_length=4)
ITEMS = [SuiteItem(str(i), text, "even" if i % 2 == 0 else "odd") for i, text in enumerate(tiny.texts(4, 50, 3))]
TOO_LONG = SuiteItem("long", "a" * 200, "odd")
ASKED = ["ucb", "autoregressive", "fixed:near", "ucb"]
SPECS = ["autoregressive", "ucb", "fixed:near"]


def run(pool, items=ITEMS, policies=ASKED, params=GREEDY, **kw):
    return list(SuiteRun(pool, items, ["autoregressive", *policies], params, **kw).all())


@pytest.fixture
def generated(monkeypatch):
    """The (prompt, policy) pairs in the order in which they were generated, warm-up apart."""
    order = []
    compute = Measurement.compute

    def recording(measurement):
        order.append((measurement.request.prompt, measurement.request.policy))
        return compute(measurement)

    monkeypatch.setattr(Measurement, "compute", recording)
    return order


def test_every_prompt_meets_every_policy_once_in_turns(pool, generated):
    runs = run(pool)
    assert Counter((r.item.id, r.policy) for r in runs) == Counter((i.id, s) for i in ITEMS for s in SPECS)
    by_prompt = [generated[start : start + 3] for start in range(0, len(generated), 3)]
    assert [{prompt for prompt, _ in group} for group in by_prompt] == [{item.prompt} for item in ITEMS]
    assert all({policy for _, policy in group} == set(SPECS) for group in by_prompt)
    assert [group[0][1] for group in by_prompt] == ["autoregressive", "ucb", "fixed:near", "autoregressive"]


def test_the_baseline_is_the_whole_answer_of_the_same_prompt(pool):
    for entries in by_prompt(run(pool)):
        (plain,) = (e for e in entries if e.policy == "autoregressive")
        assert {e.run.baseline for e in entries} == {Baseline.of(plain.run.generation, "answer")}
        assert plain.run.speedup == pytest.approx(1.0)


def test_without_the_baseline_among_the_policies_whole_answers_are_measured_once(pool, monkeypatch):
    """However long one of them takes: a batch has one kind of baseline."""
    monkeypatch.setattr(measure, "PREFIX_TOKENS", 5)
    monkeypatch.setattr(measure, "WHOLE_SECONDS", 0.0)
    suite = runner.SuiteRun(pool, ITEMS[:2], ["ucb", "random"], GREEDY, origin=Origin("batch"))
    found = []
    list(suite.steps(Measurement.steps, found.extend))
    for entries in by_prompt(found):
        (baseline,) = {e.run.baseline for e in entries}
        assert (baseline.kind, baseline.tokens) == ("answer", len(entries[0].run.generation.token_ids))


def test_a_baseline_that_is_soon_done_is_the_whole_answer(pool, monkeypatch):
    monkeypatch.setattr(measure, "PREFIX_TOKENS", 1)
    monkeypatch.setattr(measure, "WHOLE_SECONDS", 60.0)
    measurement = Measurement(pool, measure.Request(ITEMS[0].prompt, "ucb", GREEDY))
    run = measurement.compute()
    assert (run.baseline.kind, run.baseline.tokens) == ("answer", len(run.generation.token_ids))


def by_prompt(entries):
    """The entries of each prompt."""
    return [[e for e in entries if e.item is item] for item in dict.fromkeys(e.item for e in entries)]


def test_repeats(pool):
    runs = run(pool, ITEMS[:2], repeat=3)
    counts = Counter((r.item.id, r.repeat) for r in runs)
    assert counts == {(item.id, repeat): len(SPECS) for item in ITEMS[:2] for repeat in range(3)}


def test_greedy_runs_are_checked_for_losses_and_their_regret_is_exact(pool):
    for r in run(pool):
        assert r.run.scores.lossless is True
        scores = r.run.scores
        if r.policy == "autoregressive":
            assert scores.regret_rounds is None
        else:
            table = acceptance_table(pool, pool.encode(r.item.prompt), r.run.generation.token_ids, 4)
            assert (scores.acceptance.accepted == table).all()
            assert scores.regret_rounds == regret_of(r.run.generation, table).regret_rounds


def test_a_loss_is_reported(pool, lossy_ucb):
    for r in run(pool):
        assert r.run.scores.lossless is (r.policy != "ucb")
        assert (r.run.scores.regret_rounds is None) == (r.policy in ("ucb", "autoregressive"))


def test_sampled_runs_have_an_expected_regret_only(pool):
    for r in run(pool, params=SamplingParams(12, temperature=1.0, draft_length=3), seed=3):
        assert r.run.scores.lossless is None and r.run.scores.regret_rounds is None
        assert (r.run.scores.expected_regret is None) == (r.policy == "autoregressive")
        assert len(r.run.generation.token_ids) == 12


def test_a_prompt_that_does_not_fit_is_counted_with_its_message(pool):
    runs = run(pool, [TOO_LONG, *ITEMS[:1]])
    failed = [r for r in runs if r.item is TOO_LONG]
    assert {r.policy for r in failed} == set(SPECS)
    for r in failed:
        assert r.run.generation.status == "error"
        assert "200 tokens" in r.run.generation.error
        assert r.run.scores.lossless is None and r.run.scores.regret_rounds is None and r.run.baseline is None
    assert all(r.run.generation.status == "completed" for r in runs if r.item is not TOO_LONG)


def test_a_suite_in_which_nothing_fits(pool):
    assert {r.run.generation.status for r in run(pool, [TOO_LONG])} == {"error"}


def test_a_bad_policy_is_refused_before_anything_runs(pool, generated):
    with pytest.raises(PolicyError, match="unknown policy"):
        run(pool, policies=["ucb", "no-such"])
    assert generated == []


def test_runs_come_as_they_happen(pool, generated):
    runs = SuiteRun(pool, ITEMS, ["autoregressive", *ASKED], GREEDY).all()
    assert generated == []
    next(runs)
    assert len(generated) == 3


def test_the_baseline_alone(pool):
    runs = run(pool, policies=[])
    assert [r.policy for r in runs] == ["autoregressive"] * 4
    assert all(r.run.scores.lossless for r in runs)


def test_each_prompt_and_repeat_has_its_own_seed_the_same_for_all_policies(pool):
    params = SamplingParams(12, temperature=1.0, draft_length=4)
    runs = run(pool, ITEMS, ["random"], params, repeat=3)
    seeds = {(r.item.id, r.repeat): r.run.seed for r in runs}
    assert len(set(seeds.values())) == len(ITEMS) * 3
    assert all(r.run.seed == seeds[r.item.id, r.repeat] for r in runs)
    played = [r for r in runs if r.policy == "random"]
    assert len({tuple(g.run.generation.token_ids) for g in played if g.item.id == "0"}) == 3
    assert len({tuple(x.arm for x in g.run.generation.rounds[:3]) for g in played}) > 3


def test_a_suite_in_another_order_has_the_same_seeds(pool):
    first, second = (run(pool, items, []) for items in (ITEMS, ITEMS[::-1]))
    assert {r.item.id: r.run.seed for r in first} == {r.item.id: r.run.seed for r in second}


@pytest.mark.benched
def test_a_drafter_that_breaks_is_told_and_its_run_goes_on(pool, monkeypatch):
    propose, calls = pool.drafters[0].propose, iter(range(100))

    def breaking(*arguments, **settings):
        if next(calls) == 10:
            raise RuntimeError("out of luck")
        return propose(*arguments, **settings)

    monkeypatch.setattr(pool.drafters[0], "propose", breaking)
    runs = run(pool, ITEMS, ["fixed:near"])
    assert len(runs) == 2 * len(ITEMS) and all(r.measured and r.run.scores.lossless for r in runs)
    (benched,) = (r for r in runs if r.run.generation.benched)
    assert benched.policy == "fixed:near" and "out of luck" in benched.run.generation.benched["near"]


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
    said = "policy 'round-robin' chose drafter 99; there are 0 to 3, -1 for none, and -2 for all at once"
    assert [r.run.generation.error for r in runs if r.failed] == [said] * 2
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
    assert plain.run.generation.status == "error" and plain.run.generation.rounds
    assert other.run.generation.status == "completed" and other.run.baseline is None
    assert not (plain.measured or other.measured or plain.failed or other.failed)


def test_a_seed_that_is_none(pool):
    with pytest.raises(UserError, match="the seed must be a whole number from 0"):
        run(pool, seed=-1)


@pytest.mark.parametrize("rounding", [True, False])
def test_a_near_tie_is_no_loss_and_its_gap_is_recorded(pool, monkeypatch, lossy_ucb, rounding):
    differences = measure.greedy_differences

    def near_tie(pool, prompt_ids, ids):
        found = differences(pool, prompt_ids, ids)
        return [Difference(11, 1e-5, rounding), Difference(11, 1e-6, True)] if found else found

    monkeypatch.setattr(measure, "greedy_differences", near_tie)
    found = {r.policy: r.run.scores for r in run(pool, ITEMS[:1])}
    assert found["ucb"].lossless is rounding and (found["ucb"].regret_rounds is not None) == rounding
    assert found["ucb"].near_tie_gap == (1e-5 if rounding else 1e-6)
    assert found["fixed:near"].near_tie_gap is None


def test_every_spelling_of_a_policy_is_the_same(pool):
    asked = ["UCB", "ucb:beta=0.01", "Autoregressive", "fixed:drafter=near", "Draft-All"]
    params = SamplingParams(12, temperature=1.0, draft_length=3)
    runs = run(pool, [TOO_LONG, ITEMS[0]], asked, params)
    assert Counter(r.policy for r in runs) == dict.fromkeys([*SPECS, "draft-all"], 2)
    assert all(r.policy == r.run.generation.policy for r in runs)
    assert [r.run.scores.expected_regret for r in runs if r.policy == "draft-all"] == [None, None]


def test_an_output_that_cannot_be_scored_fails_alone(pool, monkeypatch):
    regret_of = measure.regret_of

    def broken(generation, table):
        if generation.policy == "ucb":
            raise ZeroDivisionError
        return regret_of(generation, table)

    monkeypatch.setattr(measure, "regret_of", broken)
    runs = run(pool)
    assert {r.policy for r in runs if r.failed} == {"ucb"} and len(runs) == len(SPECS) * len(ITEMS)
    errors = {r.error for r in runs if r.failed}
    assert errors == {"its output cannot be scored: ZeroDivisionError"}
    assert all(r.run.generation.rounds for r in runs) and all(r.measured for r in runs if r.policy != "ucb")
