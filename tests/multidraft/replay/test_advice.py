"""Advice: by hand on small tables, never more than is certain, and held out on a recorded bench."""

from dataclasses import replace
from itertools import groupby
from operator import itemgetter

import numpy as np
import pytest

from drafters.base import Acceptances
from drafters.costs import Costs
from drafters.errors import UserError
from multidraft.bench.measured_verdict import decoded, measured, ran_live
from multidraft.policies.specs import replayed_as
from multidraft.replay.advice import FAR_OFF, Advice, advise, candidates, usable
from multidraft.replay.contribution import Share, superfluous
from multidraft.replay.machine_costs import RecordedCosts
from multidraft.replay.options import Option, replayed
from multidraft.replay.recorded import Recorded, is_estimate, recorded_texts, route_of
from storage import queries
from storage.figures import Ratio, ratio_of_totals
from storage.filters import Filter
from storage.run import Baseline
from tests.runs import make_run, result_of

K, TOKENS = 4, 40
CHEAP = Costs(np.array([0.1, 0.1]), np.zeros(2), np.full(K + 1, 1.0))


def text(number, accepted, costs=CHEAP):
    """One of 40 tokens, of which drafter ``i`` drafts ``accepted[i]`` right from any position."""
    end = np.arange(TOKENS, 0, -1) - 1
    table = np.minimum(np.array(accepted)[:, None], end)
    sizes = np.full_like(table, K)
    acceptance = Acceptances(table, sizes, sizes)
    run = make_run(
        prompt=f"prompt {number}",
        policy="ucb",
        drafters=("a", "b", "c")[: len(accepted)],
        acceptance=acceptance,
        draft_length=K,
        max_new_tokens=TOKENS,
        baseline=Baseline("answer", TOKENS, 1.0, 1.0),
    )
    return Recorded(run, costs)


def advice_on(texts, specs=("fixed:a", "fixed:b", "ucb:reward=be"), **more):
    return result_of(advise(texts, specs, **more))


def test_a_draft_that_held_the_stop_token_counts_whole():
    one = text(0, (4, 0))
    accepted = one.table.accepted.copy()
    accepted[0, 35:37] = 0, 4  # the last of the 40 tokens ends the text, so the target adds none
    run = replace(one.run, scores=replace(one.run.scores, acceptance=one.table._replace(accepted=accepted)))
    run.generation.status = "stopped"
    run.params = replace(run.params, max_new_tokens=60)
    share = advice_on([replace(one, run=run)], ["fixed:a"]).shares[0].share
    assert share == 32 / 40, "seven times 4, none, and all of the last 4"


def test_few_prompts_let_no_drafter_go():
    few, enough = (advice_on([text(n, (4, 0)) for n in range(count)], ("ucb:reward=be",)) for count in (1, 6))
    assert few.removed == ((), None) and {few.fate(share) for share in few.shares} == {"open"}
    assert enough.removed[0] == ("b",)


def test_the_fastest_policy_its_length_and_its_drafter():
    found = advice_on([text(number, (4, 0)) for number in range(6)], memory={"a": 5, "b": 7})
    assert found.best.spec == "fixed:a" and found.best.length == K and found.pays == "yes" and found.certain
    assert found.plain.request.tolist() == [41.0] * 6, "a token a second, and the prefill"
    assert found.best.rounds.tolist() == [8.0] * 6 and found.best.calls_saved == pytest.approx(0.8)
    decode = found.best.times_as_fast(found.plain, "decode")
    assert decode.value == pytest.approx(40 / (8 * 1.4)) and decode.interval == pytest.approx((decode.value,) * 2)
    assert found.best.times_as_fast(found.plain).value == pytest.approx(41 / (8 * 1.4 + 1))
    a, b = found.shares
    assert (a.verdict, a.share, a.memory, a.without) == ("keep", 0.8, 5, None), "it is the only one"
    assert (b.verdict, b.share, b.memory, b.without) == ("remove", 0.0, 7, None)
    assert found.removed == (("b",), None)


def test_drafters_and_lengths_are_told_of_the_policy_that_was_measured_to_be_the_fastest():
    texts = [text(number, (4, 0)) for number in range(6)]
    prompts = np.full(6, 41.0)
    found = advice_on(texts, measured=Advice.of(option("autoregressive", prompts), [option("ucb:reward=be", prompts)]))
    assert found.best.spec == "fixed:a" and found.about.spec == "ucb:reward=be"
    assert found.shares[1].asked and set(found.lengths) == {1, 2, 3}, "it tries both"
    assert advice_on(texts).about.spec == "fixed:a"


def test_replays_by_the_clock_that_are_far_off_do_not_count_where_others_are_near():
    texts = [text(number, (4, 0)) for number in range(6)]
    live = {
        spec: {t.prompt: (40.0, seconds, 40.0, seconds) for t in texts}
        for spec, seconds in (("fixed:a", 11.2), ("rate-hedge", 40))
    }
    found = advice_on(texts, ["fixed:a", "rate-hedge"], live=live)
    assert set(found.errors) == {"fixed:a"} and found.dropped["rate-hedge"] > FAR_OFF and found.trusted
    assert [option.spec for option in found.options] == ["fixed:a"]
    alone = advice_on(texts, ["rate-hedge"], live=live)
    assert set(alone.errors) == {"rate-hedge"} and not alone.trusted


def test_of_equal_drafters_one_can_go_but_not_both():
    texts = [text(number, (3, 3)) for number in range(6)]
    found = advice_on(texts, ["round-robin"])
    assert [share.verdict for share in found.shares] == ["remove", "remove"]
    (gone, without), both = found.removed, {"a", "b"}
    assert len(gone) == 1 and set(gone) < both and without is not None and without.value == pytest.approx(1.0)


def test_drafters_that_can_go_are_named_in_the_order_of_the_pool():
    costs = Costs(np.full(3, 0.1), np.zeros(3), np.full(K + 1, 1.0))
    texts = [text(number, (3, 3, 3), costs) for number in range(6)]
    best = result_of(replayed(texts, "round-robin", K))
    shares = [Share(name, True, 0.3, Ratio(missed, 0.99, 1.005, 6)) for name, missed in (("a", 1.002), ("b", 1.0))]
    assert result_of(superfluous(texts, best, shares, None))[0] == ("a", "b")


def test_a_drafter_that_carries_some_prompts_is_kept():
    texts = [text(number, (4, 0) if number % 2 else (0, 4)) for number in range(12)]
    found = advice_on(texts, ["ucb:reward=be"])
    assert [share.verdict for share in found.shares] == ["keep", "keep"] and found.removed == ((), None)
    assert all(share.without.low > 1 for share in found.shares)


def test_drafts_that_cost_more_than_they_save_are_advised_against():
    dear = Costs(np.array([2.0, 2.0]), np.zeros(2), np.full(K + 1, 1.0))
    found = advice_on([text(number, (1, 0), dear) for number in range(6)])
    assert found.pays == "no" and not found.best.times_as_fast(found.plain).high >= 1


def test_shorter_drafts_where_long_ones_are_wrong():
    found = advice_on([text(number, (1, 0)) for number in range(6)])
    assert (found.best.spec, found.best.length) == ("fixed:a", 1)
    assert set(found.lengths) == {2, 3, 4} and all(ratio.high < 1 for ratio in found.lengths.values())


def test_texts_of_a_prompt_count_once():
    one, other = text(1, (4, 0)), text(2, (0, 0))
    once, often = (advice_on([one, other, *[other] * n], ["fixed:a"]) for n in (0, 9))
    assert often.prompts == 2 and often.best.request == pytest.approx(once.best.request)


def test_texts_too_short_or_without_a_baseline_do_not_count():
    bare = text(1, (4, 0))
    bare.run.baseline = None
    with pytest.raises(UserError, match="measured baseline"):
        advice_on([bare])
    assert usable(text(1, (4, 0)).run) and not usable(bare.run)
    with pytest.raises(UserError, match="no policy can be replayed"):
        advice_on([text(1, (4, 0))], ["fixed:unknown"])


def test_prompts_answered_too_briefly_are_counted():
    brief = text(9, (4, 0))
    table = brief.run.scores.acceptance
    brief.run.scores = replace(brief.run.scores, acceptance=Acceptances(*(part[:, :4] for part in table)))
    assert advice_on([text(1, (4, 0)), brief], ["fixed:a"]).short == 1


def test_without_a_router_no_policy_that_needs_one_is_tried():
    def route(prompt):
        return [1.0, 0.0]

    cold, routed = candidates("ab", None, ["UCB", "gone"]), candidates("ab", route)
    assert cold[0] == "ucb:reward=be" and "gone" not in cold and "router" not in cold
    assert {"router", "ucb:reward=be,start=router", "fixed:a", "fixed:b"} < set(routed)
    assert len(cold) == len(set(cold))


def option(spec, request):
    ones = np.ones(len(request))
    return Option(spec, K, request, request, ones, ones)


@pytest.mark.parametrize("policies", [2, 6])
def test_equal_policies_are_rarely_told_apart(policies):
    """Of 200 samples from equally fast policies at most 5 % may have a winner; more than 9 % has a probability below
    0.01."""
    rng, wrong = np.random.default_rng(3), 0
    for _ in range(200):
        prompts = rng.gamma(4.0, 1.0, 20)
        found = Advice.of(
            option("autoregressive", prompts),
            [option(str(i), prompts * rng.lognormal(0, 0.1, 20)) for i in range(policies)],
        )
        wrong += found.certain
    assert wrong / 200 <= 0.09


@pytest.fixture(scope="module")
def halves(bench_db):
    """The bench's texts in two halves of the prompts, each with costs fitted on the rounds of the other alone."""
    runs = sorted(recorded_texts(bench_db), key=lambda run: run.generation.prompt)
    every = [queries.run(bench_db, id) for id in queries.listed(bench_db, limit=1000)["id"].tolist()]
    found = []
    for half in (0, 1):
        fitted = {run.generation.prompt for run in runs[1 - half :: 2]}
        ids = sorted(run.id for run in every if run.generation.prompt in fitted)
        costs = RecordedCosts(8)
        for _, rounds in groupby(queries.timed_rounds(bench_db, ids), key=itemgetter("run_id")):
            costs.add(rounds)
        found.append([Recorded(run, costs.costs(12)) for run in runs[half::2]])
    return found


def measured_by(path, texts):
    """Decode and request speed-up of the policies that ran live on all of the texts' prompts."""
    runs = [text.run for text in texts]
    live = measured(ran_live(path, runs, Filter()), runs)
    return {
        option.spec: (option.times_as_fast(live.plain, "decode"), option.times_as_fast(live.plain))
        for option in live.options
    }


def test_held_out_speedups_are_the_measured_ones(halves, bench_db):
    """Costs of one half of the prompts predict the speed-ups of the other half."""
    for texts in halves:
        route = route_of("pocket", texts[0].drafters)
        plain = result_of(replayed(texts, "autoregressive", 12))
        errors = {}
        for spec, ratios in measured_by(bench_db, texts).items():
            played = result_of(replayed(texts, replayed_as(spec), 12, route))
            for part, ratio in zip(("decode", "request"), ratios, strict=True):
                errors[spec, part] = played.times_as_fast(plain, part).value / ratio.value - 1
        assert len(errors) >= 16
        exact = [error for (spec, _), error in errors.items() if not is_estimate(spec)]
        assert max(map(abs, exact)) < 0.12 and np.mean(np.abs(exact)) < 0.05, errors
        assert max(map(abs, errors.values())) < 0.2, "those that choose by the clock too"


def test_what_is_advised_on_one_half_is_good_on_the_other(halves, bench_db):
    for texts, others in (halves, halves[::-1]):
        route = route_of("pocket", texts[0].drafters)
        live = measured_by(bench_db, others)
        best = advice_on(texts, list(live), route=route).best.spec
        fastest = max(request.value for _, request in live.values())
        assert live[best][1].value > 0.93 * fastest, best


def test_measured_speedups_are_those_of_the_same_prompts(halves, bench_db):
    texts = halves[0]
    prompts = {text.run.generation.prompt for text in texts}
    runs = [queries.run(bench_db, id) for id in queries.listed(bench_db, limit=1000)["id"].tolist()]
    own = [run for run in runs if run.generation.policy == "router" and run.generation.prompt in prompts]
    above = [run.baseline.decode_seconds(len(run.generation.token_ids)) for run in own]
    expected = ratio_of_totals(above, [run.generation.seconds for run in own])
    decode, _ = measured_by(bench_db, texts)["router"]
    assert (decode.value, decode.prompts) == (pytest.approx(expected.value), expected.prompts)


def test_replays_are_checked_against_what_ran_live(halves, bench_db):
    texts = halves[0]
    runs = [text.run for text in texts]
    live = decoded(ran_live(bench_db, runs, Filter()))
    near = advice_on(texts, ["fixed:general"], live=live)
    assert near.trusted and 0 < abs(near.errors["fixed:general"]) < 0.12 and near.shares
    assert 0 < abs(near.request_errors["fixed:general"]) < 0.12
    slow = {
        policy: {p: (above, 2 * below, *whole) for p, (above, below, *whole) in of.items()}
        for policy, of in live.items()
    }
    far = advice_on(texts, ["fixed:general"], live=slow)
    assert far.errors["fixed:general"] > FAR_OFF and not far.trusted and not far.shares and not far.lengths
