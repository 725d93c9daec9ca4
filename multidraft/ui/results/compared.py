"""Two experiments of the history compared, as a result that a page shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from multidraft.bench import comparison
from multidraft.bench.comparison import Comparison
from multidraft.bench.summary import Row
from multidraft.policies.titles import policy_title
from multidraft.ui.results import drawing
from multidraft.ui.results.drawing import Bar
from multidraft.ui.results.result import Result, experiment, facts_of, foot_of, name_of, place_of, settings_of
from multidraft.ui.widgets import markup
from storage import experiments
from storage.kept import kept


@kept
def comparison_result(path: Path, first: str, second: str) -> Result | None:
    """Two experiments compared; ``None`` if one of them is unknown.

    Raises:
        UserError: nothing of them can be compared.
    """
    about = experiment(path, first), experiment(path, second)
    if about[0] is None or about[1] is None:
        return None
    a, b = ([Row.recorded(values) for values in experiments.figures(path, id)] for id in (first, second))
    return _of_comparison(Comparison.of(a, b, (about[0], about[1])), about[0], about[1])


def _of_comparison(found: Comparison, a: Mapping[str, Any], b: Mapping[str, Any]) -> Result:
    first = found.pairs[0]
    differs = ", ".join(f"{name} {other} against {one}" for name, one, other in found.differs) or "made alike"
    title = f"{a['suite'] if a['suite'] and a['suite'] == b['suite'] else 'B against A'}: {differs}"
    titles = [" / ".join(policy_title(spec) for spec in dict.fromkeys(pair.specs)) for pair in found.pairs]
    bars = [
        Bar(p.specs[-1], title, p.judged.value, p.judged.low, p.judged.high, f"{p.judged.value:.2f}×", p.said)
        for title, p in zip(titles, found.pairs, strict=True)
    ]
    what = "Request speed-up, B over A" if first.relative else "Requests by the clock, B over A"
    many = markup.count(first.judged.prompts, "prompt")
    subtitle = f"{what}, paired on {many}, with 95 % intervals"
    shown = comparison.table(found)
    page = markup.macros("results/page.html")
    rows = [map(markup.ratio_html, row) for row in shown.rows]
    body = markup.table_html(shown.columns, rows, figures=shown.figures, kind="md-comparison", label=shown.title)
    body += page.sides([(name_of(one), place_of(one), settings_of(one), one) for one in (a, b)])
    figures = [
        {
            "policy": "/".join(dict.fromkeys(pair.specs)),
            "verdict": pair.said,
            **{f"decode_{name}": value for name, value in asdict(pair.decode).items()},
            **{f"request_{name}": value for name, value in asdict(pair.request).items()},
            **{f"relative_{name}": value for name, value in asdict(pair.judged).items() if pair.relative},
            **{f"rounds_{name}": value for name, value in asdict(pair.rounds).items()},
        }
        for pair in found.pairs
    ]
    return Result(
        place=f"comparison/{a['id']}/{b['id']}",
        title=title,
        description=f"A: {name_of(a)}, {settings_of(a)}. B: {name_of(b)}, {settings_of(b)}. {subtitle}.",
        picture=drawing.ratios(title, subtitle, bars, foot_of(b)),
        said=[sentence.split("`") for sentence in comparison.sentences(found)],
        body=body,
        facts=[
            (f"{side}: {name.lower()}", value) for side, one in (("A", a), ("B", b)) for name, value in facts_of(one)
        ],
        figures=figures,
        data={
            "a": a,
            "b": b,
            "pairs": [asdict(pair) for pair in found.pairs],
            "baseline": found.baseline and asdict(found.baseline),
        },
        app="tab=results",
        made=b,
    )
