"""*Dashboard*: what all recorded runs say together."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import gradio as gr
import pandas as pd

from multidraft.ui import charts
from multidraft.ui.choices import policy_title
from multidraft.ui.stats import message_html
from multidraft.ui.tables import number, table_html
from storage import queries
from storage.problems import StorageError
from storage.store import Store

ALL_POOLS = "all pools"
ALL_HARDWARE = "all hardware"

EMPTY = (
    '<div class="md-empty"><p><b>No runs yet.</b></p><p>Every run of <i>Play</i> and <i>Batch</i> is recorded and '
    "appears here: speed-up over time, regret by policy, and which drafter does well on which task. "
    "Start one there, then come back.</p></div>"
)
NOTHING_FITS = (
    '<div class="md-empty"><p><b>No finished run fits these filters.</b></p><p>Clear one of them to see more.</p></div>'
)


class Dashboard:
    """The tab and what its controls do."""

    def __init__(self, store: Store, pool: str = ALL_POOLS, hardware: str = ALL_HARDWARE):
        self.store = store
        self.pool, self.hardware = pool, hardware

    def build(self, tab: gr.Tab) -> None:
        """Lay out the inside of ``tab``, which brings itself up to date whenever it is opened."""
        with gr.Row(elem_classes="md-filters"):
            pool = gr.Dropdown(
                [ALL_POOLS, self.pool], value=self.pool, label="Pool", min_width=160, elem_id="filter-pool"
            )
            hardware = gr.Dropdown(
                [ALL_HARDWARE, self.hardware],
                value=self.hardware,
                label="Hardware",
                min_width=160,
                elem_id="filter-hardware",
            )
            policies = gr.Dropdown(
                [], multiselect=True, label="Policies (all unless chosen)", min_width=220, elem_id="filter-policies"
            )
            tasks = gr.Dropdown(
                [], multiselect=True, label="Tasks (all unless chosen)", min_width=220, elem_id="filter-tasks"
            )
            refresh = gr.Button("Refresh", size="md", min_width=110, scale=0, elem_id="refresh")
        note = gr.HTML("", js_on_load=None, elem_id="dashboard-note")
        with gr.Column(visible=False) as figures:
            summary = gr.HTML("", js_on_load=None, elem_id="policy-summary")
            speedup = gr.Plot(None, show_label=False, elem_id="speedup-chart", elem_classes="md-chart")
            with gr.Row(elem_classes="md-columns"):
                regret = gr.Plot(None, show_label=False, min_width=320, elem_id="regret-chart", elem_classes="md-chart")
                matrix = gr.Plot(None, show_label=False, min_width=320, elem_id="matrix-chart", elem_classes="md-chart")
        filters = [pool, hardware, policies, tasks]
        shown = [note, figures, summary, speedup, regret, matrix]
        hidden: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
        for event in (tab.select, refresh.click):
            event(self.choices, filters, filters, **hidden).then(self.show, filters, shown, **hidden)
        for control in filters:
            control.input(self.show, filters, shown, **hidden)

    def choices(
        self, pool: str, hardware: str, policies: Sequence[str], tasks: Sequence[str]
    ) -> tuple[gr.Dropdown, gr.Dropdown, gr.Dropdown, gr.Dropdown]:
        """The filters with what there is now to choose; choices that are gone are dropped."""
        try:
            found = queries.filters(self.store.path)
        except StorageError:  # show() says what is wrong
            found = {"pools": [], "hardware": [], "policies": [], "tasks": []}
        named = [(policy_title(policy), policy) for policy in found["policies"]]
        return (
            gr.Dropdown([ALL_POOLS, *found["pools"]], value=pool if pool in found["pools"] else ALL_POOLS),
            gr.Dropdown(
                [ALL_HARDWARE, *found["hardware"]], value=hardware if hardware in found["hardware"] else ALL_HARDWARE
            ),
            gr.Dropdown(named, multiselect=True, value=[policy for policy in policies if policy in found["policies"]]),
            gr.Dropdown(found["tasks"], multiselect=True, value=[task for task in tasks if task in found["tasks"]]),
        )

    def show(self, pool: str, hardware: str, policies: Sequence[str], tasks: Sequence[str]) -> tuple[Any, ...]:
        """Note, visibility of the figures, summary and charts for the filters."""
        problem = self.store.problem
        note = message_html("error", f"The history is not being written. {problem}") if problem else ""
        hidden = (gr.Column(visible=False), "", None, None, None)
        chosen = queries.Filter(
            None if pool == ALL_POOLS else pool,
            policies,
            tasks,
            hardware=None if hardware == ALL_HARDWARE else hardware,
        )
        path = self.store.path
        try:
            if not queries.count(path):
                return (note + EMPTY, *hidden)
            summary = queries.policy_summary(path, chosen)
            if summary.empty:
                return (note + NOTHING_FITS, *hidden)
            names = [str(name) for name in summary["policy"]]
            return (
                note,
                gr.Column(visible=True),
                summary_html(summary),
                charts.speedup_figure(queries.speedup_over_time(path, chosen), names),
                charts.regret_figure(queries.regret_over_time(path, chosen), names),
                charts.drafter_task_figure(queries.drafter_by_task(path, chosen)),
            )
        except StorageError as error:
            return (note or message_html("error", str(error)), *hidden)


def summary_html(summary: pd.DataFrame) -> str:
    """One line per policy (``queries.policy_summary``)."""
    columns = (
        "Policy",
        "Runs",
        "Speed-up (median)",
        "MAT (mean)",
        "Accepted (mean)",
        "Regret (mean rounds)",
        "Best drafter played",
    )
    rows = (
        [
            f'<span title="{escape(str(line.policy))}">{escape(policy_title(str(line.policy)))}</span>',
            str(line.runs),
            number(line.median_speedup, 2, "×"),
            number(line.mean_accepted_tokens, 2),
            number(100 * line.acceptance_rate, 0, " %"),
            number(line.regret_rounds, 1),
            number(100 * line.best_arm_ratio, 0, " %"),
        ]
        for line in summary.itertuples()
    )
    return table_html(columns, rows, figures=6)
