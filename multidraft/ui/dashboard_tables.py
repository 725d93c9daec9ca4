"""The dashboard's tables and sentences as HTML. Texts of users and of runs are escaped here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from urllib.parse import urlencode

import pandas as pd

from multidraft.ui.charts import policy_style
from multidraft.ui.choices import policy_title, policy_titles
from multidraft.ui.history_charts import PHASES
from multidraft.ui.tables import count, left_out, number, table_html, times
from storage.figures import FEWEST

_MARKERS = {
    "circle": "M17 2a4 4 0 1 1 0 8a4 4 0 1 1 0-8z",
    "diamond": "M17 1l5 5-5 5-5-5z",
    "square": "M13 2h8v8h-8z",
    "triangle-up": "M17 1l5 9h-10z",
    "x": "M14 1l3 3 3-3 2 2-3 3 3 3-2 2-3-3-3 3-2-2 3-3-3-3z",
    "star": "M17 0l1.6 4h4.2l-3.4 2.7 1.3 4.3-3.7-2.6-3.7 2.6 1.3-4.3-3.4-2.7h4.2z",
}
_DASHES = {"solid": "", "dash": "7 3", "dot": "2 2.5", "dashdot": "7 2.5 2 2.5"}

STATUS = {
    "completed": "completed",
    "stopped": "completed",
    "context_limit": "window full",
    "cancelled": "cancelled",
    "error": "failed",
}


def key_html(policy: str, drawn: Sequence[str]) -> str:
    """The line and marker that stand for a policy in charts; a gap of the same width for one without."""
    if policy not in drawn:
        return '<span class="md-key"></span>'
    style = policy_style(drawn.index(policy), policy)
    line, marker = style["line"], style["marker"]
    return (
        f'<svg class="md-key" viewBox="0 0 34 12" aria-hidden="true"><path d="M0 6H34" stroke="{line["color"]}" '
        f'stroke-width="2.5" stroke-dasharray="{_DASHES[line["dash"]]}"/>'
        f'<path d="{_MARKERS[marker["symbol"]]}" fill="{marker["color"]}"/></svg>'
    )


def legend_html(drawn: Sequence[str], others: int = 0) -> str:
    """The policies of the charts by colour, line and marker; ``others`` are those left out for being run less."""
    titles = policy_titles(drawn)
    items = "".join(f"<li>{key_html(policy, drawn)} {escape(titles[policy])}</li>" for policy in drawn)
    if others:
        items += f"<li class='md-more'>and {others} with fewer runs, not drawn: choose policies to see them</li>"
    return f'<ul class="md-legend md-policies">{items}</ul>'


def summary_html(summary: pd.DataFrame, drawn: Sequence[str] = ()) -> str:
    """The policies ranked, one a line (``figures.policy_summary``); under each figure its interval. Those of too few
    runs for one stand below, without a rank."""
    columns = (
        '<span title="By speed-up">Rank</span>',
        "Policy",
        '<span title="Geometric mean over the runs, and its 95 % confidence interval">Speed-up</span>',
        "Runs",
        '<span title="Mean accepted tokens: tokens a round, the target\'s own counted">Tokens a round</span>',
        '<span title="Of the drafted tokens">Accepted</span>',
        '<span title="Rounds more than the best single drafter needs; mean of the greedy runs">Regret, rounds</span>',
        '<span title="Share of the rounds that played the best single drafter in hindsight">Best drafter played</span>',
    )
    titles = policy_titles(summary["policy"])
    rows = (
        [
            str(rank) if line.speedup_runs >= FEWEST else "–",
            f'<span class="md-policy" title="{escape(str(line.policy))}">{key_html(str(line.policy), drawn)} '
            f"{escape(titles[line.policy])}</span>{_unranked(line.speedup_runs)}",
            _interval(line, "speedup", 2, "×"),
            f"{line.runs:,}",
            _interval(line, "mean_accepted_tokens", 2),
            _interval(line, "acceptance_rate", 0, " %", 100),
            _interval(line, "regret_rounds", 1),
            _interval(line, "best_arm_ratio", 0, " %", 100),
        ]
        for rank, line in enumerate(summary.itertuples(), start=1)
    )
    short = left_out(int(summary["short_runs"].sum()))
    note = f'<p class="md-caption">{short}</p>' if short else ""
    return table_html(columns, rows, figures=6, kind="md-ranking", label="Policies ranked") + note


def _unranked(runs: int) -> str:
    """Why a policy has no rank, if it has none; ``runs`` are those with a speed-up."""
    if runs >= FEWEST:
        return ""
    return f'<small title="A rank takes {FEWEST} runs with a speed-up; there {_are(runs)}">too few runs to rank</small>'


def _are(runs: int) -> str:
    return "is 1" if runs == 1 else f"are {runs}"


def list_html(runs: pd.DataFrame) -> str:
    """One run a line (``queries.listed``), each with a link to its page."""
    columns = ("Run", "Time (UTC)", "Prompt", "Policy", "Task", "End", "Tokens", "Rounds", "Tokens/s", "Speed-up")
    rows = (
        [
            f'<a href="?{urlencode({"tab": "dashboard", "run": line.id})}" data-run="{line.id}">{line.id}</a>',
            escape(str(line.created_at)[:16].replace("T", " ")),
            f'<span class="md-prompt" title="{escape(line.prompt)}">{escape(" ".join(line.prompt.split()))}</span>',
            escape(policy_title(line.policy)),
            "–" if pd.isna(line.task) else escape(line.task),
            STATUS.get(line.status, escape(line.status)),
            number(line.output_tokens, 0),
            number(line.rounds, 0),
            number(line.tokens_per_second, 1),
            times(line.speedup, line.output_tokens),
        ]
        for line in runs.itertuples()
    )
    return table_html(columns, rows, figures=4, kind="md-runs", label="Runs")


def page_html(page: int, size: int, total: int) -> str:
    """Which runs of how many the list shows."""
    if not total:
        return ""
    first = page * size + 1
    return f'<p class="md-page">Runs {first:,}–{min(total, first + size - 1):,} of {total:,}, newest first</p>'


def regret_html(frame: pd.DataFrame, drawn: Sequence[str]) -> str:
    """Regret of each policy after all of its runs (``figures.regret_over_time``), to be opened."""
    last, titles = frame.groupby("policy").last(), policy_titles(drawn)
    rows = (
        [
            escape(titles[policy]),
            f"{last.run_number[policy]:,}",
            f"{last.cumulative_regret[policy]:+,.0f}",
            f"{last.cumulative_regret[policy] / last.run_number[policy]:+,.2f}",
        ]
        for policy in drawn
        if policy in last.index
    )
    return _details("Regret in figures", ("Policy", "Greedy runs", "Regret, rounds", "A run"), rows)


def phases_html(frame: pd.DataFrame) -> str:
    """Milliseconds a token and share of each phase (``figures.time_by_phase``), to be opened."""
    total = frame[[column for column, _, _ in PHASES]].sum(axis=1)
    parts = [
        [
            f"{1000 * seconds / max(tokens, 1):.2f} <small>{seconds / whole if whole else 0:.1%}</small>"
            for seconds, tokens, whole in zip(frame[column], frame["output_tokens"], total)
        ]
        for column, _, _ in PHASES
    ]
    names = map(escape, policy_titles(frame["policy"]).values())
    columns = ("Policy", *(name for _, name, _ in PHASES))
    return _details("Time by phase in figures: milliseconds a token, and its share", columns, zip(names, *parts))


def latency_html(frame: pd.DataFrame) -> str:
    """Percentiles of a token's time and of the prefill's (``figures.latency``), to be opened."""
    names = {"p50": "median", "p90": "p90", "p99": "p99"}
    cells = [f"{column}_{p}" for column in ("token", "first") for p in names]
    titles = [f"{what}, {name}" for what in ("Token", "Prefill") for name in names.values()]
    policies = policy_titles(frame["policy"])
    rows = (
        [escape(policies[line.policy]), f"{line.runs:,}", *(number(1000 * getattr(line, c), 2) for c in cells)]
        for line in frame.astype({"runs": int}).itertuples()
    )
    return _details("Latency in figures: milliseconds", ("Policy", "Runs", *titles), rows)


def _details(summary: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table that is opened by its summary: the figures of a chart without pointing at it."""
    table = table_html(columns, rows, figures=len(columns) - 1, kind="md-chart-figures", label="The chart in figures")
    return f'<details class="md-details"><summary>{summary}</summary>{table}</details>'


def _interval(line: object, name: str, digits: int, unit: str = "", scale: float = 1.0) -> str:
    """A mean with its interval and, in the tip, how many runs it is of."""
    mean, low, high, runs = (getattr(line, f"{name}{part}") for part in ("", "_low", "_high", "_runs"))
    if pd.isna(mean):
        return number(None, 0)
    around = "" if math.isnan(low) else f"<small>{scale * low:,.{digits}f} – {scale * high:,.{digits}f}</small>"
    of = f"Mean of {count(runs, 'run')}" + (", with its 95 % interval" if around else "")
    return f'<span title="{of}">{number(scale * mean, digits, unit)}{around}</span>'
