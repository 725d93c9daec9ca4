"""Another pool while the app runs: loaded beside the present one, exchanged between runs, and its memory freed."""

import gc
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from drafters.checkpoints.hub import HubDownError
from drafters.errors import PoolError, PoolMemoryError, UserError
from drafters.pool import Pool, load_pool
from drafters.progress import Step
from drafters.sampling import SamplingParams
from multidraft.bench.measure import Request
from multidraft.bench.suites import SuiteItem
from multidraft.service import pool_loading
from multidraft.service import workbench as workbench_module
from multidraft.service.batch import BatchJob
from multidraft.service.lab import LabWork, Verdicts
from multidraft.service.lending import Lender
from multidraft.service.pool_loading import Loading, PoolLoader
from multidraft.service.race import RaceJob
from multidraft.service.workbench import Workbench
from multidraft.serving.api import Api
from multidraft.ui import app, pool_line
from multidraft.ui.pool_line import PoolLine, progress_text
from multidraft.ui.tabs.batch.tab import Batch
from multidraft.ui.tabs.play.tab import Play
from multidraft.ui.tabs.pool.tab import PoolTab, loading_html
from multidraft.ui.tabs.race.tab import Race
from storage.store import Store
from storage.texts import TextFilter
from tests.history import recorded
from tests.multidraft.ui.building import built

PARAMS = SamplingParams(max_new_tokens=8, draft_length=4)
PROMPT = "abc abd"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_loading, "FREE_SECONDS", 0.02)
    monkeypatch.setattr(pool_loading, "MOST_FREE_SECONDS", 0.1)
    monkeypatch.setattr(workbench_module, "RETURN_SECONDS", 0.02)


def ended(loading: Loading) -> Loading:
    assert loading.ended.wait(60), f"the loading hangs in phase {loading.phase}"
    return loading


def freed(pool: weakref.ref[Pool]) -> bool:
    """Whether the pool is gone when the loader has done its work."""
    for thread in threading.enumerate():
        if thread.name == "pool-settling":
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
    runs = recorded(store.path)
    assert [run.conditions.pool for run in runs] == ["other", "tiny"]
    assert [run.conditions.card_hash for run in runs] == [own_bench.pool.card_hash, old]
    assert runs[0].generation.text == runs[1].generation.text  # the target is the same


def test_runs_in_line_end_on_the_pool_they_were_asked_of(
    own_bench: Workbench, other_card: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go = threading.Event(), threading.Event()
    own_bench.jobs.do(lambda: (reached.set(), go.wait(30)))
    assert reached.wait(30)
    waiting = own_bench.submit(Request(PROMPT, "fixed:near", PARAMS))
    loader = PoolLoader(own_bench)
    loading = loader.start(other_card)
    while loading.phase == "loading":
        loading.ended.wait(0.01)
    late = own_bench.submit(Request(PROMPT, "fixed:near", PARAMS))  # the page does not know yet
    assert "takes over once the queued runs have finished" in loading_html(loading)
    told = list[str]()
    warm_up = Lender.warm_up
    monkeypatch.setattr(Lender, "warm_up", lambda self, pool: (told.append(loading_html(loading)), warm_up(self, pool)))
    go.set()
    assert ended(loading).phase == "done" and late.wait(60) and waiting.wait(60)
    assert "is loaded" not in told[0] and "decodes its first tokens" in told[0] and "runs in line" not in told[0]
    assert [job.run.generation.status for job in (waiting, late)] == ["completed", "completed"]
    assert [job.pool.name for job in (waiting, late)] == ["tiny", "tiny"] and own_bench.pool.name == "other"


def everything_used(own_bench: Workbench, play: Play, races: Race, tab: Batch, prompts: Path) -> None:
    """Runs, races, batches, replays and calls, each to its end."""
    list(play.run((), PROMPT, "ucb", 8, 0, 1, 0, 4, 0))
    race = races.start("", PROMPT, "ucb", "random", "", "", 8, 0, 1, 0, 4, 0)[races.buttons.asked]
    *_, replayed = races.buttons.watch(race)
    assert replayed[races.stage]["ready"]
    prompts.write_text(PROMPT)
    id = tab.start(None, str(prompts), ["ucb"], 1, 4)[tab.buttons.asked]
    list(tab.buttons.watch(id))
    tab.open(id, type("Event", (), {"item": 0})())
    assert (batch := own_bench.jobs.find(id, BatchJob)) and [row.status for row in batch.rows] == ["completed"]
    list(Api(own_bench).generate(PROMPT, "ucb", max_new_tokens=8))
    list(Api(own_bench).stream(PROMPT, "ucb", max_new_tokens=8))
    own_bench.store.flush()
    lab = LabWork(own_bench)
    assert lab.experiment(TextFilter(), ["ucb"]).wait(60)
    lab.route(own_bench.pool.name, own_bench.pool.card_hash, own_bench.pool.drafter_names)


def test_the_old_pool_is_freed_whatever_was_done_with_it(
    own_bench: Workbench, other_card: Path, pool_card: Path, tmp_path: Path
) -> None:
    """Back and forth, so that what is held shows: there are no more parameters than before."""
    loader = PoolLoader(own_bench)
    page = app.build(own_bench, loader, Verdicts(LabWork(own_bench)))
    tabs = [built(tab(own_bench), own_bench) for tab in (Play, Race, Batch)]
    sizes = []
    for card in (other_card, pool_card, other_card):
        everything_used(own_bench, *tabs, tmp_path / "mine.txt")
        old = weakref.ref(own_bench.pool)
        assert ended(loader.start(card)).phase == "done"
        assert freed(old), [type(holder) for holder in gc.get_referrers(old())]
        sizes.append(sum(p.nbytes for p in gc.get_objects() if type(p) is torch.nn.Parameter))
    assert page.fns and sizes[2] <= sizes[0]  # tests before may have left some


def test_a_batch_and_a_race_under_way_keep_their_pool(own_bench: Workbench, other_card: Path) -> None:
    """All of their runs are on one pool, or they could not be compared; its memory is freed when they end."""
    old = weakref.ref(own_bench.pool)
    reached, go = threading.Event(), threading.Event()
    own_bench.jobs.do(lambda: (reached.set(), go.wait(30)))
    assert reached.wait(30)
    race = own_bench.jobs.submit(RaceJob(own_bench, PROMPT, ["fixed:near", "fixed:alone"], PARAMS))
    items = [SuiteItem("1", PROMPT), SuiteItem("2", "de")]
    batch = own_bench.jobs.submit(BatchJob(own_bench, items, ["fixed:near"], PARAMS))
    loading = PoolLoader(own_bench).start(other_card)
    go.set()
    assert ended(loading).phase == "done" and race.wait(60) and batch.wait(60)
    assert [run.generation.status for run in race.measured] == ["completed"] * 2
    assert [row.status for row in batch.rows] == ["completed"] * 2
    assert (batch.pool, batch.drafters) == ("tiny", ["near", "lookup", "far", "alone"])
    assert freed(old)


FAILURES: list[tuple[Exception, str]] = [
    (PoolError("the Hub repository a/b is gated: ask"), "the Hub repository a/b is gated: ask"),
    (ValueError("odd\nthing"), "ValueError: odd"),
    (torch.OutOfMemoryError("CUDA"), "decoding ran out of memory"),
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
    report = (line := PoolLine(loader)).pool()
    assert report["name"] == "tiny" and "could not be loaded: see the Pool tab" in report["status"]
    monkeypatch.setattr(pool_line, "FAILED_SECONDS", 0.0)
    assert line.pool()["status"] == f"{own_bench.pool.title} is loaded."
    tab = built(PoolTab(loader), own_bench)
    assert "could not be loaded" in tab.state()[tab.status]
    assert own_bench.submit(Request(PROMPT, "ucb", PARAMS)).wait(60)


@pytest.mark.parametrize(
    ("missing", "in_use", "advised"),
    [(10, 10, True), (10, 9, False), (None, 1 << 30, True), (None, 1 << 20, False)],
)
def test_freeing_the_pool_in_use_is_advised_where_it_could_help(
    missing: int | None, in_use: int, advised: bool
) -> None:
    workbench = SimpleNamespace(pool=SimpleNamespace(weight_bytes=in_use))
    reason = Loading.explain(SimpleNamespace(workbench=workbench), PoolMemoryError("no room", missing))  # type: ignore
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
    loading = ended(loader.start(other_card, patient=True))
    assert (loading.phase, loading.error) == ("done", None)
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
    assert "cannot be loaded yet and will be retried: the Hub answered 503" in progress_text(loading)
    loader.cancel()
    assert ended(loading).phase == "cancelled" and own_bench.pool.name == "tiny"


def test_drafters_are_left_out_and_come_back(own_bench: Workbench, pool_card: Path) -> None:
    loader = PoolLoader(own_bench)
    with pytest.raises(PoolError, match="no drafter 'nobody' to leave out; it has near, lookup, far, alone"):
        loader.start(f"{pool_card}:without=nobody")
    loading = ended(loader.start(f"{pool_card}:without=far,lookup"))
    assert loading.phase == "done" and [d.name for d in own_bench.pool.drafters] == ["near", "alone"]
    assert own_bench.pool.title == loading.title and loading.title.endswith(" without lookup, far")
    assert own_bench.pool.name == "tiny:without=lookup,far"
    assert ended(loader.start(pool_card)).phase == "done" and len(own_bench.pool.drafters) == 4


def test_a_card_that_cannot_be_read_is_refused_at_once(own_bench: Workbench) -> None:
    with pytest.raises(PoolError, match="unknown pool 'nowhere'"):
        PoolLoader(own_bench).start("nowhere")


def test_closing_while_a_pool_is_loaded(pool_card: Path, other_card: Path, store: Store) -> None:
    own_bench = Workbench(load_pool(pool_card), store)
    loader = PoolLoader(own_bench)
    loading = loader.start(other_card)
    own_bench.close()
    assert ended(loading).phase in ("cancelled", "done")
    assert not [t for t in threading.enumerate() if t.name.startswith("pool loading") and (t.join(10), t.is_alive())[1]]
