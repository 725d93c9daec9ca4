"""What the page shows of a batch: where it stands, tasks by policies, the spread of speed-ups, one prompt in detail."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import pandas as pd
import plotly.graph_objects as go

from multidraft.records import FINISHED
from multidraft.ui import batch_rows, tables, tokens
from multidraft.ui.batch_rows import Row, short_rows
from multidraft.ui.batch_run import BatchRun, Held
from multidraft.ui.charts import base_figure, policy_style
from multidraft.ui.choices import policy_title
from multidraft.ui.stats import message_html, progress_html
from multidraft.ui.tables import count, left_out, number, times
from multidraft.ui.theme import TARGET_COLOUR

ALL_TASKS = "all tasks"

HINT = '<p class="md-hint">Open a prompt above to compare its outputs, token by token.</p>'

GONE = message_html(
    "error",
    "This server no longer holds the batch: it was restarted, or others came after. The runs themselves are in the "
    "history, on the Dashboard.",
)


def status_html(held: Held) -> str:
    """Where a batch stands, or how it ended."""
    run = held.run
    if run.ended.is_set():
        return _end_html(held)
    progress = run.progress
    doing, now = f"Batch under way on pool {run.pool}", f": {len(run.rows):,} of {progress.total:,} runs done"
    if run.cancelled.is_set():
        doing = f"Batch on pool {run.pool} stopping after the round in progress"
    else:
        now += f", {time_left(run.seconds_left)}" + (f"; now {progress.now} …" if progress.now else "")
    return progress_html(doing, len(run.rows), progress.total, "Progress of the batch", now)


def time_left(seconds: float | None) -> str:
    """An estimate in words, no finer than it deserves."""
    if seconds is None:
        return "time left not known yet"
    if seconds < 90:
        return f"about {max(5, 5 * round(seconds / 5))} s left"
    if seconds < 90 * 60:
        return f"about {round(seconds / 60)} min left"
    return f"about {seconds / 3600:.1f} h left"


def _end_html(held: Held) -> str:
    run = held.run
    counts = {
        "too long": sum(row.status == batch_rows.TOO_LONG for row in run.rows),
        "with an error": sum(row.status == "error" for row in run.rows),
    }
    if run.error:
        return message_html(
            "error", f"Broke off after {len(run.rows)} of {run.total} runs: {run.error}. Please report it."
        )
    how, kind = ("Cancelled", "cancelled") if run.cancelled.is_set() else ("Done", "done")
    parts = [f"{how}: {len(run.rows)} of {run.total} runs", *(f"{n} {what}" for what, n in counts.items() if n)]
    if problems := held.suite.problems:
        lines = ", ".join(str(problem.line) for problem in problems)
        parts.append(f"left out of the file: line{'s' * (len(problems) > 1)} {lines}")
    policies = "1 policy" if len(run.policies) == 1 else f"{len(run.policies)} policies"
    most = count(run.params.max_new_tokens, "token")
    about = f"{count(len(run.items), 'prompt')}, {policies}, at most {most} each."
    return message_html(kind, f"{', '.join(parts)}. Suite {held.suite.name} on pool {run.pool}: {about}")


def summary_html(run: BatchRun) -> str:
    """Tasks by policies, and all figures of each."""
    whole = batch_rows.summary_html(batch_rows.summarise(run.rows))
    details = f'<details class="md-details"><summary>All figures by task and policy</summary>{whole}</details>'
    matrix = matrix_html(run.rows, run.policies)
    what = "Median speed-up, times plain decoding; ★ marks the best of each task." if matrix else ""
    about = f"Pool {escape(run.pool)} on {escape(run.hardware)}. {what} {left_out(short_rows(run.rows))}"
    return f'<p class="md-hint">{about}</p>{matrix}{details}'


def matrix_html(rows: Sequence[Row], policies: Sequence[str]) -> str:
    """Median speed-up by task and policy, the best of each task marked; the last line over all tasks. Nothing where no
    run has one."""
    frame = _finished(rows)
    if frame.empty:
        return ""
    by_task = frame.pivot_table(index="task", columns="policy", values="speedup", aggfunc="median")
    lines = [(str(task), by_task.loc[task]) for task in sorted(by_task.index)]
    if len(lines) > 1:
        lines.append((ALL_TASKS, frame.groupby("policy")["speedup"].median()))
    return tables.table_html(
        ("Task", *(escape(policy_title(policy)) for policy in policies)),
        ([escape(task), *_cells([line.get(policy) for policy in policies])] for task, line in lines),
        figures=len(policies),
        kind="md-matrix",
        label="Median speed-up by task and policy",
    )


def _cells(values: Sequence[float | None]) -> list[str]:
    known = [value for value in values if value is not None and not pd.isna(value)]
    best = max(known) if len(values) > 1 and known else None
    return [tables.best(number(v, 2, "×")) if v == best else number(v, 2, "×") for v in values]


def _finished(rows: Sequence[Row]) -> pd.DataFrame:
    """Prompt, task, policy and speed-up of every finished run that has one."""
    records = [
        (row.id, row.task, row.policy, row.speedup)
        for row in rows
        if row.status in FINISHED and row.speedup is not None
    ]
    return pd.DataFrame(records, columns=["id", "task", "policy", "speedup"]).astype({"speedup": float})


def spread_figure(rows: Sequence[Row], policies: Sequence[str]) -> go.Figure:
    """How the speed-ups of the prompts are spread, a box and a point per prompt for every policy."""
    figure = base_figure("Speed-up of every prompt, by policy", "", "times plain decoding")
    frame = _finished(rows)
    for policy in policies:
        own = frame[frame["policy"] == policy]
        style = policy_style(sorted(policies).index(policy), policy)
        figure.add_box(
            y=own["speedup"].to_list(),
            name=style["name"].replace(" (", "<br>("),  # a phone would turn long names upright
            boxpoints="all",
            jitter=0.5,
            pointpos=0,
            fillcolor="rgba(128,134,142,0.15)",
            line={"color": TARGET_COLOUR, "width": 1.5},
            marker={"color": style["marker"]["color"], "size": 6, "opacity": 0.8},
            customdata=[[escape(id), escape(task)] for id, task in zip(own["id"], own["task"], strict=True)],
            hovertemplate="%{customdata[1]}, prompt %{customdata[0]}: %{y:.2f}×<extra></extra>",
            hoveron="points",
        )
    figure.add_hline(y=1, line={"dash": "dot", "color": TARGET_COLOUR, "width": 1.5})
    figure.update_layout(showlegend=False)
    figure.update_yaxes(rangemode="tozero", ticksuffix="×")
    return figure


def detail_html(run: BatchRun, item: int) -> str:
    """One prompt under all its policies: figures, error, and the output in the drafters' colours."""
    prompt, first = run.items[item], item * len(run.policies)
    rows = run.rows[first : first + len(run.policies)]
    speedups = [row.speedup for row in rows if row.speedup]
    cards = "".join(_card_html(run, first + i, row, max(speedups, default=0.0)) for i, row in enumerate(rows))
    where = f"Prompt {prompt.id}, {prompt.task or batch_rows.NO_TASK}"
    return (
        f'<section class="md-asked" aria-label="{escape(where)}"><h3>{escape(where)}</h3>'
        f'<pre tabindex="0" role="group" aria-label="Prompt" dir="auto">{escape(prompt.prompt)}</pre>'
        f'<div class="md-cards">{cards}</div>{tokens.legend_html(run.drafters)}</section>'
    )


def _card_html(run: BatchRun, index: int, row: Row, best: float) -> str:
    speedup = times(row.speedup, row.tokens if row.status in FINISHED else None)
    figures = (
        ("speed-up", tables.best(speedup) if row.speedup == best and len(run.policies) > 1 else speedup),
        ("tokens/s", number(row.tokens_per_second, 1)),
        ("tokens a round", number(row.mean_accepted_tokens, 2)),
        ("", count(row.tokens, "token")),
    )
    facts = "".join(f"<span>{value} {name}</span>" for name, value in figures)
    error = f'<p class="md-status md-error">{escape(row.error)}</p>' if row.error else ""
    return (
        f"<article><h4>{escape(policy_title(row.policy))}</h4>"
        f'<p class="md-figures">{batch_rows.status_html(row)} {facts}</p>{error}'
        f"{tokens.OUTPUT_START}{run.output_html(index)}</div></article>"
    )
