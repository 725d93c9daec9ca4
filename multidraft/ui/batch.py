"""*Batch*: a file of prompts under one or more policies."""

from __future__ import annotations

import tempfile
import threading
import uuid
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from multidraft.bench.runner import seed_of
from multidraft.bench.suites import MAX_BYTES, Suite, SuiteItem, load_suite, spread, suite_names
from multidraft.engine import policy_for
from multidraft.errors import ContextWindowError, PromptError, SuiteError, UserError
from multidraft.sampling import SamplingParams
from multidraft.ui import batch_rows, charts, choices
from multidraft.ui.batch_rows import Row
from multidraft.ui.stats import message_html
from multidraft.ui.worker import Baseline, Request, Stops, Workbench
from storage.rows import Source

UPDATE_SECONDS = 0.15
DEFAULT_POLICIES = [choices.DEFAULT_POLICY, "ucb"]


@dataclass(frozen=True)
class Progress:
    """How far a batch is: runs done of all, and the prompt and policy at work (or waiting for the device)."""

    done: int
    total: int
    now: str


class BatchRun:
    """The runs of one batch, one after the other; other visitors' runs may come in between.

    Each prompt's plain decoding is measured once, before its first policy.
    """

    def __init__(
        self,
        workbench: Workbench,
        suite: str,
        items: Sequence[SuiteItem],
        policies: Sequence[str],
        params: SamplingParams,
        seed: int = 0,
        source: Source = "batch",
    ):
        self.workbench, self.suite, self.items, self.policies = workbench, suite, items, list(policies)
        self.params, self.seed, self.source = params, seed, source
        self.rows: list[Row] = []
        self.id = uuid.uuid4().hex
        self.cancelled = threading.Event()
        if not self.policies:
            raise UserError("no policy is chosen; choose at least one")
        for policy in self.policies:
            policy_for(workbench.pool, policy)  # a bad spec is refused before anything runs

    def cancel(self) -> None:
        """End after the round in progress."""
        self.cancelled.set()

    def run(self) -> Iterator[Progress]:
        """Run all, saying now and then how far it is; ``rows`` grows meanwhile."""
        total = len(self.items) * len(self.policies)
        for item in self.items:
            baseline: Baseline | None = None
            for policy in self.policies:
                if self.cancelled.is_set():
                    return
                progress = Progress(len(self.rows), total, f"{item.task or item.id}, {choices.policy_title(policy)}")
                yield progress
                baseline = yield from self._run_one(item, policy, baseline, progress)
        yield Progress(len(self.rows), total, "")

    def _run_one(
        self, item: SuiteItem, policy: str, baseline: Baseline | None, progress: Progress
    ) -> Generator[Progress, None, Baseline | None]:
        seed = seed_of(self.seed, item)
        request = Request(
            item.prompt, policy, self.params, seed, self.source, item.task or None, self.suite, self.id, baseline
        )
        try:
            job = self.workbench.submit(request)
        except ContextWindowError as error:
            self.rows.append(
                Row(item.id, item.task or batch_rows.NO_TASK, policy, batch_rows.TOO_LONG, error=str(error))
            )
            return baseline
        except PromptError as error:
            self.rows.append(Row(item.id, item.task or batch_rows.NO_TASK, policy, "error", error=str(error)))
            return baseline
        try:
            while not job.wait(UPDATE_SECONDS):
                if self.cancelled.is_set():
                    job.cancel()
                yield progress
        finally:
            job.cancel()
        self.rows.append(Row.of(item, policy, job.generation, job.baseline))
        return job.baseline


_IDLE = message_html(
    "idle",
    "Ready. Decoding is greedy. Speed-up compares with plain decoding of the same prompt, measured just before its "
    "first policy.",
)


class Batch:
    """The tab and what its controls do."""

    def __init__(self, workbench: Workbench):
        self.workbench = workbench
        self.drafters = [drafter.name for drafter in workbench.pool.drafters]
        self.stops = Stops()
        self.files = tempfile.TemporaryDirectory(prefix="multidraft-batches-")

    def build(self) -> None:
        """Lay out the tab inside the surrounding ``gr.Tab``."""
        bundled = suite_names()
        with gr.Row(elem_classes="md-columns"):
            with gr.Column(min_width=320):
                suite = gr.Dropdown(
                    bundled,
                    value=bundled[0] if bundled else None,
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
                read = gr.HTML(
                    self.preview(bundled[0] if bundled else None, None), js_on_load=None, elem_id="suite-read"
                )
            with gr.Column(min_width=320):
                policies = gr.Dropdown(
                    choices.policy_choices(self.drafters, self.workbench.pool.router is not None),
                    value=DEFAULT_POLICIES,
                    multiselect=True,
                    allow_custom_value=True,
                    label="Policies",
                    info="Experts may type a spec, e.g. ucb:beta=0.1,reward=be",
                    elem_id="batch-policies",
                )
                with gr.Row():
                    limit = gr.Number(
                        10, label="Prompts at most", info="0 takes all", precision=0, min_width=130, elem_id="limit"
                    )
                    length = gr.Number(
                        64, label="Max new tokens", info="of each answer", precision=0, min_width=130, elem_id="length"
                    )
                with gr.Row(elem_classes="md-buttons"):
                    run = gr.Button("Run batch", variant="primary", elem_id="batch-run")
                    stop = gr.Button("Stop", variant="stop", interactive=False, elem_id="batch-stop")
        status = gr.HTML(_IDLE, js_on_load=None, elem_id="batch-status")
        rows = gr.HTML(batch_rows.rows_start(), js_on_load=None, apply_default_css=False, elem_id="rows")
        with gr.Row(elem_classes="md-buttons"):
            as_csv = gr.DownloadButton("Download CSV", size="md", interactive=False, elem_id="csv")
            as_json = gr.DownloadButton("Download JSON", size="md", interactive=False, elem_id="json")
        summary = gr.HTML("", js_on_load=None, elem_id="summary")
        chart = gr.Plot(None, show_label=False, visible=False, elem_id="batch-chart", elem_classes="md-chart")

        for control in (suite, file):
            control.change(
                self.preview, [suite, file], read, queue=False, show_progress="hidden", api_visibility="private"
            )
        run.click(
            self.run,
            [suite, file, policies, limit, length],
            [status, rows, summary, chart, as_csv, as_json, run, stop],
            concurrency_limit=8,
            show_progress="hidden",
            api_visibility="private",
        )
        stop.click(self.stop, None, None, queue=False, show_progress="hidden", api_visibility="private")

    def preview(self, suite: str | None, file: str | None) -> str:
        """What the chosen suite or file holds; the file goes before the suite."""
        if not (file or suite):
            return message_html("idle", "Choose a suite or a file.")
        try:
            return batch_rows.suite_html(load_suite(file or suite or ""))
        except SuiteError as error:
            return message_html("error", f"{error}.")

    def stop(self, request: gr.Request) -> None:
        """End the visitor's batch."""
        self.stops.stop(request.session_hash)

    def run(
        self,
        suite: str | None,
        file: str | None,
        policies: list[str],
        limit: float | None,
        length: float | None,
        request: gr.Request,
    ) -> Iterator[tuple[Any, ...]]:
        """Run the batch and yield the page's parts until it ends; leaving the page ends it."""
        try:
            if not (file or suite):
                raise UserError("there is nothing to run; choose a suite or upload a file")
            loaded = load_suite(file or suite or "")
            if (most := choices.whole_number("prompts at most", limit)) < 0:
                raise UserError(f"prompts at most must be 0 (all) or a positive number, got {most}")
            draft_length = self.workbench.pool.draft_length
            params = choices.make_params(length, 0.0, 1.0, 0, draft_length)
            batch = BatchRun(self.workbench, loaded.name, spread(loaded.items, most or None), policies, params)
        except UserError as error:
            blank = (batch_rows.rows_start(), "", gr.Plot(visible=False), *_downloads(None, None))
            yield (message_html("error", f"{error}."), *blank, *_buttons(running=False))
            return
        self.stops.set(request.session_hash, batch.cancel)
        try:
            yield from self._follow(batch, loaded)
        finally:
            batch.cancel()
            self.stops.forget(request.session_hash)

    def _follow(self, batch: BatchRun, suite: Suite) -> Iterator[tuple[Any, ...]]:
        table, shown = batch_rows.rows_start(), 0
        yield ("", table, "", gr.Plot(visible=False), *_downloads(None, None), *_buttons(running=True))
        for progress in batch.run():
            table += "".join(map(batch_rows.row_html, batch.rows[shown:]))
            shown = len(batch.rows)
            yield (_progress_html(progress), table, *(gr.skip() for _ in range(6)))
        summary = batch_rows.summarise(batch.rows)
        table += "".join(map(batch_rows.row_html, batch.rows[shown:]))
        chart = gr.Plot(charts.speedup_by_task_figure(summary), visible=bool(summary["speedup"].notna().any()))
        files = self._files(batch, suite) if batch.rows else (None, None)
        yield (
            _end_html(batch, suite),
            table,
            batch_rows.summary_html(summary) if batch.rows else "",
            chart,
            *_downloads(*files),
            *_buttons(running=False),
        )

    def _files(self, batch: BatchRun, suite: Suite) -> tuple[Path, Path]:
        folder = Path(self.files.name, batch.id)
        folder.mkdir()
        as_csv, as_json = folder / f"{suite.name}.csv", folder / f"{suite.name}.json"
        bench = self.workbench
        about: dict[str, object] = {
            "pool": bench.pool.name,
            "hardware": bench.hardware,
            "dtype": bench.pool.dtype,
            "version": bench.version,
            "parameters": asdict(batch.params),
            "seed": batch.seed,
            "problems": [asdict(problem) for problem in suite.problems],
        }
        batch_rows.write_csv(as_csv, batch.rows)
        batch_rows.write_json(as_json, suite.name, batch.rows, batch_rows.summarise(batch.rows), about)
        return as_csv, as_json


def _progress_html(progress: Progress) -> str:
    text = f"{progress.done} of {progress.total} runs done" + (f"; now {progress.now} …" if progress.now else "")
    bar = f'<progress max="{progress.total}" value="{progress.done}" aria-label="Progress of the batch"></progress>'
    return f'<div class="md-status md-busy" role="status">{escape(text)}{bar}</div>'


def _end_html(batch: BatchRun, suite: Suite) -> str:
    total = len(batch.items) * len(batch.policies)
    counts = {
        "too long": sum(row.status == batch_rows.TOO_LONG for row in batch.rows),
        "with an error": sum(row.status == "error" for row in batch.rows),
    }
    how = "Cancelled" if batch.cancelled.is_set() else "Done"
    parts = [f"{how}: {len(batch.rows)} of {total} runs", *(f"{n} {what}" for what, n in counts.items() if n)]
    if suite.problems:
        lines = ", ".join(str(problem.line) for problem in suite.problems)
        parts.append(f"left out of the file: line{'s' * (len(suite.problems) > 1)} {lines}")
    return message_html("done", ", ".join(parts) + ".")


def _downloads(as_csv: Path | None, as_json: Path | None) -> tuple[gr.DownloadButton, gr.DownloadButton]:
    return tuple(
        gr.DownloadButton(value=str(path) if path else None, interactive=path is not None) for path in (as_csv, as_json)
    )  # type: ignore[return-value]


def _buttons(*, running: bool) -> tuple[gr.Button, gr.Button]:
    return gr.Button(interactive=not running), gr.Button(interactive=running)
