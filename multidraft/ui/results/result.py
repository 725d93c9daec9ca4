"""What the history holds of a run, a race, a batch or a comparison, as a result that a page shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from drafters.errors import UserError
from multidraft.bench import comparison, summary
from multidraft.bench.comparison import Comparison
from multidraft.bench.measure import BASELINE
from multidraft.bench.summary import Row
from multidraft.bench.verdict import of_rows, sentences, times
from multidraft.policies.titles import policy_title, policy_titles
from multidraft.ui.results import drawing
from multidraft.ui.results.drawing import Bar
from multidraft.ui.results.picture import Picture
from multidraft.ui.widgets import markup, tokens
from multidraft.ui.widgets.markup import count, number, percent
from storage import experiments, queries
from storage.experiments import MADE_ON, Sought
from storage.figures import FEWEST_PROMPTS, Ratio
from storage.filters import Filter
from storage.kept import kept
from storage.run import Run

MOST_LANES = 8
"""Of a race, the outputs that its page shows."""

SHOWN_PROMPT = 90
"""Characters of a prompt in titles."""

TITLES = {"race": "Race", "batch": "Batch", "bench": "Benchmark", "api": "Batch", "vllm": "Batch"}


@dataclass(frozen=True)
class Result:
    """A result.

    Attributes:
        place: the end of its address, such as ``run/12``.
        title, description: plain text, for headings and previews.
        said: sentences; every second part of one is a name of a policy.
        body: what follows them.
        facts: the conditions, by name.
        figures: what the picture draws, a line each.
        data: all of it as plain values.
        app: query of the app's address that opens it there.
        made: when, and on what: the keys ``created_at`` and ``MADE_ON``.
    """

    place: str
    title: str
    description: str
    picture: Picture
    said: Sequence[Sequence[str]]
    body: Markup
    facts: Sequence[tuple[str, str]]
    figures: Sequence[Mapping[str, Any]]
    data: Mapping[str, Any]
    app: str
    made: Mapping[str, Any]


@kept
def run_result(path: Path, id: int) -> Result | None:
    """A run; ``None`` if there is none of this number, or it was imported: its rounds are not known."""
    run = queries.run(path, id)
    return _of_run(run) if run and not run.reported else None


@kept
def experiment_result(path: Path, id: str) -> Result | None:
    """A batch, race or benchmark, by the ``batch_id`` of its runs; likewise."""
    about = experiment(path, id)
    if about is None:
        return None
    rows = [Row.recorded(values) for values in experiments.figures(path, id)]
    lanes = experiments.runs(path, id, MOST_LANES) if about["prompts"] == 1 else []
    return _of_experiment(about, rows, lanes)


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


def experiment(path: Path, id: str) -> dict[str, Any] | None:
    """What an experiment was made with (``experiments.listed``)."""
    found = experiments.listed(path, Sought(Filter(experiments=(id,))), limit=1)
    return found[0] if found else None


def name_of(about: Mapping[str, Any]) -> str:
    """An experiment in a few words, the beginning of its prompt or the name of its suite among them."""
    kind = TITLES.get(about["source"], "Runs")
    return f"{kind}: {about['suite'] or _short(about['prompt'])}"


def settings_of(about: Mapping[str, Any]) -> str:
    """What an experiment was set to: most tokens of an answer, and so on."""
    temperature = about["temperature"]
    parts = [f"{about['max_new_tokens']} tokens", f"draft length {about['draft_length']}"]
    parts.append("greedy" if not temperature else f"temperature {temperature:g}")
    if about["streams"] > 1:
        parts.append(f"{about['streams']} texts at once")
    return ", ".join(parts)


def foot_of(made: Mapping[str, Any]) -> str:
    """The line at the foot of a picture: without its conditions a speed-up says nothing."""
    parts = (
        f"pool {made['pool']}",
        made["hardware"],
        made["dtype"],
        f"version {made['version']}",
        made["created_at"][:10],
    )
    return "  ·  ".join(str(part) for part in parts if part)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_PROMPT else line[:SHOWN_PROMPT].rstrip() + "…"


def _facts(made: Mapping[str, Any]) -> list[tuple[str, str]]:
    unknown = "unknown"
    return [
        ("Made", f"{made['created_at'][:19].replace('T', ' ')} UTC"),
        ("Pool", f"{made['pool']}, card {made['card_hash'] or unknown}"),
        ("Hardware", f"{made['hardware'] or unknown}, {made['dtype'] or unknown}"),
        ("Version", str(made["version"] or unknown)),
    ]


def _of_run(run: Run) -> Result:
    g, values = run.generation, run.to_json()
    made = {"created_at": values["created_at"], **{name: values[name] for name in MADE_ON}}
    title = f"{policy_title(g.policy)}: {count(len(g.token_ids), 'token')} in {count(len(g.rounds), 'round')}"
    off = run.speedup_uncertainty
    said = markup.speedup_text(run.speedup, off)
    speed = "no baseline was measured"
    if run.speedup:
        speed = f"speed-up {said}" if markup.too_noisy(off) else f"{said} as fast as autoregressive decoding"
    figures = [
        (number(g.mean_accepted_tokens, 2), "tokens per round"),
        (said, "decode speed-up"),
        (markup.speedup_text(run.request_speedup, off), "whole request"),
        (percent(g.acceptance_rate if any(r.drafted for r in g.rounds) else None), "acceptance rate"),
    ]
    described = f"{_short(g.prompt)} – {number(g.mean_accepted_tokens, 2)} tokens per round, {speed}."
    texts = markup.macros("results/page.html").texts
    body = texts(
        g.prompt,
        [("Output", tokens.rounds_html(g.rounds, g.drafters))],
        tokens.legend_html(g.drafters, g.drafter_shares),
    )
    settings = {**asdict(run.params), "seed": run.seed}
    return Result(
        place=f"run/{run.id}",
        title=title,
        description=described,
        picture=drawing.tokens(title, _short(g.prompt), figures, g.rounds, g.drafters, foot_of(made)),
        said=[[f"One run: no interval can be given. In this one, {speed}."]],
        body=body + tokens.rounds_table_html(g.rounds),
        facts=[*_facts(made), ("Settings", ", ".join(f"{name} {value}" for name, value in settings.items()))],
        figures=[_round(r) for r in values["rounds"]],
        data=values,
        app=f"tab=dashboard&run={run.id}",
        made=made,
    )


def _round(r: Mapping[str, Any]) -> dict[str, Any]:
    seconds = sum(r[f"{phase}_seconds"] for phase in ("draft", "verify", "policy", "evaluate"))
    drafted = len(r["drafted"])
    return {"round": r["index"] + 1, "drafter": r["drafter"], "drafted": drafted, "accepted": r["accepted"],
            "seconds": seconds, "text": r["text"]}  # fmt: skip


def _of_experiment(about: Mapping[str, Any], rows: Sequence[Row], lanes: Sequence[Run]) -> Result:
    figures = [{"policy": policy, **found} for policy, found in summary.overall(rows).items()]
    figures.sort(key=lambda line: -(line["speedup"] or 0.0))
    titles = policy_titles([line["policy"] for line in figures])
    many = count(about["prompts"], "prompt")
    name = name_of(about)
    title, said, best = _headline(about, rows, titles, name)
    timed = [line for line in figures if line["speedup"] and line["policy"] != BASELINE]
    drawn, unit, shown = "decode speed-up with its 95 % interval", "autoregressive = 1", "speedup"
    if not timed:  # texts were decoded together, or nothing was timed
        timed = [line for line in figures if line["mean_accepted_tokens"]]
        drawn, unit, shown = "tokens per round", "1 token per round", "mean_accepted_tokens"
    bars = [_bar(titles[line["policy"]], line, shown, line["policy"] == best) for line in timed]
    subtitle = f"{many}, {settings_of(about)}: {drawn}"
    what = markup.table_of([_line(titles, line) for line in figures], figures=6, label="Policies")
    body = what + _tasks(rows) if len({row.task for row in rows}) > 1 else what
    if lanes:
        outputs = [
            (policy_title(r.generation.policy), tokens.rounds_html(r.generation.rounds, r.generation.drafters))
            for r in lanes
        ]
        legend = tokens.legend_html(lanes[0].generation.drafters)
        body += markup.macros("results/page.html").texts(lanes[0].generation.prompt, outputs, legend)
    kind, _ = (place := place_of(about)).split("/", 1)
    left = [("Note", about["note"])] if about["note"] else []
    settings = f"{settings_of(about)}; {count(about['runs'], 'run')}, {about['finished']} finished"
    return Result(
        place=place,
        title=title,
        description=f"{name}. {subtitle}. {foot_of(about)}",
        picture=drawing.bars(title, subtitle, bars, foot_of(about), unit),
        said=said,
        body=body,
        facts=[*left, *_facts(about), ("Settings", settings)],
        figures=figures,
        data={**about, "figures": figures, **summary.as_json(rows)},
        app=f"tab={kind}&{kind}={about['id']}",
        made=about,
    )


def _headline(
    about: Mapping[str, Any], rows: Sequence[Row], titles: Mapping[str, str], name: str
) -> tuple[str, list[list[str]], str | None]:
    """A title, sentences and the policy that stands out: those of the verdict, if there is one."""
    try:
        advice = of_rows(rows, about["draft_length"])
    except UserError as error:
        return name, [[markup.sentence(error)]], None
    said = [sentence.split("`") for sentence in sentences(advice)]
    where = f"on {count(advice.prompts, 'prompt')}" + (f" of {about['suite']}" if about["suite"] else "")
    if advice.pays == "no":
        return f"Drafting does not pay {where}", said, None
    best, few = advice.best, advice.prompts < FEWEST_PROMPTS
    if advice.pays != "yes" and not few:
        return f"No certain speed-up {where}", said, None
    faster = best.times_as_fast(advice.plain, "decode").value
    title = f"{titles[best.spec]} decodes {faster:.2f}× as fast as no drafter {where}"
    return title, said, best.spec


def _tasks(rows: Sequence[Row]) -> Markup:
    lines = [
        {"Task": line["task"], **_line(policy_titles([line["policy"]]), line)}
        for line in summary.summarise(rows).to_dict("records")
    ]
    return markup.folded("By task", markup.table_of(lines, figures=6, label="Policies by task"))


def _line(titles: Mapping[str, str], line: Mapping[str, Any]) -> dict[str, str]:
    return {
        "Policy": titles[line["policy"]],
        "Decode speed-up": times(_ratio(line, "speedup")),
        "Whole request": times(_ratio(line, "request_speedup")),
        "Tokens per round": number(line["mean_accepted_tokens"], 2),
        "Tokens/s": number(line["tokens_per_second"], 0),
        "Prompts": str(line["prompts"]),
        "Finished": str(line["finished"]),
    }


def _ratio(line: Mapping[str, Any], name: str) -> Ratio | None:
    value, low, high = (line[f"{name}{end}"] for end in ("", "_low", "_high"))
    if value is None or value != value:
        return None
    known = low is not None and low == low
    return Ratio(value, low if known else None, high if known else None, line["prompts"])


def _bar(name: str, line: Mapping[str, Any], shown: str, marked: bool) -> Bar:
    low, high, unit = line.get(f"{shown}_low"), line.get(f"{shown}_high"), "×" if shown == "speedup" else ""
    return Bar(name, line[shown], low, high, f"{line[shown]:.2f}{unit}", marked=marked)


def _of_comparison(found: Comparison, a: Mapping[str, Any], b: Mapping[str, Any]) -> Result:
    first = found.pairs[0]
    differs = ", ".join(f"{name} {one} → {other}" for name, one, other in found.differs) or "made alike"
    title = f"A against B: {differs}"
    titles = [" / ".join(policy_title(spec) for spec in dict.fromkeys(pair.specs)) for pair in found.pairs]
    bars = [
        Bar(title, pair.decode.value, pair.decode.low, pair.decode.high, f"{pair.decode.value:.2f}×", pair.said)
        for title, pair in zip(titles, found.pairs, strict=True)
    ]
    many = count(first.decode.prompts, "prompt")
    subtitle = f"Decoding of B over A, paired on {many}, with 95 % intervals"
    shown = comparison.table(found)
    body = markup.table_html(shown.columns, shown.rows, figures=shown.figures, label=shown.title)
    body += markup.macros("results/page.html").sides(
        [(name_of(one), place_of(one), settings_of(one), one) for one in (a, b)]
    )
    figures = [
        {
            "policy": "/".join(dict.fromkeys(pair.specs)),
            "verdict": pair.said,
            **{f"decode_{name}": value for name, value in asdict(pair.decode).items()},
            **{f"request_{name}": value for name, value in asdict(pair.request).items()},
            **{f"rounds_{name}": value for name, value in asdict(pair.rounds).items()},
        }
        for pair in found.pairs
    ]
    return Result(
        place=f"comparison/{a['id']}/{b['id']}",
        title=title,
        description=f"{name_of(a)} against {name_of(b)}. {subtitle}.",
        picture=drawing.ratios(title, subtitle, bars, foot_of(b)),
        said=[sentence.split("`") for sentence in comparison.sentences(found)],
        body=body,
        facts=[(f"{name} of {side}", value) for side, one in (("A", a), ("B", b)) for name, value in _facts(one)],
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


def place_of(about: Mapping[str, Any]) -> str:
    """The end of the address of an experiment's page."""
    return f"{'race' if about['source'] == 'race' else 'batch'}/{about['id']}"
