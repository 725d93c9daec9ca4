"""Two experiments of the history compared, as a result that a page shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from markupsafe import Markup

from drafters.errors import UserError
from multidraft.bench import comparison_verdict
from multidraft.bench.comparison import Comparison, Paired
from multidraft.bench.summary import Row
from multidraft.policies.titles import policy_title
from multidraft.ui import example
from multidraft.ui.result_pages import drawing
from multidraft.ui.result_pages.conditions import experiment_facts, foot_of, settings_of
from multidraft.ui.result_pages.drawing import Bar
from multidraft.ui.result_pages.result import Result, name_of, place_of, short
from multidraft.ui.widgets import markup
from multidraft.ui.widgets.markup import number
from storage import experiments, queries
from storage.cache import cached
from storage.figures import ratio_columns, too_noisy

SHOWN_IN_TABLE = 36
"""Characters of a prompt."""

MOST_LINES = 500
"""Of single prompts and policies."""

_page = markup.macros("result_pages/page.html")


@cached
def comparison_result(path: Path, first: str, second: str) -> Result | None:
    """Two experiments compared; ``None`` if one of them is unknown.

    Args:
        path: the history, which has their runs unless the recorded example has.

    Raises:
        UserError: nothing of them can be compared, or they are the same.
    """
    paths = [path if experiments.in_history(path, id) else example.path() for id in (first, second)]
    a, b = (experiments.experiment(place, id) for place, id in zip(paths, (first, second), strict=True))
    if a is None or b is None:
        return None
    if first == second:
        raise UserError("a result cannot be compared with itself; choose another one")
    values = [experiments.figures(place, id) for place, id in zip(paths, (first, second), strict=True)]
    sides = [[Row.recorded(run) for run in side] for side in values]
    prompts = {run["prompt_hash"]: run["prompt"] for run in values[0]}
    found = Comparison.of(sides[0], sides[1], (a, b))
    lines = _lines(found, prompts, sides)
    linked = [place == path or not queries.count(path) for place in paths]  # else the number is that of another run
    differs = ", ".join(f"{name} {other} against {one}" for name, one, other in found.differs) or "made alike"
    title = f"{a['suite'] if a['suite'] and a['suite'] == b['suite'] else 'B against A'}: {differs}"
    bars = [
        Bar(p.specs[-1], _title(p), p.judged.value, p.judged.low, p.judged.high, p.judged.text("×"), p.verdict)
        for p in found.pairs
    ]
    leading = found.pairs[0]
    what = "Request speed-up, B over A" if leading.relative else "Requests by the clock, B over A"
    subtitle = f"{what}, paired on {markup.count(leading.judged.prompts, 'prompt')}"
    if any(bar.low is not None for bar in bars):
        subtitle += f", with 95 % intervals{' for all policies together' if bars[1:] else ''}"
    verdict, figures = comparison_verdict.sentences(found), _figures(found, a["id"], b["id"])
    body = _policies(found) + markup.caption_html(comparison_verdict.by_clock(found)) + _prompts(lines, prompts, linked)
    body += _page.sides([(name_of(one), place_of(one), settings_of(one), one) for one in (a, b)])
    return Result(
        place=f"comparison/{first}/{second}",
        title=title,
        description=f"A: {name_of(a)}, {settings_of(a)}. B: {name_of(b)}, {settings_of(b)}. {subtitle}.",
        picture=drawing.ratios(title, subtitle, bars, foot_of(a, b), _sides(found, a, b)),
        said=[sentence.split("`") for sentence in verdict],
        body=body,
        facts=_facts(*map(experiment_facts, paths, (a, b), values)),
        figures=figures,
        data={
            "a": a,
            "b": b,
            "verdict": verdict,
            "policies": figures,
            "prompts": _data(lines, prompts),
            "autoregressive_speed_by_clock_b_over_a": found.baseline and asdict(found.baseline),
        },
        app="",
        made=[a, b],
        settings=[settings_of(a), settings_of(b)],
    )


def _facts(a: Sequence[tuple[str, str]], b: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The conditions of both: those that they share once, what they differ in side by side."""
    found: list[tuple[str, str]] = []
    for name in dict.fromkeys(name for name, _ in (*a, *b)):
        one, other = (dict(side).get(name) for side in (a, b))
        if one == other:
            found.append((name, str(one)))
        else:
            found += [(f"{name}, {side}", value) for side, value in zip("AB", (one, other), strict=True) if value]
    return found


Line = tuple[int, Paired, Row, Row]


def _lines(found: Comparison, prompts: Mapping[int, str], sides: Sequence[Sequence[Row]]) -> list[Line]:
    """The last run of each prompt on both sides, by policy, in the order of the prompts."""
    lines = []
    for pair in found.pairs:
        a, b = (
            {row.prompt: row for row in rows if row.policy == spec and row.finished}
            for rows, spec in zip(sides, pair.specs, strict=True)
        )
        lines += [(prompt, pair, a[prompt], b[prompt]) for prompt in a if prompt in b]
    order = {prompt: place for place, prompt in enumerate(prompts)}
    return sorted(lines, key=lambda line: order[line[0]])


def _data(lines: Sequence[Line], prompts: Mapping[int, str]) -> list[dict[str, Any]]:
    """The same as plain values."""
    return [
        {"prompt": prompts[prompt], "policy": "/".join(dict.fromkeys(pair.specs)), "a": _plain(one), "b": _plain(other)}
        for prompt, pair, one, other in lines
    ]


def _plain(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.as_json().items() if name not in ("prompt", "output", "policy")}


def _prompts(lines: Sequence[Line], prompts: Mapping[int, str], linked: Sequence[bool]) -> Markup:
    """The same as a table; a figure of tokens per round is a link to its run."""

    def rounds(row: Row, link: bool) -> Markup | str:
        shown = number(row.mean_accepted_tokens, 2)
        return _page.run(row.run, shown) if link else shown

    shown = [
        {
            "Prompt": short(prompts[prompt], SHOWN_IN_TABLE),
            "Policy": _title(pair),
            "Tokens per round in A": rounds(one, linked[0]),
            "Tokens per round in B": rounds(other, linked[1]),
            "Tokens per round, B over A": _over(other.mean_accepted_tokens, one.mean_accepted_tokens),
            "Request speed-up in A": markup.speedup_text(one.request_speedup, one.speedup_uncertainty),
            "Request speed-up in B": markup.speedup_text(other.request_speedup, other.speedup_uncertainty),
            "Request speed-up, B over A": _over(
                *(row.request_speedup if not too_noisy(row.speedup_uncertainty) else None for row in (other, one))
            ),
        }
        for prompt, pair, one, other in lines[:MOST_LINES]
    ]
    table = markup.table_of(shown, figures=6, kind="md-comparison", label="Figures by prompt")
    rows = f"the first {MOST_LINES} of {len(lines):,} rows" if lines[MOST_LINES:] else markup.count(len(lines), "row")
    return markup.folded(f"By prompt, one run each ({rows})", table)


def _over(above: float | None, below: float | None) -> str:
    return number(above / below if above and below else None, 2, "×")


def _title(pair: Paired) -> str:
    return " / ".join(policy_title(spec) for spec in dict.fromkeys(pair.specs))


def _policies(found: Comparison) -> Markup:
    shown = comparison_verdict.table(found)
    rows = [(_title(p), *map(markup.ratio_html, row[1:])) for p, row in zip(found.pairs, shown.rows, strict=True)]
    return markup.table_html(shown.columns, rows, figures=shown.figures, kind="md-comparison", label=shown.title)


def _figures(found: Comparison, a: str, b: str) -> list[dict[str, Any]]:
    """A line for each policy; ``a`` and ``b`` are the experiments' ids."""
    return [
        {
            "policy": "/".join(dict.fromkeys(pair.specs)),
            "verdict": pair.verdict,
            "a": a,
            "b": b,
            "b_differs_in": "; ".join(f"{name}: {one} -> {other}" for name, one, other in found.differs),
            **ratio_columns("request_speedup_a", pair.speedups[0]),
            **ratio_columns("request_speedup_b", pair.speedups[1]),
            **ratio_columns("request_speedup_b_over_a", pair.relative),
            **ratio_columns("tokens_per_round_b_over_a", pair.rounds),
            **ratio_columns("decode_speed_by_clock_b_over_a", pair.decode),
            **ratio_columns("request_speed_by_clock_b_over_a", pair.request),
        }
        for pair in found.pairs
    ]


def _sides(found: Comparison, a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[str, str]:
    """What is faster to the left and to the right of 1. A and B are told apart by what alone they differ in, else by
    when they were made."""
    one, other = comparison_verdict.sides(found)
    if (one, other) == ("A", "B"):
        one, other = (f"{markup.minute(made['created_at'])} UTC" for made in (a, b))
    words = "higher in {}, {}" if found.pairs[0].relative else "{}, {}, is faster"
    return words.format("A", one[0].lower() + one[1:]), words.format("B", other[0].lower() + other[1:])
