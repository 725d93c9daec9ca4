"""*Race*: one prompt under several policies, each measured alone, then replayed side by side at true speed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from multidraft.errors import UserError
from multidraft.ui import choices, controls, links, race_data, tables, tokens
from multidraft.ui.events import HIDDEN, PRIVATE, QUICK, run_buttons, show_on_phone, skips
from multidraft.ui.pool_line import PoolLine
from multidraft.ui.race_run import MOST, UPDATE_SECONDS, Outcome, RaceRun, Races
from multidraft.ui.stats import message_html, progress_html
from multidraft.ui.tables import count, number
from multidraft.ui.worker import Workbench

DEFAULT_LANES = (race_data.PLAIN, "ucb", choices.DEFAULT_POLICY)
NO_LANE = ("– no lane –", "")

STAGE = Path(__file__).with_name("race.html").read_text(encoding="utf-8")
"""What the script fills. It holds no placeholder: data reach the page as the component's value, never as markup."""

SCRIPT = Path(__file__).with_name("race.js").read_text(encoding="utf-8")

_IDLE = message_html(
    "idle",
    "Ready. The lanes are measured one at a time, so that none slows another down, and then replayed together. Reload "
    "or leave meanwhile: the page's address finds the race again.",
)

_GONE = message_html(
    "error",
    "This server no longer holds the race of this address: it was restarted, or others came after. The runs that ended "
    "are in the history, on the Dashboard. Enter the prompt again to race anew.",
)

LOOK_SECONDS = 0.1
"""How often it is seen whether another lane has begun, which is told at once."""

_SETTINGS = 6
_PARTS = 6
"""What :meth:`Race.watch` yields: status, stage, figures, legend, two buttons."""

_LANES_HINT = (
    '<p class="md-hint">Two to four lanes answer the prompt, each under its own policy; the same policy may run twice. '
    "Experts may type a spec into a lane, e.g. <code>ucb:beta=0.1</code>.</p>"
)


class Race(controls.PromptTab):
    """The tab and what its controls do."""

    def __init__(self, workbench: Workbench):
        super().__init__(workbench)
        self.races = Races(workbench)

    def build(self, page: gr.Blocks, line: PoolLine) -> None:
        """Lay out the tab inside the surrounding ``gr.Tab``; it follows the pool of ``line``, and ``?race=ID`` in the
        address of ``page`` finds a race again."""
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

        asked, id = gr.Textbox("", visible=False), gr.Textbox("", visible=False)
        form = [prompt, *lanes, *settings]
        started = gr.on([run.click, prompt.submit], self.start, [id, *form], [asked, status, run, stop], **HIDDEN)
        started.then(None, [asked, id], id, js=links.name_what_is_shown("race"), **PRIVATE)
        run.click(None, js=show_on_phone("#race-status"), **PRIVATE)
        page.load(self.linked, None, [asked, id, *form, run, stop], **HIDDEN)
        shown = [status, stage, figures, legend, run, stop]
        asked.change(self.watch, asked, shown, trigger_mode="multiple", concurrency_limit=32, **HIDDEN)
        stop.click(self.stop, id, None, **QUICK)
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

    def start(
        self,
        shown: str,
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
    ) -> tuple[Any, ...]:
        """Start a race: its id, or none and what is wrong; then the replay of the last one stays. Then the buttons.

        While the race that is ``shown`` goes on nothing happens: the prompt's field has a key for it, too.
        """
        if (last := self.races.get(shown)) and not last.ended.is_set():
            return skips(4)
        try:
            params = choices.make_params(max_new_tokens, temperature, top_p, top_k, draft_length)
            whole_seed = choices.whole_number("seed", seed)
            lanes = [spec.strip() for spec in (first, second, third, fourth) if spec and spec.strip()]
            race = RaceRun(self.workbench, prompt, lanes, params, whole_seed, self.examples.tasks.get(prompt))
            self.races.start(race)
        except UserError as error:
            return "", message_html("error", controls.sentence(error)), *skips(2)
        return race.id, gr.skip(), *run_buttons(running=True)

    def linked(self, request: gr.Request) -> tuple[Any, ...]:
        """The race that the page's address names, if any: to be watched, and to be shown; then the form as it was when
        that was started, and the buttons."""
        id = str(request.query_params.get("race", ""))
        race = self.races.get(id)
        buttons = run_buttons(running=True) if race and not race.ended.is_set() else skips(2)
        return (id, id, *(_form(race) if race else skips(1 + MOST + _SETTINGS)), *buttons)

    def stop(self, id: str) -> None:
        """End a race after the round in progress."""
        if race := self.races.get(id):
            race.cancel()

    def watch(self, id: str) -> Iterator[tuple[Any, ...]]:
        """The page's parts until the lanes can be replayed; the race goes on whether anybody looks on or not."""
        if not id:
            yield skips(_PARTS)
            return
        race = self.races.get(id)
        if race is None:
            yield (_GONE, None, "", gr.skip(), *run_buttons(running=False))
            return
        legend: Any = tokens.legend_html(race.drafters)
        shown: list[race_data.State] = []
        told = 0.0
        while not race.ended.wait(LOOK_SECONDS if shown else 0):
            states, now = race.states, time.monotonic()
            if race.outcome is not None:  # it has let go of its lanes
                continue
            if states != shown or now - told >= UPDATE_SECONDS:
                stage: Any = gr.skip() if states == shown else race_data.pending(race.specs, states)
                yield _progress_html(race), stage, "", legend, *run_buttons(running=True)
                shown, told, legend = states, now, gr.skip()
        if (outcome := race.outcome) is None:
            problem = f"The race broke off: {race.error}. Please try again." if race.error else "The race was ended."
            yield message_html("error", problem), None, "", legend, *run_buttons(running=False)
            return
        figures = figures_html(outcome.stage["lanes"]) if outcome.stage["ready"] else ""
        yield _end_html(outcome), outcome.stage, figures, legend, *run_buttons(running=False)


def _form(race: RaceRun) -> tuple[Any, ...]:
    """Prompt, lanes and settings, so that they start this race once more."""
    params = race.params
    settings = (params.max_new_tokens, params.temperature, params.top_p, params.top_k, params.draft_length, race.seed)
    return (race.prompt, *race.specs, *[""] * (MOST - len(race.specs)), *settings)


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
    lane, jobs = race.lane, dict(race.jobs)
    doing, now = "is next …", ""
    if job := jobs.get(lane):
        if job.phase == "waiting" and (ahead := job.ahead):
            doing = f"waiting for the device, {count(ahead, 'run')} ahead of it. Stop leaves the queue."
        elif job.phase == "waiting":
            doing = "measured next …"
        elif job.phase == "measuring":
            doing = "measured next; first the speed of plain decoding …"
        elif job.phase == "decoding":
            doing, now = "measured alone on the device", f", round {len(job.generation.rounds) + 1:,} …"
        else:
            doing = "measured, now checked …"
    text = f"Lane {lane + 1} of {len(race.specs)}, {race_data.lane_title(race.specs[lane])}: {doing}"
    shares = (1.0 if j.done else len(j.generation.token_ids) / race.params.max_new_tokens for j in jobs.values())
    return progress_html(text, round(sum(shares), 2), len(race.specs), "Lanes measured", now)


def _end_html(outcome: Outcome) -> str:
    measured, total = outcome.measured, outcome.total
    if outcome.failed:
        title, error = outcome.failed
        shown = f" The other {measured} are replayed below." if measured >= 2 else ""
        return message_html("error", f"Lane {title} failed: {error}. Please try again.{shown}")
    if measured == total:
        return message_html("done", f"All {total} lanes are measured. Below they run at the speed they had.")
    rest = "they are replayed below" if measured >= 2 else "too few for a replay"
    return message_html("cancelled", f"Stopped: {measured} of {total} lanes were measured, {rest}.")
