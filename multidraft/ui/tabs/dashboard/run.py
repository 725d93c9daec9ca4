"""The place of the dashboard where one run is opened."""

from __future__ import annotations

import json
from pathlib import Path

import gradio as gr

from multidraft.ui.tabs.dashboard import run_page
from multidraft.ui.widgets import tokens
from multidraft.ui.widgets.charts import plot
from multidraft.ui.widgets.events import Updates
from multidraft.ui.widgets.exports import export_file
from multidraft.ui.widgets.markup import message_html
from storage import queries
from storage.problems import StorageError


class RunSection:
    """A run's page.

    Attributes:
        parts: what :meth:`show` fills.
        id: holds the number of the run that is open; 0 for none.
    """

    def __init__(self, path: Path):
        self.path = path

    def build(self) -> None:
        """Lay it out."""
        with gr.Row(elem_classes="md-pager"):
            self.leave = gr.Button("← All runs", size="md", min_width=130, elem_id="leave-run")
            self.to_json = gr.Button("Export this run as JSON", size="md", min_width=200, elem_id="export-run")
        self.head = gr.HTML("", js_on_load=None, elem_id="run-head")
        self.texts = gr.HTML("", js_on_load=None, apply_default_css=False, elem_id="run-texts")
        with gr.Row(elem_classes="md-columns"):
            self.charts = [plot(id) for id in ("run-arms-chart", "run-policy-chart", "run-regret-chart")]
        self.rounds = gr.HTML("", js_on_load=None, elem_id="run-rounds")
        self.id = gr.State(0)
        self.parts = [self.head, self.texts, *self.charts, self.rounds, self.to_json, self.id]

    def show(self, id: int) -> Updates:
        """The parts for a run, or why it cannot be shown."""
        try:
            run = queries.run(self.path, id)
            problem = f"There is no run {id} in this history: it may be another server's." if run is None else ""
        except StorageError as error:
            run, problem = None, str(error)
        figures = run_page.run_figures(run) if run else [None] * len(self.charts)
        return {
            self.head: run_page.head_html(run) if run else message_html("error", problem),
            self.texts: run_page.texts_html(run) if run else "",
            **{place: gr.Plot(fig, visible=fig is not None) for place, fig in zip(self.charts, figures, strict=True)},
            self.rounds: tokens.rounds_table_html(run.generation.rounds) if run else "",
            self.to_json: gr.Button(visible=run is not None),
            self.id: id if run else 0,
        }

    def export(self, id: int) -> str:
        """A file of one run with its rounds."""

        def write(file: Path) -> None:
            if run := queries.run(self.path, id):
                file.write_text(json.dumps(run.to_json(), ensure_ascii=False, indent=1), "utf-8")

        return export_file(f"run-{id}.json", write)
