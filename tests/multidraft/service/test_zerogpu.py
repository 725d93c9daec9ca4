"""Runs behind a stand-in of ``spaces``: a forked worker computes them, this process keeps what lasts."""

import multiprocessing
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path

import gradio as gr
import pytest

from drafters.costs import CostMeter
from drafters.pool import Pool
from drafters.sampling import SamplingParams
from multidraft import generate
from multidraft.bench.measure import Request
from multidraft.bench.suites import SuiteItem
from multidraft.service import zerogpu
from multidraft.service.batch import BatchJob
from multidraft.service.race import RaceJob
from multidraft.service.workbench import RunJob, Workbench
from storage import queries
from storage.run import Origin
from storage.store import Store
from tests.history import recorded
from tests.multidraft.service.test_workbench import finished

STANDIN = Path(__file__).parents[2] / "spaces_standin"
PARAMS = SamplingParams(max_new_tokens=12, draft_length=4)
LONG = SamplingParams(max_new_tokens=60, draft_length=1)
PROMPT = "abc abd abe"


@pytest.fixture
def bench(pool: Pool, store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Workbench]:
    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    monkeypatch.setenv("SPACES_STANDIN_LOG", str(tmp_path / "calls"))
    monkeypatch.setitem(sys.modules, "spaces", None)
    monkeypatch.delitem(sys.modules, "spaces")
    monkeypatch.syspath_prepend(STANDIN)
    monkeypatch.setattr(pool, "previous", {})
    monkeypatch.setattr(pool, "costs", CostMeter(len(pool.drafters)))
    workbench = Workbench(pool, store)
    yield workbench
    workbench.close()
    for worker in multiprocessing.active_children():  # they hold the pipes of whatever was open as they were forked
        worker.kill()
        worker.join()


@pytest.fixture
def calls(tmp_path: Path) -> Callable[[], list[tuple[int, int]]]:
    """The calls so far: process of the worker, seconds asked for."""

    def read() -> list[tuple[int, int]]:
        lines = (tmp_path / "calls").read_text().splitlines()
        return [(int(pid), int(seconds)) for pid, seconds in map(str.split, lines)]

    return read


def streaming(job: RunJob, rounds: int = 3) -> RunJob:
    """Wait until some rounds have come out."""
    until = time.monotonic() + 30
    while len(job.run.generation.rounds) < rounds and not job.done:
        assert time.monotonic() < until
        time.sleep(0.005)
    return job


def slow_down(pool: Pool, monkeypatch: pytest.MonkeyPatch, seconds: float = 0.03) -> None:
    """The target takes its time, also in a worker that is forked from now on."""
    score = pool.target.score
    monkeypatch.setattr(pool.target, "score", lambda draft: (time.sleep(seconds), score(draft))[1])


def test_elsewhere_nothing_of_it_is_there(workbench: Workbench) -> None:
    assert workbench.gpu is None and "spaces" not in sys.modules


def test_a_run_is_what_it_is_without_the_boundary_and_is_recorded_here(
    bench: Workbench, pool: Pool, store: Store, calls
) -> None:
    expected = generate(pool, PROMPT, "ucb", PARAMS, seed=3)
    job = finished(bench.submit(Request(PROMPT, "ucb", PARAMS, seed=3, origin=Origin("play", "letters"))))
    generation = job.run.generation
    assert generation.status == "completed" and generation.token_ids == expected.token_ids
    assert [(r.arm, r.tokens) for r in generation.rounds] == [(r.arm, r.tokens) for r in expected.rounds]
    assert generation.text == expected.text and generation.prefill_seconds > 0
    assert generation.readers is not None and generation.readers == expected.readers
    assert job.measurement.decoding.context == [*pool.encode(PROMPT), *generation.token_ids]
    assert job.run.scores.lossless is True and job.run.scores.acceptance is not None
    assert store.flush()
    (run,) = recorded(store.path)
    assert (run.generation.policy, run.origin.task, run.generation.text) == ("ucb", "letters", generation.text)
    assert run.baseline == job.run.baseline and run.scores == job.run.scores
    ((worker, seconds),) = calls()
    assert worker != os.getpid() and zerogpu.START_SECONDS < seconds < zerogpu.MOST_SECONDS


def test_a_batch_names_the_hardware_of_the_worker(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zerogpu, "describe", lambda device: "the GPU of the worker")
    batch = BatchJob(bench, [SuiteItem("1", PROMPT)], ["fixed:near"], PARAMS)
    assert batch.hardware == bench.hardware != "the GPU of the worker"
    assert bench.jobs.submit(batch).wait(60)
    assert batch.rows[0].status == "completed" and batch.hardware == bench.hardware == "the GPU of the worker"


def test_what_it_has_learnt_comes_back_and_goes_in_again(
    bench: Workbench, pool: Pool, calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zerogpu, "TOKEN_SECONDS", 1.0)  # more than any machine needs, however busy
    spec = "ucb:start=previous"
    first = finished(bench.submit(Request(PROMPT, spec, PARAMS)))
    learnt = pool.previous[spec]
    assert pool.costs.plain.weight > 0 and sum(line.weight for line in pool.costs.steps) > 0
    known = replace(pool.costs.verify)
    pool.previous[spec] = [0.0, 0.0, 0.0, 1.0]
    second = finished(bench.submit(Request(PROMPT, spec, PARAMS)))
    assert len(learnt) == 4 and second.run.generation.rounds[0].arm == 3 != first.run.generation.rounds[0].arm
    # Its weight need not have grown: once a disturbed machine recovers, it begins anew.
    assert pool.costs.verify != known
    (worker, cold), (again, warm) = calls()
    assert worker == again, "the idle worker is used again"
    assert warm < cold, "what is asked for follows what was measured"


def test_rounds_stream_and_stop_keeps_what_is_there(
    bench: Workbench, pool: Pool, store: Store, monkeypatch: pytest.MonkeyPatch, calls
) -> None:
    slow_down(pool, monkeypatch)
    job = streaming(bench.submit(Request("ab", "fixed:far", LONG)))
    assert job.measurement.phase == "decoding" and job.run.baseline is None
    job.cancel()
    begun = time.monotonic()
    finished(job)
    assert time.monotonic() - begun < 5
    assert job.run.generation.status == "cancelled" and 0 < len(job.run.generation.token_ids) < 60
    assert job.run.scores.lossless is True, "the worker has still scored what there was"
    assert store.flush() and recorded(store.path)[0].generation.status == "cancelled"
    assert finished(bench.submit(Request(PROMPT, "ucb", PARAMS))).run.generation.status == "completed"
    assert len({worker for worker, _ in calls()}) == 1, "the worker lives on"


def test_stop_while_measuring_and_before_the_gpu_is_given(
    bench: Workbench, pool: Pool, monkeypatch: pytest.MonkeyPatch, calls
) -> None:
    slow_down(pool, monkeypatch, 0.06)
    measuring, waiting = (bench.submit(Request(PROMPT, "ucb", params)) for params in (PARAMS, LONG))
    while measuring.measurement.phase != "measuring":
        time.sleep(0.01)
    waiting.cancel()
    measuring.cancel()
    measured = finished(measuring).run
    assert measured.generation.status == "completed" and measured.baseline is None
    assert finished(waiting).run.generation.status == "cancelled" and not waiting.run.generation.rounds
    assert len(calls()) == 1, "no GPU for what was stopped in line"


def test_a_failure_in_the_worker_is_told_and_the_next_run_works(
    bench: Workbench, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    score, here = pool.target.score, os.getpid()
    fail = iter([False] * 100 + [True])  # not in the warm-up

    def broken(draft):
        if os.getpid() != here and next(fail, False):
            raise RuntimeError("out of memory")
        return score(draft)

    monkeypatch.setattr(pool.target, "score", broken)
    job = finished(bench.submit(Request("ab", "fixed:far", LONG)))
    assert (job.run.generation.status, job.run.generation.error) == ("error", "RuntimeError: out of memory")
    assert finished(bench.submit(Request(PROMPT, "ucb", PARAMS))).run.generation.status == "completed"


def test_a_gpu_that_is_taken_away_is_told_and_what_was_decoded_is_kept(
    bench: Workbench, pool: Pool, store: Store, monkeypatch: pytest.MonkeyPatch, calls
) -> None:
    slow_down(pool, monkeypatch)
    job = streaming(bench.submit(Request("ab", "fixed:far", LONG)))
    os.kill(calls()[0][0], signal.SIGKILL)
    finished(job)
    assert job.run.generation.status == "error" and "ask for fewer new tokens" in str(job.run.generation.error)
    assert store.flush() and len(recorded(store.path)[0].generation.token_ids) == len(job.run.generation.token_ids) > 0
    assert finished(bench.submit(Request(PROMPT, "ucb", PARAMS))).run.generation.status == "completed"
    assert len({worker for worker, _ in calls()}) == 2


def test_a_refusal_of_the_platform_reaches_the_visitor(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Iterator[object]:
        raise gr.Error("You have exceeded your quota. Try again in 1:02:03.", title="ZeroGPU quota exceeded")
        yield

    monkeypatch.setattr(bench.gpu, "_call", refuse)
    job = finished(bench.submit(Request(PROMPT, "ucb", PARAMS)))
    assert job.run.generation.error == "ZeroGPU quota exceeded: You have exceeded your quota. Try again in 1:02:03."


def test_a_race_and_a_batch_go_the_same_way(bench: Workbench, store: Store, calls) -> None:
    race = bench.jobs.submit(RaceJob(bench, PROMPT, ["ucb", "normal-hedge"], PARAMS))
    assert race.wait(60) and [run.generation.status for run in race.measured] == ["completed"] * 2
    assert race.runs[1].baseline == race.runs[0].baseline
    batch = bench.jobs.submit(BatchJob(bench, [SuiteItem("1", PROMPT, "t")], ["ucb", "autoregressive"], PARAMS))
    assert batch.wait(60) and batch.error is None and len(batch.rows) == 2
    assert store.flush() and queries.count(store.path) == 4
    assert len(calls()) == 4, "one call of the GPU for each run"


def test_all_that_crosses_can_be_pickled(bench: Workbench, pool: Pool) -> None:
    memory = zerogpu.Memory(pool.previous, pool.costs)
    request = Request(PROMPT, "ucb", PARAMS)
    assert pickle.loads(pickle.dumps((request, memory)))[0] == request


def test_the_time_asked_for_follows_the_request_and_has_a_limit(bench: Workbench) -> None:
    gpu, memory = bench.gpu, zerogpu.Memory({}, CostMeter(4))
    assert gpu is not None

    def seconds(tokens: int, **changes) -> int:
        params = SamplingParams(max_new_tokens=tokens, draft_length=4)
        return gpu.seconds(1, Request(PROMPT, "ucb", params, **changes), memory)

    assert seconds(64) < seconds(256) <= seconds(100_000) == zerogpu.MOST_SECONDS
    memory.costs.plain.add(0, 0.001)
    assert seconds(256) == 9


def test_a_visitors_context_goes_along(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """``spaces`` finds the visitor's token there, and counts the time against their quota."""
    visitor: ContextVar[str] = ContextVar("visitor", default="nobody")
    seen = []

    def call(*_: object) -> Iterator[object]:
        seen.append(visitor.get())
        raise gr.Error("that was all")
        yield

    monkeypatch.setattr(bench.gpu, "_call", call)
    visitor.set("somebody")
    finished(bench.submit(Request(PROMPT, "ucb", PARAMS)))
    bench.jobs.submit(BatchJob(bench, [SuiteItem("1", PROMPT, "t")], ["ucb"], PARAMS))
    until = time.monotonic() + 30
    while len(seen) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    assert seen == ["somebody"] * 2
