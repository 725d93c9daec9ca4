"""The dashboard's tables and sentences as HTML, and the tables of its charts' figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from markupsafe import Markup

from multidraft.bench.verdict import AT_ONE_SPEED
from multidraft.policies.titles import policy_title, policy_titles
from multidraft.ui.widgets import markup
from multidraft.ui.widgets.charts import policy_style
from multidraft.ui.widgets.markup import UNKNOWN, count, number, signed
from storage.figures import FEWEST_PROMPTS, Ratio
from storage.records import status_title

template = markup.macros("tabs/dashboard/tables.html")

EXAMPLE = markup.message_html(
    "idle",
    "Recorded examples: benchmarks measured beforehand, under the conditions that each run names. They are not "
    "part of this server's history and disappear once it has a run of its own.",
)

_MARKERS = {
    "circle": "M17 2a4 4 0 1 1 0 8a4 4 0 1 1 0-8z",
    "diamond": "M17 1l5 5-5 5-5-5z",
    "square": "M13 2h8v8h-8z",
    "triangle-up": "M17 1l5 9h-10z",
    "x": "M14 1l3 3 3-3 2 2-3 3 3 3-2 2-3-3-3 3-2-2 3-3-3-3z",
    "star": "M17 0l1.6 4h4.2l-3.4 2.7 1.3 4.3-3.7-2.6-3.7 2.6 1.3-4.3-3.4-2.7h4.2z",
}
_DASHES = {"solid": "", "dash": "7 3", "dot": "2 2.5", "dashdot": "7 2.5 2 2.5"}

_INTERVAL = "with the 95 % interval over prompts"
_OF_TIMINGS = "with the 95 % interval of their timings"

PHASES = (
    ("verify_seconds", "Verification"),
    ("draft_seconds", "Drafting"),
    ("evaluate_seconds", "Full-information evaluation"),
    ("policy_seconds", "Policy overhead"),
)

MIXED = "* Ranks are over runs under different conditions, so a verdict may differ."


def key_html(policy: str, drawn: Sequence[str]) -> Markup:
    """The line and marker that stand for a policy in charts; a gap of the same width for one without."""
    if policy not in drawn:
        return template.key(None, "", "")
    style = policy_style(policy, drawn)
    return template.key(style, _DASHES[style["line"]["dash"]], _MARKERS[style["marker"]["symbol"]])


def legend_html(drawn: Sequence[str], others: int = 0) -> Markup:
    """The policies of the charts by colour, line and marker; ``others`` are those left out for being run less."""
    titles = policy_titles(drawn)
    return template.legend([(key_html(policy, drawn), titles[policy]) for policy in drawn], others)


def summary_html(summary: pd.DataFrame, drawn: Sequence[str] = (), mixed: bool = False) -> Markup:
    """The policies ranked, one a line (``ranking.policy_summary``); under each figure its interval. Those of too few
    prompts stand below, without a rank, and so do those that are not compared with the others. ``mixed``: the runs were
    made under different conditions."""
    mixed = mixed and bool(summary["rank"].notna().any())
    rank = "By whole requests; policies that cannot be told apart at the 95 % level share one"
    decode = f"Seconds of the baseline ÷ seconds of the runs, decoding only, {_INTERVAL}"
    request = f"The same of whole requests, prefill and routing included, {_INTERVAL}"
    titles, tip = policy_titles(summary["policy"]), markup.tip
    lines = [
        {
            tip("Rank" + "*" * mixed, rank): number(line.rank, 0),
            "Policy": _policy(line, titles[line.policy], drawn),
            tip("Decode speed-up", decode): _speedup(line, "speedup"),
            tip("Request speed-up", request): _speedup(line, "request_speedup"),
            "Runs": number(line.runs, 0),
            tip("MAT", markup.MAT): _interval(line, "mean_accepted_tokens", 2),
            tip("Acceptance rate", "Accepted tokens ÷ drafted tokens"): _interval(
                line, "acceptance_rate", 0, " %", 100
            ),
            tip("Mean regret (rounds/prompt)", markup.REGRET): _interval(line, "regret_rounds", 1),
            tip("Best-arm selection rate", markup.BEST_ARM): _interval(line, "best_arm_ratio", 0, " %", 100),
        }
        for line in summary.itertuples()
    ]
    table = markup.table_of(lines, figures=7, kind="md-ranking", label="Policies ranked")
    apart = AT_ONE_SPEED if summary["apart"].any() else ""
    said = f"{compared_on(summary)} {MIXED * mixed} {apart} {markup.left_out(int(summary['short_runs'].sum()))}".strip()
    return table + (markup.caption_html(said) if said else "")


def compared_on(summary: pd.DataFrame) -> str:
    """A sentence on the prompts over which the figures of the policies are; empty for a single policy."""
    common, others = int(summary["common"].max() or 0), int((~summary["compared"].astype(bool)).sum())
    if len(summary) < 2:
        return ""
    of = f"{count(common, 'prompt')} that all of them ran" if common else "prompts of their own, which may differ"
    timed = int(summary.loc[summary["compared"].astype(bool), "request_speedup_prompts"].max() or 0)
    if common and timed < common:
        of += f", and ranked by the {timed} of these with a speed-up"
    said = f"Each prompt counts once. Ranked policies are compared on {of}."
    if summary["rank"].isna().all():
        said = f"Each prompt counts once. No policy is ranked: a rank takes {FEWEST_PROMPTS} prompts with a speed-up."
    if not summary["rank"].dropna().is_unique:
        said += " Those that cannot be told apart at the 95 % level share a rank."
    apart = "did not run all of them and is listed" if others == 1 else "did not run all of them and are listed"
    return said + (f" {count(others, 'policy')} {apart} below, without a rank." if others else "")


def _times(line: Any, name: str) -> str:
    """A run's speed-up; a dash for one that failed, which figures of several runs leave out."""
    speedup = None if line.status == "error" else getattr(line, name)
    return markup.times(speedup, line.output_tokens, line.speedup_uncertainty)


def list_html(runs: pd.DataFrame) -> Markup:
    """One run a line (``queries.listed``), each with a link to its page."""
    lines = [
        {
            "Run": template.run_link(line.id),
            "Time (UTC)": markup.minute(line.created_at),
            "Prompt": template.prompt(line.prompt),
            "Policy": policy_title(line.policy),
            "Task": UNKNOWN if pd.isna(line.task) else line.task,
            "End": status_title(line.status),
            "Tokens": number(line.output_tokens, 0),
            "Rounds": number(line.round_count, 0),
            "Tokens/s": number(line.tokens_per_second, 1),
            markup.tip("Decode", "Decode speed-up"): _times(line, "speedup"),
            markup.tip("Request", "Speed-up of the whole request"): _times(line, "request_speedup"),
        }
        for line in runs.itertuples()
    ]
    return markup.table_of(lines, figures=5, kind="md-runs", label="Runs")


Table = tuple[str, list[dict[str, Any]]]
"""Summary and lines of a table to be opened."""


def regret(rows: pd.DataFrame, policies: Sequence[str]) -> Table:
    """Regret of each policy after all of its runs (``aggregates.regret_over_time``)."""
    last, titles = rows.groupby("policy").last(), policy_titles(policies)
    return "Regret in figures", [
        {
            "Policy": titles[line.Index],
            "Greedy runs": number(line.run_number, 0),
            "Cumulative regret (rounds)": signed(line.cumulative_regret, 0),
            "Mean regret (rounds/run)": signed(line.cumulative_regret / line.run_number, 2),
        }
        for line in last.reindex([policy for policy in policies if policy in last.index]).itertuples()
    ]


def phases(rows: pd.DataFrame, policies: Sequence[str]) -> Table:
    """Milliseconds per token and share of each phase (``aggregates.time_by_phase``)."""
    titles, lines = policy_titles(rows["policy"]), []
    for row in rows.itertuples():
        seconds = {name: getattr(row, column) for column, name in PHASES}
        tokens, whole = max(row.output_tokens, 1), sum(seconds.values()) or 1
        parts = {name: markup.stacked(f"{1000 * s / tokens:.2f}", f"{s / whole:.1%}") for name, s in seconds.items()}
        lines.append({"Policy": titles[row.policy], **parts})
    return "Time by phase in figures: milliseconds per token, and share", lines


def latency(rows: pd.DataFrame, policies: Sequence[str]) -> Table:
    """Percentiles of a token's time and of the prefill's (``aggregates.latency``)."""
    titles = policy_titles(rows["policy"])
    cells = {
        f"{what}, {'median' if p == 'p50' else p}": f"{column}_{p}"
        for column, what in (("token", "TPOT"), ("first", "Prefill latency"))
        for p in ("p50", "p90", "p99")
    }
    return "Latency in figures: milliseconds", [
        {
            "Policy": titles[row.policy],
            "Runs": number(row.runs, 0),
            **{title: number(1000 * getattr(row, cell), 2) for title, cell in cells.items()},
        }
        for row in rows.itertuples()
    ]


def _policy(line: Any, title: str, drawn: Sequence[str]) -> Markup:
    """Its name, and why it has no rank, if it has none."""
    few, why = "", ""
    if not line.compared:
        few = f"{line.ran} of {count(line.common, 'prompt')}" if line.ran else "other prompts"
        which = few if line.ran else "none of those"
        why = f"It ran {which} on which the others are compared; its figures are over all of its own"
    elif line.speedup_prompts < FEWEST_PROMPTS:
        few = "too few prompts to rank"
        why = f"A rank takes {FEWEST_PROMPTS} prompts with a speed-up; this policy has {line.speedup_prompts:.0f}"
    return template.policy(line.policy, title, key_html(line.policy, drawn), few, why)


def _speedup(line: Any, name: str) -> str:
    """A speed-up as a batch tells it; without an interval over prompts, with that of the timings."""
    values = (getattr(line, column) for column in (name, f"{name}_low", f"{name}_high", "speedup_uncertainty"))
    value, low, high, off = (None if pd.isna(number) else number for number in values)
    if value is None:
        return UNKNOWN
    ratio = Ratio(value, low, high, int(getattr(line, f"{name}_prompts")), off)
    around = _INTERVAL if ratio.interval else _OF_TIMINGS if off else ""
    return markup.tip(markup.ratio_html(ratio.text("×")), _over(line, name, around))


def _interval(line: Any, name: str, digits: int, unit: str = "", scale: float = 1.0) -> str:
    """A figure with its interval and, in the tip, what it is over."""
    mean, low, high = (getattr(line, f"{name}{part}") for part in ("", "_low", "_high"))
    if pd.isna(mean):
        return UNKNOWN
    to = " to " if low < 0 else "–"
    around = "" if pd.isna(low) else f"{number(scale * low, digits)}{to}{number(scale * high, digits)}"
    of = _over(line, name, _INTERVAL if around else "")
    return markup.tip(markup.stacked(number(scale * mean, digits, unit), around), of)


def _over(line: Any, name: str, around: str) -> str:
    """What a figure is over, and what the interval beside it is of."""
    runs, prompts = (int(getattr(line, f"{name}_{what}")) for what in ("runs", "prompts"))
    return f"Over {count(runs, 'run')} of {count(prompts, 'prompt')}" + (f", {around}" if around else "")
