"""*Batch*: a file of prompts under one or more policies, in the background."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import gradio as gr

from drafters.errors import SuiteError, UserError
from multidraft.bench.suites import MAX_BYTES, load_suite, spread, suite_names
from multidraft.engine.arguments import policy_for
from multidraft.policies.titles import DEFAULT_POLICY
from multidraft.service.batch import TEXTS_AT_ONCE, BatchJob
from multidraft.service.inputs import make_params, whole_number
from multidraft.service.lab import LabWork, Verdicts
from multidraft.service.workbench import Workbench
from multidraft.ui.pool_line import PoolLine
from multidraft.ui.tabs.batch import view
from multidraft.ui.tabs.batch.charts import CHARTS
from multidraft.ui.tabs.batch.files import FILES, written
from multidraft.ui.tabs.batch.recorded import RecordedBatch, form_of, recorded_batch
from multidraft.ui.widgets import policy_fields
from multidraft.ui.widgets.charts import plot
from multidraft.ui.widgets.controls import LONGEST_DRAFT, check_fields
from multidraft.ui.widgets.events import HIDDEN, LAST, PRIVATE, QUICK, Updates, clicked, forget_refusal, run_number
from multidraft.ui.widgets.exports import download
from multidraft.ui.widgets.jobs import AddressedJobs
from multidraft.ui.widgets.markup import message_html, problem_html, refused_html, sentence, shared_html, straight
from multidraft.ui.widgets.verdict import watched_batch
from storage import experiments
from storage.experiments import LONGEST_NOTE
from storage.problems import StorageError
from storage.queries import seconds_per_run

DEFAULT_SUITE = "pocket"
DEFAULT_POLICIES = [DEFAULT_POLICY, "ucb"]
NEW_TOKENS = 256
"""Tokens of an answer at most, if the server allows as many: with much fewer, most answers are cut, and the verdict is
one on their beginnings."""

_IDLE = message_html(
    "idle",
    "Ready. A batch runs in the background: you may reload or leave, and the page's address finds it again. Speed-ups "
    "compare with autoregressive decoding of the same prompt: with the policy No drafter if you choose it, "
    "else measured just after the first policy. With several texts at once "
    "prompts share forward passes, and what is measured is the throughput of each policy.",
)

_RUN = "() => { document.querySelector('#batch-run').click(); document.querySelector('#takes').scrollIntoView(); }"

_SHOW_PROMPT = "() => document.querySelector('#prompt-detail').scrollIntoView({behavior: 'smooth', block: 'nearest'})"


class Batch:
    """The tab and what its controls do."""

    def __init__(self, workbench: Workbench, verdicts: Verdicts | None = None):
        self.workbench, self.verdicts = workbench, verdicts or Verdicts(LabWork(workbench))
        self._files: WeakKeyDictionary[BatchJob | RecordedBatch, list[Path | None]] = WeakKeyDictionary()
        self._writing = threading.Lock()

    def build(self, page: gr.Blocks, line: PoolLine, tab: gr.Tab) -> None:
        """Lay out the inside of ``tab``; ``?batch=ID`` finds a batch again. The policies to choose from follow the pool
        of ``line``."""
        self.may_load = line.loader.allowed
        with gr.Row(elem_classes="md-columns"):
            with gr.Column(min_width=320):
                suite = gr.Dropdown(
                    suite_names(),
                    value=DEFAULT_SUITE,
                    label="Bundled suite",
                    info="or upload one: JSONL (Spec-Bench, prompt and task, OpenAI messages), CSV, or one "
                    "prompt per line",
                    elem_id="suite",
                )
                file = gr.File(
                    label=f"Your own file, up to {MAX_BYTES >> 20} MB",
                    file_types=[".jsonl", ".ndjson", ".json", ".csv", ".txt"],
                    height=140,
                    elem_id="upload",
                )
                read = gr.HTML(self.preview(DEFAULT_SUITE, None), js_on_load=None, elem_id="suite-read")
            with gr.Column(min_width=320):
                policies = gr.Dropdown(
                    policy_fields.offered(self.workbench.pool),
                    value=DEFAULT_POLICIES,
                    multiselect=True,
                    allow_custom_value=True,
                    label="Policies",
                    info="Or type a spec, e.g. ucb:beta=0.1,reward=be",
                    elem_id="batch-policies",
                )
                explained = gr.HTML(self.explained(DEFAULT_POLICIES), js_on_load=None, elem_id="batch-explanation")
                with gr.Row():
                    most = self.workbench.limits.batch_runs
                    sample = "0: all; fewer: spread evenly"
                    info = sample if most is None else f"times policies: at most {most:,}"
                    limit = gr.Number(0, label="Max prompts", info=info, min_width=130, elem_id="limit")
                    tokens = min(NEW_TOKENS, self.workbench.limits.new_tokens or NEW_TOKENS)
                    length = gr.Number(
                        tokens, label="Max new tokens", info="per answer", min_width=130, elem_id="length"
                    )
                    at_once = gr.Dropdown(
                        list(TEXTS_AT_ONCE),
                        value=1,
                        label="Texts at once",
                        info="1: each timed alone",
                        min_width=130,
                        visible=self.workbench.gpu is None,
                        elem_id="at-once",
                    )
                with gr.Row():
                    longest = f"0: the pool's; up to {LONGEST_DRAFT}"
                    draft = gr.Number(0, label="Draft length", info=longest, min_width=130, elem_id="batch-draft")
                    heat = gr.Number(0, label="Temperature", info="0 is greedy", min_width=130, elem_id="batch-heat")
                    note = gr.Textbox(
                        label="Note", info="kept in Results", max_length=LONGEST_NOTE, max_lines=1, min_width=130
                    )
                would_take = self.takes(DEFAULT_SUITE, None, DEFAULT_POLICIES, 0, tokens, 1)
                takes = gr.HTML(would_take, js_on_load=None, elem_id="takes")
                self.buttons = AddressedJobs("batch", "Run batch", self.workbench.jobs, BatchJob)
        self.status = gr.HTML(_IDLE, js_on_load=None, elem_id="batch-status")
        opens = "tell('item', element, trigger, 'tr')"
        self.rows = gr.HTML(view.rows_start(), js_on_load=opens, apply_default_css=False, elem_id="rows")
        self.detail = gr.HTML("", js_on_load=None, apply_default_css=False, elem_id="prompt-detail")
        self.verdict = gr.HTML("", js_on_load="tell('policies', element, trigger)", elem_id="batch-verdict")
        self.summary = gr.HTML("", js_on_load=None, elem_id="summary")
        with gr.Row(elem_classes="md-columns"):
            self.charts = [plot(id, visible=False) for id in CHARTS]
        with gr.Row(elem_classes="md-keeps-focus"):
            self.downloads = [
                gr.DownloadButton(f"Download {title}", size="md", interactive=False, min_width=96, elem_id=suffix)
                for suffix, title in FILES.items()
            ]
        for control in (suite, file):
            control.change(self.preview, [suite, file], read, concurrency_limit=1, **HIDDEN)
        form: list[Any] = [suite, file, policies, limit, length, at_once, draft, heat, note, line.learn]
        renewed = [chosen.change for chosen in form[:6]]
        # A batch that has ended tells what runs cost, and so do runs of other tabs.
        gr.on([*renewed, self.summary.change, tab.select], self.takes, form[:6], takes, **LAST)
        page.load(self.takes, form[:6], takes, **QUICK)
        policies.change(self.completed, policies, policies, **LAST)
        policies.change(self.explained, policies, explained, **LAST)
        # One of the two is what runs, and only that is shown as chosen; the page needs no server for it.
        file.upload(None, None, suite, js="() => null", **PRIVATE)
        file.clear(None, None, suite, js=f"() => {json.dumps(DEFAULT_SUITE)}", **PRIVATE)
        suite.input(None, None, file, js="() => null", **PRIVATE)
        self.buttons.start([self.buttons.run.click], self.start, form, self.status)
        forget_refusal(form, self.status, _IDLE, "input")
        shown = [self.status, self.rows, self.detail, self.verdict, self.summary, *self.charts, *self.downloads]
        self.buttons.wire(page, form, self._form, self.show, self._gone, shown)
        self.buttons.stop.click(self.give_up, self.buttons.id, [*shown, *self.buttons.both], **QUICK)
        self.rows.click(self.open, self.buttons.id, self.detail, **QUICK).then(None, js=_SHOW_PROMPT, **PRIVATE)
        # The fields show what is run, as if somebody had filled them in.
        self.buttons.presses(self.verdict.click, self.more, self.buttons.id, form, _RUN)
        line.followed_by(lambda: gr.Dropdown(policy_fields.offered(self.workbench.pool)), None, policies)

    def preview(self, suite: str | None, file: str | None) -> str:
        """What the chosen suite or file holds; the file goes before the suite."""
        if not (file or suite):
            return message_html("idle", "Choose a suite or a file.")
        try:
            loaded = load_suite(file or suite or "")
            pool = self.workbench.pool
            return view.suite_html(loaded) + view.long_html(loaded, pool) + view.unfamiliar_html(loaded, pool)
        except SuiteError as error:
            return problem_html(error)

    def completed(self, policies: list[str]) -> Any:
        """The chosen policies, of which one may have been typed in part."""
        return policy_fields.completed(policies, policy_fields.offered(self.workbench.pool))

    def explained(self, policies: list[str]) -> str:
        """How each of the chosen policies chooses."""
        return policy_fields.explanations_html(policies, self.workbench.pool.drafter_names)

    def start(
        self,
        suite: str | None,
        file: str | None,
        policies: list[str],
        limit: float | None,
        length: float | None,
        at_once: int = 1,
        draft_length: float | None = None,
        temperature: float | None = 0.0,
        note: str | None = "",
        learn: bool = True,
    ) -> Updates:
        """Start a batch: its id, or none and what is wrong; then the results of the last one stay. Then the buttons."""
        try:
            if not (file or suite):
                raise UserError("nothing to run: choose a suite or upload a file")
            loaded = load_suite(file or suite or "")
            loaded = replace(loaded, name=straight(loaded.name))
            if (most := whole_number("max prompts", limit)) < 0:
                raise UserError(f"max prompts must be 0 (all) or a positive number, got {most}")
            pool = self.workbench.pool
            asked = {"max_new_tokens": length, "draft_length": draft_length, "temperature": temperature}
            check_fields(asked, pool, self.workbench.limits.new_tokens)
            params = make_params(length, temperature, 1.0, 0, draft_length or pool.draft_length)
            items = spread(loaded.items, most or None)
            batch = BatchJob(
                self.workbench, items, policies, params, suite=loaded, file=file, texts_at_once=at_once, learn=learn
            )
            self.workbench.jobs.submit(batch)
            if said := (note or "").strip():
                self.workbench.store.note(batch.id, said[:LONGEST_NOTE])
        except UserError as error:
            return {self.buttons.asked: "", self.status: refused_html(error), **self.buttons.live(running=False)}
        return {self.buttons.asked: batch.id, **self.buttons.live(running=True)}

    def takes(
        self,
        suite: str | None,
        file: str | None,
        policies: list[str],
        limit: float | None,
        length: float | None,
        at_once: int,
    ) -> str:
        """How long the batch would take, by what runs took in the newest one, or before there is one at most, by
        autoregressive decoding; or what is wrong with a policy; empty where that is unknown."""
        workbench, pool = self.workbench, self.workbench.pool
        try:
            for policy in policies:
                policy_for(pool, policy)
        except UserError as error:
            return problem_html(error)
        try:
            if at_once > 1 or not policies or limit is None or limit < 0 or length is None or length < 1:
                return ""
            prompts = len(spread(load_suite(file or suite or "").items, int(limit) or None))
            made_on = pool.card_hash, workbench.hardware, pool.dtype
            took = seconds_per_run(workbench.store.path, *made_on, max_new_tokens=length)
        except (SuiteError, StorageError):  # the line on the suite, or the dashboard, says what is wrong
            return ""
        if took:  # a run of more tokens takes longer, and at most as much longer
            seconds, allowed = took
            most = prompts * len(policies) * seconds * max(length / allowed, 1.0)
            return view.takes_html(prompts, len(policies), most, None if allowed == length else allowed)
        plain = pool.costs.plain
        most = prompts * length * (len(policies) + 1) * plain.mean if plain.weight else 0.0
        return view.takes_html(prompts, len(policies), most, 0)

    def open(self, id: str, event: gr.EventData) -> str:
        """The prompt that was clicked in the table of results, under all its policies."""
        batch, item = self.buttons.find(id) or self._kept(id), run_number(clicked(event, "item"))
        if batch is None:
            return view.GONE
        if item is None or item not in batch.items_of_rows:
            return view.HINT
        return view.detail_html(batch, item)

    def more(self, id: str, event: gr.EventData) -> list[Any]:
        """The values of the form for what the verdict on a batch suggests; the rest as in the batch."""
        suite, file, _, limit, length, at_once, draft, *rest = self._form(id) or [gr.skip()] * 10
        policies, other = clicked(event, "policies").split("\n"), run_number(clicked(event, "length"))
        return [suite, file, policies, limit, length, at_once, other or draft, *rest]

    def show(self, batch: BatchJob) -> Iterator[Updates]:
        table, shown, ended = view.rows_start(), 0, batch.done
        first = {} if ended else {**self._blank(), **self.buttons.live(running=True)}
        first[self.detail] = view.HINT
        if batch.texts_at_once == 1 and not ended:
            first[self.verdict] = view.VERDICT_TO_COME
        while True:
            table += view.rows_html(batch, shown, done := len(batch.rows))
            shown = done
            now = {**first, self.status: view.status_html(batch), self.rows: table}
            if ended:
                break
            yield now
            first, ended = {}, batch.look()
        yield from self._ended(batch, {**now, **self.buttons.live(running=False)})

    def give_up(self, id: str) -> Updates:
        """End a batch that waits for its pool, and show it so."""
        if not self.workbench.give_up(id):
            return {self.status: gr.skip()}
        return next(self._gone(id)) | self.buttons.live(running=False)

    def _gone(self, id: str) -> Iterator[Updates]:
        """The batch as the history has it."""
        batch, waiting = self._kept(id), self.workbench.cut_off.get(id)
        if batch is None:
            status = view.unfinished_html(waiting, 0, waits=True) if waiting else view.GONE
            with suppress(StorageError):  # it may have ended before its first run
                if not waiting and (ending := experiments.ending(self.workbench.store.path, id)):
                    status = message_html("cancelled", sentence(ending))
            yield {**self._blank(), self.status: status, **self.buttons.live(running=bool(waiting))}
            return
        table = view.rows_start() + view.rows_html(batch, 0, len(batch.rows))
        shown = {**self._blank(), self.rows: table, self.detail: view.HINT}
        if batch.asked:
            status = view.unfinished_html(batch.asked, len(batch.rows), waits=waiting is not None)
            shown |= {self.status: status, self.verdict: view.VERDICT_TO_COME}
            yield {**shown, **self._results(batch), **self.buttons.live(running=waiting is not None)}
        else:
            yield from self._ended(batch, {**shown, self.status: view.recorded_html(batch)})

    def _ended(self, batch: BatchJob | RecordedBatch, shown: Updates) -> Iterator[Updates]:
        """``shown``, the results and the verdict."""
        now = {**shown, **self._results(batch)}
        told = watched_batch(self.verdicts, batch.id, batch.rows, batch.params.draft_length, self.may_load)
        for verdict in told if batch.rows else ("",):
            yield {**now, self.verdict: shared_html(f"batch/{batch.id}") + verdict}
            now = {}

    def _kept(self, id: str) -> RecordedBatch | None:
        with suppress(StorageError):
            return recorded_batch(self.workbench.store.path, id)
        return None

    def _form(self, id: str) -> tuple[Any, ...] | None:
        batch = self.buttons.find(id) or self._kept(id)
        return form_of(batch, self.workbench) if batch else None

    def _blank(self) -> Updates:
        charts = {chart: gr.Plot(visible=False) for chart in self.charts}
        empty = {self.rows: view.rows_start(), self.detail: "", self.verdict: "", self.summary: ""}
        return {**empty, **charts, **{button: download(None) for button in self.downloads}}

    def _results(self, batch: BatchJob | RecordedBatch) -> Updates:
        if not batch.rows:
            return {}
        fast = any(row.speedup is not None for row in batch.rows)
        figures = [draw(batch.rows, batch.policies) for draw in CHARTS.values()]
        return {
            self.summary: (view.throughput_html(batch) if isinstance(batch, BatchJob) else "")
            + view.summary_html(batch.rows, batch.policies, f"Pool {batch.pool} on {batch.hardware}"),
            **{chart: gr.Plot(figure, visible=fast) for chart, figure in zip(self.charts, figures, strict=True)},
            **{button: download(file) for button, file in zip(self.downloads, self.files(batch), strict=True)},
        }

    def files(self, batch: BatchJob | RecordedBatch) -> list[Path | None]:
        """Those of a batch that has ended, one for each of ``FILES``; written once, whoever looks on."""
        with self._writing:
            files = self._files.get(batch, [])
            if not files or not all(file and file.exists() for file in files):  # or they went after a day
                files = self._files[batch] = written(batch, self.workbench.version)
            return files
