"""The page of one recorded run: what it was asked, what it wrote by whom, its figures, its rounds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np
import plotly.graph_objects as go
from gradio.components.plot import PlotData
from markupsafe import Markup

from multidraft.policies.titles import policy_title
from multidraft.replay.regret import regret_by_round
from multidraft.ui import example
from multidraft.ui.result_pages.conditions import facts_of, made_of, run_settings
from multidraft.ui.tabs.dashboard.filters import BASELINES, SOURCES
from multidraft.ui.widgets import charts as look
from multidraft.ui.widgets import markup, tokens
from multidraft.ui.widgets.charts import arms_chart, plot, plot_of, weights_chart
from multidraft.ui.widgets.events import Updates
from multidraft.ui.widgets.exports import export_file
from multidraft.ui.widgets.markup import number, percent, times
from multidraft.ui.widgets.theme import policy_colour
from storage import queries
from storage.problems import StorageError
from storage.records import Round, status_title
from storage.run import Reported, Run

_template = markup.macros("tabs/dashboard/run.html")


def head_html(run: Run) -> Markup:
    """Number and policy of the run, its figures, and the conditions under which it was made."""
    g, scores = run.generation, run.scores
    if run.reported:
        return _reported_html(run, run.reported)
    ended = status_title(g.status) + (f": {g.error}" if g.error else "")
    drafted = any(r.drafted for r in g.rounds)
    certain = len(g.token_ids), run.speedup_uncertainty
    decode, request = (None, None) if g.status == "error" else (run.speedup, run.request_speedup)  # as in the list
    over = f"over autoregressive {BASELINES[run.baseline.kind]}" if run.baseline else "no baseline"
    beyond = f"rounds beyond {scores.best_drafter or 'the best drafter'}"
    beyond = "known for greedy runs only" if run.params.temperature else beyond
    beside = f"not of one of up to {g.streams} texts at once" if g.streams > 1 else ""
    tiles = (
        ("Mean accepted tokens", number(g.mean_accepted_tokens, 2), "MAT; autoregressive: 1", markup.MAT),
        ("Acceptance rate", percent(g.acceptance_rate if drafted else None), "of drafted tokens", ""),
        ("Speed", number(run.tokens_per_second, 1), beside or "tokens/s", ""),
        ("Decode speed-up", times(decode, *certain), over, ""),
        ("Request speed-up", times(request, *certain), "prefill and routing included", ""),
        ("Regret", number(scores.regret_rounds, 0), beyond, ""),
        ("Prefill", number(1000 * g.prefill_seconds, 0), "ms before the first round", ""),
    )
    (made, when), *made_on = facts_of(made_of(run))
    facts = (
        (made, f"{when}, from {SOURCES[run.origin.source]}"),
        ("End", f"{ended}; {len(g.token_ids)} tokens in {len(g.rounds)} rounds"),
        *([("Drafters", g.failures)] if g.benched else []),
        *made_on,
        ("Settings", run_settings(run)),
    )
    return _head(run, run.id if scores.acceptance is not None else None, tiles, facts)


def _head(run: Run, replay: int | None, tiles: Sequence[tuple[str, str, str, str]], facts: Sequence[Any]) -> Markup:
    title = f"Run {run.id}: {policy_title(run.generation.policy)}"
    return _template.head(
        title + (f" on {run.origin.task}" if run.origin.task else ""),
        replay,
        markup.tiles_html(tiles, "md-run-tiles"),
        markup.facts_html(facts, "md-run-facts"),
        "" if run.reported else markup.shared_html(f"run/{run.id}"),
    )


def _reported_html(run: Run, found: Reported) -> Markup:
    """Likewise of an imported run: what its file tells."""
    values, seconds = run.to_json(), found.request_seconds
    rate = f"s, {number(found.output_tokens / seconds, 1)} tokens/s with the prefill" if seconds else ""
    tiles = (
        ("Tokens", number(found.output_tokens, 0), f"in {found.round_count or 'unknown'} rounds", ""),
        ("Tokens per round", number(values["mean_accepted_tokens"], 2), "autoregressive: 1", ""),
        ("Acceptance rate", percent(values["acceptance_rate"]), "of drafted tokens", ""),
        ("Whole request", number(seconds, 2), rate, ""),
    )
    made = f"{run.created_at:%Y-%m-%d %H:%M:%S} UTC" if run.origin.source != "specdec_bench" else "unknown when"
    facts = (
        ("Made", made),
        ("File", run.origin.suite or "unknown"),
        ("From", f"{SOURCES[run.origin.source]}: its rounds are not known, so neither is a regret"),
    )
    return _head(run, None, tiles, facts)


def texts_html(run: Run) -> Markup:
    """Prompt and output, the output coloured by who proposed it, and the legend."""
    g = run.generation
    if run.reported:
        return _template.told(g.prompt, g.text)
    return _template.texts(
        g.prompt, tokens.rounds_html(g.rounds, g.drafters), tokens.legend_html(g.drafters, g.drafter_shares)
    )


def run_figures(run: Run) -> list[PlotData | go.Figure | None]:
    """Drafters played, the policy's probabilities, and regret, by round; ``None`` for what is not known."""
    rounds, drafters, table = run.generation.rounds, run.generation.drafters, run.scores.acceptance
    weighed = any(r.probabilities is not None for r in rounds)
    return [
        plot_of(arms_chart(rounds, drafters)) if drafters else None,
        plot_of(weights_chart(rounds, drafters)) if weighed else None,
        regret_figure(run.generation.policy, rounds, table.accepted) if rounds and table is not None else None,
    ]


def regret_figure(policy: str, rounds: Sequence[Round], table: np.ndarray) -> go.Figure:
    """Regret within a run: rounds so far less those the best single drafter needs for the same tokens."""
    figure = look.base_figure("Regret within the run", "round", "regret (rounds)", height=look.POLICY_HEIGHT)
    regret = regret_by_round([r.emitted for r in rounds], table)
    figure.add_hline(y=0, **look.REFERENCE)
    figure.add_scatter(
        x=[r.index + 1 for r in rounds],
        y=regret.tolist(),
        mode="lines",
        line={"color": policy_colour(policy), "width": 2.5, "shape": "hv"},
        hovertemplate="round %{x}: %{y:+d} rounds<extra></extra>",
    )
    figure.update_yaxes(look.whole(regret.max() - regret.min()))
    return figure.update_xaxes(look.whole(len(rounds)))


class RunSection:
    """The page of a run of a history, or of the recorded example.

    Attributes:
        parts: what :meth:`show` fills.
        id: holds the number of the run that is open; 0 for none.
    """

    def __init__(self, path: Path):
        self.path = path

    def build(self) -> None:
        with gr.Row(elem_classes="md-pager"):
            self.leave = gr.Button("← All runs", size="md", min_width=130, elem_id="leave-run")
            self.to_json = gr.Button("Export this run as JSON", size="md", min_width=200, elem_id="export-run")
        self.head = gr.HTML("", js_on_load=None, elem_id="run-head")
        self.texts = gr.HTML("", js_on_load=None, apply_default_css=False, elem_id="run-texts")
        with gr.Row(elem_classes="md-columns"):
            self.charts = [plot(id) for id in ("run-arms-chart", "run-policy-chart", "run-regret-chart")]
        self.rounds = gr.HTML("", js_on_load=None, elem_id="run-rounds")
        self.id = gr.State(0)
        self.parts = [self.head, self.texts, *self.charts, self.rounds, self.to_json, self.id]

    def show(self, id: int) -> Updates:
        """The parts for a run, or why it cannot be shown."""
        try:
            run = self._run(id)
            problem = f"This history has no run {id}: it may be another server's, or deleted." if run is None else ""
        except StorageError as error:
            run, problem = None, str(error)
        figures = run_figures(run) if run else [None] * len(self.charts)
        return {
            self.head: head_html(run) if run else markup.message_html("error", problem),
            self.texts: texts_html(run) if run else "",
            **{place: gr.Plot(fig, visible=fig is not None) for place, fig in zip(self.charts, figures, strict=True)},
            self.rounds: tokens.rounds_table_html(run.generation.rounds) if run and not run.reported else "",
            self.to_json: gr.Button(visible=run is not None),
            self.id: id if run else 0,
        }

    def _run(self, id: int) -> Run | None:
        return queries.run(self.path, id) or queries.run(example.path(), id)

    def export(self, id: int) -> str:

        def write(file: Path) -> None:
            if run := self._run(id):
                file.write_text(json.dumps(run.to_json(), ensure_ascii=False, indent=1), "utf-8")

        return export_file(f"run-{id}.json", write)
