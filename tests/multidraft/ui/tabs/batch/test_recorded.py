"""Batches that only the history knows."""

import json
from pathlib import Path

import gradio as gr

from multidraft.bench.suites import load_suite
from multidraft.service.batch import BatchJob
from multidraft.service.workbench import Workbench
from multidraft.ui.tabs.batch.recorded import recorded_batch
from multidraft.ui.tabs.batch.tab import Batch
from multidraft.ui.tabs.batch.view import GONE
from tests.multidraft.ui.building import after, built
from tests.multidraft.ui.tabs.batch.test_batch import started
from tests.multidraft.ui.tabs.visits import click, visit
from tests.runs import make_run


def test_a_batch_of_an_earlier_server_is_there_whole(workbench: Workbench, tmp_path: Path) -> None:
    tab = built(Batch(workbench), workbench)
    id = started(tab, tmp_path, "abc abd\n" + "a" * 200 + "\nbcd\n")
    *_, _ = tab.buttons.watch(id)
    held = workbench.jobs.find(id, BatchJob)
    assert held and workbench.store.flush()
    workbench.jobs.forget(held)
    workbench.store.note(id, "why")
    assert workbench.store.flush()
    linked = tab.buttons.linked(visit(batch=id))
    form = [linked[field] for field in tab.buttons.form]
    assert form == [None, None, ["ucb", "fixed:near"], 0, 8, 1, 0, 0.0, "why", gr.skip()], (
        "3 prompts are no longer known"
    )
    shown = after(tab.buttons.watch(id))
    assert "From the history: 4 of 4 runs finished" in shown[tab.status] and "suite mine" in shown[tab.status]
    assert shown[tab.rows].count("data-item") == 4, "what was refused as too long left no run"
    assert "2 of 6 runs left out: their prompts do not fit the context window." in shown[tab.status]
    assert all(shown[chart].visible for chart in tab.charts) and "<span title=" in shown[tab.verdict]
    assert "UCB" in shown[tab.summary] and f"result/batch/{id}" in shown[tab.verdict]
    report = json.loads(Path(shown[tab.downloads[1]].value["path"]).read_text())
    assert report["batch"] == id and len(report["rows"]) == 4 and report["parameters"]["draft_length"] == 4
    assert [row["id"] for row in report["rows"]] == ["1", "1", "3", "3"], "as the file counts them"
    assert [row["run"] for row in report["rows"]] == [1, 2, 3, 4]
    html = tab.open(id, click(item=1))
    assert html.count("<article>") == 2 and "md-token" in html and "bcd" in html


def test_a_bundled_suite_is_known_by_its_prompts(workbench: Workbench) -> None:
    prompt = load_suite("pocket").items[0].prompt
    for id, text in (("a", prompt), ("b", "another")):
        workbench.store.add(make_run(prompt=text, suite="pocket", batch_id=id, source="batch"))
    assert workbench.store.flush()
    found = [recorded_batch(workbench.store.path, id) for id in ("a", "b", "none")]
    assert [batch and batch.bundled for batch in found] == ["pocket", None, None]


def test_a_prompt_that_was_there_twice_counts_twice_in_the_form(workbench: Workbench) -> None:
    for _ in range(2):
        for policy in ("ucb", "hedge"):
            workbench.store.add(make_run(prompt="x", policy=policy, batch_id="a", source="batch"))
    assert workbench.store.flush()
    batch = recorded_batch(workbench.store.path, "a")
    assert batch and len(batch.items) == 1 and batch.prompt_count == 2


def test_a_batch_that_is_given_up_without_a_run_says_why(workbench: Workbench) -> None:
    workbench.store.add(ends="one", ending="interrupted by a restart of the server and not resumed: its pool has gone")
    assert workbench.store.flush()
    tab = built(Batch(workbench), workbench)
    assert "not resumed: its pool has gone." in next(iter(tab.buttons.watch("one")))[tab.status]
    assert next(iter(tab.buttons.watch("two")))[tab.status] == GONE
