"""Another pool while the app runs: loaded beside the present one, exchanged between runs, and its memory freed."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
import torch
import yaml

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
from multidraft.ui.dashboard import Dashboard
from multidraft.ui.lab_work import LabWork
from multidraft.ui.play import Play
from multidraft.ui.pool_line import PoolLine
from multidraft.ui.pool_list import known_pools, loading_html, news_text, pools_html, progress_text
from multidraft.ui.pool_loading import Loading, PoolLoader
from multidraft.ui.pool_tab import PoolTab, pool_html
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


@pytest.fixture
def other_card(pool_card: Path, tmp_path: Path) -> Path:
    """Card of a pool with the same target and two drafters, of which one is called as the other pool's."""
    content = yaml.safe_load(pool_card.read_text())
    drafters = [{"name": "far", "kind": "lm", "path": "far"}, {"name": "copy", "kind": "suffix"}]
    content |= {"name": "other", "title": "Another <pool>", "draft_length": 6, "drafters": drafters}
    content["examples"] = [{"task": "letters", "prompt": "a b"}]
    for entry in (content["target"], drafters[0]):
        entry["path"] = str(pool_card.parent / entry["path"])
    path = tmp_path / "other" / "card.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture
def bench(pool_card: Path, store: Store) -> Iterator[Workbench]:
    """A workbench whose pool nothing else refers to."""
    workbench = Workbench(load_pool(pool_card), store)
    yield workbench
    workbench.close()


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
    bench: Workbench, other_card: Path, store: Store
) -> None:
    first = bench.submit(Request(PROMPT, "fixed:near", PARAMS))
    old = first.pool.card_hash
    assert ended(PoolLoader(bench).start(other_card)).phase == "done"
    second = bench.submit(Request(PROMPT, "fixed:copy", PARAMS))
    assert first.wait(60) and second.wait(60) and store.flush()
    assert bench.pool.name == "other" and bench.pool.card_hash != old
    runs = queries.runs(store.path)
    assert runs.pool.to_list() == ["other", "tiny"] and runs.card_hash.to_list() == [bench.pool.card_hash, old]
    assert runs.output[0] == runs.output[1]  # the target is the same


def test_runs_in_line_end_on_the_pool_they_were_asked_of(
    bench: Workbench, other_card: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go = threading.Event(), threading.Event()
    bench.between_runs(lambda: (reached.set(), go.wait(30)))
    assert reached.wait(30)
    waiting = bench.submit(Request(PROMPT, "fixed:near", PARAMS))
    loader = PoolLoader(bench)
    loading = loader.start(other_card)
    while loading.phase == "loading":
        loading.ended.wait(0.01)
    late = bench.submit(Request(PROMPT, "fixed:near", PARAMS))  # the page does not know yet
    assert "takes over when the runs in line have ended" in loading_html(loading)
    told = list[str]()
    warm_up = worker.warm_up
    monkeypatch.setattr(worker, "warm_up", lambda pool: (told.append(loading_html(loading)), warm_up(pool)))
    go.set()
    assert ended(loading).phase == "done" and late.wait(60) and waiting.wait(60)
    assert "decodes its first tokens" in told[0] and "runs in line" not in told[0]
    assert [job.generation.status for job in (waiting, late)] == ["completed", "completed"]
    assert [job.pool.name for job in (waiting, late)] == ["tiny", "tiny"] and bench.pool.name == "other"


def everything_used(bench: Workbench, page: gr.Blocks) -> None:
    """Runs, races, batches, replays and calls, each to its end; the tabs' objects are those of ``page``, too."""
    list(Play(bench).run(PROMPT, "ucb", "", 8, 0, 1, 0, 4, 0, (), Visitor()))  # type: ignore[arg-type]
    list(Race(bench).run(PROMPT, "ucb", "random", "", "", 8, 0, 1, 0, 4, 0, Visitor()))  # type: ignore[arg-type]
    tab = Batch(bench)
    id, _ = tab.start("pocket", None, ["ucb"], 1, 4)
    list(tab.follow(id))
    tab.open(id, type("Event", (), {"item": 0})())
    assert tab.batches.get(id) is not None
    Api(bench).generate(PROMPT, "ucb", max_new_tokens=8)
    list(Api(bench).stream(PROMPT, "ucb", max_new_tokens=8))
    bench.store.flush()
    lab = LabWork(bench)
    list(lab.experiment(TextFilter(), ["ucb"]))
    lab.route(bench.pool.name, bench.pool.card_hash, [drafter.name for drafter in bench.pool.drafters])
    for fn in page.fns.values():
        assert fn is not None


def test_the_old_pool_is_freed_whatever_was_done_with_it(bench: Workbench, other_card: Path, pool_card: Path) -> None:
    """Back and forth, so that what is held shows: there are no more parameters than before."""
    loader = PoolLoader(bench)
    page = app._build(bench, loader)
    sizes = []
    for card in (other_card, pool_card, other_card, pool_card):
        everything_used(bench, page)
        old = weakref.ref(bench.pool)
        assert ended(loader.start(card)).phase == "done"
        assert freed(old), [type(holder) for holder in gc.get_referrers(old())]
        sizes.append(sum(p.nbytes for p in gc.get_objects() if type(p) is torch.nn.Parameter))
    assert sizes[:2] == sizes[2:]


def test_a_batch_and_a_race_under_way_keep_their_pool(bench: Workbench, other_card: Path) -> None:
    """All of their runs are on one pool, or they could not be compared; its memory is freed when they end."""
    old = weakref.ref(bench.pool)
    race = RaceRun(bench, PROMPT, ["fixed:near", "fixed:alone"], PARAMS)
    items = [SuiteItem("1", PROMPT), SuiteItem("2", "de")]
    batch = BatchRun(bench, "mine", items, ["fixed:near"], PARAMS)
    race_steps, batch_steps = race.run(), batch.run()
    next(race_steps), next(batch_steps)
    assert ended(PoolLoader(bench).start(other_card)).phase == "done"
    list(race_steps), list(batch_steps)
    assert [job.generation.status for job in race.jobs] == ["completed"] * 2
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
    bench: Workbench, other_card: Path, error: Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(source: str, progress: Callable[[Step], None]) -> Pool:
        raise error

    loader = PoolLoader(bench, load=fail)
    loading = ended(loader.start(other_card))
    assert loading.phase == "failed" and said in loading.error
    html = loading_html(loading)
    assert "Another &lt;pool&gt; could not be loaded" in html and 'role="alert"' in html
    report = (line := PoolLine(loader)).report()
    assert report["name"] == "tiny" and "could not be loaded; the tab Pool says why" in report["status"]
    monkeypatch.setattr(pool_list, "FAILED_SECONDS", 0.0)
    assert line.report()["status"] == f"{bench.pool.title} is loaded."
    assert "could not be loaded" in PoolTab(loader).state()[0]
    assert bench.submit(Request(PROMPT, "ucb", PARAMS)).wait(60)


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


def test_a_failing_warm_up_leaves_the_old_pool(bench: Workbench, other_card: Path) -> None:
    def broken(source: str, progress: Callable[[Step], None]) -> Pool:
        pool = load_pool(source, progress=progress)
        pool.target.score = None  # type: ignore[assignment]
        return pool

    loading = ended(PoolLoader(bench, load=broken).start(other_card))
    assert loading.phase == "failed" and "TypeError" in loading.error and bench.pool.name == "tiny"


def test_one_pool_is_loaded_at_a_time_and_can_be_stopped(bench: Workbench, other_card: Path) -> None:
    begun, go = threading.Event(), threading.Event()

    def slow(source: str, progress: Callable[[Step], None]) -> Pool:
        begun.set()
        assert go.wait(30)
        progress(Step("loading", "the target", 1, 2))
        raise AssertionError("it should have stopped")

    loader = PoolLoader(bench, load=slow)
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
    assert bench.pool.name == "tiny" and loader.under_way is None


def test_a_patient_loading_waits_for_a_hub_that_is_down(
    bench: Workbench, other_card: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []

    def load(source: str, progress: Callable[[Step], None]) -> Pool:
        tries.append(loader.last.phase if loader.last else "")
        if len(tries) < 3:
            raise HubDownError("the Hub answered 503; try again later")
        return load_pool(source, progress=progress)

    loader = PoolLoader(bench, load=load)
    monkeypatch.setattr(pool_loading, "RETRY_SECONDS", 0.01)
    assert ended(loader.start(other_card, patient=True)).phase == "done"
    assert tries == ["loading", "waiting", "waiting"] and bench.pool.name == "other"

    tries.clear()
    loading = ended(loader.start(other_card))
    assert (loading.phase, len(tries)) == ("failed", 1) and "503" in loading.error


def test_a_waiting_loading_says_why_and_can_be_stopped(
    bench: Workbench, other_card: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(source: str, progress: Callable[[Step], None]) -> Pool:
        raise HubDownError("the Hub answered 503; try again later")

    monkeypatch.setattr(pool_loading, "RETRY_SECONDS", 60.0)
    loader = PoolLoader(bench, load=load)
    loading = loader.start(other_card, patient=True)
    until = time.monotonic() + 30
    while loading.phase != "waiting":
        assert time.monotonic() < until
        time.sleep(0.005)
    assert "cannot be loaded yet, and will be tried again: the Hub answered 503" in progress_text(loading)
    loader.cancel()
    assert ended(loading).phase == "cancelled" and bench.pool.name == "tiny"


def test_a_card_that_cannot_be_read_is_refused_at_once(bench: Workbench) -> None:
    with pytest.raises(PoolError, match="unknown pool 'nowhere'"):
        PoolLoader(bench).start("nowhere")


def test_closing_while_a_pool_is_loaded(pool_card: Path, other_card: Path, store: Store) -> None:
    bench = Workbench(load_pool(pool_card), store)
    loader = PoolLoader(bench)
    loading = loader.start(other_card)
    bench.close()
    assert ended(loading).phase in ("cancelled", "done")
    assert not [t for t in threading.enumerate() if t.name == "pool-loader" and (t.join(10), t.is_alive())[1]]


def test_progress_is_told_in_words_and_bytes() -> None:
    loading = Loading("x", "A <pool>")
    assert "Loading A &lt;pool&gt;" in loading_html(loading)
    loading.note(Step("fetching", "the target, a/b", 1, 6, 1_250_000_000, 5_000_000_000))
    html = loading_html(loading)
    assert "step 1 of 6: fetching the target, a/b (1.2 GiB of 4.7 GiB)" in html and "0 s so far" in html
    assert 'max="5e+09" value="1.25e+09"' in html
    loading.note(Step("loading", "drafter 'b'", 4, 6))
    assert 'max="6" value="3"' in loading_html(loading)


def test_a_hub_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_list, "SILENT_SECONDS", 0.0)
    loading = Loading("x", "A pool", from_hub=True)
    assert "Nothing has come from the Hub for 0 s; it is asked again" in progress_text(loading)  # for its configuration
    loading.note(Step("fetching", "the target, a/b", 1, 2))
    assert "Nothing has come" in progress_text(loading)
    loading.note(Step("loading", "the target", 2, 2))
    assert "Nothing has come" not in progress_text(loading)
    assert "Nothing has come" not in progress_text(Loading("x", "A pool"))  # of files on this machine


def test_the_line_tells_little_and_the_tab_all() -> None:
    loading = Loading("x", "A pool", from_hub=True)
    loading.note(Step("fetching", "the target, a/b", 1, 6, 5, 10))
    assert news_text(loading) == "Loading A pool, step 1 of 6 …" and "a/b" in progress_text(loading)
    loading.phase, loading.error = "waiting", "a long reason"
    assert "a long reason" not in news_text(loading) and "a long reason" in progress_text(loading)
    loading.end("done")
    assert news_text(loading) == news_text(None) == ""


# What the page shows and follows.


def test_tabs_follow_the_pool(bench: Workbench, other_card: Path) -> None:
    page = app._build(bench, loader := PoolLoader(bench))
    assert page is not None
    ended(loader.start(other_card))
    play = Play(bench)
    task, *_, policy, length, draft, turns, _, anew, legend, note = play.follow("fixed:near", 500, "")
    assert task.choices == [("letters", "letters")] and policy.value == "rate-hedge"
    assert {"fixed:far", "fixed:copy"} <= {spec for _, spec in policy.choices} >= {"ucb"}
    assert "fixed:near" not in {spec for _, spec in policy.choices}
    assert (length.maximum, length.value, draft.value) == (63, 63, 6)
    assert "copy" in legend and "Another &lt;pool&gt;" in note and turns == () and anew.visible is False
    kept = play.follow("ucb", 20, "<span>an output</span>")
    assert kept[5].value == "ucb" and kept[6].value == 20 and kept[11] == gr.skip()
    task, *_ = Race(bench).follow(20, None)
    assert task.choices == [("letters", "letters")]


def test_a_page_is_left_alone_when_it_opens_unless_the_pool_is_another(bench: Workbench, other_card: Path) -> None:
    """What a quick visitor has begun by then would be lost."""
    line = PoolLine(loader := PoolLoader(bench))
    with gr.Blocks() as page:
        line.build(page)
        boxes = [gr.HTML(), gr.HTML()]
        line.followed_by(lambda: ("this", "and that"), None, boxes)
        line.followed_by(lambda: "alone", None, boxes[0])
    both, one = (event.fn for event in page.fns.values() if event.fn and event.fn.__name__ == "opened")
    assert both() == (gr.skip(), gr.skip()) and one() == gr.skip()
    ended(loader.start(other_card))
    assert both() == ("this", "and that") and one() == "alone"


def test_the_list_tells_what_is_loaded_and_what_a_pool_needs(
    bench: Workbench, other_card: Path, pool_card: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (other_card.parent.parent / "broken.yaml").write_text("name: [")
    html = pools_html(pools := known_pools(other_card.parent.parent), bench.pool.card, True)
    assert {"pocket", "pocket-heads", str(other_card)} <= {pool.source for pool in pools}
    assert "Another &lt;pool&gt;" in html and "cannot read the pool card" in html
    assert "1 × small language model, 1 × suffix automaton" in html
    assert html.count("<button") == len(pools) - 1 and 'aria-label="Load Pocket pool"' in html
    assert "<button" not in pools_html(pools, bench.pool.card, False)
    assert pools_html(pools, bench.pool.card, True, busy=True).count("disabled>Load") == len(pools) - 1
    ended(PoolLoader(bench).start(other_card))
    assert pools_html(pools, bench.pool.card, True).count("Loaded</p>") == 1


def test_the_tab_says_whose_weights_a_drafter_uses(kinds_card: Path) -> None:
    html = pool_html(load_pool(kinds_card), "a CPU", "1.0")
    assert html.count("shared with eagle-1<") == html.count("shared with eagle-3<") == 1


class Click:
    """Stands for ``gr.EventData``."""

    def __init__(self, **data: Any):
        self.__dict__.update(data)


def test_the_tab_loads_known_pools_only_and_only_where_it_may(
    bench: Workbench, other_card: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tab = PoolTab(PoolLoader(bench))
    *_, (status, *_) = tab.load(Click(pool=str(other_card)))  # type: ignore[arg-type]
    assert "no such pool" in status
    tab.loader.cards = other_card.parent
    *_, (status, stop, pools, now, *_) = tab.load(Click(pool=str(other_card)))  # type: ignore[arg-type]
    assert "is in use" in status and stop.visible is False and "Loaded</p>" in pools
    assert "<h2>Another &lt;pool&gt;</h2>" in now  # at once, whenever the page notices the switch
    tab.loader.cards = (failing := tmp_path / "failing.yaml").parent
    failing.write_text(other_card.read_text().replace("path: ", "path: no"))
    *_, (status, stop, pools, *_) = tab.load(Click(pool=str(failing)))  # type: ignore[arg-type]
    assert "could not be loaded" in status and stop.visible is False and "disabled" not in pools
    closed = PoolTab(PoolLoader(bench, allowed=False))
    first, (status, *_) = closed.load(Click(pool=str(other_card)))  # type: ignore[arg-type]
    assert "Switching pools is off" in status and "MULTIDRAFT_SWITCH" in first[2] and "<button" not in first[2]
    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    assert "MULTIDRAFT_POOL</code>" in closed.state()[2] and "MULTIDRAFT_SWITCH" not in closed.state()[2]


def test_the_dashboard_s_filter_follows_unless_it_was_changed(store: Store) -> None:
    dashboard = Dashboard(store, lambda: {"pool": "other", "hardware": "a GPU"})
    before = {"pool": "tiny", "hardware": "a CPU"}
    now, pool, hardware = dashboard.follow(before, "tiny", "a CPU")
    assert (now["pool"], pool.value, hardware.value) == ("other", "other", "a GPU")
    assert dashboard.follow(before, "a third", "another")[1:] == [gr.skip(), gr.skip()]


def test_the_endpoint_tells_the_pool(bench: Workbench, other_card: Path) -> None:
    line = PoolLine(loader := PoolLoader(bench))
    assert line.pool()["name"] == "tiny" and line.pool()["loading"] is False
    ended(loader.start(other_card))
    told = line.pool()
    assert (told["name"], told["drafters"], told["draft_length"]) == ("other", ["far", "copy"], 6)
    assert told["card_hash"] == bench.pool.card_hash and told["status"] == "Another <pool> is loaded."
    *_, report = Api(bench).generate(PROMPT, "ucb", max_new_tokens=4)
    assert report["pool"] == "other"


def test_a_link_from_another_pool_says_so(bench: Workbench) -> None:
    status, *_ = Play(bench).restore(Visitor(prompt="abc", with_pool="<b>"))  # type: ignore[arg-type]
    assert (
        "made with pool &lt;b&gt;, but tiny is loaded: speed will differ, and so will the text, unless both" in status
    )
    status, *_ = Play(bench).restore(Visitor(prompt="abc", with_pool="tiny"))  # type: ignore[arg-type]
    assert "made with" not in status
