from __future__ import annotations

import csv
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gradio as gr
import pandas as pd
import pytest

from multidraft.bench.suites import LineProblem, Suite, SuiteItem, spread
from multidraft.errors import PolicyError, UserError
from multidraft.sampling import SamplingParams
from multidraft.ui import batch as batch_tab
from multidraft.ui import batch_rows, batch_view, exports
from multidraft.ui.background import KEPT, MOST_RUNNING
from multidraft.ui.batch import Batch
from multidraft.ui.batch_rows import Row
from multidraft.ui.batch_run import Batches, BatchRun, Held
from multidraft.ui.worker import Workbench
from storage import queries
from storage.store import Store

PARAMS = SamplingParams(max_new_tokens=8, draft_length=4)
ITEMS = [SuiteItem("1", "abc abd", "letters"), SuiteItem("2", "a" * 200, "long"), SuiteItem("3", "bcd bce", "")]


def run(workbench: Workbench, policies: list[str], items: list[SuiteItem] = ITEMS) -> BatchRun:
    batch = BatchRun(workbench, "mine", items, policies, PARAMS)
    for _ in batch.run():
        pass
    return batch


def test_a_row_per_prompt_and_policy_in_order(workbench: Workbench, store: Store) -> None:
    batch = run(workbench, ["ucb", "fixed:near"])
    assert [(row.id, row.policy) for row in batch.rows] == [
        (id, policy) for id in ("1", "2", "3") for policy in ("ucb", "fixed:near")
    ]
    assert [row.status for row in batch.rows] == ["completed"] * 2 + ["too long"] * 2 + ["completed"] * 2
    assert all("context window" in (row.error or "") for row in batch.rows[2:4])
    assert batch.rows[4].task == batch_rows.NO_TASK
    assert batch.rows[0].speedup and batch.rows[0].mean_accepted_tokens and batch.rows[0].tokens == 8
    assert store.flush()
    stored = queries.runs(store.path)
    assert set(stored.batch_id) == {batch.id} and set(stored.suite) == {"mine"} and set(stored.source) == {"batch"}
    assert len(stored) == 4


def test_policies_of_one_prompt_share_its_baseline(workbench: Workbench, store: Store) -> None:
    run(workbench, ["ucb", "random"], ITEMS[:1])
    assert store.flush()
    assert queries.runs(store.path).baseline_tokens_per_second.nunique() == 1


def test_progress_counts_up_to_all(workbench: Workbench) -> None:
    batch = BatchRun(workbench, "mine", ITEMS, ["ucb"], PARAMS)
    progress = list(batch.run())
    assert progress[0].done == 0 and "letters" in progress[0].now
    assert (progress[-1].done, progress[-1].total) == (3, 3)


def test_stop_ends_the_batch_and_keeps_its_rows(workbench: Workbench) -> None:
    batch = BatchRun(workbench, "mine", ITEMS, ["ucb"], PARAMS)
    steps = batch.run()
    next(steps)
    batch.cancel()
    assert not [step for step in steps if step.done == step.total]
    assert len(batch.rows) == 1


def test_bad_requests_are_refused_before_anything_runs(workbench: Workbench) -> None:
    with pytest.raises(PolicyError, match="nonsense"):
        BatchRun(workbench, "mine", ITEMS, ["ucb", "nonsense"], PARAMS)
    with pytest.raises(UserError, match="no policy"):
        BatchRun(workbench, "mine", ITEMS, [], PARAMS)


def test_a_limit_is_spread_over_the_suite() -> None:
    items = [SuiteItem(str(i), "x", "a" if i < 50 else "b") for i in range(100)]
    assert [item.task for item in spread(items, 4)] == ["a", "a", "b", "b"]
    assert spread(items, None) == items and spread(items, 1000) == items


ROWS = [
    Row("1", "math", "ucb", "completed", 10, 100.0, 2.0, 3.0, None, "x"),
    Row("2", "math", "ucb", "stopped", 10, 300.0, 4.0, 5.0, None, "y"),
    Row("3", "math", "ucb", "cancelled", 1, 900.0, 9.0, 1.0),
    Row("4", "math", "ucb", "too long", error="too long by far"),
    Row("4", "sql", "fixed:code", "too long", error="too long by far"),
]


def test_summary_counts_all_and_averages_the_finished() -> None:
    math, sql = batch_rows.summarise(ROWS).to_dict(orient="records")
    assert (math["prompts"], math["finished"], math["too_long"]) == (4, 2, 1)
    assert (math["tokens_per_second"], math["speedup"], math["mean_accepted_tokens"]) == (200.0, 3.0, 4.0)
    assert (sql["prompts"], sql["finished"], sql["too_long"]) == (1, 0, 1)
    assert batch_rows.records(batch_rows.summarise(ROWS))[1]["speedup"] is None


def test_rows_and_summary_escape_what_the_file_holds() -> None:
    row = Row("<b>1</b>", "<i>t</i>", "ucb", "error", error="<script>x</script>")
    html = batch_rows.rows_start() + batch_rows.row_html(row, 0) + batch_rows.summary_html(batch_rows.summarise([row]))
    assert "<b>1" not in html and "<i>t" not in html and "<script" not in html
    suite = Suite("s", [SuiteItem("1", "p", "<i>t</i>")], [LineProblem(4, "<b>bad</b>")])
    assert "<i>" not in batch_rows.suite_html(suite) and "<b>" not in batch_rows.suite_html(suite)


def test_a_suite_is_described_with_its_bad_lines() -> None:
    suite = Suite("s", [SuiteItem("1", "p", "math"), SuiteItem("2", "p", "")], [LineProblem(4, "not valid JSON")])
    html = batch_rows.suite_html(suite)
    assert "2 prompts: math 1, no task 1" in html
    assert "1 line left out" in html and "Line 4: not valid JSON" in html


def test_downloads_hold_every_row_and_column(tmp_path: Path) -> None:
    batch_rows.write_csv(tmp_path / "r.csv", ROWS)
    with (tmp_path / "r.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(ROWS) and list(lines[0]) == batch_rows.COLUMNS
    assert lines[0]["output"] == "x" and lines[3]["status"] == "too long"
    batch_rows.write_json(tmp_path / "r.json", "mine", ROWS, batch_rows.summarise(ROWS), {"pool": "tiny"})
    report = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert (report["pool"], report["suite"], len(report["rows"]), len(report["summary"])) == ("tiny", "mine", 5, 2)


def test_preview_tells_what_is_wrong_with_a_file(workbench: Workbench, tmp_path: Path) -> None:
    batch = Batch(workbench)
    path = tmp_path / "mine.jsonl"
    path.write_text('{"prompt": "abc", "task": "letters"}\nnot json\n')
    assert "Line 2" in batch.preview(None, str(path)) and "letters 1" in batch.preview("pocket", str(path))
    path.write_bytes(b"\xff\xfe\x00")
    assert 'role="alert"' in batch.preview(None, str(path))
    assert "Choose a suite" in batch.preview(None, None)


SUITE = Suite("mine", ITEMS)


def test_notes_stand_in_lines_of_their_own_width() -> None:
    row = batch_rows.Row("1", "math", "ucb", "too long", error="the prompt has 3,002 tokens, and <so> on")
    html = batch_rows.row_html(row, 0)
    assert '<div class="md-why">the prompt has 3,002 tokens, and &lt;so&gt; on</div>' in html
    assert "md-why" not in batch_rows.row_html(batch_rows.Row("1", "math", "ucb", "completed"), 0)


def test_a_batch_goes_on_by_itself_and_is_found_again(workbench: Workbench) -> None:
    batches = Batches(workbench)
    batch = BatchRun(workbench, "mine", ITEMS, ["ucb", "fixed:near"], PARAMS)
    assert batch.seconds_left is None
    batches.start(batch, SUITE)
    assert batch.ended.wait(60)
    assert batches.get(batch.id) == Held(batch, SUITE) and batches.get("another") is None
    assert len(batch.rows) == 6 and batch.progress.done == 6 and batch.error is None
    assert batch.seconds_left == 0


def test_time_left_is_that_of_the_runs_so_far(workbench: Workbench) -> None:
    batch = BatchRun(workbench, "mine", ITEMS, ["ucb", "random"], PARAMS)
    batch._seconds = {"ucb": [2.0, 4.0], "random": [1.0]}
    assert batch.seconds_left == pytest.approx(1 * 3.0 + 2 * 1.0)
    said = {None: "not known yet", 2: "about 5 s left", 62: "about 60 s left", 300: "about 5 min", 7200: "about 2.0 h"}
    for seconds, words in said.items():
        assert words in batch_view.time_left(seconds)


def test_batches_of_several_visitors_run_at_once_up_to_a_limit(workbench: Workbench, gate) -> None:
    batches = Batches(workbench)
    runs = [BatchRun(workbench, "mine", ITEMS[:1], ["ucb"], PARAMS) for _ in range(MOST_RUNNING + 1)]
    for run in runs[:-1]:
        batches.start(run, SUITE)
    with pytest.raises(UserError, match="8 batches are under way"):
        batches.start(runs[-1], SUITE)
    gate.open()
    assert all(run.ended.wait(60) for run in runs[:-1])
    batches.start(runs[-1], SUITE)
    assert runs[-1].ended.wait(60)


def test_only_the_last_that_ended_are_kept(workbench: Workbench) -> None:
    batches = Batches(workbench)
    runs = [BatchRun(workbench, "mine", [], ["ucb"], PARAMS) for _ in range(KEPT + 2)]
    for run in runs:
        batches.start(run, SUITE)
        assert run.ended.wait(10)
    assert [batches.get(run.id) is None for run in runs] == [True] * 2 + [False] * KEPT


def test_closing_the_workbench_ends_batches(pool, store: Store, gate) -> None:
    workbench = Workbench(pool, store)
    batch = BatchRun(workbench, "mine", ITEMS, ["ucb", "random"], PARAMS)
    Batches(workbench).start(batch, SUITE)
    assert gate.reached.wait(30)
    workbench.at_close(gate.open)  # after the batches' own end
    workbench.close()
    assert batch.ended.wait(30) and batch.error is None and len(batch.rows) < batch.total


def test_a_batch_that_breaks_off_says_so(workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workbench, "submit", lambda request: 1 / 0)
    batch = BatchRun(workbench, "mine", ITEMS, ["ucb"], PARAMS)
    batch.start()
    assert batch.ended.wait(10)
    html = batch_view.status_html(Held(batch, SUITE))
    assert "Broke off after 0 of 3 runs" in html and 'role="alert"' in html


class Visit:
    """Stands for ``gr.Request``, and for ``gr.EventData`` of a click on a prompt."""

    def __init__(self, item: object = None, **query: str):
        self.item, self.query_params = item, query


def started(tab: Batch, tmp_path: Path, text: str = "abc abd\nbcd\n") -> str:
    """The id of a batch of two prompts under two policies."""
    path = tmp_path / "mine.txt"
    path.write_text(text)
    return tab.start(None, str(path), ["ucb", "fixed:near"], 0, 8)[0]


def test_a_page_that_leaves_and_another_that_comes_back(workbench: Workbench, gate, tmp_path: Path) -> None:
    tab = Batch(workbench)
    id = started(tab, tmp_path)
    leaving = tab.follow(id)
    status, *_, run, stop = next(leaving)
    assert "0 of 4 runs done, time left not known yet" in status and stop.interactive and not run.interactive
    leaving.close()
    gate.open()
    assert tab.linked(Visit(batch=id))[:2] == (id, id)  # type: ignore[arg-type]
    *_, (status, rows, _, summary, bars, spread_plot, as_csv, as_json, as_parquet, run, stop) = tab.follow(id)
    assert "Done: 4 of 4 runs" in status and rows.count("data-item") == 4 and 'data-item="1"' in rows
    assert "UCB" in summary and bars.visible and spread_plot.visible and run.interactive and not stop.interactive
    assert as_csv.interactive and json.loads(Path(as_json.value["path"]).read_text())["batch"] == id
    assert len(pd.read_parquet(as_parquet.value["path"])) == 4
    (again,) = tab.follow(id)  # a batch that has ended is there at once
    assert again[1] == rows and again[2] == batch_view.HINT


def test_every_update_has_all_parts(
    workbench: Workbench, gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_tab, "LOOK_SECONDS", 0.01)
    tab = Batch(workbench)
    watching = tab.follow(started(tab, tmp_path))
    updates = [next(watching) for _ in range(3)]  # the gate is shut: the batch is still under way
    assert "under way" in updates[-1][0] and updates[-1][1].startswith(batch_rows.rows_start())
    gate.open()
    updates += [*watching, *tab.follow("unknown"), *tab.follow("")]
    assert {len(update) for update in updates} == {11}


def test_only_what_the_batch_does_is_said_not_every_run(workbench: Workbench, gate, tmp_path: Path) -> None:
    tab = Batch(workbench)
    id = started(tab, tmp_path)
    held = tab.batches.get(id)
    assert held and gate.reached.wait(30)
    assert 'role="status">Batch under way on pool tiny</span><span>: 0 of 4 runs done' in batch_view.status_html(held)
    held.run.cancel()
    assert 'role="status">Batch on pool tiny stopping after the round in progress</span>' in batch_view.status_html(
        held
    )
    gate.open()


def test_files_are_written_once_whoever_looks_on(
    workbench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tab = Batch(workbench)
    id = started(tab, tmp_path)
    *_, _ = tab.follow(id)
    held = tab.batches.get(id)
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
    *_, (status, *_, as_csv, _, _, _, _) = tab.follow(id)
    assert "Done: 4 of 4 runs" in status and not as_csv.interactive  # the results are there, if no files


def test_a_cancelled_batch_does_not_look_done(workbench: Workbench, gate, tmp_path: Path) -> None:
    tab = Batch(workbench)
    id = started(tab, tmp_path)
    assert gate.reached.wait(30)
    tab.stop(id)
    assert "stopping after the round" in next(tab.follow(id))[0]
    gate.open()
    *_, last = tab.follow(id)
    assert "Cancelled: 1 of 4 runs" in last[0] and "md-cancelled" in last[0] and "md-done" not in last[0]
    tab.stop("unknown")  # nothing happens


def test_a_batch_nobody_knows_is_explained(workbench: Workbench) -> None:
    ((status, *_),) = Batch(workbench).follow("0" * 32)
    assert "no longer holds the batch" in status


def test_a_prompt_opens_with_every_policy(workbench: Workbench, tmp_path: Path) -> None:
    tab = Batch(workbench)
    id = started(tab, tmp_path, "abc abd\n" + "a" * 200 + "\n")
    *_, _ = tab.follow(id)
    html = tab.open(id, Visit(0))  # type: ignore[arg-type]
    assert html.count("<article>") == 2 and "md-token" in html and "abc abd" in html and "Prompt 1, no task" in html
    assert "context window" in tab.open(id, Visit(1))  # type: ignore[arg-type]
    assert tab.open(id, Visit(2)) == tab.open(id, Visit("x")) == batch_view.HINT  # type: ignore[arg-type]
    assert tab.open("gone", Visit(0)) == batch_view.GONE  # type: ignore[arg-type]


def test_the_form_of_a_batch_comes_back_with_it(workbench: Workbench, tmp_path: Path, monkeypatch) -> None:
    # Held before its first prompt: this pool refuses the bundled suite's prompts as too long, without any round.
    monkeypatch.setattr(BatchRun, "start", lambda run: None)
    tab = Batch(workbench)
    form = ("pocket", None, ["ucb:beta=0.5"], 3, 12)
    id, _, *buttons = tab.start(*form)
    assert [button.interactive for button in buttons] == [False, True], "a second start would be followed as well"
    *linked, run, stop = tab.linked(Visit(batch=id))  # type: ignore[arg-type]
    assert linked == [id, id, *form] and stop.interactive and not run.interactive
    id, path = started(tab, tmp_path), str(tmp_path / "mine.txt")
    assert tab.linked(Visit(batch=id))[2:7] == (None, path, ["ucb", "fixed:near"], 2, 8)  # type: ignore[arg-type]
    Path(path).unlink()
    assert tab.linked(Visit(batch=id))[2:4] == (None, None)  # type: ignore[arg-type]
    assert tab.linked(Visit()) == (gr.skip(),) * 9, "a batch that was started meanwhile is still followed"  # type: ignore[arg-type]
    assert tab.linked(Visit(batch="gone")) == ("gone", "gone", *[gr.skip()] * 7)  # type: ignore[arg-type]


def test_a_batch_names_its_pool_whichever_is_loaded(workbench: Workbench, gate, tmp_path: Path) -> None:
    tab = Batch(workbench)
    id = started(tab, tmp_path)
    gate.open()
    *_, (status, _, _, summary, *_) = tab.follow(id)
    assert "on pool tiny: 2 prompts" in status and "Pool tiny on " in summary


@pytest.mark.parametrize(
    ("suite", "policies", "limit", "length", "said"),
    [
        (None, ["ucb"], 0, 8, "nothing to run"),
        ("pocket", [], 0, 8, "No policy is chosen"),
        ("pocket", ["nonsense"], 0, 8, "choose one of"),
        ("pocket", ["ucb"], -1, 8, "0 (all) or a positive"),
        ("pocket", ["ucb"], 0, None, "Max new tokens is empty"),
        ("pocket", ["ucb"], 1.7, 8, "Prompts at most must be a whole number, got 1.7"),
        ("pocket", ["ucb"], 0, 2.5, "Max new tokens must be a whole number, got 2.5"),
        ("pocket", ["ucb"], 0, 99_999, "Max new tokens must be at most 63, got 99,999"),
    ],
)
def test_a_batch_that_cannot_start_says_why(
    workbench: Workbench, suite: str | None, policies: list[str], limit: float, length: float | None, said: str
) -> None:
    tab = Batch(workbench)
    id, status, *_ = tab.start(suite, None, policies, limit, length)
    assert id == "" and said in status and 'role="alert"' in status
    assert list(tab.follow(id)) == [(gr.skip(),) * 11]  # what there was before stays


def test_tasks_by_policies_with_the_best_of_each_marked() -> None:
    rows = [
        Row("1", "<b>m</b>", "ucb", "completed", 9, 100.0, 2.0, 3.0),
        Row("1", "<b>m</b>", "random", "completed", 9, 100.0, 1.0, 3.0),
        Row("2", "sql", "ucb", "completed", 9, 100.0, 1.5, 3.0),
        Row("2", "sql", "random", "stopped", 9, 100.0, 3.0, 3.0),
        Row("3", "sql", "random", "error", error="no"),
    ]
    html = batch_view.matrix_html(rows, ["ucb", "random"])
    assert "<b>m" not in html and html.count("md-best") == 3
    math, sql, total = html.split("<tbody>")[1].split("</tr>")[:3]
    assert 'title="The best">2.00×' in math and 'title="The best">3.00×' in sql
    assert batch_view.ALL_TASKS in total and 'title="The best">2.00×' in total  # medians 1.75 and 2
    boxes = batch_view.spread_figure(rows, ["ucb", "random"]).data
    assert [list(box.y) for box in boxes] == [[2.0, 1.5], [1.0, 3.0]]


def test_a_policy_asked_for_twice_runs_once(workbench: Workbench) -> None:
    batch = BatchRun(workbench, "mine", ITEMS, ["ucb", "UCB", "ucb:"], PARAMS)
    assert batch.policies == ["ucb"] and batch.total == 3


def test_answers_of_a_few_tokens_are_left_out_of_speedups(workbench: Workbench) -> None:
    short = BatchRun(workbench, "mine", ITEMS[:1], ["ucb", "random"], SamplingParams(5, draft_length=4))
    *_, _ = short.run()
    assert [(row.tokens, row.speedup) for row in short.rows] == [(5, None)] * 2
    html = batch_view.summary_html(short) + batch_rows.row_html(short.rows[0], 0) + batch_view.detail_html(short, 0)
    assert "2 runs of fewer than 8 tokens are left out" in html and "Too short to say" in html
    assert "×" not in html and "md-best" not in html and "md-matrix" not in html
