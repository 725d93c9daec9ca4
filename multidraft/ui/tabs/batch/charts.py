"""The charts of a batch that has ended."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go

from multidraft.bench import summary
from multidraft.bench.summary import Row
from multidraft.policies.titles import policy_title
from multidraft.ui.tabs.batch.view import ALL_PROMPTS
from multidraft.ui.widgets import markup
from multidraft.ui.widgets.charts import bar_marker, named_tasks, on_log_scale, policy_style, speedup_figure
from multidraft.ui.widgets.theme import TARGET_COLOUR
from storage.figures import FEWEST_TO_TELL
from storage.records import PLAIN

_PALE = f"Pale bars: not significantly different<br>from 1×, or fewer than {FEWEST_TO_TELL} prompts"


def speedup_by_task_figure(rows: Sequence[Row], policies: Sequence[str]) -> go.Figure:
    """Speed-up of decoding by task and policy, of all prompts where no tasks are named; pale where its interval does
    not exclude 1, or too few prompts were measured."""
    known = [(task, spec, of.speedup) for (task, spec), of in summary.summarise(rows).items() if of.speedup]
    named = {task for task, *_ in known} != {summary.NO_TASK}
    certain = all(ratio.side for *_, ratio in known)
    below = "task" * named if certain else _PALE
    figure = speedup_figure("Decode speed-up by task" if named else "Decode speed-up", below)
    figure.update_layout(meta={"x": "task"})  # in its CSV
    for policy in policies:
        own = [(escape(task) if named else ALL_PROMPTS, ratio) for task, spec, ratio in known if spec == policy]
        if not own:
            continue
        tasks, ratios = map(list, zip(*own, strict=True))
        figure.add_bar(
            x=tasks,
            y=[ratio.value for ratio in ratios],
            name=escape(policy_title(policy)),
            marker={**bar_marker(policy, policies), "opacity": [1 if ratio.side else 0.35 for ratio in ratios]},
            customdata=[ratio.text("×") for ratio in ratios],
            meta={
                "columns": {
                    "low (95 %)": [ratio.low for ratio in ratios],
                    "high (95 %)": [ratio.high for ratio in ratios],
                    "pale": [not ratio.side for ratio in ratios],
                }
            },
            hovertemplate="%{x}: %{customdata}",
        )
    if named:
        named_tasks(figure, {task for task, *_ in known})
    # At the very bottom: below the names of tasks where a phone turns them upright.
    return figure.update_layout(
        barmode="group", showlegend=True, legend={"yref": "container", "y": 0.02, "yanchor": "bottom"}
    )


def spread_figure(rows: Sequence[Row], policies: Sequence[str]) -> go.Figure:
    """How the speed-ups of the prompts that policies are compared on are spread, a box and a point per prompt for every
    policy; also those that the table calls too noisy to tell, pale: they are those of few rounds, so without them the
    others would not be typical."""
    timed = summary.compared(rows) or [row for row in rows if row.finished and row.speedup is not None]
    drafting = [row for row in timed if row.policy != PLAIN]
    noisy = sum(markup.too_noisy(row.speedup_uncertainty) for row in drafting)
    below = f"pale: {noisy:,} of {markup.count(len(drafting), 'run')} too noisy" if noisy else ""
    figure = speedup_figure("Decode speed-up by prompt", below)
    for policy in policies:
        own = [row for row in timed if row.policy == policy]
        style = policy_style(policy, policies)
        figure.add_box(
            y=[row.speedup for row in own],
            name=style["name"].replace(" (", "<br>("),  # a phone would turn long names upright
            boxpoints="all",
            jitter=0.5,
            pointpos=0,
            fillcolor="rgba(128,134,142,0.15)",
            line={"color": TARGET_COLOUR, "width": 1.5},
            marker={"color": style["marker"]["color"], "size": 6, "opacity": 0.8},
            selectedpoints=[i for i, row in enumerate(own) if not markup.too_noisy(row.speedup_uncertainty)],
            unselected={"marker": {"opacity": 0.25}},
            customdata=[[escape(row.id), escape(row.task)] for row in own],
            meta={"columns": {"prompt": [escape(row.id) for row in own], "task": [escape(row.task) for row in own]}},
            hovertemplate="%{customdata[1]}, prompt %{customdata[0]}: %{y:.2f}×<extra></extra>",
            hoveron="points",
        )
    return on_log_scale(figure, [row.speedup for row in timed if row.speedup])


CHARTS = {"batch-chart": speedup_by_task_figure, "batch-spread": spread_figure}
"""The charts of a batch that has ended, by their ids: functions of its rows and its policies."""
