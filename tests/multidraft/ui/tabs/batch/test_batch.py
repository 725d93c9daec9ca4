import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import gradio as gr
import pandas as pd
import pytest

from drafters.sampling import SamplingParams
from multidraft.bench.suites import Suite, SuiteItem
from multidraft.bench.summary import NO_TASK
from multidraft.service import batch as service_batch
from multidraft.service.batch import BatchJob
from multidraft.service.workbench import Workbench
from multidraft.ui.tabs.batch import view as batch_view
from multidraft.ui.tabs.batch.tab import Batch
from multidraft.ui.widgets import exports
from storage.connection import open_reader
from storage.store import Store
from tests.history import recorded
from tests.multidraft.ui.building import after, built, laid_out
from tests.multidraft.ui.tabs.visits import click, visit
from tests.runs import make_run

PARAMS = SamplingParams(max_new_tokens=8, draft_length=4)
ITEMS = [SuiteItem("1", "abc abd", "letters"), SuiteItem("2", "a" * 200, "long"), SuiteItem("3", "bcd bce", "")]

SUITE = Suite("mine", ITEMS)


def job(workbench: Workbench, policies: list[str], items: list[SuiteItem] = ITEMS, **changes: Any) -> BatchJob:
    return BatchJob(workbench, items, policies, **{"params": PARAMS, "suite": SUITE, **changes})


def run(workbench: Workbench, policies: list[str], items: list[SuiteItem] = ITEMS, **changes: Any) -> BatchJob:
    batch = workbench.jobs.submit(job(workbench, policies, items, **changes))
    assert batch.wait(60)
    return batch


def test_a_row_per_prompt_and_policy_in_order(workbench: Workbench, store: Store) -> None:
    batch = job(workbench, ["ucb", "fixed:near"])
    assert batch.seconds_left is None
    assert workbench.jobs.submit(batch).wait(60)
    assert workbench.jobs.find(batch.id, BatchJob) is batch and batch.suite == SUITE
    assert batch.runs_done == 6 and batch.seconds_left == 0 and batch.error is None
    assert [(row.id, row.policy) for row in batch.rows] == [
        (id, policy) for id in ("1", "2", "3") for policy in ("ucb", "fixed:near")
    ]
    assert [row.status for row in batch.rows] == ["completed"] * 2 + ["too long"] * 2 + ["completed"] * 2
    assert batch.ending == "2 of 6 runs left out: their prompts do not fit the context window"
    assert all("context window" in (row.error or "") for row in batch.rows[2:4])
    assert batch.rows[4].task == NO_TASK
    assert batch.rows[0].speedup and batch.rows[0].mean_accepted_tokens and batch.rows[0].tokens == 8
    assert store.flush()
    runs = recorded(store.path)
    assert {(run.origin.batch_id, run.origin.suite, run.origin.source) for run in runs} == {(batch.id, "mine", "batch")}
    assert len(runs) == 4
    assert len({(run.generation.prompt, run.baseline) for run in runs}) == 2, "policies share the baseline of a prompt"


def test_policies_take_turns_to_be_first(workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    measure = workbench.measure
    monkeypatch.setattr(workbench, "measure", lambda m: (order.append(m.request.policy), measure(m))[1])
    items = [SuiteItem(str(n), text) for n, text in enumerate(("abc", "bcd", "abd"))]
    batch = run(workbench, ["ucb", "autoregressive", "random"], items)
    assert order == [
        "ucb",
        "autoregressive",
        "random",
        "autoregressive",
        "random",
        "ucb",
        "random",
        "ucb",
        "autoregressive",
    ]
    assert [row.policy for row in batch.rows] == ["ucb", "autoregressive", "random"] * 3


def test_the_autoregressive_policy_is_the_baseline_of_its_prompt(workbench: Workbench, store: Store) -> None:
    batch = run(workbench, ["ucb", "autoregressive"], ITEMS[:1])
    assert batch.rows[1].speedup == pytest.approx(1.0) and batch.rows[1].request_speedup == pytest.approx(1.0)
    assert store.flush()
    assert {run.baseline.kind for run in recorded(store.path) if run.baseline} == {"answer"}


def test_progress_counts_up_to_all(workbench: Workbench, gate) -> None:
    batch = workbench.jobs.submit(job(workbench, ["ucb"]))
    assert gate.reached.wait(30)
    assert (batch.runs_done, batch.total) == (0, 3) and batch.now == (ITEMS[0], "ucb")
    gate.open()
    assert batch.wait(60) and batch.runs_done == 3 and batch.now is None


def test_time_left_is_that_of_the_runs_so_far(workbench: Workbench) -> None:
    batch = job(workbench, ["ucb", "random"])
    batch._seconds = {"ucb": [2.0, 4.0], "random": [1.0]}
    assert batch.seconds_left == pytest.approx(1 * 3.0 + 2 * 1.0)
    said = {2: "about 5 s", 62: "about 60 s", 300: "about 5 min", 7200: "about 2.0 h"}
    assert {seconds: batch_view.duration(seconds) for seconds in said} == said


def test_a_batch_that_breaks_off_says_so(workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workbench, "measure", lambda measurement: 1 / 0)
    html = batch_view.status_html(run(workbench, ["ucb"]))
    assert "Ended early after 0 of 3 runs: " in html and 'role="alert"' in html


@pytest.fixture
def tab(workbench: Workbench) -> Batch:
    return built(Batch(workbench), workbench)


def started(tab: Batch, tmp_path: Path, text: str = "abc abd\nbcd\n") -> str:
    """The id of a batch of two prompts under two policies."""
    path = tmp_path / "mine.txt"
    path.write_text(text)
    return tab.start(None, str(path), ["ucb", "fixed:near"], 0, 8)[tab.buttons.asked]


def test_a_page_that_leaves_and_another_that_comes_back(tab: Batch, gate, tmp_path: Path) -> None:
    run, stop = tab.buttons.both
    id = started(tab, tmp_path)
    leaving = tab.buttons.watch(id)
    first = next(leaving)
    assert "0 of 4 runs done, time left unknown" in first[tab.status]
    assert first[stop].interactive and not first[run].interactive
    leaving.close()
    gate.open()
    linked = tab.buttons.linked(visit(batch=id))
    assert linked[tab.buttons.asked] == linked[tab.buttons.id] == id
    last = after(tab.buttons.watch(id))
    rows = last[tab.rows]
    assert "Done: 4 of 4 runs" in last[tab.status] and "on pool tiny: 2 prompts" in last[tab.status]
    assert rows.count("data-item") == 4 and 'data-item="1"' in rows
    assert (
        "2 prompts are too few to say which policy is faster" in last[tab.verdict]
        and "<span title=" in last[tab.verdict]
    )
    assert "UCB" in last[tab.summary] and "Pool tiny on " in last[tab.summary]
    assert all(last[chart].visible for chart in tab.charts)
    assert last[run].interactive and not last[stop].interactive
    as_csv, as_json, as_parquet = (last[button] for button in tab.downloads)
    assert as_csv.interactive and json.loads(Path(as_json.value["path"]).read_text())["batch"] == id
    assert len(pd.read_parquet(as_parquet.value["path"])) == 4
    (again,) = tab.buttons.watch(id)  # a batch that has ended is there at once
    assert again[tab.rows] == rows and again[tab.detail] == batch_view.HINT
    assert again[tab.verdict] == last[tab.verdict]


def test_a_batch_is_followed_while_it_runs(tab: Batch, gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_batch, "LONGEST_SECONDS", 0.01)
    watching = tab.buttons.watch(started(tab, tmp_path))
    updates = [next(watching) for _ in range(3)]  # the gate is shut: the batch still runs
    assert "Batch running" in updates[-1][tab.status] and updates[-1][tab.rows].startswith(batch_view.rows_start())
    gate.open()
    assert "Done" in after(watching)[tab.status]
    assert list(tab.buttons.watch("")) == [gr.skip()]


def test_files_are_written_once_whoever_looks_on(
    workbench: Workbench, tab: Batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = started(tab, tmp_path)
    *_, _ = tab.buttons.watch(id)
    held = workbench.jobs.find(id, BatchJob)
    assert held
    written = tab.files(held)
    with ThreadPoolExecutor(8) as watchers:
        seen = list(watchers.map(lambda _: tab.files(held), range(8)))
    assert all(files == written for files in seen)
    assert written[0]
    written[0].unlink()  # a day later
    again = tab.files(held)
    assert again[1] and all(file and file.exists() for file in again)

    monkeypatch.setattr(exports, "_folder", lambda: tmp_path / "mine.txt" / "no folder")
    again[1].unlink()
    last = after(tab.buttons.watch(id))
    assert "Done: 4 of 4 runs" in last[tab.status] and not last[tab.downloads[0]].interactive  # results, if no files


def test_a_cancelled_batch_says_so_and_does_not_look_done(
    workbench: Workbench, tab: Batch, gate, tmp_path: Path
) -> None:
    """Only what it does is said, not every run."""
    id = started(tab, tmp_path)
    assert gate.reached.wait(30) and (held := workbench.jobs.find(id, BatchJob))
    assert 'role="status">Batch running on pool tiny</span><span>: 0 of 4 runs done' in batch_view.status_html(held)
    tab.buttons.cancel(id)
    said = next(tab.buttons.watch(id))[tab.status]
    assert 'role="status">Batch on pool tiny stopping after the round in progress</span>' in said
    gate.open()
    status = after(tab.buttons.watch(id))[tab.status]
    assert (
        "Stopped: 0 of 4 runs" in status
        and held.ending == "stopped after 0 of 4 runs"
        and "md-cancelled" in status
        and "md-done" not in status
    )
    assert [row.status for row in held.rows] == ["cancelled"]
    tab.buttons.cancel("unknown")  # nothing happens


def test_a_sampled_batch_has_the_verdict_of_its_runs(tab: Batch, tmp_path: Path) -> None:
    """Its texts cannot be replayed."""
    path = tmp_path / "mine.txt"
    path.write_text("abc abd\nbcd\n")
    id = tab.start(None, str(path), ["ucb", "fixed:near"], 0, 8, 1, 0, 1.0)[tab.buttons.asked]
    said = after(tab.buttons.watch(id))[tab.verdict]
    assert "2 prompts are too few to say which policy is faster" in said and said.count("md-verdict") == 1
    assert f"draft length: no run of batch {id} can be replayed; of the latest: it was sampled" in said


def test_a_batch_nobody_knows_is_explained(tab: Batch) -> None:
    (shown,) = tab.buttons.watch("0" * 32)
    assert "There is no such batch here, or it is older than this server keeps." in shown[tab.status]


def test_a_prompt_opens_with_every_policy(tab: Batch, tmp_path: Path) -> None:
    id = started(tab, tmp_path, "abc abd\n" + "a" * 200 + "\n")
    *_, _ = tab.buttons.watch(id)
    html = tab.open(id, click(item=0))
    assert html.count("<article>") == 2 and "md-token" in html and "abc abd" in html and "Prompt 1, no task" in html
    assert "context window" in tab.open(id, click(item=1))
    hints = [tab.open(id, click(item=item)) for item in (2, "x")]
    assert [*hints, tab.open("gone", click(item=0))] == [batch_view.HINT] * 2 + [batch_view.GONE]


def test_the_form_of_a_batch_comes_back_with_it(workbench: Workbench, tab: Batch, tmp_path: Path) -> None:
    # Held before its first prompt: this pool refuses the bundled suite's prompts as too long, without any round.
    held = threading.Event()
    workbench.jobs.do(lambda: held.wait(30))
    values = ["pocket", None, ["ucb:beta=0.5"], 3, 12, 4, 3, 0.5, " <b>why ", False]
    begun = tab.start(*values)
    id, (run, stop) = begun[tab.buttons.asked], tab.buttons.both
    assert not begun[run].interactive and begun[stop].interactive, "a second start would be followed as well"

    def linked(**query: str) -> dict:
        return tab.buttons.linked(visit(**query))

    assert workbench.store.flush()
    there = linked(batch=id)
    assert there[tab.buttons.asked] == there[tab.buttons.id] == id
    assert [there[field] for field in tab.buttons.form] == [*values[:-2], "<b>why", False]
    assert there[stop].interactive and not there[run].interactive
    id, path = started(tab, tmp_path), str(tmp_path / "mine.txt")
    assert [linked(batch=id)[field] for field in tab.buttons.form][:6] == [None, path, ["ucb", "fixed:near"], 0, 8, 1]
    more = tab.more(id, click(policies="ucb\nexp3", length="5"))
    assert more[:7] == [None, path, ["ucb", "exp3"], 0, 8, 1, 5]
    assert more[-1] == gr.skip(), "whoever did not opt out then may have done so since"
    Path(path).unlink()
    assert linked(batch=id)[tab.buttons.form[1]] is None
    assert linked() == {tab.buttons.asked: gr.skip()}, "one that was started meanwhile is still followed"
    assert linked(batch="gone") == {tab.buttons.asked: "gone", tab.buttons.id: "gone"}
    held.set()
    assert workbench.store.flush()
    with open_reader(workbench.store.path) as connection:
        assert [note for (note,) in connection.execute("SELECT note FROM notes")] == ["<b>why"]


def test_a_batch_that_cannot_start_says_why(tab: Batch) -> None:
    for suite, policies, limit, length, said in (
        (None, ["ucb"], 0, 8, "Nothing to run"),
        ("pocket", [], 0, 8, "No policy is chosen"),
        ("pocket", ["nonsense"], 0, 8, "choose one of"),
        ("pocket", ["ucb"], -1, 8, "0 (all) or a positive"),
        ("pocket", ["ucb"], 0, None, "Max new tokens is empty"),
        ("pocket", ["ucb"], 1.7, 8, "Max prompts must be a whole number, got 1.7"),
        ("pocket", ["ucb"], 0, 2.5, "Max new tokens must be a whole number, got 2.5"),
        ("pocket", ["ucb"], 0, 99_999, "Max new tokens must be at most 63 here, got 99,999"),
    ):
        shown = tab.start(suite, None, policies, limit, length)
        assert said in shown[tab.status] and 'role="alert"' in shown[tab.status]
        assert set(shown) == {tab.buttons.asked, tab.status, *tab.buttons.both}, said
        assert shown[tab.buttons.asked] == "" and shown[tab.buttons.run].interactive, said
    assert "Draft length must be at most 16 here, got 99" in tab.start("pocket", None, ["ucb"], 0, 8, 1, 99)[tab.status]


def test_a_policy_asked_for_twice_runs_once(workbench: Workbench) -> None:
    batch = job(workbench, ["ucb", "UCB", "ucb:"])
    assert batch.policies == ["ucb"] and batch.total == 3


def test_answers_of_a_few_tokens_are_left_out_of_speedups(workbench: Workbench) -> None:
    short = run(workbench, ["ucb", "random"], ITEMS[:1], params=SamplingParams(5, draft_length=4))
    assert [(row.tokens, row.speedup) for row in short.rows] == [(5, None)] * 2
    summary, row = batch_view.summary_html(short.rows, short.policies, ""), batch_view.row_html(short.rows[0], 0, "")
    html = summary + row + batch_view.detail_html(short, 0)
    assert "2 runs of fewer than 8 tokens are left out" in html and "Too short to say" in html
    assert "×" not in html and "md-best" not in html and "md-matrix" not in html


def test_how_long_a_batch_would_take_is_said_by_what_the_newest_took(workbench: Workbench) -> None:
    tab, pool = Batch(workbench), workbench.pool
    pool.costs = pool.new_costs()
    assert "10 prompts under 2 policies." in tab.takes("pocket", None, ["ucb", "exp3"], 10, 100, 1), "nothing is known"
    pool.costs.plain.clock(0, 0.01)
    at_most = tab.takes("pocket", None, ["ucb", "exp3"], 10, 100, 1)
    assert (
        "10 prompts under 2 policies: about 30 s at most on a quiet machine" in at_most
    )  # 1,000 tokens of the two and the baseline
    made_on = {"card_hash": pool.card_hash, "hardware": workbench.hardware, "dtype": pool.dtype, "max_new_tokens": 20}
    for minute in range(5):  # a run of at most 20 tokens takes a minute
        at = datetime(2026, 1, 1, 0, minute, tzinfo=UTC)
        workbench.store.add(make_run(**made_on, source="batch", batch_id="a", created_at=at))
    late = datetime(2026, 1, 3, tzinfo=UTC)  # the server was down
    workbench.store.add(make_run(**made_on, source="batch", batch_id="a", created_at=late))
    assert workbench.store.flush()
    for length, said in (
        (20, "about 20 min, by the newest batch on this machine."),
        (17, "about 20 min at most on a quiet machine, by the newest batch on it, of 20 new tokens at most."),
        (40, "about 40 min at most on a quiet machine, by the newest batch on it, of 20 new tokens at most."),
    ):
        assert f"under 2 policies: {said}" in tab.takes("pocket", None, ["ucb", "exp3"], 10, length, 1)
    for minute in range(5):
        at = datetime(2026, 1, 4, 0, 2 * minute, tzinfo=UTC)
        workbench.store.add(make_run(**{**made_on, "max_new_tokens": 8}, source="batch", batch_id="b", created_at=at))
    assert workbench.store.flush()
    assert "about 20 min, by the newest" in tab.takes("pocket", None, ["ucb", "exp3"], 10, 20, 1)
    assert "about 40 min, by the newest" in tab.takes("pocket", None, ["ucb", "exp3"], 10, 8, 1)
    assert tab.takes("pocket", None, [], 10, 100, 1) == ""
    assert "did you mean ucb?" in tab.takes("pocket", None, ["ucb", "ucbb"], 10, 100, 1)
    assert tab.takes("pocket", None, ["ucb"], 10, 100, 4) == tab.takes(None, None, ["ucb"], 0, 100, 1) == ""
    assert tab.takes("pocket", None, ["ucb"], None, 100, 1) == tab.takes("pocket", None, ["ucb"], -1, 100, 1) == ""


def test_it_is_told_anew_when_a_batch_has_ended_and_when_the_tab_is_opened(workbench: Workbench) -> None:
    page, place = laid_out(tab := Batch(workbench), workbench)
    events = {target for fn in page.fns.values() if fn.fn == tab.takes for target in fn.targets}
    assert {(place._id, "select"), (tab.summary._id, "change")} < events
