"""The Lab's sweep: one numeric setting of a policy over a range, on the chosen texts; and how replays are watched."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import gradio as gr

from drafters.errors import PolicyError, UserError
from multidraft.policies import POLICIES, parse_spec, settings_of
from multidraft.replay.outcomes import DRAFT_LENGTH, numeric_settings
from multidraft.service.inputs import real_number, whole_number
from multidraft.service.lab import LabWork, Range, ReplayJob, Sweep, SweepJob
from multidraft.ui.tabs.lab import view
from multidraft.ui.tabs.lab.texts import FIELDS, Asked, TextChoice
from multidraft.ui.widgets.charts import plot
from multidraft.ui.widgets.events import HIDDEN, QUICK, Updates
from multidraft.ui.widgets.jobs import RunButtons
from multidraft.ui.widgets.markup import heading_html, message_html, problem_html
from storage.problems import StorageError

SCALES = ("linear", "logarithmic")
UPDATE_SECONDS = 0.15

T = TypeVar("T")

STOPPED = message_html("cancelled", "Stopped. The previous results are still shown.")
SWEEP_IDLE = message_html("idle", "Ready. Choose a policy and one of its numeric settings.")


def watched(
    start: Callable[[], ReplayJob[T]],
    done: Callable[[T], Updates],
    status: gr.HTML,
    buttons: RunButtons[ReplayJob[Any]],
) -> Iterator[Updates]:
    """The status line, the buttons and the job's id until it ends, then the results. Whoever stops watching ends it.

    Args:
        start: starts the job; raises ``UserError`` or ``StorageError`` where the visitor is to read what is wrong.
        done: what its result changes.
    """
    try:
        job = start()
    except (UserError, StorageError) as error:
        yield {status: problem_html(error), **buttons.live(running=False)}
        return
    try:
        yield {status: view.progress_html(job), **buttons.live(running=True), buttons.id: job.id}
        while not job.wait(UPDATE_SECONDS):
            yield {status: view.progress_html(job)}
    finally:
        job.cancel()
    ended = buttons.live(running=False)
    if job.error:
        yield {status: problem_html(job.error), **ended}
    else:
        yield {**({status: STOPPED} if job.result is None else done(job.result)), **ended}


class SweepSection:
    """The section and what its controls do.

    Attributes:
        policy: the field of the policy to sweep.
    """

    def __init__(self, work: LabWork, texts: TextChoice):
        self.work, self.texts = work, texts

    def build(self) -> None:
        """Lay the section out, below the fields of ``texts``."""
        gr.HTML(heading_html("Sweep a setting, on the same texts"), js_on_load=None)
        with gr.Row():
            policy = gr.Dropdown(
                [],
                value="ucb:reward=be",
                allow_custom_value=True,
                label="Policy",
                min_width=220,
                elem_id="lab-sweep-policy",
            )
            first = numeric_settings("ucb")
            setting = gr.Dropdown(first, value=first[0], label="Setting", min_width=150, elem_id="lab-sweep-setting")
            low, high, log = default_range("ucb", first[0])
            start = gr.Number(low, label="From", min_width=130, elem_id="lab-from")
            end = gr.Number(high, label="To", min_width=130, elem_id="lab-to")
            points = gr.Number(9, label="Points", min_width=90, elem_id="lab-points")
            scale = gr.Radio(list(SCALES), value=SCALES[log], label="Steps", min_width=240, elem_classes="md-pills")
        self.buttons = RunButtons("Sweep", ("lab-sweep", "lab-sweep-stop"), self.work.workbench.jobs, ReplayJob)
        self.status = gr.HTML(SWEEP_IDLE, js_on_load=None, elem_id="lab-sweep-status")
        with gr.Row(elem_classes="md-columns"):
            self.charts = [plot(f"lab-sweep-{i}", visible=False, kind="md-sweep") for i in range(len(view.SWEPT))]
        self.table = gr.HTML("", js_on_load=None, elem_id="lab-sweep-table")
        self.policy, self.setting, self.range_fields = policy, setting, [start, end, scale]
        policy.change(self.settings, [policy, setting], setting, **QUICK)
        setting.change(self.range, [policy, setting], self.range_fields, **QUICK)
        self.buttons.run.click(
            self.sweep,
            [*self.texts.fields, policy, setting, start, end, points, scale],
            [self.status, *self.charts, self.table, *self.buttons.both, self.buttons.id],
            concurrency_limit=4,
            **HIDDEN,
        )

    def settings(self, policy: str, setting: str) -> gr.Dropdown:
        try:
            known = numeric_settings(policy)
        except UserError:
            return gr.skip()  # Sweep says what is wrong
        return gr.Dropdown(known, value=setting if setting in known else known[0])

    def range(self, policy: str, setting: str) -> Updates:
        """A range around the setting's default."""
        start, end, scale = self.range_fields
        try:
            low, high, log = default_range(policy, setting, self.work.workbench.pool.draft_length)
        except UserError:
            return {start: gr.skip()}
        return {start: low, end: high, scale: SCALES[log]}

    def sweep(self, *values: Any) -> Iterator[Updates]:
        """Sweep a setting and yield what changes; ``values`` are those of the fields, then those of the section."""
        asked, (policy, setting, start, end, points, scale) = Asked(*values[:FIELDS]), values[FIELDS:]
        log = scale == SCALES[True]

        def begin() -> SweepJob:
            chosen = self.texts.filter(asked)
            between = Range(
                real_number("the range's start", start),
                real_number("the range's end", end),
                whole_number("points", points),
                log,
            )
            return self.work.sweep(chosen, policy, setting, between)

        def done(sweep: Sweep) -> Updates:
            figures = view.sweep_figures(sweep, log)
            charts = {place: gr.Plot(figure, visible=True) for place, figure in zip(self.charts, figures, strict=True)}
            return {self.status: view.swept_html(sweep), **charts, self.table: view.sweep_html(sweep)}

        yield from watched(begin, done, self.status, self.buttons)


def default_range(spec: str, setting: str, draft_length: int = 8) -> tuple[float, float, bool]:
    """Where a sweep of a setting begins and ends by default, and whether by a constant ratio.

    Around the policy's own value, as far as the policy takes it.

    Raises:
        PolicyError: the policy has no such number.
    """
    if setting == DRAFT_LENGTH:
        return 1, draft_length, False
    name, _ = parse_spec(spec)
    if setting not in numeric_settings(name):
        raise PolicyError(f"policy {name!r} has no number {setting!r}")
    known = settings_of(POLICIES[name])[setting]
    default, largest = float(known.default or 0), math.inf if known.maximum is None else known.maximum
    if not default:
        return 0, min(8 if known.whole else 1, largest), False
    low = max(default // 4, 1) if known.whole else default / 16
    high = next((high for high in (default * 16, default * 4, 1.0) if high <= largest), default)
    return low, high, not known.whole
