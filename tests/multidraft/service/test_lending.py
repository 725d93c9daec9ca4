"""Several visitors' texts are decoded by turns, each as if it were alone."""

import gc
import threading
import time
import weakref
from collections.abc import Generator
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest
import torch

from drafters.caches import Waiting
from drafters.draft import Draft
from drafters.errors import TextMemoryError
from drafters.models.target import Target
from drafters.pool import Pool, load_pool
from drafters.sampling import SamplingParams
from multidraft import generate
from multidraft.bench.measure import Request
from multidraft.bench.suites import SuiteItem
from multidraft.service import jobs
from multidraft.service.batch import BatchJob
from multidraft.service.jobs import WAITING
from multidraft.service.lending import TEXTS, Lender
from multidraft.service.queue import CALLER, Caller
from multidraft.service.race import RaceJob
from multidraft.service.workbench import Workbench
from storage.records import FINISHED
from storage.run import Run
from storage.store import Store
from tests import tiny
from tests.history import recorded

PARAMS = SamplingParams(max_new_tokens=16, draft_length=3)
PROMPTS = tiny.texts(TEXTS + 2, 20, 3)


@pytest.fixture
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn ends after every round."""
    monkeypatch.setattr(jobs, "TURN_SECONDS", 0.0)


def lent(lender: Lender, pool: Pool) -> Pool | None:
    """What is lent at once; ``None`` if it has to be waited for."""
    steps = lender.lend(pool, 20)
    try:
        assert next(steps) is WAITING
    except StopIteration as end:
        found: Pool = end.value
        return found
    return None


def test_the_pool_itself_is_lent_first_and_twins_of_it_are_used_again(pool: Pool) -> None:
    lender = Lender(3)
    first, second, third = (lent(lender, pool) for _ in range(3))
    assert first is pool and second is not None and third is not None and lent(lender, pool) is None
    assert len({id(p.target) for p in (first, second, third)}) == 3
    assert second.costs.steps is pool.costs.steps and second.costs is not pool.costs
    lender.take_back(second, pool)
    assert lent(lender, pool) is second
    lender.take_back(first, pool)
    assert lent(lender, pool) is pool


@pytest.mark.usefixtures("short_turns")
def test_nobody_waits_behind_a_long_answer(workbench: Workbench, pool: Pool, store: Store) -> None:
    alone = [generate(pool, prompt, "ucb", PARAMS).token_ids for prompt in PROMPTS]
    order: list[str] = []
    record = workbench.record

    def noted(*runs: Run, **named: Any) -> Any:
        order.extend(run.generation.prompt for run in runs)
        return record(*runs, **named)

    workbench.record = noted  # type: ignore[method-assign]
    all_there = threading.Event()
    workbench.jobs.do(lambda: all_there.wait(60))
    long = workbench.submit(Request(PROMPTS[0], "ucb", SamplingParams(max_new_tokens=40, draft_length=3)))
    runs = [workbench.submit(Request(prompt, "ucb", PARAMS)) for prompt in PROMPTS[1:]]
    all_there.set()
    assert all(job.wait(60) for job in (long, *runs))
    assert [job.run.generation.token_ids for job in runs] == alone[1:]
    assert order.index(PROMPTS[0]) >= TEXTS - 1, "those under way with it ended before, though they came later"
    assert all(job.run.speedup and job.run.scores.lossless for job in (long, *runs)), "and each was measured alone"
    assert {job.run.generation.streams for job in runs} == {1}
    assert store.flush() and len(recorded(store.path)) == len(PROMPTS)


@pytest.mark.usefixtures("short_turns")
def test_texts_that_do_not_fit_beside_others_wait_for_them(own_bench: Workbench) -> None:
    pool = own_bench.pool
    pool.stop_ids = frozenset()
    alone = [generate(pool, prompt, "ucb", PARAMS).token_ids for prompt in PROMPTS]
    pool.caches.budget = pool.caches.size(64)
    most = []
    take_back = own_bench.lender.take_back
    own_bench.lender.take_back = lambda *a: (most.append(len(own_bench.lender._lent)), take_back(*a))  # type: ignore[method-assign]
    runs = [own_bench.submit(Request(prompt, "ucb", PARAMS)) for prompt in PROMPTS]
    assert all(job.wait(60) for job in runs)
    assert [job.run.generation.token_ids for job in runs] == alone and set(most) == {1}
    pool.caches.budget = 1
    with pytest.raises(TextMemoryError, match="raise MULTIDRAFT_CACHE_MEMORY"):
        own_bench.submit(Request(PROMPTS[0], "ucb", PARAMS))


@pytest.mark.usefixtures("short_turns")
def test_a_run_that_is_cancelled_while_it_waits_leaves_the_line(own_bench: Workbench) -> None:
    pool = own_bench.pool
    pool.caches.budget = pool.caches.size(64)
    twin = pool.twin()
    assert pool.caches.admit(Waiting(), twin, 64)
    waiting, next_one = (own_bench.submit(Request(prompt, "ucb", PARAMS)) for prompt in PROMPTS[:2])
    while len(own_bench.lender._line) < 2:
        time.sleep(0.001)
    waiting.cancel()
    assert waiting.wait(60) and waiting.run.generation.status == "cancelled" and not next_one.done
    pool.caches.end(twin)
    assert next_one.wait(60) and next_one.error is None and next_one.run.generation.rounds


@pytest.mark.usefixtures("short_turns")
def test_memory_that_runs_out_in_one_run_leaves_the_others_alive(
    workbench: Workbench, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    score = Target.score

    def small(target: Target, draft: Draft) -> torch.Tensor:
        if target.context_length > 25:  # of the second prompt only
            raise torch.OutOfMemoryError("CUDA out of memory")
        return score(target, draft)

    monkeypatch.setattr(Target, "score", small)
    prompts = [PROMPTS[0][:3], "a" * 20, PROMPTS[2][:3]]
    alone = [generate(pool, prompt, "autoregressive", PARAMS).token_ids for prompt in (prompts[0], prompts[2])]
    runs = [workbench.submit(Request(prompt, "autoregressive", PARAMS)) for prompt in prompts]
    assert all(job.wait(60) for job in runs)
    assert [runs[0].run.generation.token_ids, runs[2].run.generation.token_ids] == alone
    failed = runs[1].run.generation
    assert failed.status == "error" and str(failed.error).startswith("the memory ran out after ")
    assert workbench.submit(Request(prompts[0], "autoregressive", PARAMS)).wait(60)


@pytest.mark.usefixtures("short_turns")
def test_runs_races_and_batches_take_turns(workbench: Workbench, pool: Pool) -> None:
    alone = {prompt: generate(pool, prompt, "fixed:near", PARAMS).token_ids for prompt in PROMPTS}
    race = workbench.jobs.submit(RaceJob(workbench, PROMPTS[0], ["fixed:near", "ucb"], PARAMS))
    items = [SuiteItem(str(i), prompt) for i, prompt in enumerate(PROMPTS[1:4])]
    batch = workbench.jobs.submit(BatchJob(workbench, items, ["fixed:near", "autoregressive"], PARAMS))
    run = workbench.submit(Request(PROMPTS[4], "fixed:near", PARAMS))
    assert run.wait(60) and race.wait(60) and batch.wait(60)
    assert run.run.generation.token_ids == alone[PROMPTS[4]]
    assert [lane.generation.token_ids for lane in race.measured] == [alone[PROMPTS[0]]] * 2
    assert len(batch.rows) == 6 and race.error is batch.error is run.error is None


@pytest.mark.usefixtures("short_turns")
def test_a_run_that_is_stopped_between_two_rounds_keeps_what_is_there(workbench: Workbench, store: Store) -> None:
    params = SamplingParams(max_new_tokens=50, draft_length=1)
    one, other = (workbench.submit(Request(prompt, "autoregressive", params)) for prompt in PROMPTS[:2])
    while not (one.run.generation.rounds or one.done):
        time.sleep(0.001)
    one.cancel()
    assert one.wait(60) and other.wait(60)
    assert one.run.generation.status in ("cancelled", *FINISHED) and one.measurement.phase == "done"
    assert other.run.generation.status in FINISHED
    assert store.flush() and len(recorded(store.path)) == 2
    assert not workbench.lender._lent, "all caches are free again"


def test_a_pool_is_warmed_up_with_as_many_twins_as_may_be_lent(pool: Pool) -> None:
    lender = Lender(3)
    lender.warm_up(pool)
    lent_out = [lent(lender, pool) for _ in range(3)]
    assert lent_out[0] is pool and not lender._twins[pool]
    assert all(twin is not None and twin.target.queries > 0 for twin in lent_out)
    assert all(twin is not None and twin.costs.steps is pool.costs.steps for twin in lent_out)


def test_twins_go_with_their_pool(pool_card: Path) -> None:
    lender, pool = Lender(), load_pool(pool_card)
    lent(lender, pool)
    twin = lent(lender, pool)
    assert twin is not None
    for each in (pool, twin):
        lender.take_back(each, pool)
    held = weakref.ref(twin.target.model)
    del pool, twin, each
    gc.collect()
    assert held() is None


def test_no_visitor_has_all_places_and_who_has_the_fewest_is_next(pool: Pool) -> None:
    lender, found = Lender(3), list[tuple[str, Pool]]()

    def asks(visitor: str) -> Generator[object, None, None]:
        found.append((visitor, (yield from lender.lend(pool, 10))))

    waiting = [(copy_context(), asks(visitor), visitor) for visitor in "aaabc"]
    for context, _, visitor in waiting:
        context.run(CALLER.set, Caller(visitor))

    def turns() -> str:
        found.clear()
        for context, work, _ in waiting:
            context.run(next, work, None)
        return "".join(visitor for visitor, _ in found)

    assert turns() == "aab", "the third place was kept for others"
    lender.take_back(found[0][1], pool)
    assert turns() == "c", "who has none goes before who has one"
    for lent in list(lender._lent):
        lender.take_back(lent, pool)
    assert turns() == "a" and not lender._line
