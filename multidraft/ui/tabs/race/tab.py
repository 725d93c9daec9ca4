"""*Race*: one prompt under several policies, each measured alone, then replayed side by side at true speed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import gradio as gr
from markupsafe import Markup

from drafters.errors import UserError
from multidraft.policies.titles import DEFAULT_POLICY
from multidraft.service.race import FEWEST, MOST, RaceJob, State
from multidraft.ui.pool_line import PoolLine
from multidraft.ui.widgets import controls, lanes, markup, policy_fields, tokens
from multidraft.ui.widgets.events import LAST, QUICK, Updates, forget_refusal
from multidraft.ui.widgets.jobs import AddressedJobs
from storage import experiments
from storage.records import FINISHED, PLAIN
from storage.run import Run

NO_LANE = ("– no lane –", "")

GENERALIST = "general"
"""A drafter of this name is for all tasks."""

_template = markup.macros("tabs/race/race.html")

_IDLE = markup.message_html(
    "idle",
    "Ready. The lanes are measured one at a time, so that none slows another down, and then replayed together. You may "
    "reload or leave meanwhile: the page's address finds the race again.",
)

_GONE = markup.message_html(
    "error", "There is no such race here, or it is older than this server keeps. Enter the prompt to race again."
)

_TOO_FEW = markup.message_html(
    "cancelled", "This race ended before two lanes were measured, which a replay needs. Press Race to run it again."
)

UPDATE_SECONDS = 2.0
"""How often the page is brought up to date: seldom, since each time takes some of the speed that is being measured."""

REPLAY_SECONDS = 3.0
"""A race that was quicker is replayed in slow motion, unless the viewer has chosen a speed."""

LOOK_SECONDS = 0.1
"""How often it is seen whether another lane has begun, which is shown at once."""


class Race(controls.PromptTab):
    """The tab and what its controls do."""

    prefix = "race-"

    def build(self, page: gr.Blocks, line: PoolLine) -> None:
        """Lay out the tab inside the surrounding ``gr.Tab``; it follows the pool of ``line``, and ``?race=ID`` in the
        address of ``page`` finds a race again."""
        with gr.Row(elem_classes="md-columns"):
            with gr.Column(min_width=320):
                self.build_prompt()
                self.build_examples()
            with gr.Column(min_width=320):
                self.lanes = self._build_lanes()
                self.buttons = AddressedJobs("race", "Race", self.workbench.jobs, RaceJob)
                gr.HTML(markup.kept_html(), js_on_load=None)
                told = self.explained(*(lane.value for lane in self.lanes))
                self.how = gr.HTML(told, js_on_load=None, elem_id="race-explanation")
                self.build_settings("Settings, the same for all lanes")
        self.status = gr.HTML(_IDLE, js_on_load=None, elem_id="race-status")
        self.legend = gr.HTML(tokens.legend_html(self.drafters), js_on_load=None, elem_id="race-legend")
        self.stage = lanes.stage(elem_id="race-stage")
        self.figures = gr.HTML("", js_on_load=None, elem_id="race-figures")
        form = [self.prompt, *self.lanes, *self.settings]
        begin = [self.buttons.run.click, self.prompt.submit]
        self.buttons.start(begin, self.start, [self.buttons.id, *form, line.learn], self.status)
        forget_refusal(form, self.status, _IDLE)
        gr.on([lane.change for lane in self.lanes], self.explained, self.lanes, self.how, **LAST)
        shown = [self.status, self.stage, self.figures, self.legend]
        self.keep_prompt(self.buttons.wire(page, form, self._form, self.show, self._gone, shown))
        line.followed_by(
            self.follow,
            [self.prompt, self.settings[0], self.stage, *self.lanes],
            [self.fit, *self.examples, *self.lanes, *self.settings, self.legend],
        )

    def follows_prompt_of(self, tab: gr.Tab, prompt: gr.Textbox) -> None:
        """When ``tab`` is opened, take over the prompt of another one, as long as neither a race nor a prompt of its
        own stands here."""

        def taken(theirs: str, own: str, id: str) -> Any:
            return gr.skip() if id or not theirs.strip() or self.task_of(own) is None else theirs

        # What was typed may not be back in the field yet.
        linked = """(theirs, own, id) =>
          [theirs, typed("race-prompt", own), id || new URLSearchParams(location.search).get("race") || ""]"""
        tab.select(taken, [prompt, self.prompt, self.buttons.id], self.prompt, js=linked, **QUICK)

    def follow(self, prompt: str, max_new_tokens: float | None, stage: Any, *specs: str | None) -> Updates:
        """What depends on the pool, for the present one; what was chosen stays where the pool takes it, and so does a
        race's legend."""
        kept = [
            usual if (spec or "").strip() and self.wrong_policy(spec) else spec
            for spec, usual in zip(specs, self.usual, strict=True)
        ]
        return {
            **self.follow_pool(prompt, max_new_tokens),
            **{
                lane: gr.Dropdown([NO_LANE, *self.policies], value=spec, allow_custom_value=True)
                for lane, spec in zip(self.lanes, kept, strict=True)
            },
            **({} if stage else {self.legend: tokens.legend_html(self.drafters)}),
        }

    def _build_lanes(self) -> list[gr.Dropdown]:
        gr.HTML(_template.hint(), js_on_load=None)
        built: list[gr.Dropdown] = []
        for row in (self.usual[:2], self.usual[2:]):
            with gr.Row():
                for default in row:
                    place = len(built) + 1
                    lane = gr.Dropdown(
                        [NO_LANE, *self.policies],
                        value=default,
                        allow_custom_value=True,
                        label=f"Lane {place}",
                        min_width=220,
                        elem_id=f"race-lane-{place}",
                    )
                    built.append(lane)
        return built

    @property
    def usual(self) -> tuple[str, str, str, str]:
        """The lanes at first, each of which knows more than the one before: no drafter; one, a generalist if there is
        one; a bandit among all; our policy."""
        one = GENERALIST if GENERALIST in self.drafters else self.drafters[0]
        return (PLAIN, f"fixed:{one}", "ucb", DEFAULT_POLICY)

    def explained(self, *lanes: str | None) -> Markup:
        """What the policy of each lane does, one a line."""
        told: dict[str, Markup] = {}
        for place, spec in enumerate(lanes, start=1):
            if spec and (spec := spec.strip()) and spec not in told:
                told[spec] = policy_fields.explanation_html(spec, self.drafters, titled=True, field=f"Lane {place}")
        return Markup().join(told.values())

    def start(self, shown: str, prompt: str, *fields: Any) -> Updates:
        """Start a race: its id, or none and what is wrong; then the replay of the last one stays. Then the buttons.

        While the race that is ``shown`` goes on nothing happens: the prompt's field has a key for it, too.

        Args:
            fields: the values of the lanes, then those of the settings, then whether runs may be learnt from.
        """
        if (last := self.buttons.find(shown)) and not last.done:
            return {self.buttons.asked: gr.skip()}
        lanes, settings = fields[:MOST], fields[MOST:]
        try:
            params, seed = controls.read_settings(settings)
            learn = controls.agreed(settings)
            chosen = {place: spec.strip() for place, spec in enumerate(lanes, start=1) if spec and spec.strip()}
            for place, spec in chosen.items():
                if wrong := self.wrong_policy(spec):
                    raise UserError(f"Lane {place}: {wrong}")
            race = RaceJob(self.workbench, prompt, [*chosen.values()], params, seed, self.task_of(prompt), learn)
            self.workbench.jobs.submit(race)
        except UserError as error:
            return {self.buttons.asked: "", self.status: markup.refused_html(error), **self.buttons.live(running=False)}
        return {self.buttons.asked: race.id, **self.buttons.live(running=True)}

    def show(self, race: RaceJob) -> Iterator[Updates]:
        first: Updates = {
            self.figures: "",
            self.legend: tokens.legend_html(race.drafters),
            **self.buttons.live(running=True),
        }
        shown: list[State] = []
        drawn_at = 0.0
        while not race.ended.wait(LOOK_SECONDS if shown else 0):
            states, now = race.states, time.monotonic()
            if states != shown or now - drawn_at >= UPDATE_SECONDS:
                stage = {} if states == shown else {self.stage: lanes.pending(race.specs, states)}
                yield {**first, self.status: _progress_html(race), **stage}
                shown, drawn_at, first = states, now, {}
        over = {**first, **self.buttons.live(running=False)}
        if race.error:
            problem = f"The race was ended by an error: {race.error}. Please try again."
            yield {**over, self.status: markup.message_html("error", problem), self.stage: None}
            return
        ready = len(race.measured) >= FEWEST
        end = lanes.replay_data(race.measured, REPLAY_SECONDS) if ready else lanes.pending(race.specs, race.states)
        figures = figures_html(race.measured) + markup.shared_html(f"race/{race.id}") if ready else ""
        yield {**over, self.status: end_html(race), self.stage: end, self.figures: figures}

    def _form(self, id: str) -> tuple[Any, ...] | None:
        """Prompt, lanes and settings of a race, so that they start it once more."""
        if race := self.buttons.find(id):
            prompt, specs, p, seed = race.prompt, race.specs, race.params, race.seed
        elif runs := self._kept(id):
            specs = [run.generation.policy for run in runs]
            prompt, p, seed = runs[0].generation.prompt, runs[0].params, runs[0].seed
        else:
            return None
        return (
            prompt,
            *specs,
            *[""] * (MOST - len(specs)),
            *(getattr(p, name) for name in controls.SETTINGS[:-1]),
            seed,
        )

    def _kept(self, id: str) -> list[Run]:
        """The runs of a race in the history."""
        path = self.workbench.store.path
        return experiments.runs(path, id, MOST) if experiments.in_history(path, id) else []

    def _gone(self, id: str) -> Iterator[Updates]:
        if not (kept := self._kept(id)):
            yield {self.status: _GONE, self.stage: None, self.figures: ""}
            return
        runs = [run for run in kept if run.generation.status in FINISHED]
        ready = len(runs) >= FEWEST
        yield {
            self.status: _template.ended(id) if ready else _TOO_FEW,
            self.stage: lanes.replay_data(runs, REPLAY_SECONDS) if ready else None,
            self.figures: figures_html(runs) if ready else "",
        }


def figures_html(runs: Sequence[Run]) -> Markup:
    """The result as a table in finish order, which also says where each lane's time went."""
    places = lanes.places(runs)
    ranked = sorted(enumerate(runs), key=lambda lane: lane[1].generation.seconds)
    lines = [_figures(lane, places[lane], run) for lane, run in ranked]
    return markup.folded(
        "Results in figures", markup.table_of(lines, figures=9, kind="md-ranking", label="Results in figures")
    )


def _figures(lane: int, place: int, run: Run) -> dict[str, str]:
    g = run.generation
    tokens = len(g.token_ids)

    def share(phase: str) -> str:
        return markup.percent(sum(getattr(r, f"{phase}_seconds") for r in g.rounds) / g.seconds)

    return {
        "Place": str(place or markup.UNKNOWN),
        "Policy": f"{lane + 1}. {lanes.lane_title(g.policy)}",
        "Target calls": str(len(g.rounds)),
        "Tokens/s": markup.number(g.tokens_per_second, 1),
        "Decode speed-up": markup.times(run.speedup, tokens, run.speedup_uncertainty),
        "Request speed-up": markup.times(run.request_speedup, tokens, run.speedup_uncertainty),
        "Decoding,\N{NO-BREAK SPACE}s": markup.number(g.seconds, 3),
        "Drafting": share("draft"),
        "Verification": share("verify"),
        "Overhead": share("policy"),
        "Evaluation": share("evaluate"),
    }


def _progress_html(race: RaceJob) -> Markup:
    lane, measurement, done = race.lane, race.measurement, len(race.runs)
    doing, now, share = "being measured, alone on the device …", "", 0.0
    if race.ahead and (measurement is None or measurement.phase == "done"):
        doing = f"waiting for the device, {markup.place(race.ahead, race.wait_seconds)}. Stop leaves the queue."
    elif measurement and lane not in race.runs:
        if measurement.phase == "measuring":
            doing = "measured; now the autoregressive baseline …"
        elif measurement.phase == "decoding":
            doing, now = "being measured, alone on the device", f", round {len(measurement.generation.rounds) + 1:,} …"
        elif measurement.phase == "scoring":
            doing = "measured; now being scored …"
        share = len(measurement.generation.token_ids) / race.params.max_new_tokens
    text = f"Lane {lane + 1} of {len(race.specs)}, {lanes.lane_title(race.specs[lane])}: {doing}"
    return markup.progress_html(text, round(done + share, 2), len(race.specs), "Lanes measured", now)


def end_html(race: RaceJob) -> Markup:
    """How a race ended."""
    measured, total = len(race.measured), len(race.specs)
    runs = [race.runs[lane].generation for lane in sorted(race.runs)]
    if failed := next((g for g in runs if g.status == "error"), None):
        title = lanes.lane_title(failed.policy)
        shown = f" The other {measured} are replayed below." if measured >= FEWEST else ""
        return markup.message_html("error", f"Lane {title} failed: {failed.error}. Please try again.{shown}")
    noted = "".join(f" {lanes.lane_title(g.policy)}: {g.failures}" for g in runs if g.benched)
    if any(run.id is None and run.generation.rounds for run in race.runs.values()):
        noted += " Not in the history yet: see the Dashboard tab."
    if measured == total:
        return markup.message_html("done", f"All {total} lanes are measured and replayed below.{noted}")
    rest = "and are replayed below" if measured >= FEWEST else "– too few for a replay"
    return markup.message_html("cancelled", f"Stopped: {measured} of {total} lanes were measured {rest}.{noted}")
