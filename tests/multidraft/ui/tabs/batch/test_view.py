"""Rows, summary and files of a batch, without running one."""

import csv
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from multidraft.bench.measured_verdict import of_rows
from multidraft.bench.suites import LineProblem, Suite, SuiteItem, spread
from multidraft.bench.summary import COLUMNS, NO_TASK, Row, as_json, overall, summarise
from multidraft.service.workbench import Workbench
from multidraft.ui.tabs.batch import charts as batch_charts
from multidraft.ui.tabs.batch import files as batch_files
from multidraft.ui.tabs.batch import view as batch_view
from multidraft.ui.tabs.batch.tab import Batch

NOISY = [(0, 2.0, 0.1), (1, 0.5, None), (2, 0.04, 0.3)]


def row(id: str, task: str, policy: str, status: str, tokens: int = 16, seconds: float = 1.0, **more: Any) -> Row:
    """One over a baseline that takes 2 s, or 3 s with the prefill, which takes the policy 2 s."""
    speeds = {"speedup": 2.0 / seconds, "request_speedup": 3.0 / (seconds + 2.0)} if tokens >= 8 else {}
    rate = tokens / seconds
    known = {**speeds, "prompt": int(id), **more}
    return Row(id, task, policy, status, tokens, 4, seconds, seconds + 2.0, 2.0, 3.0, rate, tokens / 4, **known)


ROWS = [
    row("1", "math", "ucb", "completed", output="x", run=7),
    row("2", "math", "ucb", "stopped", seconds=0.25, output="y"),
    row("3", "math", "ucb", "cancelled", 1, 0.001),
    Row("4", "math", "ucb", "too long", error="too long by far"),
    Row("4", "sql", "fixed:code", "too long", error="too long by far"),
]


def test_summary_counts_all_and_totals_the_finished() -> None:
    math, sql = summarise(ROWS).values()
    assert (math.runs, math.finished, math.too_long) == (4, 2, 1)
    assert (math.tokens_per_second, math.mean_accepted_tokens) == (32 / 1.25, 4.0)
    assert math.speedup and math.speedup.value == 4.0 / 1.25
    assert math.request_speedup and math.request_speedup.value == pytest.approx(6.0 / 5.25)
    assert (sql.runs, sql.finished, sql.too_long) == (1, 0, 1)
    assert as_json(ROWS)["summary"][1]["speedup"] is None


def test_rows_and_summary_escape_what_the_file_holds() -> None:
    row = Row("<b>1</b>", "<i>t</i>", "ucb", "error", error="<script>x</script>")
    html = (
        batch_view.rows_start() + batch_view.row_html(row, 0, "<u>p</u>") + batch_view.summary_html([row], ["ucb"], "")
    )
    assert "<b>1" not in html and "<u>p" not in html and "<i>t" not in html and "<script" not in html
    suite = Suite("s", [SuiteItem("1", "p", "<i>t</i>")], [LineProblem(4, "<b>bad</b>")])
    assert "<i>" not in batch_view.suite_html(suite) and "<b>" not in batch_view.suite_html(suite)


def test_a_suite_is_described_with_its_bad_lines() -> None:
    suite = Suite("s", [SuiteItem("1", "p", "math"), SuiteItem("2", "q", "")], [LineProblem(4, "not valid JSON")])
    html = batch_view.suite_html(suite)
    assert "2 prompts: math 1, no task 1" in html
    assert "1 prompt without tasks. Add a field or column <code>task</code>" in batch_view.suite_html(
        Suite("s", suite.items[1:], [])
    )
    twice = batch_view.suite_html(Suite("s", [*suite.items, suite.items[0]], []))
    assert "3 prompts, 2 of them distinct (each counts once): math 2, no task 1" in twice
    assert "1 line left out" in html and "Line 4: not valid JSON" in html


def test_prompts_that_the_pool_does_not_know_are_counted_beforehand() -> None:
    router = SimpleNamespace(drafters=("math", "sql"))
    pool: Any = SimpleNamespace(title="Small", router=router, card_hash="c", fits=lambda prompt: prompt != "odd")
    odd = batch_view.unfamiliar_html(Suite("s", [SuiteItem("1", "odd"), SuiteItem("2", "sum")]), pool)
    assert "Small knows 2 tasks: math, sql. 1 of the 2 prompts looks unlike the tasks of this pool" in odd
    assert not batch_view.unfamiliar_html(Suite("s", [SuiteItem("2", "sum")]), pool)


def test_downloads_hold_every_row_and_column(tmp_path: Path) -> None:
    prompts = ["=1+1", *(f"Add {number}." for number in range(1, len(ROWS)))]
    batch_files.write(tmp_path / "r.csv", ROWS, prompts, {})
    with (tmp_path / "r.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    columns = ["prompt_hash" if column == "prompt" else column for column in COLUMNS]
    assert len(lines) == len(ROWS) and list(lines[0]) == [columns[0], "prompt", *columns[1:]]
    assert [line["prompt"] for line in lines] == ["'=1+1", *prompts[1:]], "as text, not as a formula"
    assert [line["run"] for line in lines[:2]] == ["7", ""], "its number, though not all have one"
    assert lines[0]["output"] == "x" and lines[3]["status"] == "too long"
    assert [line["status"] for line in lines[:2]] == ["at max tokens", "completed"], "as the page says"
    batch_files.write(tmp_path / "r.json", ROWS, prompts, {"pool": "tiny", "suite": "mine"})
    report = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert [row["status"] for row in report["rows"][:2]] == ["completed", "stopped"]
    assert (report["pool"], report["suite"], len(report["rows"]), len(report["summary"])) == ("tiny", "mine", 5, 2)


def test_notes_stand_in_lines_of_their_own_width() -> None:
    row = Row("1", "math", "ucb", "too long", error="the prompt has 3,002 tokens, and <so> on")
    html = batch_view.row_html(row, 0, "How many\napples?")
    assert 'title="Prompt 1: How many\napples?"><small>1</small> How many apples?</button>' in html
    why = "The prompt has 3,002 tokens, and &lt;so&gt; on."
    assert f'<div class="md-why" title="{why}">{why}</div>' in html, "the table cuts it"
    assert "md-why" not in batch_view.row_html(Row("1", "math", "ucb", "completed"), 0, "")


def test_of_a_prompt_that_was_not_run_no_figures_are_told() -> None:
    rows, item = [ROWS[0], Row("1", "math", "random", "too long", error="too long by far")], SuiteItem("1", "p")
    batch: Any = SimpleNamespace(
        rows=rows, items=[item], items_of_rows=[0, 0], drafters=["math"], rounds=lambda index: []
    )
    ran, left_out = (card.split("</article>")[0] for card in batch_view.detail_html(batch, 0).split("<article>")[1:])
    assert "MAT" in ran and "<span>decode speed-up 2.00×</span>" in ran, "which reads well where it is too noisy, too"
    assert "Too long by far." in left_out and "MAT" not in left_out and "speed-up" not in left_out


def test_only_what_is_faster_for_certain_is_marked() -> None:
    """Three prompts of a task are too few to be certain of; over all six UCB is faster."""
    rows = [
        row(str(n), task, policy, "completed", seconds=seconds * (1 + n / 20))
        for n, task in enumerate(("math", "math", "math", "sql", "sql", "sql"))
        for policy, seconds in (("ucb", 0.5), ("random", 0.9))
    ]
    math, sql, total = batch_view.matrix_html(rows, ["ucb", "random"]).split("<tbody>")[1].split("</tr>")[:3]
    assert "md-best" not in math + sql and total.count("md-best") == 1
    assert "<small>3.31" in total and 'title="Better than each of the others, at the 95 % level">3.56×' in total
    level = [row(str(n), "math", p, "completed", seconds=1 + (n + i) % 2) for n in range(6) for i, p in enumerate("ab")]
    assert "md-best" not in batch_view.matrix_html(level, ["a", "b"])


def test_without_named_tasks_there_is_no_word_of_tasks() -> None:
    rows = [row(str(n), NO_TASK, "ucb", "completed") for n in range(3)]
    assert ">all prompts<" in batch_view.matrix_html(rows, ["ucb"])
    figure = batch_charts.speedup_by_task_figure(rows, ["ucb"])
    assert list(figure.data[0].x) == ["all prompts"] and "task" not in figure.layout.title.text
    assert "no task" not in batch_view.matrix_html(rows, ["ucb"])


def test_tasks_by_policies() -> None:
    rows = [
        row("1", "<b>m</b>", "ucb", "completed"),
        row("1", "<b>m</b>", "random", "completed", seconds=2.0),
        row("2", "sql", "ucb", "completed", seconds=2.0 / 1.5),
        row("2", "sql", "random", "stopped", seconds=2.0 / 3.0),
        Row("3", "sql", "random", "error", error="no"),
    ]
    html = batch_view.matrix_html(rows, ["ucb", "random"])
    assert "<b>m" not in html
    math, sql, total = html.split("<tbody>")[1].split("</tr>")[:3]
    assert ">2.00×" in math and ">3.00×" in sql
    assert batch_view.ALL_TASKS in total and ">1.71×" in total  # 4 s by 2.33 s and by 2.67 s
    bars, boxes = (draw(rows, ["ucb", "random"]).data for draw in batch_charts.CHARTS.values())
    assert [list(box.y) for box in boxes] == [[2.0, 1.5], [1.0, pytest.approx(3.0)]]
    assert {bar.name: (list(bar.x), list(bar.y)) for bar in bars} == {
        "Random drafter": (["&lt;b&gt;m&lt;/b&gt;", "sql"], [1.0, pytest.approx(3.0)]),
        "UCB": (["&lt;b&gt;m&lt;/b&gt;", "sql"], [2.0, 1.5]),
    }


def test_a_batch_that_was_stopped_has_the_same_figures_in_tables_and_charts() -> None:
    """Of eight prompts the second policy ran six."""
    rows = [row(str(n), NO_TASK, "ucb", "completed", seconds=0.5 + n / 5, speedup_uncertainty=0.3) for n in range(8)]
    rows += [row(str(n), NO_TASK, "random", "completed") for n in range(6)]
    shown = overall(rows)["ucb"].speedup
    assert shown and shown.value == 2.0 and of_rows(rows, 4).noisy == (6, 12)
    bars, spread = (draw(rows, ["ucb", "random"]) for draw in batch_charts.CHARTS.values())
    assert bars.data[0].customdata[0] == shown.text("×") and bars.data[0].y[0] == shown.value
    html = batch_view.summary_html(rows, ["ucb", "random"], "")
    assert ">2.00×<small>" in html and f">{shown.text('×')}<" in html, "in the matrix and among all figures"
    assert spread.layout.xaxis.title.text == "pale: 6 of 12 runs too noisy"


def test_a_long_name_of_a_task_is_cut_below_its_bars() -> None:
    figure = batch_charts.speedup_by_task_figure([row("1", "mathematical_reasoning", "ucb", "completed")], ["ucb"])
    assert figure.layout.xaxis.ticktext == ("mathematical_re…",) and figure.data[0].x == ("mathematical_reasoning",)


def test_bars_beyond_the_hues_have_a_second_mark() -> None:
    """Settings of one policy share its hue."""
    specs = [f"{name}{settings}" for name in ("ucb", "exp3spec") for settings in ("", ":beta=1", ":beta=2", ":beta=3")]
    rows = [row("1", "math", spec, "completed") for spec in specs]
    marks = [bar.marker for bar in batch_charts.speedup_by_task_figure(rows, specs).data]
    assert len({(mark.color, mark.pattern.shape) for mark in marks}) == 8 and len({mark.color for mark in marks}) == 2


def test_prompts_that_are_too_noisy_are_counted_and_pale() -> None:
    rows = [row(str(i), "math", "ucb", "stopped", seconds=s, speedup_uncertainty=u) for i, s, u in NOISY]
    figure = batch_charts.spread_figure(rows, ["ucb"])
    assert (
        list(figure.data[0].y) == [1.0, 4.0, 50.0] and figure.layout.xaxis.title.text == "pale: 1 of 3 runs too noisy"
    )
    assert list(figure.data[0].selectedpoints) == [0, 1], "the others are pale"
    assert figure.data[0].meta["columns"] == {"prompt": ["0", "1", "2"], "task": ["math"] * 3}
    (bars,) = batch_charts.speedup_by_task_figure(rows, ["ucb"]).data
    assert list(bars.marker.opacity) == [0.35] and "× (" not in bars.customdata[0], "three prompts tell nothing"
    assert bars.meta["columns"]["pale"] == [True], "they are in the CSV"
    six = [row(str(i), "math", "ucb", "stopped", seconds=1.0 + i / 9) for i in range(6)]
    (bars,) = batch_charts.speedup_by_task_figure(six, ["ucb"]).data
    assert list(bars.marker.opacity) == [1] and "× (" in bars.customdata[0]


def test_a_limit_is_spread_over_the_suite() -> None:
    items = [SuiteItem(str(i), "x", "a" if i < 50 else "b") for i in range(100)]
    assert [item.task for item in spread(items, 4)] == ["a", "a", "b", "b"]
    assert spread(items, None) == items and spread(items, 1000) == items


def test_preview_tells_what_is_wrong_with_a_file(workbench: Workbench, tmp_path: Path) -> None:
    batch = Batch(workbench)
    path = tmp_path / "mine.jsonl"
    path.write_text('{"prompt": "abc", "task": "letters"}\nnot json\n')
    assert "Line 2" in batch.preview(None, str(path)) and "letters 1" in batch.preview("pocket", str(path))
    path.write_text(json.dumps({"prompt": "a b " * 5000}) + "\n" + json.dumps({"prompt": "a b"}))
    told = batch.preview(None, str(path))
    assert "1 prompt has more tokens than the context window (" in told and "and will not be run" in told
    path.write_bytes(b"\xff\xfe\x00")
    assert 'role="alert"' in batch.preview(None, str(path))
    assert "Choose a suite" in batch.preview(None, None)
