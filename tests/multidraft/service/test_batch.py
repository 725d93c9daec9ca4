"""Batches whose prompts are decoded at once: what is measured, recorded and shown, and how they end."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from drafters import caches
from drafters.caches import Waiting
from drafters.draft import Draft
from drafters.errors import UserError
from drafters.models.target import Target
from drafters.pool import Pool
from drafters.sampling import SamplingParams
from multidraft import generate
from multidraft.bench.batches import summary_of_batches
from multidraft.bench.suites import SuiteItem
from multidraft.service import batch as service_batch
from multidraft.service import jobs
from multidraft.service.batch import BatchJob, ResumedBatch
from multidraft.service.workbench import Workbench
from multidraft.ui.tabs.batch import view
from storage.store import Store
from tests import tiny
from tests.history import recorded
from tests.multidraft.conftest import Gate

PARAMS = SamplingParams(max_new_tokens=12, draft_length=4)
ITEMS = [SuiteItem(str(n), text, "letters") for n, text in enumerate(tiny.texts(5, 7, 3))]
TOO_LONG = SuiteItem("long", "a" * 200, "long")
SPECS = ["autoregressive", "ucb"]


def job(workbench: Workbench, items: list[SuiteItem] = ITEMS, specs: list[str] = SPECS, **changes: Any) -> BatchJob:
    return BatchJob(workbench, items, specs, PARAMS, **{"texts_at_once": 4, **changes})


@pytest.fixture
def round_gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Holds every verification, on whichever twin, until it is opened."""
    gate, score = Gate(), Target.score
    monkeypatch.setattr(Target, "score", lambda target, draft: (gate.wait(), score(target, draft))[1])
    yield gate
    gate.open()


def test_prompts_are_decoded_at_once_under_each_policy(workbench: Workbench, pool: Pool, store: Store) -> None:
    batch = workbench.jobs.submit(job(workbench, [*ITEMS[:3], TOO_LONG, *ITEMS[3:]]))
    assert batch.wait(60) and batch.error is None
    assert [row.policy for row in batch.rows] == ["autoregressive"] * 6 + ["ucb"] * 6
    assert batch.items_of_rows == [0, 1, 2, 3, 4, 5] * 2 and batch.runs_done == batch.total == 12
    assert [row.status for row in batch.rows[:6]] == [*["completed"] * 3, "too long", *["completed"] * 2]
    answers = [generate(pool, item.prompt, "autoregressive", PARAMS).text for item in ITEMS]
    texts = [row.output for row in batch.rows if row.status == "completed"]
    assert texts == answers * 2 and all(row.lossless for row in batch.rows if row.output)
    assert max(row.streams for row in batch.rows) == 4
    assert not any(row.speedup or row.tokens_per_second for row in batch.rows if row.streams > 1)
    assert store.flush()
    runs = recorded(store.path)
    assert len(runs) == 10 and max(run.generation.streams for run in runs) == 4
    assert all(run.baseline is None and run.speedup is None for run in runs)
    assert all(run.scores.regret_rounds is not None for run in runs if run.generation.policy == "ucb")


def test_the_policies_left_after_a_restart_begin_with_what_the_first_began_with(
    workbench: Workbench, pool: Pool, store: Store
) -> None:
    earlier = job(workbench, ITEMS[:2], ["autoregressive", "ucb"])
    assert workbench.jobs.submit(earlier).wait(60)
    batch = job(workbench, specs=["rate-hedge:start=traffic", "normal-hedge:start=traffic"])
    workbench.observers.append(lambda text: len(batch.rows) == len(ITEMS) and batch.cancel())
    assert workbench.jobs.submit(batch).wait(60) and len(batch.rows) == len(ITEMS)
    restarted = Workbench(pool, store)
    resumed, left = ResumedBatch(restarted, batch.id, batch._asked()), list[float | None]()
    restarted.observers.append(lambda text: left.append(resumed.seconds_left))
    assert restarted.jobs.submit(resumed).wait(60) and store.flush()
    assert left == [None] * len(ITEMS), "how long a text takes is not known from those before the restart"
    restarted.close()
    priors = [(run.generation.prompt, run.generation.prior) for run in recorded(store.path) if run.generation.prior]
    assert len(priors) == 2 * len(ITEMS) and len(dict(priors)) == len(ITEMS)
    assert all(priors.count(prior) == 2 for prior in priors)


def test_the_throughput_of_each_policy_is_measured(workbench: Workbench) -> None:
    batch = workbench.jobs.submit(job(workbench))
    assert batch.wait(60)
    plain, ucb = summary_of_batches(batch.figures)
    assert (plain["policy"], plain["size"], plain["texts"], plain["tokens"], plain["equal"]) == (SPECS[0], 4, 5, 60, 5)
    assert plain["rounds"] == 60 > ucb["rounds"] and plain["over_batch"] == 1.0 and plain["over_alone"] is None
    assert ucb["over_batch"] == pytest.approx(plain["seconds"] / ucb["seconds"])
    html = view.throughput_html(batch)
    assert "Rounds were taken beside those of up to 3 other texts, with which they shared forwards" in html
    assert "Throughput of 4 texts at once" in html and html.count("<tr") == 3
    assert "5 prompts, 2 policies, at most 12 tokens each, 4 texts at once." in view.status_html(batch)
    assert "<article" in view.detail_html(batch, 3) and view.detail_html(batch, 3).count("<article") == 2
    alone = workbench.jobs.submit(job(workbench, texts_at_once=1))
    assert alone.wait(60) and not alone.figures and not view.throughput_html(alone)
    assert all(row.streams == 1 and row.speedup for row in alone.rows)


def test_where_texts_take_turns_it_says_so(workbench: Workbench, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool.target, "decoder", tiny.RUNTIMES["hub"](pool.target.model))
    batch = workbench.jobs.submit(job(workbench, ITEMS[:2], ["ucb"], texts_at_once=2))
    assert batch.wait(60) and not batch.shares_forwards
    assert "texts took turns" in view.throughput_html(batch)


def test_a_policy_whose_texts_do_not_all_end_has_no_throughput(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory runs out in one text under one policy; the other texts go on."""
    score = Target.score

    def small(target: Target, draft: Draft) -> Any:
        if len(draft) and target._length + 1 == len(ITEMS[0].prompt):
            raise MemoryError("no room")
        return score(target, draft)

    monkeypatch.setattr(Target, "score", small)
    monkeypatch.setattr(caches, "free_unused", lambda: None)  # it takes long in a process as large as that of the tests
    same_length = sum(len(item.prompt) <= len(ITEMS[0].prompt) for item in ITEMS)
    batch = workbench.jobs.submit(job(workbench))
    assert batch.wait(60) and batch.error is None and [run.policy for run in batch.figures] == ["autoregressive"]
    failed = [row for row in batch.rows if row.status == "error"]
    assert 1 <= len(failed) <= same_length
    assert all("the memory ran out after" in str(row.error) for row in failed)
    assert "Of 1 policy there is none" in view.throughput_html(batch)


def test_texts_that_others_leave_no_room_for_wait(own_bench: Workbench) -> None:
    pool = own_bench.pool
    pool.caches.budget = pool.caches.size(64)
    assert pool.caches.admit(Waiting(), pool, 64)
    batch = own_bench.jobs.submit(job(own_bench, ITEMS[:2], ["autoregressive"]))
    assert own_bench.jobs.do(lambda: None).exception(30) is None and not batch.wait(0.05)
    pool.caches.end(pool)
    assert batch.wait(60) and all(row.finished and row.streams == 1 for row in batch.rows) and len(batch.rows) == 2


@pytest.mark.parametrize("at_once", [1, 4])
def test_the_end_of_the_server_ends_batches(pool: Pool, store: Store, round_gate: Gate, at_once: int) -> None:
    workbench = Workbench(pool, store)
    batch = workbench.jobs.submit(job(workbench, specs=["ucb", "random"], texts_at_once=at_once))
    assert round_gate.reached.wait(30)
    closing = threading.Thread(target=workbench.close)
    closing.start()
    assert batch.cancelled.wait(30)
    round_gate.open()
    closing.join(30)
    assert batch.done and batch.error is None and len(batch.rows) < batch.total and pool.lock._depth == 0


def test_a_batch_that_is_cancelled_ends_within_a_round(
    workbench: Workbench, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "TURN_SECONDS", 0.0)
    batch = job(workbench, specs=["autoregressive"])
    score, calls = Target.score, []

    def counted(target: Target, draft: Draft) -> Any:
        calls.append(target)
        if len(calls) == 100:  # after the warm-up, of 60 rounds of 5 texts
            batch.cancel()
        return score(target, draft)

    monkeypatch.setattr(Target, "score", counted)
    assert workbench.jobs.submit(batch).wait(60)
    assert len(calls) < 100 + 2 * 4 and pool.lock._depth == 0 and not batch.figures
    assert {row.status for row in batch.rows} <= {"completed", "cancelled"} and "cancelled" in {
        row.status for row in batch.rows
    }


@pytest.mark.parametrize("watched", [True, False])
def test_a_batch_pauses_while_a_page_draws_it(
    workbench: Workbench, round_gate: Gate, monkeypatch: pytest.MonkeyPatch, watched: bool
) -> None:
    monkeypatch.setattr(service_batch, "SHOWN_SECONDS", 0.0)
    batch, shown, pauses = job(workbench, specs=["ucb"], texts_at_once=1), list[int](), list[float]()
    workbench.jobs.submit(batch)
    assert round_gate.reached.wait(30)
    monkeypatch.setattr(service_batch, "DRAWING_SECONDS", 0.02)
    monkeypatch.setattr(batch.cancelled, "wait", lambda seconds: (pauses.append(len(batch.rows)), time.sleep(0.02))[0])

    def page() -> None:
        while not batch.look():
            shown.append(len(batch.rows))

    drawing = threading.Thread(target=page)
    if watched:
        drawing.start()
        while not batch._looked_at:
            time.sleep(0.001)
    round_gate.open()
    assert batch.wait(60)
    assert pauses == ([1, 2, 3, 4, 5] if watched else []), "after each prompt"
    assert batch.device_seconds < 60 and (batch._paused > 0.09) == watched
    if watched:
        drawing.join(30)
        assert set(shown) <= {0, 1, 2, 3, 4, 5} and len(shown) <= 1 + 5, "once at the start and in each pause"


def test_numbers_that_cannot_be(workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="texts at once must be one of 1, 2, 4, 8, 16, got 3"):
        job(workbench, texts_at_once=3)
    monkeypatch.setattr(workbench, "gpu", object())
    with pytest.raises(UserError, match="on ZeroGPU prompts are decoded one by one"):
        job(workbench)
