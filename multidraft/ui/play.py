"""*Play*: one prompt, one policy, and the output as it streams in."""

from __future__ import annotations

import time
from collections.abc import Iterator
from html import escape
from typing import Any

import gradio as gr

from multidraft.errors import UserError
from multidraft.records import Generation
from multidraft.ui import charts, choices, controls, stats, tokens
from multidraft.ui.worker import Job, Request

UPDATE_SECONDS = 0.08
"""How often the page is brought up to date: about twelve times a second, whatever the pace of decoding."""

CHART_SECONDS = 1.0
"""How often the chart is: it is sent whole each time."""


class Play(controls.RunTab):
    """The tab and what its controls do."""

    def build(self) -> None:
        """Lay out the tab inside the surrounding ``gr.Tab``."""
        with gr.Row(elem_classes="md-columns"):
            with gr.Column(scale=5, min_width=320):
                prompt = controls.prompt_box()
                self.examples.build(prompt)
                policy = gr.Dropdown(
                    choices.policy_choices(self.drafters, self.workbench.pool.router is not None),
                    value=choices.DEFAULT_POLICY,
                    label="Policy",
                    info="Who chooses the drafter of each round, and how",
                    elem_id="policy",
                )
                explanation = gr.HTML(
                    choices.explanation_html(choices.DEFAULT_POLICY, self.drafters),
                    js_on_load=None,
                    elem_id="explanation",
                )
                with gr.Row(elem_classes="md-buttons"):
                    run = gr.Button("Run", variant="primary", elem_id="run")
                    stop = gr.Button("Stop", variant="stop", interactive=False, elem_id="stop")
                settings, spec = self._build_settings()
            with gr.Column(scale=7, min_width=320):
                status = gr.HTML(_IDLE, js_on_load=None, elem_id="status")
                tiles = gr.HTML(stats.tiles_html(), js_on_load=None, elem_id="tiles")
                output = gr.HTML(
                    tokens.OUTPUT_START, js_on_load=None, apply_default_css=False, autoscroll=True, elem_id="output"
                )
                legend = gr.HTML(tokens.legend_html(self.drafters, {}), js_on_load=None, elem_id="legend")
                chart = gr.Plot(charts.blank_figure(), show_label=False, elem_id="chart", elem_classes="md-chart")
                details = gr.HTML("", js_on_load=None, elem_id="rounds")

        pool = self.workbench.pool
        gr.HTML(f'<p class="md-note"><b>{escape(pool.title)}.</b> {escape(pool.description)}</p>', js_on_load=None)

        for control in (policy, spec):
            control.change(
                self.explain, [policy, spec], explanation, queue=False, show_progress="hidden", api_visibility="private"
            )
        gr.on(
            [run.click, prompt.submit],
            self.run,
            [prompt, policy, spec, *settings],
            [status, tiles, output, legend, chart, details, run, stop],
            concurrency_limit=16,
            show_progress="hidden",
            api_visibility="private",
        )
        run.click(None, js=_SHOW_STATUS, api_visibility="private")
        stop.click(self.stop, None, None, queue=False, show_progress="hidden", api_visibility="private")

    def _build_settings(self) -> tuple[list[gr.components.Component], gr.Textbox]:
        with gr.Accordion("Settings", open=False, elem_id="settings"):
            settings = controls.settings(self.workbench.pool)
            spec = gr.Textbox(
                "",
                label="Policy spec",
                placeholder="ucb:beta=0.1,reward=be",
                info="For experts: a policy with settings; replaces the choice above",
                elem_id="spec",
            )
        return settings, spec

    def explain(self, policy: str, spec: str) -> str:
        """The explanation of what is chosen."""
        return choices.explanation_html(_chosen(policy, spec), self.drafters)

    def run(
        self,
        prompt: str,
        policy: str,
        spec: str,
        max_new_tokens: float | None,
        temperature: float | None,
        top_p: float | None,
        top_k: float | None,
        draft_length: float | None,
        seed: float | None,
        request: gr.Request,
    ) -> Iterator[tuple[Any, ...]]:
        """Run the prompt and yield the page's parts until it ends; leaving the page ends the run."""
        try:
            params = choices.make_params(max_new_tokens, temperature, top_p, top_k, draft_length)
            number = choices.whole_number("seed", seed)
            task = self.examples.tasks.get(prompt)
            job = self.workbench.submit(Request(prompt, _chosen(policy, spec), params, number, task=task))
        except UserError as error:
            yield (stats.message_html("error", controls.sentence(error)), *self._blank(), *_buttons(running=False))
            return
        self.stops.set(request.session_hash, job.cancel)
        try:
            yield from self._follow(job)
        finally:
            job.cancel()
            self.stops.forget(request.session_hash)

    def _follow(self, job: Job) -> Iterator[tuple[Any, ...]]:
        """The page's parts while the job runs; it never waits for the page."""
        output, shown, drawn_at = tokens.OUTPUT_START, 0, time.monotonic()
        yield (*self._parts(job, job.snapshot(), output), charts.blank_figure(), "", *_buttons(running=True))
        while True:
            done = job.wait(UPDATE_SECONDS)
            generation = job.snapshot()
            rounds = generation.rounds
            output += tokens.rounds_html(rounds[shown:])
            chart: Any = gr.skip()
            if done or (len(rounds) > shown and time.monotonic() - drawn_at >= CHART_SECONDS):
                chart, drawn_at = charts.policy_figure(rounds, self.drafters), time.monotonic()
            shown = len(rounds)
            if done:
                yield (
                    *self._parts(job, generation, output),
                    chart,
                    tokens.rounds_table_html(rounds),
                    *_buttons(running=False),
                )
                return
            yield (*self._parts(job, generation, output), chart, gr.skip(), gr.skip(), gr.skip())

    def _parts(self, job: Job, generation: Generation, output: str) -> tuple[str, str, str, str]:
        tiles = stats.tiles_html(generation, job.baseline, job.differences, job.regret)
        return stats.status_html(job), tiles, output, tokens.legend_html(self.drafters, generation.drafter_shares)

    def _blank(self) -> tuple[Any, ...]:
        legend = tokens.legend_html(self.drafters, {})
        return stats.tiles_html(), tokens.OUTPUT_START, legend, charts.blank_figure(), ""


_SHOW_STATUS = "() => { if (innerWidth < 760) document.querySelector('#status').scrollIntoView({behavior: 'smooth'}); }"
"""On a phone the output is below the controls: go there when a run starts."""

_IDLE = stats.message_html(
    "idle", "Ready. The output is exactly what the target would write alone; only the speed changes."
)


def _chosen(policy: str, spec: str) -> str:
    return spec.strip() or policy


def _buttons(*, running: bool) -> tuple[gr.Button, gr.Button]:
    return gr.Button(interactive=not running), gr.Button(interactive=running)
