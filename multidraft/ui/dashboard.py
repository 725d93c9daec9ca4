"""*Dashboard*: what all recorded runs say together, and each of them by itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from multidraft.errors import UserError
from multidraft.ui import dashboard_filters, dashboard_views, links
from multidraft.ui import dashboard_texts as texts
from multidraft.ui.dashboard_filters import CHOICES, PARAMETERS, Chosen, place_choice
from multidraft.ui.dashboard_run import RunSection, plot
from multidraft.ui.events import HIDDEN, PRIVATE
from multidraft.ui.exports import export_file
from multidraft.ui.links import ADDRESS
from multidraft.ui.stats import message_html
from multidraft.ui.tables import count
from storage import figures, queries
from storage.export import EXPORTS
from storage.kept import kept
from storage.problems import StorageError
from storage.store import Store

_SCRIPT = ADDRESS + Path(__file__).with_name("dashboard.js").read_text(encoding="utf-8")
_NAMES = json.dumps(PARAMETERS)
_KEEP_FILTERS = f"(...values) => {{ {_SCRIPT} keepFilters({_NAMES}, values); }}"
_FOCUS_RUN = f"() => {{ {_SCRIPT} focusRun(); }}"
_FOCUS_TRAVELLED = f"() => {{ {_SCRIPT} focusTravelled(); }}"
_LEAVE_RUN = f"() => {{ {_SCRIPT} leaveRun(); }}"
_DOWNLOAD = "() => setTimeout(() => document.querySelector('#export-file').click(), 150)"

_LAST: dict[str, Any] = {**HIDDEN, "trigger_mode": "always_last"}
"""For what shows the filters' present values: asked for while it is under way, it is done once more."""

_found = kept(figures.filters)
_count = kept(queries.count)


class Dashboard:
    """The tab and what its controls do.

    Args:
        defaults: the filters to begin with, by their names in :class:`Chosen`; asked for whenever a page is opened.
    """

    def __init__(self, store: Store, defaults: Callable[[], dict[str, str]] = dict):
        self.store, self.defaults = store, defaults
        self.run = RunSection(store.path)

    def build(self, page: gr.Blocks, tab: gr.Tab) -> None:
        """Lay out the inside of ``tab``, which brings itself up to date whenever it is opened; :meth:`follow` is for
        the time when the pool has changed, on :attr:`followers`.

        Args:
            page: whose address tells the filters and the run to begin with.
        """
        self.found, self.usual, self.narrowed = gr.State({}), gr.State({}), gr.State(0)
        self.page = gr.State(0)
        with gr.Column() as self.everything:
            self.filters, self.more, refresh = dashboard_filters.build_filters(Chosen(**self.defaults()))
            self.note = gr.HTML(
                message_html("busy", "Reading the history …"), js_on_load=None, elem_id="dashboard-note"
            )
            with gr.Column(visible=False) as self.body:
                self._build_figures()
        with gr.Column(visible=False) as self.one:
            leave, export_run = self.run.build()
        self.file = gr.DownloadButton("Download", visible="hidden", elem_id="export-file")
        self.travel = gr.HTML("", js_on_load=f"{_SCRIPT} travel(trigger); checkDays();", elem_id="travel")
        opened = [self.everything, self.one, *self.run.parts]

        self.usual_place = gr.State({})
        self.followers = [self.usual_place, *self.filters[:2]]
        page.load(self.defaults, None, self.usual_place, **HIDDEN)
        self.restored = page.load(self.restore, None, [*self.filters, *opened], **HIDDEN)
        # All in one: two events could end in the other order, and show the filters' former values.
        changes = [control.change if isinstance(control, gr.DateTime) else control.input for control in self.filters]
        choices = self.filters[:CHOICES]
        shown = gr.on(
            [tab.select, refresh.click, self.narrowed.change, *changes],
            self.refreshed,
            [self.found, *self.filters],
            [*choices, self.found, self.more, *self._overview],
            **_LAST,
        )
        shown.then(None, self.filters, None, js=_KEEP_FILTERS, **PRIVATE)
        self._then_the_rest(shown)
        self.restrict.click(
            self.restricted, [self.usual, self.narrowed, *self.filters], [*choices, self.narrowed], **HIDDEN
        )
        for button, step in ((self.newer, -1), (self.older, 1)):
            button.click(lambda page, step=step: page + step, self.page, self.page, **_LAST).then(
                self.run_list, [self.page, *self.filters], self._list, **_LAST
            )
        self.runs.click(self.open_run, None, opened, **HIDDEN).then(None, js=_FOCUS_RUN, **PRIVATE)
        self.travel.click(self.go_to, None, opened, **_LAST).then(None, js=_FOCUS_TRAVELLED, **PRIVATE)
        leave.click(self.leave_run, None, [self.everything, self.one], js=_LEAVE_RUN, **HIDDEN)
        for suffix, button in self.exports.items():
            self._export(button, partial(self.export, suffix), self.filters)
        self._export(export_run, self.run.export, [self.run.id])

    def _build_figures(self) -> None:
        self.mixture = gr.HTML("", js_on_load=None, elem_id="mixture")
        with gr.Row(elem_classes="md-pager"):
            self.restrict = gr.Button("", visible=False, size="md", elem_id="restrict")
        _heading(*texts.FAST)
        self.summary = gr.HTML("", js_on_load=None, elem_id="policy-summary")
        self.legend = gr.HTML("", js_on_load=None, elem_id="policy-legend")
        with gr.Row(elem_classes="md-columns"):
            self.ranking, speedup = _chart("ranking-chart"), _chart("speedup-chart")
        _heading(*texts.LEARNING)
        with gr.Row(elem_classes="md-columns"):
            regret, best_arm = _chart("regret-chart"), _chart("best-arm-chart")
        regret_table = gr.HTML("", js_on_load=None, elem_id="regret-table")
        matrix = _chart("matrix-chart")
        _heading(*texts.TIME)
        with gr.Row(elem_classes="md-columns"):
            phases, token, first = map(_chart, ("phases-chart", "token-chart", "first-chart"))
        phases_table = gr.HTML("", js_on_load=None, elem_id="phases-table")
        latency_table = gr.HTML("", js_on_load=None, elem_id="latency-table")
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
        self._list = [self.runs, self.range, self.newer, self.older, self.page]
        self._overview = [self.note, self.body, self.mixture, self.restrict, self.summary, self.legend, self.ranking]
        self._overview.append(self.usual)
        self._charts: dict[str, list[Any]] = {
            "speedup": [speedup],
            "regret": [regret, regret_table],
            "best_arm": [best_arm],
            "matrix": [matrix],
            "phases": [phases, phases_table],
            "latency": [token, first, latency_table],
        }

    def _then_the_rest(self, shown: Any) -> None:
        """After the overview: the list, and the charts one by one."""
        shown = shown.then(self.first_page, self.filters, self._list, **_LAST)
        for name, places in self._charts.items():
            shown = shown.then(partial(self.chart, name), self.filters, places, **_LAST)

    def _export(self, button: gr.Button, write: Any, inputs: list[Any]) -> None:
        """Have ``button`` write a file and download it; it says so meanwhile, since a long history takes its time."""
        title = button.value
        busy = button.click(lambda: gr.Button("Writing the file …", interactive=False), None, button, **HIDDEN)
        written = busy.then(write, inputs, self.file, **HIDDEN)
        written.success(None, None, None, js=_DOWNLOAD, **PRIVATE)
        written.then(lambda: gr.Button(title, interactive=True), None, button, **HIDDEN)

    # What the controls do; ``values`` are those of the filters, in their order.

    def restore(self, request: gr.Request) -> list[Any]:
        """Filters, and the run to open, as the page's address has them."""
        query = str(request.query_params)
        chosen = Chosen.from_query(query, self.defaults())
        run = links.linked_run(request)
        opened = self._open(run) if run is not None else [gr.skip()] * (2 + len(self.run.parts))
        found = self._found()
        gone = dashboard_filters.not_taken(found, query) if request.query_params.get("tab") == "dashboard" else []
        if gone:
            gr.Warning(escape(f"The history holds nothing of this kind, so it is not filtered by: {', '.join(gone)}."))
        controls = dashboard_filters.offered(found, dashboard_filters.known(found, chosen))
        return [*controls, *dashboard_filters.days(chosen), *opened]

    def follow(self, usual: dict[str, str], *shown: str) -> list[Any]:
        """What is loaded now, and the filters on pool and hardware where they were on what was before."""
        now = self.defaults()
        follows = zip(("pool", "hardware"), shown, strict=True)
        return [now, *(place_choice(n, now[n]) if on == usual.get(n) != now[n] else gr.skip() for n, on in follows)]

    def refreshed(self, offered: dict[str, list[str]], *values: Any) -> list[Any]:
        """The filters with what there is now to choose, if that is not what they offer; what there is; the title of
        those that are folded away; the overview."""
        found, shown = self._found(), Chosen(*values)
        chosen = dashboard_filters.known(found, shown)
        same = found == offered and chosen == dashboard_filters.known(offered, shown)
        controls = [gr.skip()] * CHOICES if same else dashboard_filters.offered(found, chosen, shown)
        more = gr.Accordion(label=dashboard_filters.more_title(chosen))
        return [*controls, found, more, *self.overview(*chosen.values())]

    def restricted(self, usual: dict[str, Any], narrowed: int, *values: Any) -> list[Any]:
        """The filters narrowed to the most frequent conditions among the runs shown, and how often that was done."""
        found = self._found()
        chosen = Chosen(**{**dict(zip(Chosen.__dataclass_fields__, values)), **usual})
        return [*dashboard_filters.offered(found, dashboard_filters.known(found, chosen)), narrowed + 1]

    def overview(self, *values: Any) -> tuple[Any, ...]:
        """Note, visibility of the figures, policies ranked, and what the button that narrows the filters chooses."""
        problem, backup = self.store.problem, self.store.backup
        note = message_html("error", f"The history is not being written. {problem}") if problem else ""
        if backup and backup.problem:
            note += message_html("error", backup.problem)
        hidden: tuple[Any, ...] = (gr.Column(visible=False), "", gr.Button(visible=False), "", "", None, {})
        try:
            if not _count(self.store.path):
                return (note + texts.EMPTY, *hidden)
            view = dashboard_views.overview(self.store.path, Chosen(*values).filter())
        except (StorageError, UserError) as error:
            return (note or message_html("error", str(error)), *hidden)
        if view is None:
            return (note + texts.NOTHING_FITS, *hidden)
        button = gr.Button(f"Show only the most frequent kind: {count(view.usual.runs, 'run')}", visible=True)
        return (
            note,
            gr.Column(visible=True),
            view.mixture,
            button if view.mixture else gr.Button(visible=False),
            view.summary,
            view.legend,
            view.ranking,
            view.usual.chosen,
        )

    def chart(self, name: str, *values: Any) -> Any:
        """A view of ``dashboard_views.CHARTS``; left as it is where the overview has said why there is nothing."""
        skipped = [gr.skip()] * len(self._charts[name])
        path = self.store.path
        try:
            chosen = dashboard_filters.known(self._found(), Chosen(*values)).filter()
            fits = dashboard_views.any_fits(path, chosen)
            parts = list(dashboard_views.CHARTS[name](path, chosen)) if fits else skipped
        except (StorageError, UserError):
            parts = skipped
        return parts if len(parts) > 1 else parts[0]

    def run_list(self, page: int, *values: Any) -> tuple[Any, ...]:
        """A page of the list of runs, the line that says which, the buttons that turn it, and its number."""
        try:
            chosen = dashboard_filters.known(self._found(), Chosen(*values)).filter()
            table, line, page, pages = dashboard_views.run_list(self.store.path, chosen, page)
        except (StorageError, UserError) as error:
            table, line, page, pages = message_html("error", str(error)), "", 0, 1
        return table, line, gr.Button(interactive=page > 0), gr.Button(interactive=page < pages - 1), page

    def first_page(self, *values: Any) -> tuple[Any, ...]:
        """The newest runs, likewise."""
        return self.run_list(0, *values)

    def open_run(self, event: gr.EventData) -> list[Any]:
        """The page of the run that was clicked, in place of all of them."""
        return self._open(int(event.run))

    def go_to(self, event: gr.EventData) -> list[Any]:
        """Where the browser's Back or Forward leads: a run, or all of them."""
        if event.run:
            return self._open(int(event.run))
        return [*self.leave_run(), *[gr.skip()] * len(self.run.parts)]

    def leave_run(self) -> tuple[gr.Column, gr.Column]:
        """Back to all runs."""
        return gr.Column(visible=True), gr.Column(visible=False)

    def _open(self, id: int) -> list[Any]:
        return [gr.Column(visible=False), gr.Column(visible=True), *self.run.show(id)]

    def export(self, suffix: str, *values: Any) -> str:
        """A file of the filtered runs."""
        write, path = EXPORTS[suffix], self.store.path
        return export_file(f"runs.{suffix}", lambda file: write(path, Chosen(*values).filter(), file))

    def _found(self) -> dict[str, list[str]]:
        """What there is to filter by."""
        try:
            return _found(self.store.path)
        except StorageError:  # overview() says what is wrong
            return {key: [] for key in figures.FILTERS}


def _heading(title: str, text: str) -> None:
    gr.HTML(f'<h2 class="md-heading">{title}</h2><p class="md-caption">{text}</p>', js_on_load=None)


def _chart(id: str) -> gr.Plot:
    return plot(id)
