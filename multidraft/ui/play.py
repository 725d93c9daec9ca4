"""*Play*: one prompt, one policy, and the output as it streams in."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from drafters.pool import Pool
from multidraft.engine import policy_for
from multidraft.errors import ContextWindowError, UserError
from multidraft.export import run_record
from multidraft.records import Generation, Round, Turn
from multidraft.text import CONTEXT, guess_text
from multidraft.ui import choices, controls, permalink, stats, tokens
from multidraft.ui.conversation import conversation_html
from multidraft.ui.events import HIDDEN, PRIVATE, QUICK, changes, run_buttons, show_on_phone, skips
from multidraft.ui.exports import offered_file
from multidraft.ui.output import output_box
from multidraft.ui.pool_line import PoolLine
from multidraft.ui.round_charts import policy_plot
from multidraft.ui.worker import Job, Request

UPDATE_SECONDS = (0.15, 1.0)
"""How often the page is brought up to date, at most and at least, whatever the pace of decoding."""

UPDATE_SHARE = 0.05
"""Of the time, what may go into it: where handing over an update takes long, they come less often."""

CHART_SECONDS = 2.0
"""How often the chart is: it is sent and drawn whole each time, so the longer it gets, the less often."""

CHART_ROUNDS = 200
"""With so many rounds it takes twice that time."""


class Play(controls.RunTab):
    """The tab and what its controls do."""

    def build(self, page: gr.Blocks, line: PoolLine) -> None:
        """Lay out the tab inside the surrounding ``gr.Tab``; it follows the pool of ``line``. The event that reads the
        page's address is :attr:`restored`."""
        pool = self.workbench.pool
        with gr.Row(elem_classes="md-columns md-play"):
            with gr.Column(scale=5, min_width=320):
                prompt = controls.prompt_box()
                self.examples.build(prompt)
                policy = gr.Dropdown(
                    self.policies,
                    value=choices.DEFAULT_POLICY,
                    allow_custom_value=True,
                    label="Policy",
                    info="Who chooses each round's drafter; or type a spec, e.g. ucb:beta=0.1",
                    elem_id="policy",
                )
                # Above the explanation: its length depends on the policy, and they are not to move.
                with gr.Row(elem_classes="md-buttons"):
                    run = gr.Button("Run", variant="primary", elem_id="run")
                    stop = gr.Button("Stop", variant="stop", interactive=False, elem_id="stop")
                explanation = gr.HTML(
                    choices.explanation_html(choices.DEFAULT_POLICY, self.drafters),
                    js_on_load=None,
                    elem_id="explanation",
                )
                with gr.Accordion("Settings", open=False, elem_id="settings"):
                    settings = controls.settings(pool)
            with gr.Column(scale=7, min_width=320):
                turns = gr.State(())
                status = gr.HTML(_IDLE, js_on_load=None, elem_id="status")
                conversation = gr.HTML("", js_on_load=None, visible=pool.conversational, elem_id="conversation")
                tiles = gr.HTML(stats.tiles_html(), js_on_load=None, elem_id="tiles")
                output = output_box(max(controls.LONGEST_DRAFT, pool.draft_length), elem_id="output")
                legend = gr.HTML(tokens.legend_html(self.drafters, {}), js_on_load=None, elem_id="legend")
                with gr.Row(elem_classes="md-actions"):
                    anew = gr.Button(
                        "New conversation", size="sm", visible=pool.conversational, elem_id="new-conversation"
                    )
                    link = gr.Button("Copy link", size="sm", elem_id="copy-link")
                    copy = gr.Button("Copy run as JSON", size="sm", interactive=False, elem_id="copy-run")
                    download = gr.DownloadButton("Download JSON", size="sm", interactive=False, elem_id="download-run")
                with gr.Column(elem_id="chart-place"):
                    # Hidden until there is something to draw: the first visit need not wait for Plotly.
                    chart = gr.Plot(None, show_label=False, visible=False, elem_id="chart", elem_classes="md-chart")
                details = gr.HTML("", js_on_load=None, elem_id="rounds")

        note = gr.HTML(_note_html(pool), js_on_load=None)

        talk = [prompt, conversation, turns, anew]
        policy.change(self.explain, policy, explanation, **QUICK)
        gr.on(
            [run.click, prompt.submit],
            self.run,
            [prompt, policy, *settings, turns],
            [status, tiles, output, legend, chart, details, run, stop, copy, download, *talk],
            concurrency_limit=16,
            **HIDDEN,
        )
        run.click(None, js=show_on_phone("#status"), **PRIVATE)
        stop.click(self.stop, None, None, **QUICK)
        anew.click(lambda: ((), ""), None, [turns, conversation], **QUICK)
        line.followed_by(
            self.follow,
            [policy, settings[0], output],
            [*self.examples.components, policy, settings[0], settings[4], turns, conversation, anew, legend, note],
        )
        self.restored = page.load(self.restore, None, [status, prompt, policy, *settings], **QUICK)
        link.click(
            None, [link, status, prompt, policy, *settings], [link, status], js=permalink.COPY_LINK, **PRIVATE
        ).then(None, None, link, js=_later("Copy link"), **PRIVATE)
        copy.click(None, download, copy, js=_COPY_RUN, **PRIVATE).then(
            None, None, copy, js=_later("Copy run as JSON"), **PRIVATE
        )

    def explain(self, policy: str | None) -> str:
        """The explanation of what is chosen."""
        return choices.explanation_html(policy or "", self.drafters)

    def follow(self, policy: str | None, max_new_tokens: float | None, output: str) -> list[Any]:
        """What depends on the pool, for the present one: examples, policies, limits, conversation, legend and note.

        What was chosen or said is kept where the pool takes it; an output keeps its legend.
        """
        pool, offered = self.workbench.pool, self.policies
        chosen = policy if self._wrong_policy(policy) is None else choices.DEFAULT_POLICY
        length, draft = controls.limits(pool, max_new_tokens)
        talks = pool.conversational
        task, *buttons = self.examples.updates()
        return [
            gr.Radio(**task),
            *(gr.Button(**button) for button in buttons),
            gr.Dropdown(offered, value=chosen, allow_custom_value=True),
            gr.Slider(**length),
            gr.Slider(**draft),
            *((gr.skip(), gr.HTML(visible=True)) if talks else ((), gr.HTML("", visible=False))),
            gr.Button(visible=talks),
            gr.skip() if output else tokens.legend_html(self.drafters, {}),
            _note_html(pool),
        ]

    def restore(self, request: gr.Request) -> tuple[Any, ...]:
        """Status, prompt, policy and settings as the page's address asks for them."""
        unchanged = (gr.skip(),) * (2 + len(permalink.SETTINGS))
        try:
            link = permalink.read_link(request.query_params, self.workbench.pool.draft_length)
        except UserError as error:
            text = f"The link cannot be restored: {error}. Nothing was changed."
            return stats.message_html("error", text), *unchanged
        if link is None:
            return gr.skip(), *unchanged
        policy, status = gr.skip(), ("idle", "Prompt and settings are those of the link. Press Run.")
        if link.policy is not None and (wrong := self._wrong_policy(link.policy)):
            status = ("error", f"The link's policy cannot be used here: {wrong}. All else is as the link has it.")
        elif link.policy is not None:
            # With its choices: the page may have been built with those of another pool.
            policy = gr.Dropdown(self.policies, value=link.policy, allow_custom_value=True)
        kind, text = status
        return (
            stats.message_html(kind, text + self._other(link)),
            gr.skip() if link.prompt is None else link.prompt,
            policy,
            *(gr.skip() if value is None else value for value in link.settings),
        )

    def _wrong_policy(self, spec: str | None) -> str | None:
        """Why the present pool cannot run a policy, if it cannot."""
        try:
            policy_for(self.workbench.pool, spec or "")
        except UserError as error:
            return str(error)
        return None

    def _other(self, link: permalink.Link) -> str:
        """A warning if the link was made with another pool."""
        loaded = self.workbench.pool.name
        if link.pool in (None, loaded):
            return ""
        return (
            f" It was made with pool {link.pool}, but {loaded} is loaded: speed will differ, and so will the text, "
            "unless both have the same target and the run is greedy. The tab Pool tells what can be loaded."
        )

    def run(
        self,
        prompt: str,
        policy: str | None,
        max_new_tokens: float | None,
        temperature: float | None,
        top_p: float | None,
        top_k: float | None,
        draft_length: float | None,
        seed: float | None,
        turns: Sequence[Turn],
        request: gr.Request,
    ) -> Iterator[tuple[Any, ...]]:
        """Run the prompt and yield the page's parts until it ends; leaving the page ends the run."""
        try:
            params = choices.make_params(max_new_tokens, temperature, top_p, top_k, draft_length)
            number = choices.whole_number("seed", seed)
            task = self.examples.tasks.get(prompt)
            asked = Request(prompt, policy or "", params, number, task=task, turns=tuple(turns))
            job = self.workbench.submit(asked)
        except UserError as error:
            hint = " Begin a new conversation." if turns and isinstance(error, ContextWindowError) else ""
            yield self._refusal(controls.sentence(error) + hint)
            return
        self.stops.set(request.session_hash, job.cancel)
        try:
            yield from self._follow(job)
        finally:
            job.leave()
            self.stops.forget(request.session_hash)

    def _follow(self, job: Job) -> Iterator[tuple[Any, ...]]:
        """The page's parts while the job runs; it never waits for the page."""
        drafters = job.generation.drafters
        output, shown, drawn_at = "", 0, time.monotonic()
        often, seldom = UPDATE_SECONDS
        wait = often
        parts = self._parts(job, job.snapshot(), output)
        yield (
            *parts,
            *(gr.Plot(visible=False), "", *run_buttons(running=True), *_exports(None), *self._asked(job)),
        )
        while True:
            done = job.wait(wait)
            generation = job.snapshot()
            rounds = generation.rounds
            output += tokens.rounds_html(rounds[shown:], self._rejected(job, rounds, shown))
            chart: Any = gr.skip()
            pause = CHART_SECONDS * (1 + len(rounds) / CHART_ROUNDS)
            if done or (len(rounds) > shown and time.monotonic() - drawn_at >= pause):
                chart, drawn_at = gr.Plot(policy_plot(rounds, drafters), visible=bool(rounds)), time.monotonic()
            shown = len(rounds)
            if done:
                break
            before, parts = parts, self._parts(job, generation, output)
            handed_at = time.monotonic()
            yield *changes(before, parts), chart, *skips(9)
            wait = min(seldom, max(often, (time.monotonic() - handed_at) / UPDATE_SHARE))
        table, file = tokens.rounds_table_html(rounds), self._file(job) if rounds else None
        ended = (chart, table, *run_buttons(running=False), *_exports(file), *self._answered(job, generation))
        yield *self._parts(job, generation, output), *ended

    def _asked(self, job: Job) -> tuple[Any, ...]:
        """Prompt, conversation, turns and *New conversation* when a run begins: what was asked moves from its box into
        the conversation. Without conversations it stays, to be run again."""
        if not job.pool.conversational:
            return skips(4)
        asked = conversation_html(job.request.turns, job.request.prompt)
        return "", asked, gr.skip(), gr.Button(interactive=False)

    def _answered(self, job: Job, generation: Generation) -> tuple[Any, ...]:
        """The same when it has ended. Without an answer it is no turn, and what was asked goes back."""
        request, anew = job.request, gr.Button(interactive=True)
        if job.pool is not self.workbench.pool:  # with the pool the conversation has gone
            return *skips(3), anew
        if not job.pool.conversational:
            return skips(4)
        if not generation.text:
            return request.prompt, conversation_html(request.turns), gr.skip(), anew
        return gr.skip(), gr.skip(), (*request.turns, (request.prompt, generation.text)), anew

    def _rejected(self, job: Job, rounds: Sequence[Round], start: int) -> list[str]:
        """The text of the guesses that were rejected in each round from ``start`` on."""
        tokenizer, context = job.pool.tokenizer, job.decoding.context
        at = job.generation.prompt_tokens + sum(r.emitted for r in rounds[:start])
        texts = []
        for r in rounds[start:]:
            guess = r.drafted[r.accepted :]
            known = at + r.accepted
            texts.append(guess_text(tokenizer, context[max(0, known - CONTEXT) : known], guess) if guess else "")
            at += r.emitted
        return texts

    def _file(self, job: Job) -> Path | None:
        """The run as a JSON file."""
        request = job.request
        record = run_record(job.pool, job.generation, request.params, request.seed, **job.known())
        text = json.dumps(record, ensure_ascii=False, indent=1)
        return offered_file("multidraft-run.json", lambda path: path.write_text(text, encoding="utf-8"))

    def _parts(self, job: Job, generation: Generation, output: str) -> tuple[str, str, str, str]:
        tiles = stats.tiles_html(generation, job.baseline, job.differences, job.regret)
        return (
            stats.status_html(job, self.workbench.store.problem is None),
            tiles,
            output,
            tokens.legend_html(generation.drafters, generation.drafter_shares),
        )

    def _refusal(self, text: str) -> tuple[Any, ...]:
        """The page's parts when a run cannot begin; the conversation stays as it is."""
        legend = tokens.legend_html(self.drafters, {})
        blank = (stats.tiles_html(), "", legend, gr.Plot(visible=False), "")
        return stats.message_html("error", text), *blank, *run_buttons(running=False), *_exports(None), *skips(4)


_COPY_RUN = """async (file) => {
  try {
    const answer = await fetch(file.url);
    await navigator.clipboard.writeText(await answer.text());
    return "Run copied";
  } catch {
    return "Not copied: download it";
  }
}"""
"""The file of the download button goes to the clipboard as well."""

_IDLE = stats.message_html(
    "idle", "Ready. The output is exactly what the target would write alone; only the speed changes."
)


def _note_html(pool: Pool) -> str:
    return f'<p class="md-note"><b>{escape(pool.title)}.</b> {escape(pool.description)}</p>'


def _later(text: str) -> str:
    """Script that gives a button its text back after two seconds."""
    return f"() => new Promise((done) => setTimeout(() => done({json.dumps(text)}), 2000))"


def _exports(file: Path | None) -> tuple[gr.Button, gr.DownloadButton]:
    path = str(file) if file else None
    return gr.Button(interactive=file is not None), gr.DownloadButton(value=path, interactive=file is not None)
