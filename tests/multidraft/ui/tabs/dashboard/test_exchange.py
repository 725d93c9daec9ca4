"""Files of other tools on the dashboard."""

from pathlib import Path

import gradio as gr
import pytest

from multidraft.ui.result_pages.result import run_result
from multidraft.ui.tabs.dashboard.exchange import Exchange
from multidraft.ui.tabs.dashboard.filters import Chosen
from multidraft.ui.tabs.dashboard.run_page import head_html, texts_html
from storage import queries
from storage.store import Store
from tests.multidraft.ui.tabs.dashboard.test_dashboard import build
from tests.storage.test_exchange import ANSWER, lines


def test_results_are_imported_and_shown_by_their_source(store: Store, tmp_path: Path) -> None:
    dashboard = build(store)
    exchange = dashboard.exchange
    file = tmp_path / "answers.jsonl"
    file.write_text(lines({**ANSWER, "model_id": "<b>EAGLE</b>"}))
    said, left, count = exchange.read(str(file), "", 0)
    assert "Imported 1 run" in said and (left, count) == (None, 1)
    said, left, count = exchange.read(str(file), "", 1)
    assert "imported before" in said and (left, count) == (str(file), 1)
    assert "Choose a file first" in exchange.read(None, "", 1)[0]
    run = queries.run(store.path, 1)
    assert run
    head = head_html(run)
    assert "Spec-Bench (imported)" in head and "2.60" in head and "17.3 tokens/s with the prefill" in head
    assert "&lt;b&gt;EAGLE" in head and "<b>EAGLE" not in head
    assert "Question 81" in texts_html(run) and "Step through" not in texts_html(run)
    assert "answers.jsonl #" in head and run_result(store.path, 1) is None and "md-share" not in head
    listed = dashboard.run_list(0, *Chosen(source=["spec-bench"]).values())[dashboard.runs]
    assert "Question 81" in listed
    shown = dashboard.run.show(1)
    assert all(not shown[chart].visible for chart in dashboard.run.charts)


@pytest.mark.parametrize("may", [True, False])
def test_visitors_import_where_they_may(store: Store, may: bool) -> None:
    with gr.Blocks() as page:
        exports = Exchange(store, may).build()
    assert exports and ("import-file" in str(page.config)) is may
    assert any(block.fn.__name__ == "read" for block in page.fns.values()) is may
    assert ("Only the operator" in str(page.config)) is not may
