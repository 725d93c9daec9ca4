"""Files of other tools: runs exported in their forms, and their results imported."""

from __future__ import annotations

import gradio as gr
from markupsafe import Markup

from drafters.errors import UserError
from multidraft.ui.tabs.dashboard.filters import SOURCES
from multidraft.ui.widgets.events import HIDDEN
from multidraft.ui.widgets.markup import count, message_html, problem_html
from storage.exchange import FORMS
from storage.imports import KNOWN, MAX_BYTES, import_file
from storage.problems import StorageError
from storage.store import Store

_BY_OPERATOR = (
    "Only the operator of this server can import results of other tools (python -m multidraft "
    "import), since those of visitors cannot be checked. MULTIDRAFT_IMPORT=on lets visitors do so."
)
_TITLES = {form: SOURCES[form].removesuffix(" (imported)") for form in FORMS}


class Exchange:
    """The part of the tab that is about other tools.

    Attributes:
        imported: changes whenever runs have been imported.
    """

    def __init__(self, store: Store, may_import: bool):
        self.store, self.may_import = store, may_import

    def build(self) -> dict[str, gr.Button]:
        """Lay it out; returns the buttons that export, by what is exported (``storage.export.EXPORTS``)."""
        with gr.Accordion("Other tools: Spec-Bench, specdec_bench, AIPerf", open=False, elem_id="exchange"):
            self.imported = gr.State(0)
            if self.may_import:
                self._build_import()
            else:
                gr.HTML(message_html("idle", _BY_OPERATOR))
            with gr.Row(elem_classes="md-pager"):
                exports = {
                    f"{form}.zip": gr.Button(f"Export for {title}", size="md", min_width=130, elem_id=f"export-{form}")
                    for form, title in _TITLES.items()
                }
        return exports

    def _build_import(self) -> None:
        gr.HTML(message_html("idle", f"Imports {KNOWN}. Such runs have no rounds, so no regret and no replays."))
        with gr.Row(elem_classes="md-columns"):
            with gr.Column(min_width=320):
                file = gr.File(
                    label=f"Import a file, up to {MAX_BYTES >> 20} MB",
                    file_types=[".json", ".jsonl", ".ndjson"],
                    height=140,
                    elem_id="import-file",
                )
            with gr.Column(min_width=320):
                name = gr.Textbox(
                    label="What decoded",
                    info="Shown in place of a policy; by default as in the file",
                    placeholder="vLLM, EAGLE-3",
                    max_length=100,
                    elem_id="import-name",
                )
                add = gr.Button("Import", size="md", elem_id="import")
        said = gr.HTML("", js_on_load=None, elem_id="import-said")
        add.click(self.read, [file, name, self.imported], [said, file, self.imported], **HIDDEN)

    def read(self, file: str | None, name: str, imported: int) -> tuple[Markup, str | None, int]:
        """Import a file: what came of it, the file where it is still there to be imported, and the new count."""
        if not file:
            return message_html("error", "Choose a file first."), None, imported
        try:
            added = import_file(file, self.store, name)
        except (UserError, StorageError) as error:
            return problem_html(error), file, imported
        where = "their pool is named after the tool: choose it above to see them"
        return message_html("done", f"Imported {count(added, 'run')}; {where}."), None, imported + 1
