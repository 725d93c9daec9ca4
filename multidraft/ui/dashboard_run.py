"""The place of the dashboard where one run is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr
import plotly.graph_objects as go

from multidraft.ui import run_page, tokens
from multidraft.ui.charts import message_figure
from multidraft.ui.exports import export_file
from multidraft.ui.stats import message_html
from storage.problems import StorageError


class RunSection:
    """The parts of a run's page.

    Attributes:
        parts: what :meth:`show` fills, in its order.
        id: holds the number of the run that is open; 0 for none.
    """

    def __init__(self, path: Path):
        self.path = path
        self.parts: list[Any] = []

    def build(self) -> tuple[gr.Button, gr.Button]:
        """Lay the parts out; returns the buttons that lead back and that export the run."""
        with gr.Row(elem_classes="md-pager"):
            leave = gr.Button("← All runs", size="md", min_width=130, elem_id="leave-run")
            export = gr.Button("Export this run as JSON", size="md", min_width=200, elem_id="export-run")
        head = gr.HTML("", js_on_load=None, elem_id="run-head")
        written = gr.HTML("", js_on_load=None, apply_default_css=False, elem_id="run-texts")
        with gr.Row(elem_classes="md-columns"):
            charts = [plot(id) for id in ("run-arms-chart", "run-policy-chart", "run-regret-chart")]
        rounds = gr.HTML("", js_on_load=None, elem_id="run-rounds")
        self.id = gr.State(0)
        self.parts = [head, written, *charts, rounds, export, self.id]
        return leave, export

    def show(self, id: int) -> list[Any]:
        """The parts for a run, or why it cannot be shown."""
        try:
            run = run_page.load_run(self.path, id)
            problem = f"There is no run {id} in this history: it may be another server's." if run is None else ""
        except StorageError as error:
            run, problem = None, str(error)
        if run is None:
            return [message_html("error", problem), "", *_plots(None, None, None), "", gr.Button(visible=False), 0]
        return [
            run_page.head_html(run),
            run_page.texts_html(run),
            *_plots(*run_page.run_figures(run)),
            tokens.rounds_table_html(run.generation.rounds),
            gr.Button(visible=True),
            id,
        ]

    def export(self, id: int) -> str:
        """A file of one run with its rounds."""
        return export_file(f"run-{id}.json", lambda file: file.write_text(run_page.run_json(self.path, id), "utf-8"))


def plot(id: str) -> gr.Plot:
    """A place for a chart, which says so until the chart is known."""
    blank = message_figure("Reading the history …")
    # Not without a value: what Gradio shows in its place has a label that screen readers cannot use.
    return gr.Plot(blank, show_label=False, min_width=320, elem_id=id, elem_classes="md-chart")


def _plots(*charts: go.Figure | None) -> list[gr.Plot]:
    """Those that there are, shown; the places of the others hidden."""
    return [gr.Plot(chart, visible=chart is not None) for chart in charts]
