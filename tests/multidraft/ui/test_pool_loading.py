"""Another pool while the app runs: loaded beside the present one, exchanged between runs, and its memory freed."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path

import gradio as gr
import pytest
import torch

from drafters.hub import HubDownError
from drafters.loading import PoolMemoryError
from drafters.pool import Pool, load_pool
from drafters.progress import Step
from multidraft.bench.suites import SuiteItem
from multidraft.errors import PoolError, UserError
from multidraft.sampling import SamplingParams
from multidraft.ui import app, pool_list, pool_loading, worker
from multidraft.ui.api import Api
from multidraft.ui.batch import Batch
from multidraft.ui.batch_run import BatchRun
from multidraft.ui.lab_work import LabWork
from multidraft.ui.play import Play
from multidraft.ui.pool_line import PoolLine
from multidraft.ui.pool_list import loading_html, progress_text
from multidraft.ui.pool_loading import Loading, PoolLoader
from multidraft.ui.pool_tab import PoolTab
from multidraft.ui.race import Race
from multidraft.ui.race_run import RaceRun
from multidraft.ui.worker import Request, Workbench
from storage import queries
from storage.store import Store
from storage.texts import TextFilter
from tests.multidraft.ui.test_page import Visitor

PARAMS = SamplingParams(max_new_tokens=8, draft_length=4)
PROMPT = "abc abd"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_loading, "FREE_SECONDS", 0.02)
    monkeypatch.setattr(pool_loading, "MOST_FREE_SECONDS", 0.1)


def ended(loading: Loading) -> Loading:
    assert loading.ended.wait(60), f"the loading hangs in phase {loading.phase}"
    return loading


def freed(pool: weakref.ref[Pool]) -> bool:
    """Whether the pool is gone when the loader has done its work."""
    for thread in threading.enumerate():
        if thread.name == "pool-loader":
            thread.join(10)
    return pool() is None


def test_the_pool_is_exchanged_and_runs_are_recorded_with_theirs(
    own_bench: Workbench, other_card: Path, store: Store
) -> None:
    first = own_bench.submit(Request(PROMPT, "fixed:near", PARAMS))
    old = first.pool.card_hash
    assert ended(PoolLoader(own_bench).start(other_card)).phase == "done"
    second = own_bench.submit(Request(PROMPT, "fixed:copy", PARAMS))
    assert first.wait(60) and second.wait(60) and store.flush()
    assert own_bench.pool.name == "other" and own_bench.pool.card_hash != old
    runs = queries.runs(store.path)
    assert runs.pool.to_list() == ["other", "tiny"] and runs.card_hash.to_list() == [own_bench.pool.card_hash, old]
    assert runs.output[0] == runs.output[1]  # the target is the same


def test_runs_in_line_end_on_the_pool_they_were_asked_of(
    own_bench: Workbench, other_card: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go = threading.Event(), threading.Event()
    own_bench.between_runs(lambda: (reached.set(), go.wait(30)))
    assert reached.wait(30)
    waiting = own_bench.submit(Request(PROMPT, "fixed:near", PARAMS))
    loader = PoolLoader(own_bench)
    loading = loader.start(other_card)
    while loading.phase == "loading":
        loading.ended.wait(0.01)
    late = own_bench.submit(Request(PROMPT, "fixed:near", PARAMS))  # the page does not know yet
    assert "takes over when the runs in line have ended" in loading_html(loading)
    told = list[str]()
    warm_up = worker.warm_up
    monkeypatch.setattr(worker, "warm_up", lambda pool: (told.append(loading_html(loading)), warm_up(pool)))
    go.set()
    assert ended(loading).phase == "done" and late.wait(60) and waiting.wait(60)
    assert "decodes its first tokens" in told[0] and "runs in line" not in told[0]
    assert [job.generation.status for job in (waiting, late)] == ["completed", "completed"]
    assert [job.pool.name for job in (waiting, late)] == ["tiny", "tiny"] and own_bench.pool.name == "other"


def everything_used(own_bench: Workbench, page: gr.Blocks, prompts: Path) -> None:
    """Runs, races, batches, replays and calls, each to its end; the tabs' objects are those of ``page``, too."""
    list(Play(own_bench).run(PROMPT, "ucb", 8, 0, 1, 0, 4, 0, (), Visitor()))  # type: ignore[arg-type]
    races = Race(own_bench)
    race, *_ = races.start("", PROMPT, "ucb", "random", "", "", 8, 0, 1, 0, 4, 0)
    *_, replayed = races.watch(race)
    assert replayed[1]["ready"]
    tab = Batch(own_bench)
    prompts.write_text(PROMPT)
    id, *_ = tab.start(None, str(prompts), ["ucb"], 1, 4)
    list(tab.follow(id))
    tab.open(id, type("Event", (), {"item": 0})())
    assert (batch := tab.batches.get(id)) and [row.status for row in batch.run.rows] == ["completed"]
    Api(own_bench).generate(PROMPT, "ucb", max_new_tokens=8)
    list(Api(own_bench).stream(PROMPT, "ucb", max_new_tokens=8))
    own_bench.store.flush()
    lab = LabWork(own_bench)
    list(lab.experiment(TextFilter(), ["ucb"]))
    lab.route(own_bench.pool.name, own_bench.pool.card_hash, [drafter.name for drafter in own_bench.pool.drafters])
    for fn in page.fns.values():
        assert fn is not None


def test_the_old_pool_is_freed_whatever_was_done_with_it(
    own_bench: Workbench, other_card: Path, pool_card: Path, tmp_path: Path
) -> None:
    """Back and forth, so that what is held shows: there are no more parameters than before."""
    loader = PoolLoader(own_bench)
    page = app._build(own_bench, loader)
    sizes = []
    for card in (other_card, pool_card, other_card, pool_card):
        everything_used(own_bench, page, tmp_path / "mine.txt")
        old = weakref.ref(own_bench.pool)
        assert ended(loader.start(card)).phase == "done"
        assert freed(old), [type(holder) for holder in gc.get_referrers(old())]
        sizes.append(sum(p.nbytes for p in gc.get_objects() if type(p) is torch.nn.Parameter))
    assert sizes[:2] == sizes[2:]


def test_a_batch_and_a_race_under_way_keep_their_pool(own_bench: Workbench, other_card: Path) -> None:
    """All of their runs are on one pool, or they could not be compared; its memory is freed when they end."""
    old = weakref.ref(own_bench.pool)
    race = RaceRun(own_bench, PROMPT, ["fixed:near", "fixed:alone"], PARAMS)
    items = [SuiteItem("1", PROMPT), SuiteItem("2", "de")]
    batch = BatchRun(own_bench, "mine", items, ["fixed:near"], PARAMS)
    race_steps, batch_steps = race.run(), batch.run()
    next(race_steps), next(batch_steps)
    assert ended(PoolLoader(own_bench).start(other_card)).phase == "done"
    list(race_steps), list(batch_steps)
    assert [job.generation.status for job in race.jobs.values()] == ["completed"] * 2
    assert [row.status for row in batch.rows] == ["completed"] * 2
    assert (batch.pool, batch.drafters) == ("tiny", ["near", "lookup", "far", "alone"])
    del race, race_steps
    assert freed(old)


FAILURES: list[tuple[Exception, str]] = [
    (PoolError("the Hub repository a/b is gated: ask"), "the Hub repository a/b is gated: ask"),
    (ValueError("odd\nthing"), "ValueError: odd"),
    (torch.OutOfMemoryError("CUDA"), "memory ran out when it decoded"),
    (PoolMemoryError("no room on cuda"), "no room on cuda"),
]


@pytest.mark.parametrize(("error", "said"), FAILURES)
def test_a_failure_is_told_and_the_old_pool_goes_on(
    own_bench: Workbench, other_card: Path, error: Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(source: str, progress: Callable[[Step], None]) -> Pool:
        raise error

    loader = PoolLoader(own_bench, load=fail)
    loading = ended(loader.start(other_card))
    assert loading.phase == "failed" and said in loading.error
    html = loading_html(loading)
    assert "Another &lt;pool&gt; could not be loaded" in html and 'role="alert"' in html
    report = (line := PoolLine(loader)).report()
    assert report["name"] == "tiny" and "could not be loaded; the tab Pool says why" in report["status"]
    monkeypatch.setattr(pool_list, "FAILED_SECONDS", 0.0)
    assert line.report()["status"] == f"{own_bench.pool.title} is loaded."
    assert "could not be loaded" in PoolTab(loader).state()[0]
    assert own_bench.submit(Request(PROMPT, "ucb", PARAMS)).wait(60)


@pytest.mark.parametrize(
    ("missing", "in_use", "advised"),
    [(10, 10, True), (10, 9, False), (None, 1 << 30, True), (None, 1 << 20, False)],
)
def test_freeing_the_pool_in_use_is_advised_where_it_could_help(
    missing: int | None, in_use: int, advised: bool
) -> None:
    reason = pool_loading._reason(PoolMemoryError("no room", missing), in_use)
    assert reason.startswith("no room") and ("load a small one first" in reason) == advised


def test_a_pool_knows_the_bytes_of_its_weights(kinds_card: Path) -> None:
    pool = load_pool(kinds_card)
    heads = {id(drafter.head): drafter.head for drafter in pool.drafters if drafter.kind == "eagle"}
    assert len(heads) == 2 and sum(drafter.kind == "eagle" for drafter in pool.drafters) == 4
    drafters = sum(drafter.parameter_count for drafter in pool.drafters if drafter.kind != "eagle")
    drafters += sum(head.parameter_count for head in heads.values())
    assert pool.weight_bytes == pool.target.model.get_memory_footprint() + 4 * drafters


def test_a_failing_warm_up_leaves_the_old_pool(own_bench: Workbench, other_card: Path) -> None:
    def broken(source: str, progress: Callable[[Step], None]) -> Pool:
        pool = load_pool(source, progress=progress)
        pool.target.score = None  # type: ignore[assignment]
        return pool

    loading = ended(PoolLoader(own_bench, load=broken).start(other_card))
    assert loading.phase == "failed" and "TypeError" in loading.error and own_bench.pool.name == "tiny"


def test_one_pool_is_loaded_at_a_time_and_can_be_stopped(own_bench: Workbench, other_card: Path) -> None:
    begun, go = threading.Event(), threading.Event()

    def slow(source: str, progress: Callable[[Step], None]) -> Pool:
        begun.set()
        assert go.wait(30)
        progress(Step("loading", "the target", 1, 2))
        raise AssertionError("it should have stopped")

    loader = PoolLoader(own_bench, load=slow)
    loading = loader.start(other_card)
    assert begun.wait(30)
    with pytest.raises(UserError, match="Another <pool> is being loaded; wait for it, or stop it first"):
        loader.start(other_card)
    loader.allowed = False
    PoolTab(loader).stop()
    assert not loading.cancelled.is_set(), "who may not start one may not stop one"
    loader.allowed = True
    PoolTab(loader).stop()
    go.set()
    assert ended(loading).phase == "cancelled" and "Stopped" in loading_html(loading)
    assert own_bench.pool.name == "tiny" and loader.under_way is None


def test_a_patient_loading_waits_for_a_hub_that_is_down(
    own_bench: Workbench, other_card: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []

    def load(source: str, progress: Callable[[Step], None]) -> Pool:
        tries.append(loader.last.phase if loader.last else "")
        if len(tries) < 3:
            raise HubDownError("the Hub answered 503; try again later")
        return load_pool(source, progress=progress)

    loader = PoolLoader(own_bench, load=load)
    monkeypatch.setattr(pool_loading, "RETRY_SECONDS", 0.01)
    assert ended(loader.start(other_card, patient=True)).phase == "done"
    assert tries == ["loading", "waiting", "waiting"] and own_bench.pool.name == "other"

    tries.clear()
    loading = ended(loader.start(other_card))
    assert (loading.phase, len(tries)) == ("failed", 1) and "503" in loading.error


def test_a_waiting_loading_says_why_and_can_be_stopped(
    own_bench: Workbench, other_card: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(source: str, progress: Callable[[Step], None]) -> Pool:
        raise HubDownError("the Hub answered 503; try again later")

    monkeypatch.setattr(pool_loading, "RETRY_SECONDS", 60.0)
    loader = PoolLoader(own_bench, load=load)
    loading = loader.start(other_card, patient=True)
    until = time.monotonic() + 30
    while loading.phase != "waiting":
        assert time.monotonic() < until
        time.sleep(0.005)
    assert "cannot be loaded yet, and will be tried again: the Hub answered 503" in progress_text(loading)
    loader.cancel()
    assert ended(loading).phase == "cancelled" and own_bench.pool.name == "tiny"


def test_a_card_that_cannot_be_read_is_refused_at_once(own_bench: Workbench) -> None:
    with pytest.raises(PoolError, match="unknown pool 'nowhere'"):
        PoolLoader(own_bench).start("nowhere")


def test_closing_while_a_pool_is_loaded(pool_card: Path, other_card: Path, store: Store) -> None:
    own_bench = Workbench(load_pool(pool_card), store)
    loader = PoolLoader(own_bench)
    loading = loader.start(other_card)
    own_bench.close()
    assert ended(loading).phase in ("cancelled", "done")
    assert not [t for t in threading.enumerate() if t.name == "pool-loader" and (t.join(10), t.is_alive())[1]]
