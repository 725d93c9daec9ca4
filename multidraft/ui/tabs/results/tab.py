"""*Results*: every batch, race and benchmark of the history, to be found again, noted on, and compared."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from multidraft.policies.titles import policy_titles
from multidraft.service.batch import BatchJob
from multidraft.service.workbench import Workbench
from multidraft.ui import example
from multidraft.ui.tabs.results import view
from multidraft.ui.widgets.events import HIDDEN, LAST, PRIVATE, QUICK, Updates, clicked
from multidraft.ui.widgets.markup import caption_html, heading_html, listed_of, minute, problem_html
from storage import aggregates, experiments
from storage.experiments import LONGEST_NOTE, ORDERS, Sought
from storage.filters import Filter
from storage.problems import StorageError

EXAMPLE = "example"
"""The kind that stands for the experiments of the example history."""

KINDS = {
    "": "all kinds",
    "batch": "batches",
    "race": "races",
    "bench": "benchmarks (command line)",
    EXAMPLE: "recorded examples",
}
TITLES = {
    "newest": "newest first",
    "oldest": "oldest first",
    "runs": "most runs",
    "suite": "by suite",
    "version": "by version",
}
assert TITLES.keys() == ORDERS.keys()

PARAMETERS = ("words", "kind", "made_by", "order")
"""Of the address, in the order of the controls."""

_KEEP = """(words, kind, made_by, order) => address({
  words: words || null, kind: kind || null, made_by: made_by || null, order: order === "newest" ? null : order })"""

WAIT_SECONDS = 5.0
"""For a note to be written."""


class Results:
    """The tab and what its controls do.

    Args:
        may_note: whether visitors may change the notes of experiments: all of them see these.
    """

    def __init__(self, workbench: Workbench, may_note: bool):
        self.store, self.jobs, self.may_note = workbench.store, workbench.jobs, may_note

    def build(self, page: gr.Blocks, tab: gr.Tab) -> None:
        """Lay out the inside of ``tab``, which brings itself up to date when it is opened; the address of ``page`` has
        what is sought."""
        about = (
            "All batches and races on this server, and benchmarks from the command line; each has a page of its own, "
            "to send and to cite. Two of them can be compared, policy by policy: by version, pool, machine or setting."
        )
        gr.HTML(heading_html("Results", about), js_on_load=None)
        with gr.Row():
            words: Any = gr.Textbox(
                label="Search",
                placeholder="prompts, suites, policies, notes …",
                min_width=260,
                max_lines=1,
                elem_id="sought-words",
            )
            kind = gr.Dropdown([(title, kind) for kind, title in KINDS.items()], value="", label="Kind", min_width=160)
            version = gr.Dropdown(
                [("all versions", "")], value="", label="Code version", allow_custom_value=True, min_width=160
            )
            order = gr.Dropdown(
                [(title, name) for name, title in TITLES.items()], value="newest", label="Sort", min_width=160
            )
        self.controls: list[Any] = [words, kind, version, order]
        self.page = gr.State(0)
        self.list = gr.HTML("", js_on_load="chooseTwo(element, trigger);", elem_id="experiments-list")
        with gr.Row(elem_classes="md-pager"):
            self.newer = gr.Button("← Back", size="md", min_width=110, interactive=False)
            self.older = gr.Button("More →", size="md", min_width=110, interactive=False)
        self.range = gr.HTML("", js_on_load=None)
        self.noted = gr.State("")
        with gr.Row(visible=False) as self.noting:
            self.note = gr.Textbox(label="Note", max_length=LONGEST_NOTE, max_lines=1, elem_id="experiment-note")
            save = gr.Button("Save the note", size="md", min_width=130, scale=0, elem_id="save-note")
        shown = [self.list, self.range, self.newer, self.older, self.page]
        show: dict[str, Any] = {"fn": self.show, "inputs": [self.page, *self.controls], "outputs": shown, **LAST}
        page.load(self.restore, None, self.controls, **QUICK).then(**show)
        tab.select(**show).then(self.versions, None, version, **LAST)
        # Not the input of a text, which Gradio tells of keys only: text is pasted and cut, too.
        changes = [words.change, *(control.input for control in self.controls[1:])]
        sought = gr.on(changes, partial(self.show, 0), self.controls, shown, **LAST)
        sought.then(None, self.controls, None, js=_KEEP, **PRIVATE)
        for button, step in ((self.newer, -1), (self.older, 1)):
            button.click(lambda page, step=step: page + step, self.page, self.page, **LAST).then(**show)
        if self.may_note:
            noting = [self.noting, self.note, self.noted]
            self.list.click(self.open_note, None, noting, **HIDDEN).then(
                None,
                js="() => document.querySelector('#experiment-note textarea, #experiment-note input')?.focus()",
                **PRIVATE,
            )
            saved = gr.on([save.click, self.note.submit], self.save_note, [self.noted, self.note], noting, **HIDDEN)
            saved.then(**show)

    def restore(self, request: gr.Request) -> list[Any]:
        """What the page's address seeks."""
        words, kind, version, order = (str(request.query_params.get(name, "")) for name in PARAMETERS)
        known = kind if kind in KINDS else ""
        return [words, known, self.versions(version), order if order in ORDERS else "newest"]

    def versions(self, chosen: str | None = None) -> gr.Dropdown:
        """The versions that there are to choose, ``chosen`` if it is one; without it, what is chosen stays."""
        try:
            found = aggregates.filters(self.store.path)["version"]
        except StorageError:  # the list says what is wrong
            found = []
        settings: dict[str, Any] = {} if chosen is None else {"value": chosen if chosen in found else ""}
        return gr.Dropdown([("all versions", ""), *((one, one) for one in found)], **settings)

    def show(self, page: int, words: str, kind: str, version: str, order: str) -> Updates:
        """A page of the list, the line that says which, and the buttons that turn it."""
        # Gradio lets lists of choices pass where one is to be chosen.
        kind, version, order = (value if isinstance(value, str) else "" for value in (kind, version, order))
        sources = (kind,) if kind in KINDS and kind and kind != EXAMPLE else ()
        runs = Filter(source=sources, version=version or None)
        single = tuple((words or "").split()[:8])
        # A phrase stands together; where none has it so, its words may stand apart.
        try:
            path = self._path(kind)
            titles = tuple(policy_titles(aggregates.filters(path)["policy"]).items()) if single else ()
            phrase = (" ".join(single),) if single else ()
            sought = Sought(runs, phrase, order if order in ORDERS else "newest", titles)
            total = experiments.count(path, sought)
            if not total and single[1:]:
                sought = replace(sought, words=single)
                total = experiments.count(path, sought)
            pages = max(1, -(-total // view.PAGE))
            page = min(max(page, 0), pages - 1)
            found = experiments.listed(path, sought, limit=view.PAGE, offset=page * view.PAGE)
            own = path == self.store.path
            running = [job for job in self.jobs.listed if isinstance(job, BatchJob)]
            table = view.list_html(path, found, self.may_note and own, running) if found else view.NOTHING_FITS
            if not own:
                table = view.EXAMPLES + table
        except StorageError as error:
            total, pages, found, own, table = 0, 1, [], True, problem_html(error)
        said = f"{listed_of('Result', page * view.PAGE + 1, len(found), total)}."
        if own:
            said += " Recorded examples are under Kind."
        line = caption_html(said) if found else ""
        return {
            self.list: table,
            self.range: line,
            self.newer: gr.Button(interactive=page > 0),
            self.older: gr.Button(interactive=page < pages - 1),
            self.page: page,
        }

    def _path(self, kind: str) -> Path:
        """The history that is listed: the recorded example where it is asked for, or the store holds no experiment."""
        path = self.store.path
        return example.path() if kind == EXAMPLE or not experiments.count(path) else path

    def open_note(self, event: gr.EventData) -> Updates:
        """The field for the note on the experiment that was clicked."""
        id = clicked(event, "note")
        if (found := experiments.experiment(self.store.path, id)) is None:
            return {self.noting: gr.Row(visible=False)}
        title = f"Note on {view.name_of(found)} of {minute(found['created_at'])}"
        text = found["note"] or ""
        return {self.noting: gr.Row(visible=True), self.note: gr.Textbox(text, label=title), self.noted: id}

    def save_note(self, id: str, text: str) -> Updates:
        if self.may_note and experiments.in_history(self.store.path, id):
            self.store.note(id, text.strip()[:LONGEST_NOTE])
            if not self.store.flush(WAIT_SECONDS):
                gr.Warning(escape(f"The note is not written yet. {self.store.problem or ''}"))
        return {self.noting: gr.Row(visible=False)}
