import operator
import threading
import time
from contextvars import copy_context
from functools import partial
from typing import Any

import pytest
import torch

from drafters.costs import CostMeter
from drafters.draft import Draft
from drafters.pool import Pool
from drafters.sampling import SamplingParams
from multidraft import generate
from multidraft.bench import measure
from multidraft.bench.measure import Request
from multidraft.engine.lossless import Difference
from multidraft.policies import NO_DRAFTER, POLICIES
from multidraft.service import workbench as workbench_module
from multidraft.service.limits import Limits
from multidraft.service.queue import CALLER, Caller
from multidraft.service.workbench import RunJob, Workbench
from storage import queries
from storage.records import Round
from storage.run import Baseline, Origin
from storage.store import Store
from tests.history import recorded

PARAMS = SamplingParams(max_new_tokens=12, draft_length=4)
PROMPT = "abc abd abe"


def finished(job: RunJob) -> RunJob:
    assert job.wait(60), f"the run hangs in phase {job.measurement.phase}"
    return job


def test_a_run_gives_what_the_engine_gives_and_is_recorded(workbench: Workbench, pool: Pool, store: Store) -> None:
    job = finished(workbench.submit(Request(PROMPT, "ucb", PARAMS, seed=3, origin=Origin("play", "letters"))))
    assert job.measurement.phase == "done"
    assert job.run.generation.token_ids == generate(pool, PROMPT, "autoregressive", PARAMS).token_ids
    assert store.flush()
    (run,) = recorded(store.path)
    assert (run.generation.policy, run.generation.status, run.seed) == ("ucb", "completed", 3)
    assert run.origin == Origin("play", "letters") and run.baseline == job.run.baseline
    assert run.scores == job.run.scores and run.scores.best_drafter in workbench.pool.drafter_names
    assert run.scores.lossless is True and run.generation.text == job.run.generation.text
    assert run.speedup and run.request_speedup


def test_what_a_prompt_would_begin_with_is_what_it_begins_with(workbench: Workbench) -> None:
    params = SamplingParams(40, draft_length=workbench.pool.draft_length)
    for lessons in (0, 1):
        told = workbench.beginning(PROMPT)
        begun = finished(workbench.submit(Request(PROMPT, "rate-hedge", params))).run.generation
        assert (begun.rounds[0].arm, begun.rounds[0].draft_length) == (told.arm, told.length)
        assert begun.prior == told.context.prior and (begun.prior.lessons if begun.prior else 0) == lessons


def test_a_greedy_run_is_checked_to_its_end_however_short_the_baseline(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "PREFIX_TOKENS", 5)
    monkeypatch.setattr(measure, "WHOLE_SECONDS", 0.0)
    job = finished(workbench.submit(Request(PROMPT, "ucb", PARAMS)))
    assert job.run.baseline.tokens == 5
    assert job.measurement.differences == [] and job.run.scores.lossless is True


def test_plain_decoding_has_no_regret_and_is_its_own_baseline(workbench: Workbench) -> None:
    job = finished(workbench.submit(Request(PROMPT, "autoregressive", PARAMS)))
    assert job.run.scores.lossless is True and job.run.scores.regret_rounds is None
    assert job.run.baseline == Baseline.of(job.run.generation, "answer") and job.run.speedup == pytest.approx(1.0)


def test_a_policy_that_never_drafted_has_regret(workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(POLICIES["ucb"], "select", lambda policy: NO_DRAFTER)
    job = finished(workbench.submit(Request(PROMPT, "ucb", PARAMS)))
    assert len(job.run.generation.rounds) == len(job.run.generation.token_ids)
    assert job.run.scores.regret_rounds is not None and job.run.scores.regret_rounds > 0
    assert job.run.scores.best_arm_ratio == 0.0


def test_a_failure_in_scoring_leaves_the_run_as_good_as_it_was(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments):
        raise MemoryError("no room for the table")

    monkeypatch.setattr(workbench.pool, "acceptances", broken)
    job = finished(workbench.submit(Request(PROMPT, "ucb", PARAMS)))
    assert job.run.generation.status == "completed" and job.run.scores.regret_rounds is None


def test_a_record_that_fails_does_not_hold_the_visitor_up(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workbench.store, "add", lambda *arguments: 1 / 0)
    assert finished(workbench.submit(Request(PROMPT, "ucb", PARAMS))).run.generation.status == "completed"


def test_a_sampled_run_has_an_expected_regret_and_no_check(workbench: Workbench) -> None:
    params = SamplingParams(max_new_tokens=8, temperature=1.0, draft_length=4)
    job = finished(workbench.submit(Request(PROMPT, "ucb", params, seed=1)))
    assert job.run.generation.status == "completed"
    assert job.run.scores.regret_rounds is None and job.run.scores.lossless is None
    assert job.run.scores.expected_regret is not None and job.run.baseline is not None


def test_the_baseline_and_scores_of_an_equal_output_are_used_again(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = finished(workbench.submit(Request(PROMPT, "random", PARAMS))).run
    monkeypatch.setattr(workbench.pool, "acceptances", lambda *arguments: 1 / 0)
    second = finished(workbench.submit(Request(PROMPT, "ucb", PARAMS, earlier=(first,)))).run
    assert second.baseline is first.baseline and second.scores.acceptance is first.scores.acceptance
    assert second.generation.error is None and second.scores.regret_rounds is not None


def test_what_a_page_drew_is_timed_again_when_it_is_still_unless_others_wait(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workbench_module, "DRAWING_SECONDS", 0.0)
    again = workbench.submit(Request(PROMPT, "ucb", PARAMS, watched=True))
    again.measurement.when_decoded = lambda: seen.extend(again.run.generation.rounds)
    seen: list[Round] = []
    rounds = finished(again).run.generation.rounds
    assert again.run.baseline and again.run.scores.lossless
    assert [r.tokens for r in rounds] == [r.tokens for r in seen] and not any(map(operator.is_, rounds, seen))

    monkeypatch.setattr(workbench_module, "DRAWING_SECONDS", 30.0)
    watched = workbench.submit(Request(PROMPT, "ucb", PARAMS, watched=True))
    while watched.measurement.phase != "measuring":
        time.sleep(0.01)
    seen = list(watched.run.generation.rounds)
    assert not watched.wait(0.3) and watched.run.baseline is None
    other = workbench.submit(Request(PROMPT, "ucb", PARAMS))
    assert finished(watched).run.baseline and finished(other).run.baseline
    assert all(map(operator.is_, watched.run.generation.rounds, seen))


def test_a_page_that_is_left_while_it_draws_has_no_speedup(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workbench_module, "DRAWING_SECONDS", 30.0)
    job = workbench.submit(Request(PROMPT, "ucb", PARAMS, watched=True))
    while job.measurement.phase != "measuring":
        time.sleep(0.01)
    job.cancel()
    assert finished(job).run.generation.status == "completed" and job.run.baseline is None
    assert job.run.scores.regret_rounds is not None


def test_runs_wait_in_line(workbench: Workbench, gate) -> None:
    jobs = [workbench.submit(Request(PROMPT, "ucb", PARAMS)) for _ in range(3)]
    assert gate.reached.wait(30)
    assert [job.measurement.phase for job in jobs] == ["decoding", "waiting", "waiting"]
    assert [job.ahead for job in jobs] == [0, 1, 2]
    gate.open()
    for job in jobs:
        assert finished(job).run.generation.status == "completed"


def test_leaving_the_line_spares_the_device(workbench: Workbench, gate, store: Store) -> None:
    first, second = (workbench.submit(Request(PROMPT, "ucb", PARAMS)) for _ in range(2))
    assert gate.reached.wait(30)
    second.cancel()
    gate.open()
    assert finished(first).run.generation.status == "completed"
    assert finished(second).run.generation.status == "cancelled"
    assert not second.run.generation.rounds and second.run.generation.prefill_seconds == 0
    assert store.flush() and queries.count(store.path) == 1


def test_stop_in_mid_stream_keeps_what_is_there(
    workbench: Workbench, pool: Pool, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    score, reached, stopped = pool.target.score, threading.Event(), threading.Event()
    job = RunJob(workbench, Request("ab", "fixed:far", SamplingParams(max_new_tokens=50, draft_length=1)))

    def held_after_two_rounds(draft: Draft) -> torch.Tensor:
        if len(job.run.generation.rounds) == 2:
            reached.set()
            assert stopped.wait(30)
        return score(draft)

    monkeypatch.setattr(pool.target, "score", held_after_two_rounds)
    workbench.jobs.submit(job)
    assert reached.wait(30)
    job.cancel()
    stopped.set()
    generation = finished(job).run.generation
    assert generation.status == "cancelled"
    assert 0 < len(generation.token_ids) < 50
    assert job.run.scores.regret_rounds is None
    assert store.flush() and recorded(store.path)[0].generation.status == "cancelled"


def test_stop_while_scoring_keeps_the_run_and_says_that_there_is_no_regret(
    workbench: Workbench, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[RunJob] = []
    judge = measure.greedy_differences

    def stop_then_judge(*arguments: Any) -> list[Difference]:
        jobs[0].cancel()
        return judge(*arguments)

    monkeypatch.setattr(measure, "greedy_differences", stop_then_judge)
    jobs.append(RunJob(workbench, Request(PROMPT, "ucb", PARAMS)))
    jobs[0].take_turn()
    assert jobs[0].run.generation.status == "completed" and jobs[0].run.scores.lossless is True
    assert jobs[0].run.scores.regret_rounds is None and jobs[0].measurement.unscored
    assert store.flush() and recorded(store.path)[0].scores.regret_rounds is None


def test_a_run_that_is_left_while_it_is_scored_keeps_its_scores(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[RunJob] = []
    judge = measure.greedy_differences
    monkeypatch.setattr(measure, "greedy_differences", lambda *arguments: (jobs[0].leave(), judge(*arguments))[1])
    jobs.append(RunJob(workbench, Request(PROMPT, "ucb", PARAMS)))
    jobs[0].take_turn()
    assert jobs[0].run.scores.regret_rounds is not None and not jobs[0].measurement.unscored
    jobs.append(RunJob(workbench, Request(PROMPT, "ucb", PARAMS)))
    jobs[1].leave()
    jobs[1].take_turn()
    jobs[1].finish()
    assert jobs[1].run.generation.status == "cancelled"


def test_a_run_outlasts_its_page_until_another_one_takes_it_up(
    workbench: Workbench, gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workbench_module, "RETURN_SECONDS", 0.05)
    taken_up, given_up = (workbench.submit(Request(PROMPT, "ucb", PARAMS, watched=True)) for _ in range(2))
    assert gate.reached.wait(30)
    for job in (taken_up, given_up):
        job.leave()
    taken_up.caller = Caller(session="the page loaded again")
    assert given_up.cancelled.wait(30)
    gate.open()
    assert finished(taken_up).run.generation.status == "completed"
    workbench.submit(Request(PROMPT, "ucb", PARAMS))
    find = partial(workbench.jobs.find, kind=RunJob)
    assert find(taken_up.id) is taken_up, "it may have ended while the page was on its way"
    taken_up.leave()
    until = time.monotonic() + 30
    while find(taken_up.id) or find(given_up.id):
        assert time.monotonic() < until
        time.sleep(0.01)


def test_stop_while_measuring_keeps_the_answer(workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    baseline = measure.Measurement._baseline

    def stopped(measurement: measure.Measurement):
        measurement.cancel()
        return (yield from baseline(measurement))

    monkeypatch.setattr(measure.Measurement, "_baseline", stopped)
    run = finished(workbench.submit(Request(PROMPT, "ucb", PARAMS))).run
    assert run.generation.status == "completed" and len(run.generation.token_ids) == 12
    assert run.baseline is None and run.speedup is None


def test_stop_in_the_first_round(workbench: Workbench, gate) -> None:
    job = workbench.submit(Request(PROMPT, "ucb", PARAMS))
    assert gate.reached.wait(30)
    job.cancel()
    gate.open()
    assert finished(job).run.generation.status == "cancelled"
    assert job.run.baseline is None and len(job.run.generation.rounds) <= 1


def test_a_failing_run_is_told_and_the_next_one_works(
    workbench: Workbench, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(pool.target, "score", broken)
        job = finished(workbench.submit(Request(PROMPT, "ucb", PARAMS)))
    assert (job.run.generation.status, job.run.generation.error) == ("error", "RuntimeError: out of memory")
    assert finished(workbench.submit(Request(PROMPT, "ucb", PARAMS))).run.generation.status == "completed"


def test_of_a_policy_that_misbehaves_the_visitor_is_told_what_it_did(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(POLICIES["round-robin"], "select", lambda policy: 99)
    job = finished(workbench.submit(Request(PROMPT, "round-robin", PARAMS)))
    said = "policy 'round-robin' chose drafter 99; there are 0 to 3, -1 for none, and -2 for all at once"
    assert (job.run.generation.status, job.run.generation.error) == ("error", said)


def test_snapshots_hold_whole_rounds(workbench: Workbench) -> None:
    job = finished(workbench.submit(Request(PROMPT, "ucb", PARAMS)))
    snapshot = job.measurement.snapshot()
    assert snapshot.token_ids == job.run.generation.token_ids
    assert snapshot.rounds is not job.run.generation.rounds


def test_closing_ends_what_runs_and_what_waits(pool: Pool, store: Store, gate) -> None:
    workbench = Workbench(pool, store)
    running, waiting = (workbench.submit(Request(PROMPT, "ucb", PARAMS)) for _ in range(2))
    assert gate.reached.wait(30)
    closing = threading.Thread(target=workbench.close)
    closing.start()
    assert finished(waiting).run.generation.status == "cancelled"
    gate.open()
    closing.join(30)
    assert finished(running).run.generation.status == "cancelled"


def test_warming_up_leaves_no_trace_but_what_drafters_cost(workbench: Workbench, pool: Pool, store: Store) -> None:
    cold, pool.costs = pool.costs, CostMeter(len(pool.drafters))
    pool.costs.played(0, 4, 4, 1e6, 1e6, 1)  # as the very first round may take
    workbench.warm_up()
    assert store.flush() and queries.count(store.path) == 0
    measured, pool.costs = pool.costs, cold
    assert all(line.weight > 1 for line in (measured.plain, measured.verify, *measured.steps))
    assert max(measured.costs(4).draft_step) < 1e3


def test_a_text_that_is_only_scored_takes_nobodys_place(workbench: Workbench, monkeypatch) -> None:
    scoring, held, visitor = threading.Event(), threading.Event(), copy_context()
    monkeypatch.setattr(workbench.pool, "acceptances", lambda *_: (scoring.set(), held.wait(30)))
    workbench.jobs.limits = Limits(queue=1)
    visitor.run(CALLER.set, Caller("a"))
    asked = Request(PROMPT, "ucb", PARAMS, measures_baseline=False, scores_when_idle=True)
    visitor.run(workbench.submit, asked)
    assert scoring.wait(30)
    second = visitor.run(workbench.submit, asked)
    held.set()
    assert second.wait(30)
