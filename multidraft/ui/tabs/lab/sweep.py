"""The sweep of a policy's setting, on the texts chosen in the Lab."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import gradio as gr

from drafters.errors import PolicyError, UserError
from multidraft.policies import POLICIES, parse_spec, settings_of
from multidraft.replay.outcomes import DRAFT_LENGTH, numeric_settings
from multidraft.service.inputs import real_number, whole_number
from multidraft.service.lab import Range, ReplayJob, Sweep, SweepJob
from multidraft.service.workbench import Workbench
from multidraft.ui.tabs.lab import files, view
from multidraft.ui.tabs.lab.texts import FIELDS, Asked, TextChoice
from multidraft.ui.tabs.lab.watch import watched
from multidraft.ui.widgets.charts import plot
from multidraft.ui.widgets.events import HIDDEN, PRIVATE, QUICK, Updates, forget_refusal
from multidraft.ui.widgets.jobs import RunButtons
from multidraft.ui.widgets.markup import heading_html, message_html

SCALES = ("linear", "logarithmic")
IDLE = message_html("idle", "Ready. Choose a policy and one of its numeric settings.")

KEEP = """(sweep, setting, from, to, points, steps) => address({
  lab_sweep: sweep, lab_setting: setting, lab_from: from, lab_to: to, lab_points: points, lab_steps: steps })"""
"""Script that has the address keep the choices."""


class SweepSection:
    """The section and what its controls do; it replays the histories that ``texts`` chooses from.

    Attributes:
        policy: the field of the policy to sweep.
    """

    def __init__(self, workbench: Workbench, texts: TextChoice):
        self.workbench, self.texts = workbench, texts

    def build(self, page: gr.Blocks) -> None:
        """Lay the section out, below the fields of ``texts``; the address of ``page`` has what is chosen."""
        gr.HTML(heading_html("Sweep a setting, on the same texts"), js_on_load=None)
        with gr.Row():
            policy = gr.Dropdown(
                [],
                value="ucb:reward=be",
                allow_custom_value=True,
                label="Policy",
                scale=2,
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
        self.buttons = RunButtons("sweep", "Sweep", ("lab-sweep", "lab-sweep-stop"), self.workbench.jobs, ReplayJob)
        self.status = gr.HTML(IDLE, js_on_load=None, elem_id="lab-sweep-status")
        with gr.Row(elem_classes="md-columns"):
            self.charts = [plot(f"lab-sweep-{i}", visible=False) for i in range(len(view.SWEPT))]
        self.table = gr.HTML("", js_on_load=None, elem_id="lab-sweep-table")
        self.csv = gr.DownloadButton("Download CSV", size="sm", visible=False, elem_id="lab-sweep-csv", scale=0)
        self.policy, self.setting, self.range_fields = policy, setting, [start, end, scale]
        own: list[Any] = [policy, setting, start, end, points, scale]
        page.load(self.restore, None, own, **QUICK)
        # Not their changes: what the address has would be replaced by the setting's own range.
        another = policy.input(self.settings, [policy, setting], setting, **QUICK)
        for changed in (another.then, setting.input):
            ranged = changed(self.range, [policy, setting], self.range_fields, **QUICK)
            ranged.then(None, own, None, js=KEEP, **PRIVATE)
        gr.on([field.input for field in own[2:]], None, own, None, js=KEEP, **PRIVATE)
        fields = [*self.texts.fields, *own]
        forget_refusal(fields, self.status, IDLE, "input")
        shown = [self.status, *self.charts, self.table, self.csv, *self.buttons.both, self.buttons.id]
        at_most: dict[str, Any] = {"concurrency_limit": ReplayJob.limit, **HIDDEN}
        self.buttons.starts([self.buttons.run.click], self.sweep, fields, shown, self.status, **at_most)

    def restore(self, request: gr.Request) -> list[Any]:
        """The policy, its setting and the range as the address has them; as they are if they are not of a policy."""
        query = request.query_params
        policy, setting, scale = (query.get(f"lab_{name}", "") for name in ("sweep", "setting", "steps"))
        numbers = [_number(query.get(f"lab_{name}", "")) for name in ("from", "to", "points")]
        try:
            known = numeric_settings(policy)
        except UserError:
            known = []
        if setting not in known or scale not in SCALES or None in numbers:
            return [gr.skip()] * 6
        return [policy, gr.Dropdown(known, value=setting), *numbers, scale]

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
            low, high, log = default_range(policy, setting, self.workbench.pool.draft_length)
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
            return self.texts.work(asked).sweep(chosen, policy, setting, between)

        def done(sweep: Sweep) -> Updates:
            charts = {
                place: gr.Plot(view.sweep_figure(sweep, log, *chart), visible=True)
                for place, chart in zip(self.charts, view.SWEPT, strict=True)
            }
            table = {self.table: view.sweep_html(sweep), self.csv: files.offered(files.sweep_file(sweep))}
            return {self.status: view.swept_html(sweep), **charts, **table}

        yield from watched(begin, done, self.status, self.buttons)


def _number(text: str) -> float | int | None:
    """The number of an address, if it is one."""
    try:
        found = float(text)
    except ValueError:
        return None
    return int(found) if found.is_integer() else found if math.isfinite(found) else None


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
