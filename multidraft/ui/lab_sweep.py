"""The laboratory's sweep: one number of a policy over a range, on the chosen texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from multidraft.bench.outcomes import DRAFT_LENGTH, is_whole, numeric_settings, with_setting
from multidraft.errors import PolicyError, UserError
from multidraft.policies import POLICIES, make_policy, parse_spec, settings_of
from multidraft.ui import choices, lab_view
from multidraft.ui.events import HIDDEN
from multidraft.ui.lab_steps import stopped, watched
from multidraft.ui.lab_texts import FIELDS, Asked, TextChoice
from multidraft.ui.lab_work import LabWork, Progress, Range, Sweep
from multidraft.ui.stats import message_html
from multidraft.ui.tables import count

SCALES = ("linear", "logarithmic")
SWEEP_IDLE = message_html("idle", "Ready. Choose a policy and one of its numbers.")


class SweepSection:
    """The section and what its controls do.

    Attributes:
        policy: the field of the policy to sweep.
    """

    def __init__(self, work: LabWork, texts: TextChoice):
        self.work, self.texts = work, texts

    def build(self) -> None:
        """Lay the section out, below the fields of ``texts``."""
        gr.HTML('<h2 class="md-lab-title">Sweep a setting, on the same texts</h2>', js_on_load=None)
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
        with gr.Row(elem_classes="md-buttons"):
            sweep = gr.Button("Sweep", variant="primary", elem_id="lab-sweep")
            stop = gr.Button("Stop", variant="stop", interactive=False, elem_id="lab-sweep-stop")
        status = gr.HTML(SWEEP_IDLE, js_on_load=None, elem_id="lab-sweep-status")
        with gr.Row(elem_classes="md-columns"):
            charts = [
                gr.Plot(
                    None,
                    show_label=False,
                    visible=False,
                    min_width=320,
                    elem_id=f"lab-sweep-{i}",
                    elem_classes="md-chart md-sweep",
                )
                for i in range(len(lab_view.SWEPT))
            ]
        table = gr.HTML("", js_on_load=None, elem_id="lab-sweep-table")
        policy.change(self.settings, [policy, setting], setting, queue=False, **HIDDEN)
        setting.change(self.range, [policy, setting], [start, end, scale], queue=False, **HIDDEN)
        swept = sweep.click(
            self.sweep,
            [*self.texts.fields, policy, setting, start, end, points, scale],
            [status, *charts, table, sweep, stop],
            concurrency_limit=4,
            **HIDDEN,
        )
        stop.click(stopped, None, [status, sweep, stop], cancels=[swept], queue=False, **HIDDEN)
        self.policy = policy

    def settings(self, policy: str, setting: str) -> gr.Dropdown:
        """What can be swept of the policy."""
        try:
            known = numeric_settings(policy)
        except UserError:
            return gr.skip()  # Sweep says what is wrong
        return gr.Dropdown(known, value=setting if setting in known else known[0])

    def range(self, policy: str, setting: str) -> tuple[Any, Any, Any]:
        """A range around the setting's default."""
        try:
            low, high, log = default_range(policy, setting, self.work.workbench.pool.draft_length)
        except UserError:
            return gr.skip(), gr.skip(), gr.skip()
        return low, high, SCALES[log]

    def sweep(self, *values: Any) -> Iterator[tuple[Any, ...]]:
        """Sweep a setting and yield the page's parts; ``values`` are those of the fields, then those of the section."""
        asked, (policy, setting, start, end, points, scale) = Asked(*values[:FIELDS]), values[FIELDS:]
        log = scale == SCALES[True]

        def steps() -> Iterator[Progress | Sweep]:
            chosen = self.texts.filter(asked)
            between = Range(
                choices.real_number("the range's start", start),
                choices.real_number("the range's end", end),
                choices.whole_number("points", points),
                log,
            )
            yield from self.work.sweep(chosen, policy, setting, between)

        def done(sweep: Sweep) -> tuple[Any, ...]:
            figures = [gr.Plot(figure, visible=True) for figure in lab_view.sweep_figures(sweep, log)]
            return _swept_html(sweep), *figures, lab_view.sweep_html(sweep)

        yield from watched(steps(), done, len(lab_view.SWEPT) + 1)


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
    default = settings_of(POLICIES[name])[setting].default
    if not default:
        return 0, 8 if is_whole(name, setting) else 1, False
    whole = is_whole(name, setting)
    low = max(default // 4, 1) if whole else default / 16
    for high in (default * 16, default * 4, 1.0, default):
        try:
            make_policy(with_setting(name, setting, high, whole=whole), 2)
            return low, high, not whole
        except PolicyError:
            continue
    return low, default, not whole


def _swept_html(sweep: Sweep) -> str:
    texts = next(iter(sweep.outcomes.values())).texts
    estimates = " (estimates, since it goes by the clock)" if lab_view.estimated(sweep.policy) else ""
    return message_html(
        "done",
        f"{choices.policy_title(sweep.policy)}: {sweep.setting} at {count(len(sweep.outcomes), 'value')}, replayed on "
        f"{count(texts, 'text')}{estimates}. Dotted: the best single drafter of each text, for tokens/s the best "
        "drafter and draft length.",
    )
