"""Costs that recorded rounds have had, on rounds whose costs are known."""

from __future__ import annotations

import numpy as np
import pytest

from drafters.costs import Costs, Unread
from multidraft.replay import machine_costs
from multidraft.replay.machine_costs import MachineCosts, RecordedCosts, with_unread
from multidraft.replay.recorded import texts_with_costs
from storage import queries
from storage.clock import fit
from storage.records import Generation
from storage.store import Store
from tests.perf.replay_clock import priced
from tests.runs import make_round, make_run

RUN = make_run()


@pytest.fixture
def costs_of(tmp_path):
    """Stores rounds as a run and estimates the costs of its machine."""

    def costs_of(rounds):
        tokens = [token for r in rounds for token in r.tokens]
        run = Generation("x", "rate-hedge", ("code", "math"), 1, tokens, "x", list(rounds), "completed")
        with Store(tmp_path / "runs.db") as store:
            store.add(make_run(run))
        (text,) = texts_with_costs([RUN], tmp_path / "runs.db")
        return text.costs

    return costs_of


def test_rounds_that_evaluated_nothing_do_not_count_as_evaluations(costs_of):
    """A policy that only considers an evaluation spends microseconds on it."""
    rounds = [make_round(i, evaluate_seconds=22e-6, evaluated=0) for i in range(198)]
    rounds[10:10] = [make_round(198, evaluate_seconds=0.0115, evaluated=30)]
    rounds[90:90] = [make_round(199, evaluate_seconds=0.0115, evaluated=30)]
    assert costs_of(rounds).evaluation_seconds(30) == pytest.approx(0.0115)


def overhead_of(path, **origin):
    """The cost of a policy's choices, as a text is priced."""
    (text,) = texts_with_costs([make_run(**origin)], path)
    return text.costs.overhead


def test_a_text_of_a_batch_is_priced_by_the_runs_of_that_alone(tmp_path):
    def add(seconds, source, batch):
        rounds = [make_round(i, policy_seconds=seconds) for i in range(20)]
        with Store(path) as store:
            store.add(make_run(rounds=rounds, source=source, batch_id=batch))

    path, mine = tmp_path / "runs.db", {"source": "batch", "batch_id": "mine"}
    add(0.001, "batch", "mine")
    before = overhead_of(path, **mine)
    add(0.003, "race", "other")
    assert before == overhead_of(path, **mine) == pytest.approx(0.001)
    assert overhead_of(path, source="race", batch_id="other") == overhead_of(path) == pytest.approx(0.002)


TRUE = Costs(
    draft_step=np.array([0.0004, 0.0008]),
    catch_up=np.array([0.00005, 0.0001]),
    verify=np.array([0.0055, *(0.006 + 0.0003 * np.arange(1, 25))]),
    evaluate=0.0015,
    evaluate_token=0.00002,
    draft_start=np.array([0.0002, 0.0]),
    overhead=0.0001,
)


def a_row(arm=0, **changes):
    row = {
        "arm": arm,
        "together": 0,
        "draft_length": 4 if arm is not None else 0,
        "accepted": 0,
        "emitted": 1,
        "nodes": 4,
        "depth": 4,
        "draft_seconds": 0.4,
        "verify_seconds": 1.0,
        "policy_seconds": 0.01,
        "evaluate_seconds": 0.0,
        "evaluated": 0,
        "policy": "ucb:reward=be",
        "prompt_tokens": 40,
        "readers": None,
        "prefill_seconds": 0.01,
        "baseline_prefill_seconds": 0.01,
        "baseline_seconds_per_token": None,
    }
    return row | changes


def timed(count, seed=0, readers=None):
    """Recorded rounds timed by ``TRUE``: chains of drafter 0, which stop early, and trees of drafter 1, some rounds
    without a draft, some with an evaluation."""
    rng = np.random.default_rng(seed)
    unread, since, rounds = Unread(2, 40, readers), 0, []
    for _ in range(count):
        arm = (0, 1, None)[rng.choice(3, p=(0.5, 0.4, 0.1))]
        depth = 0 if arm is None else int(rng.integers(1, 9))
        nodes = depth if arm == 0 else 3 * depth
        emitted = int(rng.integers(1, depth + 2))
        since += emitted
        evaluated = since if rng.random() < 0.05 else 0
        rounds.append(
            a_row(
                arm,
                draft_length=8 if arm is not None else 0,
                accepted=emitted - 1,
                emitted=emitted,
                nodes=nodes,
                depth=depth,
                draft_seconds=0.0 if arm is None else TRUE.drafting(arm, depth, unread.tokens[arm]),
                verify_seconds=TRUE.verification(nodes),
                policy_seconds=TRUE.overhead,
                evaluate_seconds=TRUE.evaluation_seconds(evaluated) if evaluated else 22e-6,
                evaluated=evaluated,
                readers=readers,
            )
        )
        unread.emitted(emitted, () if arm is None else (arm,))
        if evaluated:
            unread.evaluated()
            since = 0
    return rounds


def seconds_of(rounds):
    parts = sum(r["draft_seconds"] + r["verify_seconds"] + r["policy_seconds"] for r in rounds)
    return parts + sum(r["evaluate_seconds"] for r in rounds if r["evaluated"])


def found_in(runs):
    costs = RecordedCosts(2)
    for rounds in runs:
        costs.add(rounds)
    return costs.costs(8)


def test_costs_are_those_by_which_the_rounds_were_timed():
    found = found_in([timed(300, 0), timed(300, 1)])
    for part in ("draft_step", "catch_up", "verify", "draft_start"):
        np.testing.assert_allclose(getattr(found, part), getattr(TRUE, part), rtol=1e-4, atol=1e-9, err_msg=part)
    assert found.evaluation_seconds(40) == pytest.approx(TRUE.evaluation_seconds(40), rel=1e-4)
    assert found.overhead == pytest.approx(TRUE.overhead)
    assert found.width.tolist() == pytest.approx([1.0, 3.0])


def test_recorded_rounds_are_priced_at_what_they_took():
    """Tokens that were not drafted are not charged, trees by their nodes, and old rounds count as much as new ones."""
    runs = [timed(300, seed) for seed in range(6)]
    costs = found_in(runs)
    for rounds in runs:
        assert priced(rounds, costs, 2) == pytest.approx(seconds_of(rounds), rel=1e-3)


def test_who_had_not_read_the_prompt_reads_it_before_the_first_draft():
    """It is charged for it, as it is timed; and a step costs no more for it."""
    runs = [timed(12, seed, readers=[0]) for seed in range(60)]
    found = found_in(runs)
    np.testing.assert_allclose(found.catch_up, TRUE.catch_up, rtol=1e-4)
    np.testing.assert_allclose(found.draft_start, TRUE.draft_start, rtol=1e-4, atol=1e-9)
    for rounds in runs:
        assert priced(rounds, found, 2) == pytest.approx(seconds_of(rounds), rel=1e-3)


def test_what_reading_takes_is_told_by_the_prefill():
    """Few rounds have much to read, and here each of those takes 0.01 seconds more, however little it is."""
    first = {"readers": [0, 1], "baseline_seconds_per_token": 0.005, "baseline_prefill_seconds": 0.02}
    runs = [timed(100, seed, readers=[0, 1]) for seed in range(6)]
    for rounds in runs:
        longer = TRUE.reading([0, 1], 40)
        for row, _, unread in with_unread(rounds, 2):
            row |= {**first, "prefill_seconds": 0.02 + longer}
            if row["arm"] is not None and unread[row["arm"]] > 2:
                row["draft_seconds"] += 0.01
    found = found_in(runs)
    np.testing.assert_allclose(found.catch_up, TRUE.catch_up, rtol=1e-2)
    np.testing.assert_allclose(found.draft_step, TRUE.draft_step, rtol=1e-2)
    np.testing.assert_allclose(found.read_start, 0.01, rtol=5e-2)
    assert found.drafting(0, 3, 2) == pytest.approx(TRUE.drafting(0, 3, 2), rel=2e-2)
    assert found.drafting(0, 3, 5) == pytest.approx(TRUE.drafting(0, 3, 5) + 0.01, rel=5e-2)
    assert found.reading([0, 1], 100) == pytest.approx(TRUE.reading([0, 1], 100), rel=1e-3)


def test_each_policy_has_a_start_and_an_overhead_of_its_own():
    """What grows with the prompt is reading; a policy that was not measured takes as long as the others on average."""
    runs, own = [], {"ucb": (0.0, TRUE.overhead), "rate-hedge": (0.003, 0.0004)}
    for seed, tokens in enumerate((20, 40, 80, 160, 320, 640)):
        for policy, (start, overhead) in own.items():
            rounds = timed(50, seed, readers=[0, 1])
            longer = start + TRUE.reading([0, 1], tokens)
            first = {"baseline_seconds_per_token": 0.005, "baseline_prefill_seconds": 0.02}
            first |= {"policy": f"{policy}:start=cold", "prompt_tokens": tokens, "prefill_seconds": 0.02 + longer}
            for row in rounds:
                row |= first | {"policy_seconds": overhead}
            runs.append(rounds)
    found = found_in(runs)
    assert found.choosing("ucb") == pytest.approx((0.0, TRUE.overhead), abs=2e-4)
    assert found.choosing("rate-hedge") == pytest.approx((0.003, 0.0004), rel=0.25)
    assert found.choosing("exp3")[1] == pytest.approx((TRUE.overhead + 0.0004) / 2)
    assert found.choosing("autoregressive") == (0.0, pytest.approx(TRUE.overhead)), "nothing is chosen: the least"
    assert found.reading([0, 1], 100) == pytest.approx(TRUE.reading([0, 1], 100), rel=0.05)


def test_retrieval_that_reads_for_nothing_tells_nothing_of_models():
    costs = RecordedCosts(2)
    read = {"baseline_seconds_per_token": 0.005, "baseline_prefill_seconds": 0.02, "prefill_seconds": 0.021}
    for _ in range(9):
        costs.add([a_row(0, draft_seconds=1e-6 * depth, depth=depth, **read, readers=[0]) for depth in (1, 2, 3)])
    costs.add([a_row(1, draft_seconds=1e-3 * depth, depth=depth, unread=0) for depth in (1, 2, 3)])
    assert len(costs.reading) == 9 and costs.costs(4).catch_up.tolist() == pytest.approx([0.0, 0.0], abs=1e-9)


@pytest.mark.parametrize(("readers", "unread"), [((1,), [4, 0]), ((), [4, 4]), ((0, 1), [0, 0]), (None, [0, 0])])
def test_the_history_says_who_read_the_prompt(readers, unread, tmp_path):
    path = tmp_path / "runs.db"
    with Store(path) as store:
        store.add(make_run(readers=readers))
    ((_, arms, first), (_, _, second)) = with_unread(queries.timed_rounds(path, [1]), 2)
    assert (arms, first) == ((1,), unread) and second == [0, 0], "the first round evaluated all"


def test_hiccups_of_the_machine_change_no_cost():
    rounds = timed(600)
    for index, r in enumerate(rounds):
        if index % 50 == 7:
            r["draft_seconds"] = r["draft_seconds"] and 2.0
            r["verify_seconds"] = 1.0
    found = found_in([rounds])
    assert priced(timed(300, 9), found, 2) == pytest.approx(seconds_of(timed(300, 9)), rel=0.06)


def test_rounds_in_which_all_draft_say_nothing_of_one_drafter():
    rounds = timed(200)
    together = [{**r, "together": 1, "arm": 0, "draft_seconds": 5.0} for r in timed(20, 3)]
    np.testing.assert_allclose(found_in([rounds, together]).draft_step, TRUE.draft_step, rtol=1e-4)


def test_nothing_recorded_costs_nothing():
    costs = RecordedCosts(2).costs(3)
    assert costs.overhead + costs.drafting(0, 3) + costs.verification(3) == 0.0 and len(costs.verify) == 4


def test_a_drafter_never_recorded_is_taken_for_an_average_one():
    rounds = [r for r in timed(300) if r["arm"] != 1]
    found = found_in([rounds])
    assert found.draft_step[1] == found.draft_step[0] > 0.0 and found.draft_start[1] == found.draft_start[0]


def test_an_evaluation_never_recorded_is_taken_for_a_draft_of_one_token_by_each():
    """Not for free, or a replay would evaluate after every round."""
    rounds = [{**r, "evaluated": 0} for r in timed(300)]
    found = found_in([rounds])
    assert found.evaluate == pytest.approx(found.draft_start.sum() + found.draft_step.sum()) and found.evaluate > 0.0
    assert found.evaluate_token == pytest.approx(found.catch_up.sum())


def test_plain_decoding_costs_what_the_baselines_took():
    """Policies verify without a draft where something is amiss, if ever, and their overhead is not the baseline's."""
    runs = [[{**r, "baseline_seconds_per_token": 0.002 * off} for r in timed(100)] for off in (0.9, 1.0, 1.1)]
    found = found_in([*runs, timed(100)])
    assert found.choosing("autoregressive")[1] + found.verification(0) == pytest.approx(0.002)
    assert found.verification(1) == pytest.approx(TRUE.verification(1), rel=1e-3), "others are as they were"


def test_outliers_count_as_three_times_the_expected():
    rows = [(1.0, 1.0)] * 99 + [(1.0, 1000.0)]
    assert fit(rows, 1)[0] == pytest.approx(99 / 97, rel=1e-2)
    assert fit([], 2).tolist() == [0.0, 0.0]


def test_drafts_overrun_and_spread_as_often_as_they_did():
    costs = RecordedCosts(4)
    # Of four tokens asked for 4, 2 and 1, none, one and one accepted: 4 of 4 times one more in vain, 1 of 2, 0 of 1.
    parts = ((4, 7, 0), (2, 3, 1), (1, 1, 1), (0, 0, 0))
    costs.add([a_row(depth=depth, nodes=nodes, accepted=accepted) for depth, nodes, accepted in parts])
    costs.add([a_row(1, draft_length=1, depth=1, nodes=1), a_row(2, draft_length=2, depth=1, nodes=3)])
    found = costs.costs(4)
    assert found.overrun.tolist() == pytest.approx([5 / 7, 1.0, 1 / 2, 1.0])
    assert found.width.tolist() == pytest.approx([11 / 7, 1.0, 3.0, 1.0])


def test_a_plain_step_stands_in_for_verification_that_was_never_measured():
    costs = RecordedCosts(1)
    costs.add([a_row(None, nodes=0, depth=0, verify_seconds=0.5)])
    assert costs.costs(3).verify.tolist() == [0.5] * 4


def test_costs_are_fitted_anew_for_longer_drafts_and_newer_rounds_alone():
    costs = RecordedCosts(1)
    assert len(costs.costs(1).verify) == len(costs.costs(2).verify) == 3
    longer = costs.costs(3)
    assert len(longer.verify) == 4 and costs.costs(3) is costs.costs(2) is longer
    costs.add([a_row()])
    assert costs.costs(3) is not longer


def test_reads_that_alternate_count_each_run_once(tmp_path, monkeypatch):
    monkeypatch.setattr(machine_costs, "AT_ONCE", 1)
    with Store(tmp_path / "runs.db") as store:
        for _ in range(4):
            store.add(RUN)
    costs = MachineCosts(tmp_path / "runs.db")
    steps = [costs.read(RUN), costs.read(RUN)]
    for step in (*steps, *steps, *steps, *steps):
        next(step, None)
    (known,) = costs._read.values()
    assert len(known.overhead["ucb"]) == 4 * len(RUN.generation.rounds) and known.newest == 4
    monkeypatch.setattr(machine_costs, "NEWEST", 3)
    few = MachineCosts(tmp_path / "runs.db")
    assert len(list(few.read(RUN))) == 3 and list(costs.read(RUN)) == []
