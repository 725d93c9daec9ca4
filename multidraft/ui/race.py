"""*Race*: one prompt under several policies, each measured alone, then replayed side by side at true speed."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from multidraft.errors import UserError
from multidraft.ui import choices, controls, race_data, tables, tokens
from multidraft.ui.events import HIDDEN, PRIVATE, QUICK, run_buttons, show_on_phone, skips
from multidraft.ui.pool_line import PoolLine
from multidraft.ui.race_run import MOST, RaceRun
from multidraft.ui.stats import message_html, progress_html
from multidraft.ui.tables import count, number

DEFAULT_LANES = (race_data.PLAIN, "ucb", choices.DEFAULT_POLICY)
NO_LANE = ("– no lane –", "")

STAGE = Path(__file__).with_name("race.html").read_text(encoding="utf-8")
"""What the script fills. It holds no placeholder: data reach the page as the component's value, never as markup."""

SCRIPT = Path(__file__).with_name("race.js").read_text(encoding="utf-8")

_IDLE = message_html(
    "idle",
    "Ready. The lanes are measured one at a time, so that none slows another down, and then replayed together.",
)

_LANES_HINT = (
    '<p class="md-hint">Two to four lanes answer the prompt, each under its own policy; the same policy may run twice. '
    "Experts may type a spec into a lane, e.g. <code>ucb:beta=0.1</code>.</p>"
)


class Race(controls.RunTab):
    """The tab and what its controls do."""

    def build(self, line: PoolLine) -> None:
        """Lay out the tab inside the surrounding ``gr.Tab``; it follows the pool of ``line``."""
        with gr.Row(elem_classes="md-columns"):
            with gr.Column(min_width=320):
                prompt = controls.prompt_box("race-")
                self.examples.build(prompt, "race-")
            with gr.Column(min_width=320):
                lanes = self._build_lanes()
                with gr.Row(elem_classes="md-buttons"):
                    run = gr.Button("Race", variant="primary", elem_id="race-run")
                    stop = gr.Button("Stop", variant="stop", interactive=False, elem_id="race-stop")
                with gr.Accordion("Settings, the same for all lanes", open=False, elem_id="race-settings"):
                    settings = controls.settings(self.workbench.pool, "race-")
        status = gr.HTML(_IDLE, js_on_load=None, elem_id="race-status")
        stage = gr.HTML(None, html_template=STAGE, js_on_load=SCRIPT, apply_default_css=False, elem_id="race-stage")
        legend = gr.HTML(tokens.legend_html(self.drafters), js_on_load=None, elem_id="race-legend")
        figures = gr.HTML("", js_on_load=None, elem_id="race-figures")

        gr.on(
            [run.click, prompt.submit],
            self.run,
            [prompt, *lanes, *settings],
            [status, stage, figures, run, stop],
            concurrency_limit=16,
            **HIDDEN,
        )
        gr.on([run.click, prompt.submit], lambda: tokens.legend_html(self.drafters), None, legend, **QUICK)
        run.click(None, js=show_on_phone("#race-status"), **PRIVATE)
        stop.click(self.stop, None, None, **QUICK)
        line.followed_by(
            self.follow,
            [settings[0], stage],
            [*self.examples.components, *lanes, settings[0], settings[4], legend],
        )

    def follow(self, max_new_tokens: float | None, stage: Any) -> list[Any]:
        """What depends on the pool, for the present one; what was chosen stays, and so does a race's legend."""
        length, draft = controls.limits(self.workbench.pool, max_new_tokens)
        task, *buttons = self.examples.updates()
        return [
            gr.Radio(**task),
            *(gr.Button(**button) for button in buttons),
            *(gr.Dropdown([NO_LANE, *self.policies]) for _ in range(MOST)),
            gr.Slider(**length),
            gr.Slider(**draft),
            gr.skip() if stage else tokens.legend_html(self.drafters),
        ]

    def _build_lanes(self) -> list[gr.Dropdown]:
        policies = self.policies
        gr.HTML(_LANES_HINT, js_on_load=None)
        lanes: list[gr.Dropdown] = []
        for first in range(0, MOST, 2):
            with gr.Row():
                for lane in range(first, first + 2):
                    lanes.append(
                        gr.Dropdown(
                            [NO_LANE, *policies],
                            value=DEFAULT_LANES[lane] if lane < len(DEFAULT_LANES) else "",
                            allow_custom_value=True,
                            label=f"Lane {lane + 1}",
                            min_width=220,
                            elem_id=f"race-lane-{lane + 1}",
                        )
                    )
        return lanes

    def run(
        self,
        prompt: str,
        first: str | None,
        second: str | None,
        third: str | None,
        fourth: str | None,
        max_new_tokens: float | None,
        temperature: float | None,
        top_p: float | None,
        top_k: float | None,
        draft_length: float | None,
        seed: float | None,
        request: gr.Request,
    ) -> Iterator[tuple[Any, ...]]:
        """Measure the lanes and yield the page's parts until they can be replayed; leaving the page ends it."""
        try:
            params = choices.make_params(max_new_tokens, temperature, top_p, top_k, draft_length)
            whole_seed = choices.whole_number("seed", seed)
            lanes = [spec.strip() for spec in (first, second, third, fourth) if spec and spec.strip()]
            race = RaceRun(self.workbench, prompt, lanes, params, whole_seed, self.examples.tasks.get(prompt))
        except UserError as error:  # the replay of an earlier race stays where it is
            yield message_html("error", controls.sentence(error)), *skips(2), *run_buttons(running=False)
            return
        self.stops.set(request.session_hash, race.cancel)
        try:
            yield from self._follow(race)
        finally:
            race.cancel()
            self.stops.forget(request.session_hash)

    def _follow(self, race: RaceRun) -> Iterator[tuple[Any, ...]]:
        states = race.states
        yield _progress_html(race), race_data.pending(race.specs, states), "", *run_buttons(running=True)
        for _ in race.run():
            stage: Any = gr.skip()
            if race.states != states:
                states = race.states
                stage = race_data.pending(race.specs, states)
            yield _progress_html(race), stage, *skips(3)
        if len(race.measured) < 2:
            stage, figures = race_data.pending(race.specs, race.states), ""
        else:
            stage = race.replay()
            figures = figures_html(stage["lanes"])
        yield _end_html(race), stage, figures, *run_buttons(running=False)


def figures_html(lanes: list[dict[str, Any]]) -> str:
    """The result as a table in finish order, which also says where each lane's time went."""
    columns = (
        "Place",
        "Policy",
        "Tokens/s",
        "Speed-up",
        "Tokens",
        "Target calls",
        "Saved",
        "Decoding, s",
        "Prefill, ms",
        "Drafting",
        "Target",
        "Policy",
        "Evaluation",
    )
    rows = (
        [
            str(lane["place"]),
            escape(lane["title"]),
            number(lane["rate"], 1),
            tables.times(lane["speedup"], lane["tokens"]),
            str(lane["tokens"]),
            str(lane["calls"]),
            str(lane["saved"]),
            number(lane["seconds"], 3),
            number(1000 * lane["prefill"], 0),
            *(number(100 * share, 0, " %") for share in lane["shares"]),
        ]
        for lane in sorted(lanes, key=lambda lane: int(lane["place"]))
    )
    table = tables.table_html(columns, rows, figures=len(columns) - 2, label="The result in figures")
    return f'<details class="md-details"><summary>The result in figures</summary>{table}</details>'


def _progress_html(race: RaceRun) -> str:
    lane = max(1, len(race.jobs))
    doing, now = "is next …", ""
    if race.jobs:
        job = race.jobs[-1]
        if job.phase == "waiting" and (ahead := job.ahead):
            doing = f"waiting for the device, {count(ahead, 'run')} ahead of it. Stop leaves the queue."
        elif job.phase in ("waiting", "measuring"):
            doing = "measured next; first the speed of plain decoding …"
        elif job.phase == "decoding":
            doing, now = "measured alone on the device", f", round {len(job.generation.rounds) + 1:,} …"
        else:
            doing = "measured, now checked …"
    text = f"Lane {lane} of {len(race.specs)}, {race_data.lane_title(race.specs[lane - 1])}: {doing}"
    done = sum(1.0 if job.done else len(job.generation.token_ids) / race.params.max_new_tokens for job in race.jobs)
    return progress_html(text, round(done, 2), len(race.specs), "Lanes measured", now)


def _end_html(race: RaceRun) -> str:
    measured, total = len(race.measured), len(race.specs)
    failed = [job for job in race.jobs if job.generation.status == "error"]
    if failed:
        job = failed[0]
        title = race_data.lane_title(job.request.policy)
        shown = f" The other {measured} are replayed below." if measured >= 2 else ""
        return message_html("error", f"Lane {title} failed: {job.generation.error}. Please try again.{shown}")
    if measured == total:
        return message_html("done", f"All {total} lanes are measured. Below they run at the speed they had.")
    rest = "they are replayed below" if measured >= 2 else "too few for a replay"
    return message_html("cancelled", f"Stopped: {measured} of {total} lanes were measured, {rest}.")
