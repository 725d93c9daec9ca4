"""*Lab*: what other policies would have done on past runs, by exact replay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from drafters.errors import UserError
from multidraft.policies import POLICIES
from multidraft.policies.titles import DEFAULT_POLICY, policy_choices, policy_title
from multidraft.replay.experiment import Experiment
from multidraft.service.lab import ExperimentJob, LabWork, ReplayJob
from multidraft.service.workbench import Workbench
from multidraft.ui.tabs.lab import files, view
from multidraft.ui.tabs.lab.sweep import SweepSection
from multidraft.ui.tabs.lab.texts import FIELDS, KEEP, Asked, TextChoice, restored
from multidraft.ui.tabs.lab.watch import watched
from multidraft.ui.widgets import policy_fields
from multidraft.ui.widgets.charts import plot
from multidraft.ui.widgets.events import HIDDEN, LAST, PRIVATE, QUICK, Updates, forget_refusal, linked_run
from multidraft.ui.widgets.jobs import RunButtons
from multidraft.ui.widgets.markup import macros, message_html, problem_html

DEFAULT_POLICIES = ("rate-hedge", "normal-hedge", "ucb:reward=be", "ucbspec", "exp3spec")
IDLE = message_html("idle", "Ready. A replay takes a few milliseconds per text and policy.")

REWARD = (
    "Or type a spec, e.g. ucb:beta=0.1. Recorded texts hold no block divergence: policies that learn from it learn "
    "from accepted tokens here (reward=be)"
)


class Lab:
    """The tab and what its controls do."""

    def __init__(self, workbench: Workbench):
        self.workbench = workbench
        self.texts = TextChoice(LabWork(workbench))
        self.sweeping = SweepSection(workbench, self.texts)

    def build(self, tab: gr.Tab, page: gr.Blocks) -> None:
        """Lay out the inside of ``tab``, which brings itself up to date when it is opened; ``?run=ID`` names a run."""
        self.texts.empty = gr.HTML("", js_on_load=None, elem_id="lab-empty")
        with gr.Column(visible=False) as self.texts.inside:
            gr.HTML(macros("tabs/lab/view.html").about(), js_on_load=None)
            with gr.Row(elem_classes="md-columns"):
                with gr.Column(min_width=320):
                    self.texts.build()
                with gr.Column(min_width=320):
                    everything = self._build_policies()
            self.status = gr.HTML(IDLE, js_on_load=None, elem_id="lab-status")
            self.outcomes = gr.HTML("", js_on_load=None, elem_id="lab-outcomes")
            self.csv = gr.DownloadButton("Download CSV", size="sm", visible=False, elem_id="lab-csv", scale=0)
            self.cited = gr.HTML("", js_on_load=None, elem_id="lab-cited")
            self.curves, self.lanes = (plot(id, visible=False) for id in ("lab-regret", "lab-lanes"))
            self.rounds = gr.HTML("", js_on_load=None, elem_id="lab-rounds")
            self.sweeping.build(page)
        fields = self.texts.fields
        refreshed = [self.texts.empty, self.texts.inside, *fields[:4]]
        offered = [self.policies, self.sweeping.policy]
        opened = [tab.select, *(field.input for field in fields)]
        gr.on(opened, self.texts.refresh, fields, refreshed, **LAST).then(self.offer, fields[0], offered, **LAST).then(
            self.texts.describe, fields, self.texts.note, **LAST
        )
        everything.click(self.all_policies, [fields[0], self.policies], self.policies, **HIDDEN)
        self.policies.change(self.completed, [fields[0], self.policies], self.policies, **LAST)
        linked = gr.State(None)
        shown = [self.status, self.outcomes, self.csv, self.cited, self.curves, self.lanes, self.rounds]
        shown += [*self.buttons.both, self.buttons.id]
        chosen = [*fields, self.policies]
        at_most: dict[str, Any] = {"concurrency_limit": ReplayJob.limit, **HIDDEN}
        self.buttons.starts([self.buttons.run.click], self.replay, chosen, shown, self.status, **at_most)
        kept = [*fields[:5], self.policies]
        page.load(self.restore, None, [*kept, fields[-1], linked], **QUICK)
        choices = [*(field.input for field in fields[:5]), self.policies.input, self.buttons.run.click]
        gr.on(choices, None, kept, None, js=KEEP, **PRIVATE)
        forget_refusal(chosen, self.status, IDLE, "input")
        linked.change(self.replay_linked, [linked, *chosen], shown, **at_most)

    def _build_policies(self) -> gr.Button:
        """The policies to replay, and the buttons; returns the one that chooses all policies."""
        self.policies = gr.Dropdown(
            [(policy_title(spec), spec) for spec in DEFAULT_POLICIES],
            value=list(DEFAULT_POLICIES),
            multiselect=True,
            allow_custom_value=True,
            label="Policies",
            info=REWARD,
            elem_id="lab-policies",
        )
        everything = gr.Button("Choose all policies", size="sm", elem_id="lab-all")
        with gr.Accordion("Add a policy with your own settings", open=False, elem_id="lab-form"):
            kinds = [(title, spec) for title, spec in policy_choices(["x"]) if ":" not in spec]
            kind = gr.Dropdown([*kinds, (POLICIES["fixed"].title, "fixed")], value=DEFAULT_POLICY, label="Policy")

            bench = self.texts.fields[0]  # set when the tab is opened: until then no form is built

            @gr.render([kind, bench], [kind.change, bench.change], show_progress="hidden")
            def form(kind: str, bench: str | None) -> None:
                drafters = self.texts.bench(bench).drafters if bench else ()
                settings = policy_fields.settings(kind, drafters)
                with gr.Row():
                    fields = [policy_fields.build(setting) for setting in settings]
                add = gr.Button("Add to the policies", size="sm", elem_id="lab-add")
                problem = gr.HTML("", js_on_load=None, elem_id="lab-form-problem")

                def added(specs: list[str], *values: Any) -> tuple[list[str], str]:
                    try:
                        spec = policy_fields.spec_of(kind, settings, values, drafters)
                    except UserError as error:
                        return specs, problem_html(error)
                    return [*specs, *([] if spec in specs else [spec])], ""

                add.click(added, [self.policies, *fields], [self.policies, problem], **QUICK)

        self.buttons = RunButtons("replay", "Replay", ("lab-replay", "lab-stop"), self.workbench.jobs, ReplayJob)
        return everything

    def offer(self, bench: str | None) -> tuple[gr.Dropdown, gr.Dropdown]:
        """The policies that can be replayed on the bench's texts; what is chosen stays."""
        if not bench:
            return gr.skip(), gr.skip()
        found = self.texts.policies(bench)
        return (
            gr.Dropdown(policy_fields.to_type(found), multiselect=True, allow_custom_value=True),
            gr.Dropdown(policy_fields.with_specs(found), allow_custom_value=True),
        )

    def completed(self, bench: str | None, specs: list[str]) -> Any:
        """The policies, of which one may have been typed in part."""
        found = policy_fields.to_type(self.texts.policies(bench)) if bench else []
        return policy_fields.completed(specs, found)

    def all_policies(self, bench: str, chosen: list[str]) -> list[str]:
        """What is chosen, and every other policy that can be replayed, single drafters left out."""
        found = [spec for _, spec in self.texts.policies(bench) if not spec.startswith("fixed:")]
        return list(dict.fromkeys([*chosen, *found]))

    def restore(self, request: gr.Request) -> tuple[Any, ...]:
        """The choices that the page's address has, and the run that it names, if any: for the field (Gradio would make
        it 0), and to be replayed."""
        run = linked_run(request) if request.query_params.get("tab") == "lab" else None
        return *restored(request), run, gr.skip() if run is None else run

    def replay_linked(self, request: gr.Request, run: int | None, *values: Any) -> Iterator[Updates]:
        """As :meth:`replay`, if the page's address names a run; the event comes without one too."""
        if run is None:
            yield gr.skip()  # to yield nothing would blank all outputs
        else:
            yield from self.replay(request, *values)

    def replay(self, request: gr.Request, *values: Any) -> Iterator[Updates]:
        """Replay the policies on the texts and yield what changes: progress, then the results, to be cited by the
        address that is asked.

        ``values`` are those of the fields, then the policies.
        """
        asked, policies = Asked(*values[:FIELDS]), values[FIELDS]

        def start() -> ExperimentJob:
            return self.texts.work(asked).experiment(self.texts.filter(asked), list(dict.fromkeys(policies)))

        def done(experiment: Experiment) -> Updates:
            single = len(experiment.recorded) == 1
            return {
                self.status: view.replayed_html(experiment),
                self.outcomes: view.outcomes_html(experiment),
                self.csv: files.offered(files.outcomes_file(experiment)),
                self.cited: files.cited_html(experiment, asked, request),
                self.curves: gr.Plot(view.regret_curves_figure(experiment), visible=True),
                self.lanes: gr.Plot(view.rounds_figure(experiment) if single else None, visible=single),
                self.rounds: view.rounds_html(experiment) if single else "",
            }

        yield from watched(start, done, self.status, self.buttons)
