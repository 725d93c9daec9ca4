"""What the Lab shows: experiments and sweeps in, tables and figures out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import accumulate
from math import isclose
from typing import Any

import plotly.graph_objects as go
from markupsafe import Markup

from multidraft.bench.caveats import unequal_starts
from multidraft.policies import NO_DRAFTER
from multidraft.policies.titles import policy_title
from multidraft.replay.experiment import BEST_FIXED, ORACLE, Experiment
from multidraft.replay.outcomes import DRAFT_LENGTH, Outcome
from multidraft.replay.recorded import is_estimate
from multidraft.replay.walk import Replayed
from multidraft.service.lab import Sweep
from multidraft.ui.widgets import markup, tokens
from multidraft.ui.widgets.charts import NO_DRAFT, REFERENCE, base_figure, policy_style, whole
from multidraft.ui.widgets.markup import BEST_ARM, MAT, REGRET, UNKNOWN, count, number, percent, signed
from multidraft.ui.widgets.theme import TARGET_COLOUR, drafter_colour, drafter_pattern, drafter_places, policy_colour
from multidraft.ui.widgets.verdict import titled
from storage.figures import Ratio
from storage.records import PLAIN

_template = markup.macros("tabs/lab/view.html")

ESTIMATE = "It depends on measured time: live, on another machine or day, it may play other rounds"

MEASURED = "Of live runs on these prompts: decode speed-up, and below it request speed-up, as on Batch, and MAT"
PREFILL = "Of whole requests: with the baseline's prefill, and what the drafters take to read the prompt"

STAR = "★ better than each of the other policies, at the 95 % level"
REPLAYED = (
    "Regret and best-arm selection rate are replayed here; those of the Dashboard are of live runs. The oracle and the "
    "best drafter of each text stay with one drafter from its first token to its last: a policy may beat them."
)
"""Stand above the table."""

MOST_LANES = 6
"""Policies whose rounds are shown one by one."""

_REFERENCES = {
    ORACLE: "Oracle: drafter with the fewest rounds for each text",
    BEST_FIXED: "Best drafter and draft length of each text",
    PLAIN: "No drafter (autoregressive)",
}


def title(spec: str) -> str:
    """The readable name of a policy, or of what policies are compared with."""
    return _REFERENCES.get(spec) or policy_title(spec)


def estimated(spec: str) -> bool:
    """Whether the rounds are an estimate (:func:`~multidraft.replay.recorded.is_estimate`)."""
    return spec not in _REFERENCES and is_estimate(spec)


def _lane_title(spec: str) -> str:
    return title(spec) + (" (estimated)" if estimated(spec) else "")


def outcomes_html(experiment: Experiment) -> Markup:
    """One line per policy, the fastest first; then what they are compared with. What is better than every other policy
    at the 95 % level is marked."""
    lines = [_outcome_line(experiment, spec) for spec in (*experiment.policies, *references(experiment))]
    table = markup.table_of(lines, figures=8, kind="md-outcomes", label="What the policies would have done")
    starred = experiment.leader or experiment.fewest
    said = f"{STAR}{'' if starred else ': none here'}. {REPLAYED} {titled(unequal_starts(experiment.policies))}"
    return markup.caption_html(said.strip()) + table


def references(experiment: Experiment) -> list[str]:
    """What the policies are compared with, but for what is one of them."""
    return [spec for spec in _REFERENCES if spec not in experiment.policies]


def _outcome_line(experiment: Experiment, spec: str) -> dict[str, Any]:
    o, (decode, request) = experiment.outcome(spec), experiment.speedups(spec)
    rate, about = o.tokens_per_second, "≈\u00a0" if estimated(spec) else ""
    mat = about + number(o.mean_accepted_tokens, 2)
    fewest, fastest = (spec == best for best in (experiment.fewest, experiment.leader))

    return {
        "Policy": _template.policy(spec, title(spec), spec in _REFERENCES, ESTIMATE if about else ""),
        "Rounds": about + number(o.rounds, 0),
        markup.tip("MAT", MAT): mat if not fewest else markup.best(mat),
        markup.tip("Mean regret (rounds/text)", REGRET.replace("prompts", "texts")): about + signed(o.regret, 1),
        markup.tip("Best-arm selection rate", BEST_ARM): UNKNOWN
        if o.best_arm_ratio is None
        else about + percent(o.best_arm_ratio),
        "Replayed tokens/s": about + number(rate, 1),
        "Decode speed-up": _interval(decode, about),
        markup.tip("Request speed-up", PREFILL): _interval(request, about, best=fastest),
        markup.tip("Measured", MEASURED): _measured(experiment, spec),
    }


def _measured(experiment: Experiment, spec: str) -> str:
    live = experiment.measured
    if live is None or (own := live.option(spec)) is None:
        return UNKNOWN
    decode, request = (own.times_as_fast(live.plain, part).text("×") for part in ("decode", "request"))
    return markup.stacked(decode, f"{request}, MAT {number(own.mean_accepted_tokens, 2)}")


def _interval(ratio: Ratio | None, about: str, *, best: bool = False) -> str:
    """A speed-up, marked if it is the best, and below it its interval."""
    return UNKNOWN if ratio is None else markup.ratio_html(about + ratio.text("×"), best)


def regret_curves_figure(experiment: Experiment) -> go.Figure:
    """Regret after each round, mean over the texts, a line per policy."""
    figure = base_figure("Regret, round by round", "round", "regret, rounds", height=360)
    for spec in experiment.policies:
        curve = experiment.regret[spec]
        figure.add_scatter(
            x=list(range(1, len(curve) + 1)),
            y=[round(value, 3) for value in curve.tolist()],
            mode="lines",
            hovertemplate="round %{x}: %{y:+.1f}",
            **policy_style(spec, experiment.policies) | {"name": escape(_lane_title(spec))},
        )
    figure.add_hline(y=0, **REFERENCE)
    figure.update_xaxes(whole(max(map(len, experiment.regret.values()))))
    rows = -(-len(figure.data) // 3)  # of the legend on a wide screen: the plot keeps its height
    return figure.update_layout(showlegend=True, height=figure.layout.height + 20 * max(0, rows - 3))


def rounds_figure(experiment: Experiment) -> go.Figure:
    """Of a single text, who drafted what: a lane per policy, a bar per round from its first to its last token."""
    drafters = experiment.recorded[0].drafters
    places = drafter_places(drafters)
    lanes = [*experiment.policies[:MOST_LANES], BEST_FIXED]
    titles = list(map(_lane_title, lanes))
    figure = base_figure("Who drafted which tokens of the text", "token", "", height=90 + 56 * len(lanes))
    for arm in (*range(len(drafters)), NO_DRAFTER):
        bars = [bar for lane, spec in enumerate(lanes) for bar in _bars(lane, experiment.played[spec][0], arm)]
        colour = drafter_colour(places[arm]) if arm != NO_DRAFTER else TARGET_COLOUR
        figure.add_bar(
            y=[titles[bar[0]] for bar in bars],
            base=[bar[1] for bar in bars],
            x=[bar[2] for bar in bars],
            customdata=[bar[3] for bar in bars],
            orientation="h",
            width=0.45,
            name=escape(drafters[arm]) if arm != NO_DRAFTER else NO_DRAFT,
            marker={
                "color": colour,
                "pattern": drafter_pattern(places[arm]) if arm != NO_DRAFTER else {},
                "line": {"width": 0.5, "color": "#ffffff"},
            },
            hovertemplate="%{customdata}<extra>%{fullData.name}</extra>",
        )
    for lane, shown in enumerate(titles):  # above its bars: beside them a phone has no room
        figure.add_annotation(text=escape(shown), x=0, y=lane - 0.26, xanchor="left", yanchor="bottom", showarrow=False)
    figure.update_layout(barmode="overlay", margin={"l": 16}, meta={"x": "tokens", "y": "policy"})
    figure.update_yaxes(visible=False, type="category", categoryarray=titles, range=[len(lanes) - 0.6, -0.75])
    figure.update_xaxes(range=[0, experiment.recorded[0].tokens])
    return figure


def _bars(lane: int, played: Replayed, arm: int) -> Iterator[tuple[int, int, int, str]]:
    """Lane, first token, width and a line on each round of an arm."""
    ends = accumulate(played.emitted)
    for index, (who, width, end) in enumerate(zip(played.arms, played.emitted, ends, strict=True)):
        if who == arm:
            yield lane, end - width, width, f"round {index + 1}: {count(width, 'token')}, {_draft(played, index)}"


def rounds_html(experiment: Experiment) -> Markup:
    """Of a single text, the rounds of the policies side by side: drafter, and tokens accepted of those asked for."""
    drafters = experiment.recorded[0].drafters
    lanes = [*experiment.policies[:MOST_LANES], ORACLE]
    played = [experiment.played[spec][0] for spec in lanes]
    rows = (
        [str(index + 1), *(_round_cell(p, index, drafters) for p in played)]
        for index in range(max(p.rounds for p in played))
    )
    table = markup.table_html(("Round", *map(_lane_title, lanes)), rows, label="The rounds side by side")
    return tokens.legend_html(drafters) + markup.folded("The rounds side by side", table)


def _round_cell(played: Replayed, index: int, drafters: Sequence[str]) -> str:
    if index >= played.rounds:
        return ""
    arm = played.arms[index]
    who = drafters[arm] if arm != NO_DRAFTER else NO_DRAFT
    return f"{who}, {_draft(played, index)}"


def _draft(played: Replayed, index: int) -> str:
    if not played.lengths[index]:
        return "own token"
    return f"{played.accepted[index]} of {played.lengths[index]}"


SWEPT: tuple[tuple[str, str, Callable[[Outcome], float | None], bool], ...] = (
    ("Mean accepted tokens (MAT)", "mean accepted tokens", lambda o: o.mean_accepted_tokens, True),
    ("Regret", "rounds per text", lambda o: o.regret, False),
    ("Tokens/s, replayed", "tokens/s", lambda o: o.tokens_per_second, True),
)
"""The charts of a sweep: title, axis, figure, and whether more is better."""
LEVEL = 1e-3
"""Figures that differ by no more than this share are level."""


def sweep_figure(
    sweep: Sweep, log: bool, name: str, axis: str, figure_of: Callable[[Outcome], float | None], more: bool
) -> go.Figure:
    """One of ``SWEPT`` over the setting; the best points circled, the best fixed choice dotted."""
    figure = base_figure(name, sweep.setting, axis, height=300)
    values, figures = list(sweep.outcomes), [figure_of(o) or 0.0 for o in sweep.outcomes.values()]
    best = (max if more else min)(figures)
    top, *level = tops = [i for i, found in enumerate(figures) if isclose(found, best, rel_tol=LEVEL)]
    where = f"{'highest' if more else 'lowest'} at {values[top]:g}"
    if level:
        where = "level at all" if len(tops) == len(values) else f"{where} and {count(len(level), 'other')}"
    figure.update_xaxes(title_text=f"{escape(sweep.setting)}<br>{where}")
    colour = policy_colour(sweep.policy)
    figure.add_scatter(
        x=values,
        y=figures,
        mode="lines+markers",
        line={"color": colour, "width": 2.5},
        marker={"color": colour, "size": 7},
        hovertemplate=f"{escape(sweep.setting)} %{{x:.4g}}: %{{y:.2f}}<extra></extra>",
    )
    figure.add_scatter(
        x=[values[i] for i in tops],
        y=[figures[i] for i in tops],
        mode="markers",
        marker={"color": colour, "size": 15, "symbol": "circle-open"},
        cliponaxis=False,
        hoverinfo="skip",
    )
    reference = figure_of(sweep.best_fixed if name.startswith("Tokens/s") else sweep.oracle)
    if sweep.setting != DRAFT_LENGTH or more:
        figure.add_hline(y=reference, **REFERENCE)
    if log:
        figure.update_xaxes(type="log", tickvals=values[:: -(-len(values) // 6)], tickformat=".3~g")
    return figure


def sweep_html(sweep: Sweep) -> Markup:
    """The sweep as a table."""
    lines = [
        {
            sweep.setting: f"{value:g}",
            "MAT": number(o.mean_accepted_tokens, 2),
            "Regret per text": signed(o.regret, 1),
            "Replayed tokens/s": number(o.tokens_per_second or 0.0, 1),
        }
        for value, o in sweep.outcomes.items()
    ]
    return markup.folded("The sweep in figures", markup.table_of(lines, figures=4, label="The sweep in figures"))


def replayed_html(experiment: Experiment) -> Markup:
    """What was replayed, and how far it can be trusted."""
    texts = count(len(experiment.recorded), "text")
    tokens = sum(text.tokens for text in experiment.recorded)
    estimates = [title(spec) for spec in experiment.policies if estimated(spec)]
    known = "exact"
    if estimates:
        known += " for policies that learn from accepted tokens, estimates (≈) for those that depend on measured time: "
        known += ", ".join(estimates)
    live, far = experiment.measured, ""
    if not live:
        far = " How far they are off is not known: no policy ran live on all of these texts with one draft length and "
        far += "one limit of new tokens."
    elif not any(map(live.option, experiment.policies)):
        far = " How far they are off is not known, since none of these policies ran live on these texts."
    elif experiment.far_off:
        spec, off = max(experiment.far_off.items(), key=lambda item: abs(item[1]))
        far = f" Replays of {title(spec)} are off by {percent(off, '+')} from its live runs: too far for any policy "
        far += "here to be marked as the best."
    instead = "".join(
        f" {title(spec)} was replayed as {title(other)}: block divergence, which it learns from, is not recorded."
        for spec, other in experiment.instead.items()
    )
    odd = f" {experiment.warning}" if experiment.warning else ""
    return markup.message_html(
        "done",
        f"Replayed {texts}, {count(tokens, 'token')}, without running a model. Rounds and regret are {known}. Tokens/s "
        "and speed-up are replayed from the costs that the batch or benchmark of each text met (the newest that ran "
        "it; all runs of the machine for texts of neither), so they differ from those of live runs, which Batch and "
        f"Dashboard show: column Measured.{instead}{far}{odd}",
    )


def swept_html(sweep: Sweep) -> Markup:
    """What was swept, and what its charts show."""
    texts = next(iter(sweep.outcomes.values())).texts
    estimates = " (estimates, since it depends on measured time)" if estimated(sweep.policy) else ""
    return markup.message_html(
        "done",
        f"{policy_title(sweep.policy)}: {sweep.setting} at {count(len(sweep.outcomes), 'value')}, replayed on "
        f"{count(texts, 'text')}{estimates}. Dotted: the best single drafter of each text; for tokens/s, the best "
        "drafter and draft length.",
    )
