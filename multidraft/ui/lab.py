"""*Lab*: what other policies would have done on past runs, by exact replay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from multidraft.errors import UserError
from multidraft.policies import POLICIES
from multidraft.ui import choices, lab_view, policy_form
from multidraft.ui.controls import sentence
from multidraft.ui.events import HIDDEN
from multidraft.ui.lab_steps import stopped, watched
from multidraft.ui.lab_sweep import SweepSection
from multidraft.ui.lab_texts import ABOUT, FIELDS, Asked, TextChoice, linked_run
from multidraft.ui.lab_work import Experiment, LabWork, Progress
from multidraft.ui.stats import message_html
from multidraft.ui.tables import count
from multidraft.ui.worker import Workbench

DEFAULT_POLICIES = ("rate-hedge", "normal-hedge", "ucb:reward=be", "ucbspec", "exp3spec")
IDLE = message_html("idle", "Ready. Replaying takes a few milliseconds a text and policy.")

REWARD = (
    "Experts may type a spec, e.g. ucb:beta=0.1. Recorded texts hold no block divergence: policies that learn from it "
    "learn from the accepted tokens here (reward=be)"
)

LAST: dict[str, Any] = {**HIDDEN, "trigger_mode": "always_last"}
"""For what shows the fields' present values: asked for while it is under way, it is done once more."""

PARTS = 4
"""What a replay fills: the table, the curves, and of a single text its lanes and its rounds."""


class Lab:
    """The tab and what its controls do."""

    def __init__(self, workbench: Workbench):
        self.work = LabWork(workbench)
        self.texts = TextChoice(workbench.store.path)
        self.sweeping = SweepSection(self.work, self.texts)

    def build(self, tab: gr.Tab, page: gr.Blocks) -> None:
        """Lay out the inside of ``tab``, which brings itself up to date when it is opened; ``?run=ID`` names a run."""
        empty = gr.HTML("", js_on_load=None, elem_id="lab-empty")
        with gr.Column(visible=False) as inside:
            gr.HTML(ABOUT, js_on_load=None)
            with gr.Row(elem_classes="md-columns"):
                with gr.Column(min_width=320):
                    self.texts.build()
                with gr.Column(min_width=320):
                    policies, everything, replay, stop = self._build_policies()
            status = gr.HTML(IDLE, js_on_load=None, elem_id="lab-status")
            outcomes = gr.HTML("", js_on_load=None, elem_id="lab-outcomes")
            chart = gr.Plot(None, show_label=False, visible=False, elem_id="lab-regret", elem_classes="md-chart")
            lanes = gr.Plot(None, show_label=False, visible=False, elem_id="lab-lanes", elem_classes="md-chart")
            rounds = gr.HTML("", js_on_load=None, elem_id="lab-rounds")
            self.sweeping.build()
        fields = self.texts.fields
        refreshed = [empty, inside, *fields[:3]]
        offered = [policies, self.sweeping.policy]
        shown = [status, outcomes, chart, lanes, rounds, replay, stop]
        opened = [tab.select, *(field.input for field in fields)]
        gr.on(opened, self.texts.refresh, fields, refreshed, **LAST).then(self.offer, fields[0], offered, **LAST).then(
            self.texts.describe, fields, self.texts.note, **LAST
        )
        everything.click(self.all_policies, fields[0], policies, **HIDDEN)
        linked = gr.State(None)
        page.load(self.linked, None, [fields[-1], linked], **HIDDEN)
        replayed: list[dict[str, Any]] = [
            replay.click(self.replay, [*fields, policies], shown, concurrency_limit=4, **HIDDEN),
            linked.change(self.replay, [*fields, policies], shown, concurrency_limit=4, **HIDDEN),
        ]
        stop.click(stopped, None, [status, replay, stop], cancels=replayed, queue=False, **HIDDEN)

    def _build_policies(self) -> tuple[gr.Dropdown, gr.Button, gr.Button, gr.Button]:
        policies = gr.Dropdown(
            [],
            value=list(DEFAULT_POLICIES),
            multiselect=True,
            allow_custom_value=True,
            label="Policies",
            info=REWARD,
            elem_id="lab-policies",
        )
        everything = gr.Button("Choose all policies", size="sm", elem_id="lab-all")
        with gr.Accordion("Add a policy with settings of your own", open=False, elem_id="lab-form"):
            kinds = [(title, spec) for title, spec in choices.policy_choices(["x"]) if ":" not in spec]
            kind = gr.Dropdown(
                [*kinds, (POLICIES["fixed"].title, "fixed")], value=choices.DEFAULT_POLICY, label="Policy"
            )

            bench = self.texts.fields[0]  # set when the tab is opened: until then no form is built

            @gr.render([kind, bench], [kind.change, bench.change], show_progress="hidden")
            def form(kind: str, bench: str | None) -> None:
                drafters = self.texts.bench(bench).drafters if bench else ()
                settings = policy_form.settings(kind, drafters)
                with gr.Row():
                    fields = [policy_form.build(setting) for setting in settings]
                add = gr.Button("Add to the policies", size="sm", elem_id="lab-add")
                problem = gr.HTML("", js_on_load=None, elem_id="lab-form-problem")

                def added(specs: list[str], *values: Any) -> tuple[list[str], str]:
                    try:
                        spec = policy_form.spec_of(kind, settings, values, drafters)
                    except UserError as error:
                        return specs, message_html("error", sentence(error))
                    return [*specs, *([] if spec in specs else [spec])], ""

                add.click(added, [policies, *fields], [policies, problem], queue=False, **HIDDEN)

        with gr.Row(elem_classes="md-buttons"):
            replay = gr.Button("Replay", variant="primary", elem_id="lab-replay")
            stop = gr.Button("Stop", variant="stop", interactive=False, elem_id="lab-stop")
        return policies, everything, replay, stop

    def offer(self, bench: str | None) -> tuple[gr.Dropdown, gr.Dropdown]:
        """The policies that can be replayed on the bench's texts; what is chosen stays."""
        if not bench:
            return gr.skip(), gr.skip()
        found = self.work.choices(self.texts.bench(bench))
        return (
            gr.Dropdown(found, multiselect=True, allow_custom_value=True),
            gr.Dropdown(choices.with_specs(found), allow_custom_value=True),
        )

    def all_policies(self, bench: str) -> list[str]:
        """Every policy that can be replayed, single drafters left out."""
        return [spec for _, spec in self.work.choices(self.texts.bench(bench)) if not spec.startswith("fixed:")]

    def linked(self, request: gr.Request) -> tuple[int | None, Any]:
        """The run that the page's address names, if any: for the field (Gradio would make it 0), and to be replayed."""
        run = linked_run(request)
        return run, gr.skip() if run is None else run

    def replay(self, *values: Any) -> Iterator[tuple[Any, ...]]:
        """Replay the policies on the texts and yield the page's parts: progress, then what was found.

        ``values`` are those of the fields, then the policies.
        """
        asked, policies = Asked(*values[:FIELDS]), values[FIELDS]

        def steps() -> Iterator[Progress | Experiment]:
            yield from self.work.experiment(self.texts.filter(asked), list(dict.fromkeys(policies)))

        yield from watched(steps(), lambda found: (_done_html(found), *_shown(found)), PARTS)


def _done_html(experiment: Experiment) -> str:
    texts = count(len(experiment.recorded), "text")
    tokens = sum(text.run["output_tokens"] for text in experiment.recorded)
    guessed = [lab_view.title(spec) for spec in experiment.policies if lab_view.estimated(spec)]
    known = "exact"
    if guessed:
        known += (
            f" for policies that go by what was accepted, estimates (≈) for those by the clock: {', '.join(guessed)}"
        )
    return message_html(
        "done",
        f"Replayed {texts}, {count(tokens, 'token')}; nothing was decoded. Rounds and regret are {known}. Tokens/s and "
        "speed-up are replayed, by the costs measured in these runs.",
    )


def _shown(experiment: Experiment) -> tuple[Any, ...]:
    single = len(experiment.recorded) == 1
    return (
        lab_view.outcomes_html(experiment),
        gr.Plot(lab_view.regret_curves_figure(experiment), visible=True),
        gr.Plot(lab_view.rounds_figure(experiment) if single else None, visible=single),
        lab_view.rounds_html(experiment) if single else "",
    )
