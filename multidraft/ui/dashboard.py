"""*Dashboard*: what all recorded runs say together, and each of them by itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import gradio as gr
import plotly.graph_objects as go

from multidraft.errors import UserError
from multidraft.ui import dashboard_filters, dashboard_views, run_page, tokens
from multidraft.ui import dashboard_texts as texts
from multidraft.ui.charts import base_figure
from multidraft.ui.dashboard_filters import PARAMETERS, Chosen
from multidraft.ui.dashboard_tables import runs_text
from multidraft.ui.exports import export_file
from multidraft.ui.links import ADDRESS
from multidraft.ui.stats import message_html
from storage import figures, queries
from storage.export import EXPORTS
from storage.problems import StorageError
from storage.store import Store

_SCRIPT = ADDRESS + Path(__file__).with_name("dashboard.js").read_text(encoding="utf-8")
_NAMES = json.dumps(PARAMETERS)
_KEEP_FILTERS = f"(...values) => {{ {_SCRIPT} keepFilters({_NAMES}, values); }}"
_LEAVE_RUN = f"() => {{ {_SCRIPT} address({{ run: null }}); }}"
_TO_TOP = "() => window.scrollTo({ top: 0 })"
_DOWNLOAD = "() => setTimeout(() => document.querySelector('#export-file').click(), 150)"

_QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}


class Dashboard:
    """The tab and what its controls do.

    Args:
        defaults: the filters to begin with, by their names in :class:`Chosen`; asked for whenever a page is opened.
    """

    def __init__(self, store: Store, defaults: Callable[[], dict[str, str]] = dict):
        self.store, self.defaults = store, defaults

    def build(self, page: gr.Blocks, tab: gr.Tab) -> None:
        """Lay out the inside of ``tab``, which brings itself up to date whenever it is opened; :meth:`follow` is for
        the time when the pool has changed, on :attr:`followers`.

        Args:
            page: whose address tells the filters and the run to begin with.
        """
        self.drawn, self.listed, self.usual = gr.State([]), gr.State([]), gr.State({})
        self.page, self.run_id = gr.State(0), gr.State(0)
        with gr.Column() as self.everything:
            self.filters, refresh = dashboard_filters.build_filters(Chosen(**self.defaults()))
            self.note = gr.HTML(
                message_html("busy", "Reading the history …"), js_on_load=None, elem_id="dashboard-note"
            )
            with gr.Column(visible=False) as self.body:
                self._build_figures()
        with gr.Column(visible=False) as self.one:
            leave, export_run = self._build_run()
        self.file = gr.DownloadButton("Download", visible="hidden", elem_id="export-file")

        self.usual_pool = gr.State("")
        self.followers = [self.usual_pool, self.filters[0]]
        page.load(lambda: self.defaults().get("pool", ""), None, self.usual_pool, **_QUIET)
        self.restored = page.load(self.restore, None, [*self.filters, *self._run_outputs], **_QUIET)
        choices = self.filters[: dashboard_filters.CHOICES]
        for event in (tab.select, refresh.click):
            self._then_the_rest(event(self.refreshed, self.filters, [*choices, *self._speed], **_QUIET))
        narrow = [self.usual, *self.filters]
        self._then_the_rest(self.restrict.click(self.restricted, narrow, [*choices, *self._speed], **_QUIET))
        for control in self.filters:
            changed = control.change if isinstance(control, gr.DateTime) else control.input
            self._then_the_rest(changed(self.overview, self.filters, self._speed, **_QUIET))
        for button, step in ((self.newer, -1), (self.older, 1)):
            button.click(lambda page, step=step: page + step, self.page, self.page, **_QUIET).then(
                self.run_list, [self.page, *self.filters], self._list_outputs, **_QUIET
            )
        self.runs.click(self.open_run, None, self._run_outputs, **_QUIET).then(None, js=_TO_TOP)
        leave.click(self.leave_run, None, [self.everything, self.one], js=_LEAVE_RUN, **_QUIET)
        for suffix, button in self.exports.items():
            self._download_after(button.click(partial(self.export, suffix), self.filters, self.file, **_QUIET))
        self._download_after(export_run.click(self.export_run, self.run_id, self.file, **_QUIET))

    def _build_figures(self) -> None:
        self.mixture = gr.HTML("", js_on_load=None, elem_id="mixture")
        with gr.Row(elem_classes="md-pager"):
            self.restrict = gr.Button("", visible=False, size="md", elem_id="restrict")
        _heading(*texts.FAST)
        self.summary = gr.HTML("", js_on_load=None, elem_id="policy-summary")
        self.legend = gr.HTML("", js_on_load=None, elem_id="policy-legend")
        with gr.Row(elem_classes="md-columns"):
            self.ranking, self.speedup = _plot("ranking-chart"), _plot("speedup-chart")
        _heading(*texts.LEARNING)
        with gr.Row(elem_classes="md-columns"):
            self.regret, self.best_arm = _plot("regret-chart"), _plot("best-arm-chart")
        self.matrix = _plot("matrix-chart")
        _heading(*texts.TIME)
        with gr.Row(elem_classes="md-columns"):
            self.phases, self.token, self.first = map(_plot, ("phases-chart", "token-chart", "first-chart"))
        _heading(*texts.RUNS)
        self.runs = gr.HTML("", js_on_load=f"{_SCRIPT} openRuns(element, trigger);", elem_id="run-list")
        with gr.Row(elem_classes="md-pager"):
            self.newer = gr.Button("← Newer", size="md", min_width=110, elem_id="newer")
            self.older = gr.Button("Older →", size="md", min_width=110, elem_id="older")
            self.exports = {
                suffix: gr.Button(f"Export {title}", size="md", min_width=130, elem_id=f"export-{suffix}")
                for suffix, title in (("csv", "CSV"), ("json", "JSON"), ("parquet", "Parquet"))
            }
        self.range = gr.HTML("", js_on_load=None, elem_id="run-range")
        self._list_outputs = [self.runs, self.range, self.newer, self.older, self.page]
        self._speed = [self.note, self.body, self.mixture, self.restrict, self.summary, self.legend, self.ranking]
        self._speed += [self.speedup, self.drawn, self.listed, self.usual]

    def _build_run(self) -> tuple[gr.Button, gr.Button]:
        with gr.Row(elem_classes="md-pager"):
            leave = gr.Button("← All runs", size="md", min_width=130, elem_id="leave-run")
            export = gr.Button("Export this run as JSON", size="md", min_width=200, elem_id="export-run")
        head = gr.HTML("", js_on_load=None, elem_id="run-head")
        written = gr.HTML("", js_on_load=None, apply_default_css=False, elem_id="run-texts")
        with gr.Row(elem_classes="md-columns"):
            charts = [_plot(id) for id in ("run-arms-chart", "run-policy-chart", "run-regret-chart")]
        rounds = gr.HTML("", js_on_load=None, elem_id="run-rounds")
        self._run_outputs = [self.everything, self.one, head, written, *charts, rounds, export, self.run_id]
        return leave, export

    def _then_the_rest(self, event: Any) -> None:
        """After the section on speed: the others, one by one, and the address."""
        event.then(None, self.filters, None, js=_KEEP_FILTERS, api_visibility="private")
        shown = event.then(self.first_page, self.filters, self._list_outputs, **_QUIET)
        learning, times = [self.regret, self.best_arm, self.matrix], [self.phases, self.token, self.first]
        shown = shown.then(self.learning, [self.drawn, *self.filters], learning, **_QUIET)
        shown.then(self.timing, [self.listed, *self.filters], times, **_QUIET)

    def _download_after(self, event: Any) -> None:
        event.success(None, None, None, js=_DOWNLOAD, api_visibility="private")

    # What the controls do; ``values`` are those of the filters, in their order.

    def restore(self, request: gr.Request) -> list[Any]:
        """Filters, and the run to open, as the page's address has them."""
        query = str(request.query_params)
        chosen = Chosen.from_query(query, self.defaults())
        run = parse_qs(query).get("run", [""])[-1]
        opened = self._open(int(run)) if run.isascii() and run.isdigit() else [gr.skip()] * len(self._run_outputs)
        return [*self._offered(chosen)[0], *dashboard_filters.days(chosen), *opened]

    def follow(self, usual: str, shown: str) -> tuple[str, Any]:
        """The pool that is loaded now, and the filter on it where it was on the one before."""
        pool = self.defaults()["pool"]
        return pool, dashboard_filters.pool_choice(pool) if shown == usual != pool else gr.skip()

    def refreshed(self, *values: Any) -> list[Any]:
        """The filters with what there is now to choose, but for the days, and the section on speed for them."""
        filters, chosen = self._offered(Chosen(*values))
        return [*filters, *self.overview(*chosen.values())]

    def restricted(self, usual: dict[str, str], *values: Any) -> list[Any]:
        """Likewise, with the filters narrowed to the most frequent conditions among the runs shown."""
        chosen = dict(zip(Chosen.__dataclass_fields__, values))
        return self.refreshed(*Chosen(**{**chosen, **usual}).values())

    def overview(self, *values: Any) -> tuple[Any, ...]:
        """Note, visibility of the figures, and the section on speed with what the others need of it."""
        problem, backup = self.store.problem, self.store.backup
        note = message_html("error", f"The history is not being written. {problem}") if problem else ""
        if backup and backup.problem:
            note += message_html("error", backup.problem)
        hidden: tuple[Any, ...] = (
            gr.Column(visible=False),
            "",
            gr.Button(visible=False),
            "",
            "",
            None,
            None,
            [],
            [],
            {},
        )
        try:
            if not queries.count(self.store.path):
                return (note + texts.EMPTY, *hidden)
            view = dashboard_views.overview(self.store.path, Chosen(*values).filter())
        except (StorageError, UserError) as error:
            return (note or message_html("error", str(error)), *hidden)
        if view is None:
            return (note + texts.NOTHING_FITS, *hidden)
        button = gr.Button(f"Show only the most frequent kind: {runs_text(view.usual['runs'])}", visible=True)
        return (
            note,
            gr.Column(visible=True),
            view.mixture,
            button if view.mixture else gr.Button(visible=False),
            view.summary,
            view.legend,
            view.ranking,
            view.speedup,
            view.drawn,
            view.listed,
            _conditions(view.usual),
        )

    def learning(self, drawn: list[str], *values: Any) -> tuple[Any, ...]:
        """The section on learning."""
        return self._section(drawn, lambda path, chosen: dashboard_views.learning(path, chosen, drawn), values)

    def timing(self, listed: list[str], *values: Any) -> tuple[Any, ...]:
        """The section on time."""
        return self._section(listed, lambda path, chosen: dashboard_views.timing(path, chosen, listed), values)

    def _section(self, policies: list[str], make: Callable[..., tuple[Any, ...]], values: Any) -> tuple[Any, ...]:
        """Three figures; none where there is nothing to show or the overview has said what is wrong."""
        try:
            return make(self.store.path, Chosen(*values).filter()) if policies else (None, None, None)
        except (StorageError, UserError):
            return None, None, None

    def run_list(self, page: int, *values: Any) -> tuple[Any, ...]:
        """A page of the list of runs, the line that says which, the buttons that turn it, and its number."""
        try:
            table, line, page, pages = dashboard_views.run_list(self.store.path, Chosen(*values).filter(), page)
        except (StorageError, UserError) as error:
            table, line, page, pages = message_html("error", str(error)), "", 0, 1
        return table, line, gr.Button(interactive=page > 0), gr.Button(interactive=page < pages - 1), page

    def first_page(self, *values: Any) -> tuple[Any, ...]:
        """The newest runs, likewise."""
        return self.run_list(0, *values)

    def open_run(self, event: gr.EventData) -> list[Any]:
        """The page of the run that was clicked, in place of all of them."""
        return self._open(int(event.run))

    def leave_run(self) -> tuple[gr.Column, gr.Column]:
        """Back to all runs."""
        return gr.Column(visible=True), gr.Column(visible=False)

    def _open(self, id: int) -> list[Any]:
        places = [gr.Column(visible=False), gr.Column(visible=True)]
        try:
            run = run_page.load_run(self.store.path, id)
            problem = f"There is no run {id} in this history: it may be another server's." if run is None else ""
        except StorageError as error:
            run, problem = None, str(error)
        if run is None:
            return [
                *places,
                message_html("error", problem),
                "",
                *_plots(None, None, None),
                "",
                gr.Button(visible=False),
                0,
            ]
        return [
            *places,
            run_page.head_html(run),
            run_page.texts_html(run),
            *_plots(*run_page.run_figures(run)),
            tokens.rounds_table_html(run.generation.rounds),
            gr.Button(visible=True),
            id,
        ]

    def export(self, suffix: str, *values: Any) -> str:
        """A file of the filtered runs."""
        write, path = EXPORTS[suffix], self.store.path
        return export_file(f"runs.{suffix}", lambda file: write(path, Chosen(*values).filter(), file))

    def export_run(self, id: int) -> str:
        """A file of one run with its rounds."""
        path = self.store.path
        return export_file(f"run-{id}.json", lambda file: file.write_text(run_page.run_json(path, id), "utf-8"))

    def _offered(self, chosen: Chosen) -> tuple[list[Any], Chosen]:
        try:
            found = figures.filters(self.store.path)
        except StorageError:  # overview() says what is wrong
            found = {key: [] for key in figures.FILTERS}
        chosen = dashboard_filters.known(found, chosen)
        return dashboard_filters.offered(found, chosen), chosen


def _conditions(usual: Any) -> dict[str, str]:
    """The filters that let through runs under these conditions only; unknown ones restrict nothing."""
    found = {"pool": usual["pool"], "hardware": usual["hardware"], "version": usual["version"], "dtype": usual["dtype"]}
    return {name: value or dashboard_filters.ALL for name, value in {**found, "card": usual["card_hash"]}.items()}


def _heading(title: str, text: str) -> None:
    gr.HTML(f'<h2 class="md-heading">{title}</h2><p class="md-caption">{text}</p>', js_on_load=None)


def _plot(id: str) -> gr.Plot:
    # Not without a value: what Gradio shows in its place has a label that screen readers cannot use.
    blank = base_figure("Reading the history …", "", "")
    return gr.Plot(blank, show_label=False, min_width=320, elem_id=id, elem_classes="md-chart")


def _plots(*charts: go.Figure | None) -> list[gr.Plot]:
    """Those that there are, shown; the places of the others hidden."""
    return [gr.Plot(chart, visible=chart is not None) for chart in charts]
