"""*Batch*: a file of prompts under one or more policies, in the background."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import gradio as gr

from multidraft.bench.suites import MAX_BYTES, load_suite, spread, suite_names
from multidraft.errors import SuiteError, UserError
from multidraft.ui import batch_rows, batch_view, charts, choices, links
from multidraft.ui.batch_run import Batches, BatchRun, Held
from multidraft.ui.controls import limits, sentence
from multidraft.ui.events import HIDDEN, PRIVATE, QUICK, run_buttons, skips
from multidraft.ui.exports import Write, offered_file
from multidraft.ui.pool_line import PoolLine
from multidraft.ui.stats import message_html
from multidraft.ui.worker import Workbench

LOOK_SECONDS = 0.5
"""How often the page looks at its batch."""

DEFAULT_SUITE = "pocket"
DEFAULT_POLICIES = [choices.DEFAULT_POLICY, "ucb"]

FILES = {"csv": "CSV", "json": "JSON", "parquet": "Parquet"}
"""Suffixes and names of the files to download."""

_FIELDS = 5
"""The form: suite, file, policies, prompts and tokens at most."""

_RESULTS = 3 + len(FILES)
"""Parts that there are once a batch has ended: the summary, two figures, the files."""

_PARTS = 3 + _RESULTS + 2
"""All that :meth:`Batch.follow` yields: status, rows, a prompt in detail, the results, two buttons."""

_IDLE = message_html(
    "idle",
    "Ready. A batch runs in the background: reload or leave, and the page's address finds it again. Decoding is "
    "greedy. Speed-up compares with plain decoding of the same prompt, measured just before its first policy.",
)

_OPEN_PROMPT = """
element.addEventListener('click', (event) => {
  const opener = event.target.closest('tr')?.querySelector('[data-item]');
  if (opener) trigger('click', { item: Number(opener.dataset.item) });
});
"""

_SHOW_PROMPT = "() => document.querySelector('#prompt-detail').scrollIntoView({behavior: 'smooth', block: 'nearest'})"

_LEGEND = {"yref": "container", "y": 0.02, "yanchor": "bottom"}
"""At the very bottom: below the names of tasks where a phone turns them upright."""


class Batch:
    """The tab and what its controls do."""

    def __init__(self, workbench: Workbench, batches: Batches | None = None):
        self.workbench = workbench
        self.batches = batches or Batches(workbench)
        self._files: WeakKeyDictionary[BatchRun, list[Path | None]] = WeakKeyDictionary()
        self._writing = threading.Lock()

    @property
    def offered(self) -> list[tuple[str, str]]:
        """Titles and specs of the policies that the present pool can run."""
        pool = self.workbench.pool
        return choices.policy_choices([drafter.name for drafter in pool.drafters], pool.router is not None)

    def build(self, page: gr.Blocks, line: PoolLine) -> None:
        """Lay out the tab inside the surrounding ``gr.Tab``; ``?batch=ID`` finds a batch again. The policies to choose
        from follow the pool of ``line``."""
        bundled = suite_names()
        first = DEFAULT_SUITE if DEFAULT_SUITE in bundled else None
        with gr.Row(elem_classes="md-columns"):
            with gr.Column(min_width=320):
                suite = gr.Dropdown(
                    bundled,
                    value=first,
                    label="Bundled suite",
                    info="or upload one: JSONL in the Spec-Bench form or with prompt and task, CSV, or a prompt a line",
                    elem_id="suite",
                )
                file = gr.File(
                    label=f"Your own file, up to {MAX_BYTES >> 20} MB",
                    file_types=[".jsonl", ".ndjson", ".json", ".csv", ".txt"],
                    height=140,
                    elem_id="upload",
                )
                read = gr.HTML(self.preview(first, None), js_on_load=None, elem_id="suite-read")
            with gr.Column(min_width=320):
                policies = gr.Dropdown(
                    self.offered,
                    value=DEFAULT_POLICIES,
                    multiselect=True,
                    allow_custom_value=True,
                    label="Policies",
                    info="Experts may type a spec, e.g. ucb:beta=0.1,reward=be",
                    elem_id="batch-policies",
                )
                with gr.Row():
                    limit = gr.Number(10, label="Prompts at most", info="0 takes all", min_width=130, elem_id="limit")
                    length = gr.Number(
                        64, label="Max new tokens", info="of each answer", min_width=130, elem_id="length"
                    )
                with gr.Row(elem_classes="md-buttons"):
                    run = gr.Button("Run batch", variant="primary", elem_id="batch-run")
                    stop = gr.Button("Stop", variant="stop", interactive=False, elem_id="batch-stop")
        asked, id = gr.Textbox("", visible=False), gr.Textbox("", visible=False)
        status = gr.HTML(_IDLE, js_on_load=None, elem_id="batch-status")
        rows = gr.HTML(batch_rows.rows_start(), js_on_load=_OPEN_PROMPT, apply_default_css=False, elem_id="rows")
        detail = gr.HTML("", js_on_load=None, apply_default_css=False, elem_id="prompt-detail")
        summary = gr.HTML("", js_on_load=None, elem_id="summary")
        with gr.Row(elem_classes="md-columns"):
            figures = [
                gr.Plot(None, show_label=False, visible=False, min_width=320, elem_id=name, elem_classes="md-chart")
                for name in ("batch-chart", "batch-spread")
            ]
        with gr.Row(elem_classes="md-buttons"):
            files = [
                gr.DownloadButton(f"Download {title}", size="md", interactive=False, elem_id=suffix)
                for suffix, title in FILES.items()
            ]

        for control in (suite, file):
            control.change(self.preview, [suite, file], read, **QUICK)
        shown = [status, rows, detail, summary, *figures, *files, run, stop]
        form = [suite, file, policies, limit, length]
        started = run.click(self.start, form, [asked, status, run, stop], **HIDDEN)
        started.then(None, [asked, id], id, js=links.name_what_is_shown("batch"), **PRIVATE)
        page.load(self.linked, None, [asked, id, *form, run, stop], **HIDDEN)
        asked.change(self.follow, asked, shown, trigger_mode="multiple", concurrency_limit=32, **HIDDEN)
        stop.click(self.stop, id, None, **QUICK)
        rows.click(self.open, id, detail, **QUICK).then(None, js=_SHOW_PROMPT, **PRIVATE)
        line.followed_by(lambda: gr.Dropdown(self.offered), None, policies)

    def preview(self, suite: str | None, file: str | None) -> str:
        """What the chosen suite or file holds; the file goes before the suite."""
        if not (file or suite):
            return message_html("idle", "Choose a suite or a file.")
        try:
            return batch_rows.suite_html(load_suite(file or suite or ""))
        except SuiteError as error:
            return message_html("error", f"{error}.")

    def start(
        self, suite: str | None, file: str | None, policies: list[str], limit: float | None, length: float | None
    ) -> tuple[Any, ...]:
        """Start a batch: its id, or none and what is wrong; then the results of the last one stay. Then the buttons."""
        try:
            if not (file or suite):
                raise UserError("there is nothing to run; choose a suite or upload a file")
            loaded = load_suite(file or suite or "")
            if (most := choices.whole_number("prompts at most", limit)) < 0:
                raise UserError(f"prompts at most must be 0 (all) or a positive number, got {most}")
            params = choices.make_params(length, 0.0, 1.0, 0, self.workbench.pool.draft_length)
            longest = limits(self.workbench.pool)[0]["maximum"]
            if params.max_new_tokens > longest:
                raise UserError(f"max new tokens must be at most {longest:,}, got {params.max_new_tokens:,}")
            batch = BatchRun(self.workbench, loaded.name, spread(loaded.items, most or None), policies, params)
            self.batches.start(batch, loaded, file)
        except UserError as error:
            return "", message_html("error", sentence(error)), *skips(2)
        return batch.id, gr.skip(), *run_buttons(running=True)

    def linked(self, request: gr.Request) -> tuple[Any, ...]:
        """The batch that the page's address names, if any: to be followed, and to be shown; then the form as it was
        when that was started, and the buttons. If it names none, all stays: a quick visitor may have started one."""
        id = str(request.query_params.get("batch", ""))
        if not id:
            return skips(2 + _FIELDS + 2)
        held = self.batches.get(id)
        buttons = run_buttons(running=True) if held and not held.run.ended.is_set() else skips(2)
        return (id, id, *(_form(held) if held else skips(_FIELDS)), *buttons)

    def stop(self, id: str) -> None:
        """End a batch after the round in progress."""
        if held := self.batches.get(id):
            held.run.cancel()

    def open(self, id: str, event: gr.EventData) -> str:
        """The prompt that was clicked in the table of results, under all its policies."""
        held, item = self.batches.get(id), event.item
        if held is None:
            return batch_view.GONE
        if not isinstance(item, int) or not 0 <= item * len(held.run.policies) < len(held.run.rows):
            return batch_view.HINT
        return batch_view.detail_html(held.run, item)

    def follow(self, id: str) -> Iterator[tuple[Any, ...]]:
        """The page's parts until the batch ends; it goes on whether anybody looks on or not."""
        if not id:
            yield skips(_PARTS)
            return
        held = self.batches.get(id)
        if held is None:
            yield (batch_view.GONE, *_blank(), *run_buttons(running=False))
            return
        table, shown = batch_rows.rows_start(), 0
        detail: Any = batch_view.HINT
        if not held.run.ended.is_set():
            yield (batch_view.status_html(held), *_blank(detail), *run_buttons(running=True))
            detail = gr.skip()
        while True:
            ended = held.run.ended.wait(LOOK_SECONDS)
            policies, fresh = len(held.run.policies), held.run.rows[shown:]
            table += "".join(batch_rows.row_html(row, (shown + i) // policies) for i, row in enumerate(fresh))
            shown += len(fresh)
            if ended:
                break
            yield batch_view.status_html(held), table, *skips(_PARTS - 2)
        yield (batch_view.status_html(held), table, detail, *self._results(held), *run_buttons(running=False))

    def _results(self, held: Held) -> tuple[Any, ...]:
        """Summary, figures and files of a batch that has ended."""
        run = held.run
        if not run.rows:
            return skips(_RESULTS)
        frame = batch_rows.summarise(run.rows)
        fast = bool(frame["speedup"].notna().any())
        return (
            batch_view.summary_html(run),
            gr.Plot(charts.speedup_by_task_figure(frame).update_layout(legend=_LEGEND), visible=fast),
            gr.Plot(batch_view.spread_figure(run.rows, run.policies), visible=fast),
            *(_download(path) for path in self.files(held)),
        )

    def files(self, held: Held) -> list[Path | None]:
        """Those of a batch that has ended, one for each of ``FILES``; written once, whoever looks on."""
        with self._writing:
            files = self._files.get(held.run, [])
            if not files or not all(file and file.exists() for file in files):  # or they went after a day
                files = self._files[held.run] = self._write(held)
            return files

    def _write(self, held: Held) -> list[Path | None]:
        run = held.run
        about: dict[str, object] = {
            "pool": run.pool,
            "hardware": run.hardware,
            "dtype": run.dtype,
            "version": self.workbench.version,
            "batch": run.id,
            "parameters": asdict(run.params),
            "seed": run.seed,
            "problems": [asdict(problem) for problem in held.suite.problems],
        }
        summary = batch_rows.summarise(run.rows)
        writers: dict[str, Write] = {
            "csv": lambda path: batch_rows.write_csv(path, run.rows),
            "json": lambda path: batch_rows.write_json(path, held.suite.name, run.rows, summary, about),
            "parquet": lambda path: batch_rows.write_parquet(path, run.rows),
        }
        return [offered_file(f"{held.suite.name}.{suffix}", writers[suffix]) for suffix in FILES]


def _form(held: Held) -> tuple[Any, ...]:
    """Suite, file, policies, prompts and tokens at most, so that they start this batch once more."""
    suite = held.suite.name if held.file is None and held.suite.name in suite_names() else None
    file = held.file if held.file and Path(held.file).exists() else None  # uploads are kept for a day
    return suite, file, held.run.policies, len(held.run.items), held.run.params.max_new_tokens


def _blank(detail: str = "") -> tuple[Any, ...]:
    """Rows, detail and results before there are any."""
    plots = (gr.Plot(visible=False) for _ in range(2))
    return batch_rows.rows_start(), detail, "", *plots, *(_download(None) for _ in FILES)


def _download(file: Path | None) -> gr.DownloadButton:
    return gr.DownloadButton(value=str(file) if file else None, interactive=file is not None)
