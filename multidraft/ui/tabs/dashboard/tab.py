"""*Dashboard*: what all recorded runs say together, and each of them by itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

import gradio as gr
from markupsafe import Markup

from drafters.errors import UserError
from multidraft.service.lab import LabWork, ReplayJob
from multidraft.ui import example
from multidraft.ui.tabs.dashboard import filters as dashboard_filters
from multidraft.ui.tabs.dashboard import learnt, tables, views
from multidraft.ui.tabs.dashboard.charts import FAST
from multidraft.ui.tabs.dashboard.exchange import Exchange
from multidraft.ui.tabs.dashboard.filters import CONTROLS, PARAMETERS, Chosen
from multidraft.ui.tabs.dashboard.learnt import learnt_html
from multidraft.ui.tabs.dashboard.run_page import RunSection
from multidraft.ui.tabs.dashboard.views import CHARTS, Chart, running_html
from multidraft.ui.widgets import events
from multidraft.ui.widgets.charts import plot
from multidraft.ui.widgets.events import HIDDEN, LAST, PRIVATE, Updates
from multidraft.ui.widgets.exports import export_file
from multidraft.ui.widgets.jobs import answered_at_once
from multidraft.ui.widgets.markup import heading_html, message_html, problem_html
from multidraft.ui.widgets.verdict import verdict_html, watched
from storage import aggregates, queries
from storage.cache import cached
from storage.export import EXPORTS
from storage.filters import Filter
from storage.problems import StorageError
from storage.texts import TextFilter

_KEEP_FILTERS = f"(...values) => keepFilters({json.dumps(PARAMETERS)}, values)"
_DOWNLOAD = "() => setTimeout(() => document.querySelector('#export-file').click(), 150)"

ADVISE, LEARNT = "Which policy for this traffic?", "What has the pool learnt?"

_found = cached(aggregates.filters)
_count = cached(queries.count)


class Dashboard:
    """The tab and what its controls do. The charts are those of ``charts.py``.

    Args:
        work: replays the runs of the history for a verdict on them.
        may_import: whether visitors may add results of other tools.
    """

    def __init__(self, work: LabWork, may_import: bool = True):
        self.work, self.store = work, work.workbench.store
        self.exchange = Exchange(self.store, may_import)
        self.run = RunSection(self.store.path)
        self.places: dict[Chart, list[Any]] = {}

    def defaults(self) -> dict[str, Any]:
        """The filters that a page begins with, by their names in :class:`Chosen`: what is loaded now."""
        bench = self.work.workbench
        return {"pool": bench.pool.name, "hardware": bench.hardware}

    def build(self, page: gr.Blocks, tab: gr.Tab) -> None:
        """Lay out the inside of ``tab``, which brings itself up to date whenever it is opened; the address of ``page``
        names the filters and the run to begin with. :meth:`follow` is for the time when the pool has changed, on
        :attr:`followers`."""
        self.found, self.usual, self.narrowed = gr.State({}), gr.State({}), gr.State(0)
        self.page, self.usual_place = gr.State(0), gr.State({})
        with gr.Column() as self.everything:
            self.filters, self.more, self.refresh = dashboard_filters.build_filters(Chosen(**self.defaults()))
            self.note = gr.HTML(
                message_html("busy md-awaited", "Reading the history …"),
                js_on_load="tell('relax', element, trigger)",
                elem_id="dashboard-note",
            )
            with gr.Column(visible=False) as self.body:
                self._build_figures()
                self._build_list()
            self.exports |= self.exchange.build()  # for an empty history too
        with gr.Column(visible=False) as self.one:
            self.run.build()
        self.file = gr.DownloadButton("Download", visible="hidden", elem_id="export-file")
        self.travel = gr.HTML("", js_on_load="travel(trigger)", elem_id="travel")
        self.named = gr.Textbox(visible="hidden")
        self.followers = [self.usual_place, *self.filters[:2]]
        self._wire(page, tab)

    def _build_figures(self) -> None:
        self.mixture = gr.HTML("", js_on_load=None, elem_id="mixture")
        with gr.Row(elem_classes="md-pager"):
            self.restrict = gr.Button("", visible=False, size="md", elem_id="restrict")
        for section, group in groupby(CHARTS, key=lambda chart: chart.section):
            gr.HTML(heading_html(section.title, section.hint), js_on_load=None)
            if section is FAST:
                self.filters[-1].render()
                self.summary = gr.HTML("", js_on_load=None, elem_id="policy-summary")
                with gr.Row(elem_classes="md-pager"):
                    self.advise = gr.Button(ADVISE, size="md", elem_id="advise")
                    self.lessons = gr.Button(LEARNT, size="md", elem_id="learnt")
                self.verdict = gr.HTML("", js_on_load=None, elem_id="dashboard-verdict")
                self.taught = gr.HTML("", js_on_load=None, elem_id="dashboard-lessons")
                learnt.build(self.work.workbench)
                self.legend = gr.HTML("", js_on_load=None, elem_id="policy-legend")
            for _, row in groupby(group, key=lambda chart: chart.wide):
                listed = list(row)
                with gr.Row(elem_classes="md-columns"):
                    for chart in listed:
                        self.places[chart] = [plot(f"{chart.id}-chart")]
                for chart in listed:
                    if chart.table:
                        self.places[chart].append(gr.HTML("", js_on_load=None, elem_id=f"{chart.id}-table"))

    def _build_list(self) -> None:
        about = "All runs that match the filters, finished or not. Open one to see what it wrote, by round."
        gr.HTML(heading_html("Runs", about), js_on_load=None)
        self.runs = gr.HTML("", js_on_load="openRuns(element, trigger);", elem_id="run-list")
        with gr.Row(elem_classes="md-pager"):
            self.newer = gr.Button("← Newer", size="md", min_width=110, elem_id="newer")
            self.older = gr.Button("Older →", size="md", min_width=110, elem_id="older")
            self.exports = {
                suffix: gr.Button(f"Export {title}", size="md", min_width=130, elem_id=f"export-{suffix}")
                for suffix, title in (("csv", "CSV"), ("json", "JSON"), ("parquet", "Parquet"))
            }
        self.range = gr.HTML("", js_on_load=None, elem_id="run-range")
        self.list = [self.runs, self.range, self.newer, self.older, self.page]

    def _wire(self, page: gr.Blocks, tab: gr.Tab) -> None:
        opened = [self.everything, self.one, *self.run.parts]
        # Queued, since messages come by the queue only.
        self.restored = page.load(self.restore, None, [self.usual_place, *self.filters, *opened], **HIDDEN)
        # All in one: two events could end in the other order, and show the filters' former values.
        changes = [control.change if isinstance(control, gr.DateTime) else control.input for control in self.filters]
        overview = [self.note, self.body, self.mixture, self.restrict, self.summary, self.legend]
        overview += [self.usual, self.verdict, self.taught]
        asked = (
            (self.advise, self.verdict, self.work.advise, verdict_html, "Working out the verdict …", "No verdict"),
            (self.lessons, self.taught, self.work.learnt, learnt_html, "Replaying the queries …", "Nothing to show"),
        )
        at_most: dict[str, Any] = {"concurrency_limit": ReplayJob.limit, **HIDDEN}
        for button, place, begin, shows, *said in asked:
            call = partial(self.advised, begin, shows, *said)
            answered_at_once([button.click], call, self.filters, place, [place], button, *said, **at_most)
        choices = self.filters[: len(CONTROLS)]
        shown = gr.on(
            [tab.select, self.refresh.click, self.narrowed.change, self.exchange.imported.change, *changes],
            self.refreshed,
            [self.found, *self.filters],
            [*choices, self.found, self.more, *overview],
            **LAST,
        )
        shown.then(None, self.filters, None, js=_KEEP_FILTERS, **PRIVATE)
        shown = shown.then(partial(self.run_list, 0), self.filters, self.list, **LAST)
        for _, group in groupby(CHARTS, key=lambda chart: chart.section):  # few events: each takes the browser a while
            charts = list(group)
            places = [place for chart in charts for place in self.places[chart]]
            shown = shown.then(partial(self.charts, charts), self.filters, places, **LAST)
        self.restrict.click(
            self.restricted, [self.usual, self.narrowed, *self.filters], [*choices, self.narrowed], **HIDDEN
        )
        self.note.click(self.relaxed, [self.narrowed, *self.filters], [*self.filters, self.narrowed], **HIDDEN)
        for button, step in ((self.newer, -1), (self.older, 1)):
            button.click(lambda page, step=step: page + step, self.page, self.page, **LAST).then(
                self.run_list, [self.page, *self.filters], self.list, **LAST
            )
        self.runs.click(self.open_run, None, opened, **HIDDEN).then(None, js="() => focusRun()", **PRIVATE)
        # The address says where to, read when the event is sent: one that waited would bring its own data again.
        travelled = self.travel.click(self.go_to, self.named, opened, js="() => [linkedRun() ?? '']", **LAST)
        travelled.then(None, js="() => focusTravelled()", **PRIVATE)
        self.run.leave.click(self.leave_run, None, [self.everything, self.one], js="() => leaveRun()", **HIDDEN)
        for suffix, button in self.exports.items():
            self._export(button, partial(self.export, suffix), self.filters)
        self._export(self.run.to_json, self.run.export, [self.run.id])

    def _export(self, button: gr.Button, write: Any, inputs: list[Any]) -> None:
        """Have ``button`` write a file and download it; it says so meanwhile, since a long history takes its time."""
        title = button.value
        busy = button.click(lambda: gr.Button("Writing the file …", interactive=False), None, button, **HIDDEN)
        written = busy.then(write, inputs, self.file, **HIDDEN)
        written.success(None, None, None, js=_DOWNLOAD, **PRIVATE)
        written.then(lambda: gr.Button(title, interactive=True), None, button, **HIDDEN)

    # What the controls do; ``values`` are those of the filters, in their order.

    def restore(self, request: gr.Request) -> Updates:
        """What is loaded now; filters, and the run to open, as the page's address has them."""
        query, now = str(request.query_params), self.defaults()
        chosen = Chosen.from_query(query, now)
        found = self._found()
        gone = dashboard_filters.not_taken(found, query) if request.query_params.get("tab") == "dashboard" else []
        if gone:
            gr.Warning(escape(f"The history holds no such runs, so these filters were dropped: {', '.join(gone)}."))
        values = dashboard_filters.offered(found, dashboard_filters.known(found, chosen))
        updates = dict(zip(self.filters, [*values, *dashboard_filters.days(chosen)], strict=True))
        run, named = events.linked_run(request), request.query_params.get("run")
        if named and run is None:
            gr.Warning(escape(f"The address names no run of this history: {named!r:.60} is not a number."))
        return {self.usual_place: now, **updates} | (self._open(run) if run is not None else {})

    def follow(self, usual: dict[str, str], *shown: str) -> Updates:
        """What is loaded now, and the filters on pool and hardware where they were on what was before."""
        now = self.defaults()
        moved = {
            field: gr.Dropdown(control.choices([now[control.column]]), value=now[control.column])
            for control, field, on in zip(CONTROLS, self.filters, shown)
            if on == usual.get(control.column) != now[control.column]
        }
        return {self.usual_place: now, **moved}

    def refreshed(self, event: gr.EventData, offered: dict[str, list[str]], *values: Any) -> Updates:
        """The filters with what there is now to choose, if that is not what they offer, and without what no longer
        applies; what there is; the title of those that are folded away; the overview."""
        found, shown = self._found(), Chosen(*values)
        chosen = dashboard_filters.known(found, shown)
        places = [control._id for control in self.filters[: len(CONTROLS)]]
        if (changed := getattr(event.target, "_id", None)) in places:
            with suppress(StorageError, UserError):  # overview() says what is wrong
                chosen = dashboard_filters.let_go(self.path, chosen, places.index(changed))
        same = found == offered and chosen == dashboard_filters.known(offered, shown)
        controls = [] if same else dashboard_filters.offered(found, chosen, shown)
        return {
            **dict(zip(self.filters, controls, strict=False)),
            self.found: found,
            self.more: gr.Accordion(label=dashboard_filters.more_title(chosen)),
            **self.overview(*chosen.values()),
        }

    def restricted(self, usual: dict[str, Any], narrowed: int, *values: Any) -> Updates:
        """The filters narrowed to the most frequent conditions among the runs shown, and how often that was done."""
        return self._moved(narrowed, replace(Chosen(*values), **usual))

    def relaxed(self, event: gr.EventData, narrowed: int, *values: Any) -> Updates:
        """The filters without those that a button lets go, likewise."""
        chosen = dashboard_filters.relaxed(Chosen(*values), names := events.clicked(event, "relax"))
        days = {self.filters[-3]: None, self.filters[-2]: None} if "since" in names else {}
        return {**self._moved(narrowed, chosen), **days}

    def _moved(self, narrowed: int, chosen: Chosen) -> Updates:
        found = self._found()
        controls = dashboard_filters.offered(found, dashboard_filters.known(found, chosen))
        return {**dict(zip(self.filters, controls, strict=False)), self.narrowed: narrowed + 1}

    @property
    def path(self) -> Path:
        """The history that is shown: the store's, or the recorded example as long as that holds no run."""
        return self.store.path if _count(self.store.path) else example.path()

    def overview(self, *values: Any) -> Updates:
        """Note, visibility of the figures, policies ranked, and what the button that narrows the filters chooses."""
        hidden: Updates = {self.body: gr.Column(visible=False)}
        note = views.problems_html(self.store)
        try:
            path = self.path
            if path != self.store.path:
                note += tables.EXAMPLE
            chosen = Chosen(*values).filter()
            if (view := views.overview(path, chosen)) is None:
                return {**hidden, self.note: note + dashboard_filters.nothing_fits_html(path, Chosen(*values))}
            note += running_html(self.store.path, chosen, self.work.workbench.jobs.listed)
        except (StorageError, UserError) as error:
            return {**hidden, self.note: note or problem_html(error)}
        return {
            self.note: note,
            self.body: gr.Column(visible=True),
            self.mixture: view.mixture,
            self.restrict: gr.Button(view.usual_title, visible=bool(view.usual_title)),
            self.summary: view.summary,
            self.legend: view.legend,
            self.usual: view.usual,
            self.verdict: "",  # it was on the runs shown before
            self.taught: "",
        }

    def advised(
        self, begin: Callable[..., ReplayJob], shown: Callable[..., Markup], doing: str, none: str, *values: Any
    ) -> Iterator[Markup]:
        """The verdict on the texts of the filtered runs, or what they taught, as by :func:`watched`."""
        try:
            chosen = self._filter(values)
            if self.path != self.store.path:
                yield message_html("idle", "No verdict on the examples: it replays runs of this server's own.")
                return
        except (StorageError, UserError) as error:
            yield problem_html(error)
            return
        yield from watched(lambda: begin(TextFilter(chosen)), shown, doing, none)

    def charts(self, charts: Sequence[Chart], *values: Any) -> Updates:
        """Charts, and their figures as tables; left as they are where the overview has said why there is nothing."""
        with suppress(StorageError, UserError):
            path, chosen = self.path, self._filter(values)
            if not views.ranked(path, chosen).summary.empty:
                drawn = ((self.places[chart], views.drawn(path, chosen, chart)) for chart in charts)
                return {place: part for places, parts in drawn for place, part in zip(places, parts, strict=False)}
        return {self.places[charts[0]][0]: gr.skip()}

    def run_list(self, page: int, *values: Any) -> Updates:
        """A page of the list of runs, the line that says which, the buttons that turn it, and its number."""
        try:
            chosen = self._filter(values)
            table, line, page, pages = views.run_list(self.path, chosen, page)
        except (StorageError, UserError) as error:
            table, line, page, pages = problem_html(error), Markup(), 0, 1
        return {
            self.runs: table,
            self.range: line,
            self.newer: gr.Button(interactive=page > 0),
            self.older: gr.Button(interactive=page < pages - 1),
            self.page: page,
        }

    def open_run(self, event: gr.EventData) -> Updates:
        """The page of the run that was clicked, in place of all of them."""
        return self.go_to(events.clicked(event, "run"))

    def go_to(self, named: str | None) -> Updates:
        """Where the browser's Back or Forward leads: the run that the address names, or all of them."""
        run = events.run_number(named or "")
        return self.leave_run() if run is None else self._open(run)

    def leave_run(self) -> Updates:
        return {self.everything: gr.Column(visible=True), self.one: gr.Column(visible=False)}

    def _open(self, id: int) -> Updates:
        return {self.everything: gr.Column(visible=False), self.one: gr.Column(visible=True), **self.run.show(id)}

    def export(self, suffix: str, *values: Any) -> str:
        write, path = EXPORTS[suffix], self.path
        return export_file(f"runs.{suffix}", lambda file: write(path, Chosen(*values).filter(), file))

    def _filter(self, values: Sequence[Any]) -> Filter:
        """The runs that the filters mean, without choices that are gone."""
        return dashboard_filters.known(self._found(), Chosen(*values)).filter()

    def _found(self) -> dict[str, list[str]]:
        try:
            return _found(self.path)
        except StorageError:  # overview() says what is wrong
            return {control.column: [] for control in CONTROLS}
