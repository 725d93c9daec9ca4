"""*Play*: one prompt, one policy, and the output as it streams in."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import gradio as gr

from drafters.errors import ContextWindowError, UserError
from multidraft.bench.measure import Request
from multidraft.policies.titles import DEFAULT_POLICY
from multidraft.service.queue import CALLER
from multidraft.service.workbench import RunJob
from multidraft.ui.pool_line import PoolLine
from multidraft.ui.tabs.play import permalink, view
from multidraft.ui.tabs.play.recorded import TASK, recorded_runs
from multidraft.ui.widgets import controls, lanes, policy_fields, tokens
from multidraft.ui.widgets.charts import plot_of, policy_chart
from multidraft.ui.widgets.events import HIDDEN, PRIVATE, QUICK, Updates, changes, forget_refusal
from multidraft.ui.widgets.exports import download, offered_file
from multidraft.ui.widgets.jobs import RunButtons
from multidraft.ui.widgets.markup import kept_html, message_html, refused_html
from storage.records import Generation, Round, Turn
from storage.run import Origin

UPDATE_SECONDS = (0.15, 1.0)
"""How often the page is brought up to date, at most and at least, whatever the pace of decoding."""

FIRST_SECONDS = 0.02
"""How often it is looked whether there is something to show, as long as there is nothing."""

AT_ONCE_SECONDS = 0.2
"""So long the first update waits for the first text: each update takes the page some time."""

UPDATE_SHARE = 0.05
"""Of the time, what may go into it: where handing over an update takes long, they come less often."""

RECORDING_SECONDS = 5.0
"""How long the recorded run lasts on the page, at least."""

CHART_SECONDS = 2.0
"""How often the chart is: it is sent and drawn whole each time, so the longer it gets, the less often."""

CHART_ROUNDS = 200
"""With so many rounds it takes twice that time."""


class Play(controls.PromptTab):
    """The tab and what its controls do. Each visitor has at most one run under way."""

    opening = TASK

    def build(self, page: gr.Blocks, line: PoolLine) -> None:
        """Lay out the tab inside the surrounding ``gr.Tab``; it follows the pool of ``line``. The event that reads the
        page's address is :attr:`restored`."""
        with gr.Row(elem_classes="md-columns md-play"):
            with gr.Column(scale=5, min_width=320):
                self._build_form()
            with gr.Column(scale=7, min_width=320):
                self._build_results()
        self.note = gr.HTML(view.about_pool_html(self.workbench.pool), js_on_load=None)
        self._wire(page, line)

    def _build_form(self) -> None:
        self.build_prompt()
        # Here they are in sight on low windows too, and nothing above them changes its height.
        self.buttons = RunButtons("run", "Run", ("run", "stop"), self.workbench.jobs, RunJob)
        gr.HTML(kept_html(), js_on_load=None)
        self.build_examples()
        self.policy = gr.Dropdown(
            self.policies,
            value=DEFAULT_POLICY,
            allow_custom_value=True,
            label="Policy",
            info="Chooses the drafter of each round; or type a spec, e.g. ucb:beta=0.1",
            elem_id="policy",
        )
        explanation = policy_fields.explanation_html(DEFAULT_POLICY, self.drafters)
        self.explanation = gr.HTML(explanation, js_on_load=None, elem_id="explanation")
        self.build_settings()

    def _build_results(self) -> None:
        pool = self.workbench.pool
        self.turns = gr.State(())
        self.left = gr.Textbox("", visible=False)
        self.status = gr.HTML(view.IDLE, js_on_load=None, elem_id="status")
        self.conversation = gr.HTML("", js_on_load=None, visible=pool.conversational, elem_id="conversation")
        with gr.Column(elem_id="recorded"):  # until something is run here: play.css
            runs = recorded_runs()
            gr.HTML(view.watched_html(*runs), js_on_load=None, elem_id="recorded-legend")
            lanes.stage(lanes.replay_data(runs, RECORDING_SECONDS), elem_id="recorded-stage")
            gr.HTML(view.recorded_html(runs[-1]), js_on_load=None)
        self.tiles = gr.HTML(view.tiles_html(), js_on_load=None, elem_id="tiles")
        self.legend = gr.HTML(tokens.legend_html(self.drafters, {}), js_on_load=None, elem_id="legend")
        self.output = tokens.output_box(max(controls.LONGEST_DRAFT, pool.draft_length), elem_id="output")
        with gr.Row(elem_classes="md-actions"):
            self.anew = gr.Button(
                "New conversation", size="sm", visible=pool.conversational, elem_id="new-conversation"
            )
            self.race = gr.Button("Race this prompt", size="sm", elem_id="race-this")
            self.own_page = gr.Button(
                "Share this result", size="sm", interactive=False, link_target="_blank", elem_id="run-page"
            )
            self.copy_page = gr.Button("Copy result link", size="sm", interactive=False, elem_id="copy-page")
            self.link = gr.Button("Copy settings link", size="sm", elem_id="copy-link")
            self.copy = gr.Button("Copy run as JSON", size="sm", interactive=False, elem_id="copy-run")
            self.download = gr.DownloadButton("Download JSON", size="sm", interactive=False, elem_id="download-run")
        with gr.Column(elem_id="chart-place"):
            # Hidden until there is something to draw: the first visit need not wait for Plotly.
            self.chart = gr.Plot(None, show_label=False, visible=False, elem_id="chart", elem_classes="md-chart")
        self.details = gr.HTML("", js_on_load=None, elem_id="rounds")

    def _wire(self, page: gr.Blocks, line: PoolLine) -> None:
        talk = [self.prompt, self.conversation, self.turns, self.anew]
        shown = [self.status, self.tiles, self.output, self.legend, self.chart, self.details]
        shown += [self.own_page, self.copy_page, self.copy, self.download]
        form = [self.prompt, self.policy, *self.settings]
        self.policy.change(
            lambda policy: policy_fields.explanation_html(policy or "", self.drafters),
            self.policy,
            self.explanation,
            **QUICK,
        )
        started = [self.buttons.run.click, self.prompt.submit]
        running = [*shown, *self.buttons.both, *talk, self.buttons.id]
        watched: dict[str, Any] = {"concurrency_limit": self.workbench.limits.queue, **HIDDEN}
        ran = self.buttons.starts(started, self.run, [self.turns, *form, line.learn], running, self.status, **watched)
        # A page that was loaded again while a run was under way, or had just ended, takes it up: page.js knows its id.
        again = self.left.change(self.again, self.left, [*running, self.policy, *self.settings], **watched)
        for event in (ran, again):
            event.then(None, js="() => { document.dispatchEvent(new Event('md-ended')); }", **PRIVATE)
        self.buttons.id.change(None, self.buttons.id, None, js="(id) => keepRun(id)", **PRIVATE)
        forget_refusal(form, self.status, view.IDLE)
        self.anew.click(lambda: ((), ""), None, [self.turns, self.conversation], **QUICK)
        line.followed_by(
            self.follow,
            [self.prompt, self.policy, self.settings[0], self.output],
            [self.fit, *self.examples, self.policy, *self.settings, *talk, self.legend, self.note],
        )
        self.restored = page.load(self.restore, None, [self.status, *form], **QUICK)
        self.keep_prompt(self.restored)
        self.restored.then(None, None, self.left, js="() => leftRun()", **PRIVATE)
        _copies(self.link, [self.link, self.status, *form], [self.link, self.status], permalink.COPY_LINK)
        _copies(self.copy_page, None, self.copy_page, _COPY_PAGE)
        _copies(self.copy, self.download, self.copy, _COPY_RUN)

    def sends_to(self, race: RunButtons[Any], fields: Sequence[gr.components.Component]) -> None:
        """Have *Race this prompt* open *Race*, and run it with prompt, policy and settings in these fields."""
        asked = [self.turns, self.prompt, self.policy, *self.settings]
        # First: Gradio waits for the server's answer to one event before it begins with the next one of the same click.
        self.race.click(None, js="() => { goToTab('race'); scrollTo(0, 0); }", **PRIVATE)
        race.presses(self.race.click, _asked_last, asked, [*fields], "() => { startRace(); }")

    def follow(self, prompt: str, policy: str | None, max_new_tokens: float | None, output: str) -> Updates:
        """What depends on the pool, for the present one: examples, policies, limits, conversation, legend and note.

        What was chosen or said stays where the pool takes it; an output keeps its legend.
        """
        pool = self.workbench.pool
        chosen = policy if self.wrong_policy(policy) is None else DEFAULT_POLICY
        updates = {
            **self.follow_pool(prompt, max_new_tokens),
            self.policy: gr.Dropdown(self.policies, value=chosen, allow_custom_value=True),
            self.conversation: gr.HTML(visible=True) if pool.conversational else gr.HTML("", visible=False),
            self.anew: gr.Button(visible=pool.conversational),
            self.note: view.about_pool_html(pool),
        }
        if not pool.conversational:
            updates[self.turns] = ()
        if not output:
            updates[self.legend] = tokens.legend_html(self.drafters, {})
        return updates

    def restore(self, request: gr.Request) -> Updates:
        """Status, prompt, policy and settings as the page's address asks for them."""
        link = permalink.read_link(request.query_params, self.workbench.pool, self.workbench.limits.new_tokens)
        if link is None:
            return {self.status: gr.skip()}
        if link.policy is not None and (why := self.wrong_policy(link.policy)):
            link = link._replace(policy=None, wrong=(*link.wrong, why))
        updates: Updates = {field: v for field, v in zip(self.settings, link.settings, strict=True) if v is not None}
        if link.prompt is not None:
            updates[self.prompt] = link.prompt
        if link.policy is not None:
            # With its choices: the page may have been built with those of another pool.
            updates[self.policy] = gr.Dropdown(self.policies, value=link.policy, allow_custom_value=True)
        kind = "error" if link.wrong else "idle"
        return {self.status: message_html(kind, link.summary + self._other(link)), **updates}

    def _other(self, link: permalink.Link) -> str:
        """A warning if the link was made with another pool."""
        loaded = self.workbench.pool.name
        if link.pool in (None, loaded):
            return ""
        return (
            f" It was made with pool {link.pool}, but {loaded} is loaded: speed will differ, and so will the text, "
            "unless both have the same target and the run is greedy. The Pool tab lists what can be loaded."
        )

    def run(self, turns: Sequence[Turn], prompt: str, policy: str | None, *settings: Any) -> Iterator[Updates]:
        """Run the prompt and yield what changes until it ends; leaving the page ends the run, soon."""
        try:
            params, seed = controls.read_settings(settings)
            origin = Origin("play", self.task_of(prompt), learn=controls.agreed(settings))
            request = Request(prompt, policy or "", params, seed, origin, tuple(turns), watched=True)
            job = self.workbench.submit(request)
        except UserError as error:
            hint = " Begin a new conversation." if turns and isinstance(error, ContextWindowError) else ""
            yield {self.status: refused_html(error, hint), **self.buttons.live(running=False)}
            return
        yield from self._watched(job)

    def again(self, id: str, request: gr.Request) -> Iterator[Updates]:
        """Show a run to a page that was loaded again, with the settings that it has, unless the address names another
        prompt."""
        job = self.buttons.find(id)
        if job is None or request.query_params.get("prompt", job.request.prompt) != job.request.prompt:
            yield {self.status: gr.skip()}
            return
        job.caller, asked = replace(job.caller, session=CALLER.get().session), job.request
        values = {**asdict(asked.params), "seed": asked.seed}
        yield {self.policy: asked.policy, **dict(zip(self.settings, map(values.get, controls.SETTINGS), strict=True))}
        yield from self._watched(job)

    def _watched(self, job: RunJob) -> Iterator[Updates]:
        caller = job.caller
        try:
            yield from self._watch(job)
        finally:
            if job.caller is caller:  # else another page has taken it up
                job.leave()

    def _watch(self, job: RunJob) -> Iterator[Updates]:
        """What changes while the job runs; it never waits for the page."""
        output, shown, drawn_at = "", 0, time.monotonic()
        first: Round | None = None
        often, seldom = UPDATE_SECONDS
        wait, parts = 0.0, Updates()
        begun = {**self._blank(), **self.buttons.live(running=True), **self._asked(job), self.buttons.id: job.id}
        while not (job.ahead or job.wait(FIRST_SECONDS) or job.run.generation.rounds):
            if time.monotonic() - drawn_at > AT_ONCE_SECONDS:
                break
        while True:
            done = job.wait(wait)
            generation = job.measurement.snapshot()
            rounds = generation.rounds
            if shown and rounds[0] is not first:  # timed again
                output, shown = "", 0
            first = rounds[0] if rounds else None
            output += tokens.rounds_html(rounds[shown:], generation.drafters)
            before, parts = parts, self._parts(job, generation, output, ended=done)
            updates, begun = begun | changes(before, parts), {}
            pause = CHART_SECONDS * (1 + len(rounds) / CHART_ROUNDS)
            if done or (len(rounds) > shown and time.monotonic() - drawn_at >= pause):
                plot = plot_of(policy_chart(rounds, generation.drafters))
                updates[self.chart], drawn_at = gr.Plot(plot, visible=bool(rounds)), time.monotonic()
            shown = len(rounds)
            if done:
                break
            handed_at = time.monotonic()
            if updates:
                yield updates
            wait = FIRST_SECONDS
            if shown:
                wait = min(seldom, max(often, (time.monotonic() - handed_at) / UPDATE_SHARE))
        updates |= self.buttons.live(running=False)
        updates |= self._exports(self._file(job) if rounds else None, job.run.id)
        yield {**updates, self.details: tokens.rounds_table_html(rounds), **self._answered(job, generation)}

    def _parts(self, job: RunJob, generation: Generation, output: str, *, ended: bool) -> Updates:
        run = replace(job.run, generation=generation)
        recorded, fits = run.id is not None or not job.run.generation.rounds, job.pool.fits(generation.prompt)
        return {
            self.status: view.status_html(job.measurement, job.ahead, recorded, fits, job.wait_seconds, ended=ended),
            self.tiles: view.tiles_html(run, job.measurement.differences, ended=ended),
            self.output: output,
            self.legend: tokens.legend_html(generation.drafters, generation.drafter_shares),
        }

    def _blank(self) -> Updates:
        """Without what there is only once a run has ended."""
        return {self.chart: gr.Plot(visible=False), self.details: "", **self._exports(None)}

    def _asked(self, job: RunJob) -> Updates:
        """When a run begins, what was asked moves from its box into the conversation. Without conversations it stays,
        to be run again."""
        if not job.pool.conversational:
            return {}
        asked = view.conversation_html(job.request.turns, job.run.generation.prompt)
        return {self.prompt: "", self.conversation: asked, self.anew: gr.Button(interactive=False)}

    def _answered(self, job: RunJob, generation: Generation) -> Updates:
        """When it has ended, it is a turn. Without an answer it is none, and what was asked goes back."""
        request, anew = job.request, {self.anew: gr.Button(interactive=True)}
        if job.pool is not self.workbench.pool:  # with the pool the conversation has gone
            return anew
        if not job.pool.conversational:
            return {}
        if not generation.text:
            return {self.prompt: request.prompt, self.conversation: view.conversation_html(request.turns), **anew}
        return {self.turns: (*request.turns, (request.prompt, generation.text)), **anew}

    def _exports(self, file: Path | None, id: int | None = None) -> Updates:
        """What can be taken away of a run: its file, and its page where it is in the history."""
        return {
            self.own_page: gr.Button(link=f"result/run/{id}" if id else None, interactive=id is not None),
            self.copy_page: gr.Button(interactive=id is not None),
            self.copy: gr.Button(interactive=file is not None),
            self.download: download(file),
        }

    def _file(self, job: RunJob) -> Path | None:
        text = json.dumps(job.run.to_json(), ensure_ascii=False, indent=1)
        return offered_file("multidraft-run.json", lambda path: path.write_text(text, encoding="utf-8"))


def _asked_last(turns: Sequence[Turn], prompt: str, *fields: Any) -> tuple[Any, ...]:
    """The fields with the prompt that stands there or, in a conversation, was answered last."""
    return (prompt if prompt.strip() or not turns else turns[-1][0], *fields)


_COPY_PAGE = "() => copied(document.querySelector('#run-page').href)"

_COPY_RUN = """(file) => {
  const text = async () => (await fetch(file.url)).text();
  return copied(text(), "Run copied", "Not copied: download it");
}"""
"""The file of the download button goes to the clipboard as well."""


def _copies(button: gr.Button, inputs: Any, outputs: Any, script: str) -> None:
    """Have ``button`` copy something by a script that says in its text how it went; that is reset in two seconds."""
    back = f"() => new Promise((done) => setTimeout(() => done({json.dumps(button.value)}), 2000))"
    button.click(None, inputs, outputs, js=script, **PRIVATE).then(None, None, button, js=back, **PRIVATE)
