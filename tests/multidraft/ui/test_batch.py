from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from multidraft.bench.suites import LineProblem, Suite, SuiteItem
from multidraft.errors import PolicyError, UserError
from multidraft.sampling import SamplingParams
from multidraft.ui import batch_rows
from multidraft.ui.batch import Batch, BatchRun, spread
from multidraft.ui.batch_rows import Row
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
    html = batch_rows.rows_start() + batch_rows.row_html(row) + batch_rows.summary_html(batch_rows.summarise([row]))
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
