"""What a kill cuts off: the history of that moment, opened by another workbench."""

import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from drafters.draft import Draft
from drafters.errors import UserError
from drafters.models.target import Target
from drafters.pool import Pool, load_pool
from drafters.sampling import SamplingParams
from multidraft.bench.measure import Request
from multidraft.bench.suites import SuiteItem
from multidraft.service.batch import BatchJob, ResumedBatch
from multidraft.service.jobs import Job
from multidraft.service.limits import Limits
from multidraft.service.pool_loading import PoolLoader
from multidraft.service.race import RaceJob
from multidraft.service.recovery import MOST_STARTS, recover, resume
from multidraft.service.workbench import RunJob, Workbench
from multidraft.ui.result_pages.result import experiment_result
from multidraft.ui.tabs.batch.tab import Batch
from multidraft.ui.tabs.batch.view import VERDICT_TO_COME, unfinished_html
from multidraft.ui.tabs.results.view import list_html
from multidraft.ui.widgets.markup import sentence
from storage import experiments
from storage.connection import open_writer
from storage.run import Run, utc_text
from storage.store import Store
from storage.sync import snapshot
from storage.unfinished import serving, unfinished
from tests import tiny
from tests.history import recorded
from tests.multidraft.ui.building import built

PARAMS = SamplingParams(max_new_tokens=8, draft_length=3)
ITEMS = [SuiteItem(str(n), text, "letters") for n, text in enumerate(tiny.texts(4, 6, 3))]
SPECS = ["autoregressive", "ucb"]


class Crash:
    """Copies the history as a kill would leave it, in the middle of some round."""

    def __init__(self, store: Store, folder: Path):
        self.store, self.path = store, folder / "killed.db"
        self.rows: list[Any] = []

    def copy(self) -> None:
        assert self.store.flush()
        for end in ("", "-wal"):
            shutil.copyfile(f"{self.store.path}{end}", f"{self.path}{end}")


@pytest.fixture
def crash(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crash]:
    crash = Crash(store, tmp_path)
    score = Target.score

    def watched(target: Target, draft: Draft) -> Any:
        if crash.rows and crash.rows[0]():
            crash.rows.clear()
            crash.copy()
        return score(target, draft)

    monkeypatch.setattr(Target, "score", watched)
    yield crash
    assert not crash.rows, "it never came to the moment of the kill"


def ended(workbench: Workbench, job: Job) -> Job:
    workbench.jobs.submit(job)
    assert job.wait(60) and job.error is None
    return job


def recovered(pool: Pool, path: Path) -> tuple[list[Run], BatchJob | None]:
    """All runs of the history after the next start, and the batch that goes on."""
    ids = list(unfinished(path))
    with Store(path) as store:
        bench = Workbench(pool, store)
        recover(bench)
        batch = next((found for id in ids if (found := bench.jobs.find(id, BatchJob))), None)
        assert batch is None or (batch.wait(60) and batch.error is None)
        assert store.flush()
        bench.close()
    assert not unfinished(path)
    return recorded(path)[::-1], batch


def what(runs: list[Run]) -> list[tuple[str, str, str]]:
    return sorted((run.generation.prompt, run.generation.policy, run.generation.status) for run in runs)


def test_a_run_that_was_cut_off_is_marked(workbench: Workbench, pool: Pool, crash: Crash) -> None:
    crash.rows.append(lambda: True)
    job = ended(workbench, RunJob(workbench, Request(ITEMS[0].prompt, "ucb", PARAMS, seed=3)))
    assert isinstance(job, RunJob) and job.run.id == 1 and not unfinished(workbench.store.path)
    (run,), _ = recovered(pool, crash.path)
    assert what([run]) == [(ITEMS[0].prompt, "ucb", "interrupted")] and not run.generation.rounds
    assert (run.seed, run.params, run.origin, run.conditions) == (3, PARAMS, job.run.origin, job.run.conditions)


def test_a_race_that_was_cut_off_is_marked_lane_by_lane(workbench: Workbench, pool: Pool, crash: Crash) -> None:
    crash.rows.append(lambda: len(race.runs) == 1)
    race = RaceJob(workbench, ITEMS[0].prompt, SPECS, PARAMS)
    ended(workbench, race)
    runs, _ = recovered(pool, crash.path)
    assert what(runs) == [(ITEMS[0].prompt, spec, "interrupted") for spec in SPECS]
    assert {run.origin.batch_id for run in runs} == {race.id}


@pytest.mark.parametrize("at_once", [1, 2])
@pytest.mark.parametrize("kills", [1, 2])
def test_a_batch_goes_on_where_it_was_cut_off(
    workbench: Workbench, pool: Pool, crash: Crash, at_once: int, kills: int
) -> None:
    batch = BatchJob(workbench, ITEMS, SPECS, PARAMS, seed=5, texts_at_once=at_once, learn=False)
    crash.rows.append(lambda: len(batch.rows) == len(ITEMS) and batch.runs_done < batch.total)
    ended(workbench, batch)
    told = [(row.id, row.policy, row.output) for row in batch.rows]
    if kills == 2:  # the second one before anything was run
        asked = unfinished(crash.path)[batch.id]
        with Store(crash.path) as store:
            store.add(begins=(batch.id, {**asked, "starts": 2, "rows": 4}))
    runs, resumed = recovered(pool, crash.path)
    assert resumed is not None and resumed.id == batch.id and not any(run.origin.learn for run in runs)
    assert what(runs) == sorted((item.prompt, spec, "completed") for item in ITEMS for spec in SPECS)
    assert [(row.id, row.policy, row.output) for row in resumed.rows] == told
    assert resumed.runs_done == resumed.total and resumed.items_of_rows == batch.items_of_rows
    assert [f.policy for f in resumed.figures] == ([] if at_once == 1 else SPECS)
    if at_once == 1:
        assert all(row.speedup is not None or row.tokens < 16 for row in resumed.rows)
        assert all(run.baseline for run in runs)


REASONS = {
    "api": "its client has disconnected",
    "changed": "its pool, 'tiny', has changed, or was not loaded within 7 days",
    "gone": "its pool, 'gone', was not loaded within 7 days",
    "starts": "it made no progress in 3 starts",
    "refused": "this is too much for the server",
}


def refuse(*arguments: object) -> None:
    raise UserError("this is too much for the server")


@pytest.mark.parametrize("why", REASONS)
def test_a_batch_that_cannot_go_on_says_why(
    workbench: Workbench, pool: Pool, crash: Crash, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = BatchJob(workbench, ITEMS, SPECS, PARAMS, source="api" if why == "api" else "batch")
    crash.rows.append(lambda: len(batch.rows) == 4)
    ended(workbench, batch)
    asked = unfinished(crash.path)[batch.id]
    with Store(crash.path) as store:
        if why in ("changed", "gone"):
            asked["conditions"]["card_hash"] = "another"
        if why == "gone":
            asked["conditions"]["pool"] = "gone"
        if why == "starts":
            asked["starts"] = MOST_STARTS
        store.add(begins=(batch.id, asked))
    if why in ("changed", "gone"):
        with sqlite3.connect(crash.path) as db:
            db.execute("UPDATE unfinished SET begun_at = ?", [utc_text(datetime.now(UTC) - timedelta(days=7))])
    if why == "refused":
        monkeypatch.setattr(Limits, "check_batch", refuse)
    runs, resumed = recovered(pool, crash.path)
    assert resumed is None
    assert what(runs) == sorted((i.prompt, s, "completed") for i in ITEMS[:2] for s in SPECS)
    ending = f"interrupted by a restart of the server and not resumed: {REASONS[why]}"
    about = experiments.experiment(crash.path, batch.id)
    assert about and about["ending"] == ending and about["runs"] == 4


def test_the_end_of_a_server_leaves_a_batch_to_the_next(pool: Pool, store: Store, gate) -> None:
    bench = Workbench(pool, store)
    batch = bench.jobs.submit(BatchJob(bench, ITEMS, SPECS, PARAMS))
    assert gate.reached.wait(30)
    gate.open()
    bench.close()
    assert batch.done and list(unfinished(store.path)) == [batch.id]
    assert store.close()
    runs, _ = recovered(pool, store.path)
    assert what(runs) == sorted((item.prompt, spec, "completed") for item in ITEMS for spec in SPECS)


def test_a_batch_waits_for_its_pool(
    pool_card: Path, other_card: Path, store: Store, crash: Crash, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ran on a pool that a visitor had loaded; the next server begins with its own pool."""
    killed = Workbench(load_pool(other_card), store)
    batch = BatchJob(killed, ITEMS, SPECS, PARAMS)
    crash.rows.append(lambda: len(batch.rows) == 2)
    ended(killed, batch)
    killed.close()
    with Store(crash.path) as store:
        bench = Workbench(load_pool(pool_card), store)
        tab = built(Batch(bench), bench)
        recover(bench)
        left = next(iter(tab.buttons.watch(batch.id)))
        assert list(unfinished(store.path)) == [batch.id] and bench.jobs.find(batch.id, BatchJob) is None
        form = tab._form(batch.id)  # what was asked, not what is done
        assert form and form[2] == SPECS and form[3] == len(ITEMS) and left[tab.verdict] == VERDICT_TO_COME
        result = experiment_result(store.path, batch.id)
        assert result and result.said[0] == ["This batch has not ended: 2 of 8 runs are done."]
        assert result.title.endswith(" (so far: 2 of 8 runs)")
        assert "Under way on another server of this history: 2 of 8 runs done" in unfinished_html(
            unfinished(store.path)[batch.id], 2, waits=False
        )
        assert "2 of 8 runs done. The batch goes on, under this address, once pool other is in" in left[tab.status]
        bench.pool.card.name = "other"  # of another content
        resume(bench)
        assert list(bench.cut_off) == [batch.id]
        monkeypatch.setattr(BatchJob, "limit", 0)  # it needs no place among those of visitors
        making, make = threading.Event(), ResumedBatch.__init__
        monkeypatch.setattr(ResumedBatch, "__init__", lambda *args: (making.set(), time.sleep(0.2), make(*args))[2])
        assert PoolLoader(bench).start(other_card).wait(60)
        assert making.wait(30)
        resume(bench)  # of another loading, at the same time
        while (resumed := bench.jobs.find(batch.id, BatchJob)) is None:
            time.sleep(0.01)
        assert resumed.wait(60) and store.flush() and not bench.cut_off and not unfinished(store.path)
        bench.close()
    runs = recorded(crash.path)
    assert what(runs) == sorted((item.prompt, spec, "completed") for item in ITEMS for spec in SPECS)
    assert {run.conditions.pool for run in runs} == {"other"}


def test_a_batch_that_is_due_as_the_server_ends_is_left_to_the_next(
    workbench: Workbench, pool: Pool, crash: Crash
) -> None:
    batch = BatchJob(workbench, ITEMS, SPECS, PARAMS)
    crash.rows.append(lambda: len(batch.rows) == 2)
    ended(workbench, batch)
    with Store(crash.path) as store:
        bench = Workbench(pool, store)
        bench.close()
        recover(bench)
        assert store.flush() and list(unfinished(store.path)) == [batch.id]


def test_a_batch_that_a_visitor_stops_does_not_go_on(workbench: Workbench, store: Store, gate) -> None:
    batch = workbench.jobs.submit(BatchJob(workbench, ITEMS, SPECS, PARAMS))
    assert gate.reached.wait(30)
    batch.cancel()
    gate.open()
    assert batch.wait(30) and store.flush() and not unfinished(store.path)
    assert batch.ending == f"stopped after {len(batch.rows) - 1} of 8 runs", "the one under way was cut short"
    result = experiment_result(store.path, batch.id)
    assert result and result.said[0] == [sentence(batch.ending)] and result.title.endswith(f" ({batch.ending})")


def test_a_batch_that_waits_for_its_pool_can_be_stopped(workbench: Workbench, store: Store, crash: Crash) -> None:
    batch = BatchJob(workbench, ITEMS, SPECS, PARAMS)
    crash.rows.append(lambda: len(batch.rows) == 2)
    ended(workbench, batch)
    with Store(crash.path) as store:
        store.add(begins=(batch.id, unfinished(crash.path)[batch.id]))
        assert store.flush()
        bench = Workbench(workbench.pool, store)
        bench.cut_off = unfinished(crash.path)
        tab = built(Batch(bench), bench)
        left = next(iter(tab.buttons.watch(batch.id)))
        assert left[tab.buttons.stop].interactive and not left[tab.buttons.run].interactive
        (listed,) = experiments.listed(crash.path)
        assert "unfinished<small>2 of 8 runs" in list_html(crash.path, [listed], False)
        stopped = tab.give_up(batch.id)
        assert not stopped[tab.buttons.stop].interactive and not bench.cut_off and not unfinished(crash.path)
        assert "Stopped while it waited for its pool." in stopped[tab.status]
        (listed,) = experiments.listed(crash.path)
        assert "<small>Stopped while it waited for its pool.</small>" in list_html(crash.path, [listed], False)
        assert tab.give_up(batch.id) == {tab.status: gr.skip()}, "there is none any more"
        bench.close()


def test_texts_that_are_stopped_together_are_told_as_stopped(workbench: Workbench, store: Store, gate) -> None:
    batch = workbench.jobs.submit(BatchJob(workbench, ITEMS, SPECS[:1], PARAMS, texts_at_once=4))
    assert gate.reached.wait(30)
    batch.cancel()
    gate.open()
    assert batch.wait(30) and batch.ending == "stopped after 0 of 4 runs"


def test_what_another_version_has_written_is_let_go(pool: Pool, store: Store) -> None:
    store.add(begins=("one", {"runs": [{"of": "another time"}]}))
    assert store.close()
    assert recovered(pool, store.path) == ([], None)


def test_only_one_server_takes_up_what_is_unfinished(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with serving(path) as first, serving(path) as second:
        assert first and not second
    with serving(path) as again:
        assert again
    with serving(tmp_path / "missing" / "runs.db") as nowhere:
        assert not nowhere


def test_nothing_is_written_while_a_round_is_timed(
    workbench: Workbench, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three writes a run, its beginning, its end and its scores, and the device waits for each."""
    assert store.flush()
    writing, timed, writes = [False], [0], [0]
    insert, score = Store._insert, Target.score

    def noted(*arguments: Any) -> None:
        writing[0], writes[0] = True, writes[0] + 1
        insert(*arguments)
        writing[0] = False

    def watched(target: Target, draft: Draft) -> Any:
        assert not writing[0]
        timed[0] += 1
        return score(target, draft)

    monkeypatch.setattr(Store, "_insert", noted)
    monkeypatch.setattr(Target, "score", watched)
    for request in ({}, {"measures_baseline": False, "scores_when_idle": True}):
        before = writes[0]
        ended(workbench, RunJob(workbench, Request(ITEMS[0].prompt, "ucb", PARAMS, **request)))
        assert writes[0] - before == 2 + bool(request) and timed[0] > 2
    ended(workbench, BatchJob(workbench, ITEMS, SPECS, PARAMS))
    assert writes[0] == 5 + 1 + len(ITEMS) + 1


def test_copies_know_of_nothing_under_way(store: Store, tmp_path: Path) -> None:
    store.add(begins=("one", asdict(PARAMS)))
    assert store.flush()
    snapshot(store.path, tmp_path / "copy.db")
    assert unfinished(store.path) and not unfinished(tmp_path / "copy.db")
    open_writer(tmp_path / "copy.db", 1.0).close()
