"""What the history holds of a run, a race, a batch or a comparison, as a result that a page shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from drafters.errors import UserError
from multidraft.bench import summary
from multidraft.bench.action import listed
from multidraft.bench.measured_verdict import of_rows
from multidraft.bench.summary import Figures, Row
from multidraft.bench.verdict import sentences
from multidraft.bench.verdict_tables import times
from multidraft.policies.titles import policy_title, policy_titles
from multidraft.service import unfamiliar
from multidraft.service.unfamiliar import Fits, assume_fits
from multidraft.ui.result_pages import drawing
from multidraft.ui.result_pages.conditions import (
    again_in_play,
    experiment_facts,
    facts_of,
    foot_of,
    made_of,
    run_settings,
    settings_of,
)
from multidraft.ui.result_pages.drawing import Bar
from multidraft.ui.result_pages.picture import Picture
from multidraft.ui.widgets import lanes, markup, tokens
from multidraft.ui.widgets.markup import count, number, percent
from storage import experiments, queries
from storage.cache import cached
from storage.figures import FEWEST_TO_TELL, Ratio, timed_interval, timed_short, timed_side
from storage.records import FINISHED, PLAIN
from storage.run import Run
from storage.unfinished import planned, unfinished

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
        title, description: plain text, for headings and previews, where the ``warning`` stands before it.
        said: sentences; every second part of one is a name of a policy.
        body: what follows them.
        facts: the conditions, by name.
        figures: what the picture draws, a line each.
        data: all of it as plain values.
        app: query of the app's address that opens it there.
        made: when, and on what: the keys ``created_at`` and ``experiments.MADE_ON``; of a comparison, of both.
        warning: of prompts that the target knows nothing of.
        again: query of the app's address that has *Play* ready to run the same again; empty where it cannot.
        settings: what a citation says of each: policies, lengths and so on.
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
    made: Sequence[Mapping[str, Any]]
    settings: Sequence[str]
    warning: str = ""
    again: str = ""


@cached
def run_result(path: Path, id: int, fits: Fits = assume_fits) -> Result | None:
    """A run; ``None`` if there is none of this number, or it was imported: its rounds are not known."""
    run = queries.run(path, id)
    if run is None or run.reported:
        return None
    g = run.generation
    warning = unfamiliar.warning(fits, run.conditions.card_hash, [g.prompt])
    made = made_of(run)
    title = f"{policy_title(g.policy)}: {count(len(g.token_ids), 'token')} with "
    title += f"{count(len(g.rounds), 'call')} of the target model"
    title += f" instead of {len(g.token_ids):,}" if len(g.rounds) < len(g.token_ids) else ""
    off = run.speedup_uncertainty
    decode, request = (None, None) if g.status == "error" else (run.speedup, run.request_speedup)
    said = markup.speedup_text(decode, off)
    speed = f"decoding {said} as fast as without drafters"
    if not decode:
        speed = "the run failed" if g.status == "error" else "no baseline was measured"
    elif off and markup.too_noisy(off):
        unknown = "on a machine too busy to tell whether decoding was faster or slower"
        speed = f"{speed}, on a busy machine" if timed_side(decode, off) else unknown
    rounds = number(g.mean_accepted_tokens, 2)
    figures = [
        (rounds, "tokens per round"),
        (said, "decode speed-up"),
        (markup.speedup_text(request, off), "request speed-up"),
        (percent(g.acceptance_rate if any(r.drafted for r in g.rounds) else None), "acceptance rate"),
    ]
    subtitle = unfamiliar.below_title(warning, short(g.prompt))
    return Result(
        place=f"run/{run.id}",
        title=title,
        description=f"{short(g.prompt)} – {rounds} tokens per round, {speed}.",
        picture=drawing.tokens(title, subtitle, figures, g.rounds, g.drafters, foot_of(made)),
        said=[
            [f"One run, on one prompt: {rounds} tokens per round, {speed}."],
            *([[known]] if (known := lossless([run])) else []),
        ],
        body=outputs_html([run]) + tokens.rounds_table_html(g.rounds),
        facts=[*facts_of(made), ("Settings", run_settings(run))],
        figures=[
            {
                "round": r.index + 1,
                "drafter": r.drafter,
                "drafted": len(r.drafted),
                "accepted": r.accepted,
                "seconds": r.seconds,
                "text": r.text,
            }
            for r in g.rounds
        ],
        data=run.to_json(),
        app=f"tab=dashboard&run={run.id}",
        again=again_in_play(run),
        made=[made],
        warning=warning,
        settings=[f"policy {g.policy}, {run_settings(run)}"],
    )


@cached
def experiment_result(path: Path, id: str, fits: Fits = assume_fits) -> Result | None:
    """A batch, race or benchmark, by the ``batch_id`` of its runs; likewise."""
    about = experiments.experiment(path, id)
    if about is None:
        return None
    runs = experiments.figures(path, id)
    rows = [Row.recorded(values) for values in runs]
    alone = experiments.runs(path, id, MOST_LANES) if about["prompts"] == 1 else []
    warning = unfamiliar.warning(fits, about["card_hash"] or "", (values["prompt"] for values in runs))
    found = dict(sorted(summary.overall(rows).items(), key=_rate, reverse=True))  # as the verdict ranks them
    titles = policy_titles(list(found))
    title, said, best = _headline(about, rows, titles)
    if "items" in (asked := unfinished(path).get(id, {})):
        so_far = f"{about['runs']:,} of {count(planned(asked), 'run')}"
        title, said = f"{title} (so far: {so_far})", [[f"This batch has not ended: {so_far} are done."], *said]
    if ending := about["ending"]:
        title, said = f"{title} ({ending.partition(':')[0]})", [[markup.sentence(ending)], *said]
    if about["source"] == "race" and (known := sameness(alone)):
        said = [*said, [known]]
    drawn, unit, bars = _bars(found, titles, best)
    many, on = count(about["prompts"], "prompt"), len({row.prompt for row in summary.compared(rows)})
    many = many if on in (0, about["prompts"]) else f"{on} of {many}"
    settings, foot = settings_of(about), foot_of(about)
    seed = f", seed {alone[0].seed}" if len({run.seed for run in alone}) == 1 else ""
    subtitle = f"{drawn}. {many}, {settings}"
    body = markup.caption_html(left) if (left := markup.left_out(summary.short_rows(rows))) else Markup()
    body += markup.table_of(
        [_line(titles[policy], of) for policy, of in found.items()], figures=7, kind="md-policies", label="Policies"
    )
    body += _tasks(rows) if len({row.task for row in rows}) > 1 else Markup()
    body += outputs_html(alone) if alone else Markup()
    place = place_of(about)
    kind = place.partition("/")[0]
    prompts = {str(values["prompt_hash"]): values["prompt"] for values in runs}
    figures = [{"policy": policy, **of.as_json()} for policy, of in found.items()]
    return Result(
        place=place,
        title=title,
        description=f"{name_of(about)} – {subtitle}. {foot}",
        picture=drawing.bars(title, unfamiliar.below_title(warning, subtitle), bars, foot, unit),
        said=said,
        body=body,
        facts=[*([("Note", about["note"])] if about["note"] else []), *experiment_facts(path, about, runs)],
        figures=figures,
        data={**about, "figures": figures, "prompts": prompts, **summary.as_json(rows)},
        app=f"tab={kind}&{kind}={about['id']}",
        made=[about],
        warning=warning,
        settings=[f"{settings}{seed}; policies {', '.join(found)}"],
    )


def outputs_html(runs: Sequence[Run]) -> Markup:
    """The prompt of runs, and what they wrote: the fewest rounds first, and the others folded if all wrote the same.
    Runs of one policy are told apart by their numbers."""
    ordered = sorted(runs, key=lambda run: -run.generation.mean_accepted_tokens)
    shown, titles = [run.generation for run in ordered], [policy_title(run.generation.policy) for run in ordered]
    first, shares = shown[0], shown[0].drafter_shares if len(shown) == 1 else None
    texts = [
        (title if titles.count(title) == 1 else f"{title}, run {run.id}", tokens.rounds_html(g.rounds, g.drafters))
        for title, run, g in zip(titles, ordered, shown, strict=True)
    ]
    alike = all(g.token_ids == first.token_ids for g in shown)
    legend = tokens.legend_html(first.drafters, shares)
    return markup.macros("result_pages/page.html").texts(first.prompt, texts, legend, alike)


def sameness(runs: Sequence[Run]) -> str:
    """Whether the outputs of a race are the same, and those of plain decoding; empty where that is not known."""
    ended = [run for run in runs if run.generation.status in FINISHED]
    if len(ended) < 2:
        return ""
    found = lanes.verdict(ended)
    return " ".join(filter(None, (found["text"], lossless(ended) if found["kind"] == "same" else "")))


def lossless(runs: Sequence[Run]) -> str:
    """That an output is the target's own, where all of its runs were found to be; else nothing."""
    if not all(run.scores.lossless for run in runs):
        return ""
    if any(run.scores.near_tie_gap for run in runs):
        return "The output is that of plain decoding, near-ties apart, where rounding decided."
    return "The output is identical to plain decoding: the target read it once more and agreed with every token."


def name_of(about: Mapping[str, Any]) -> str:
    """An experiment in a few words: its kind, and the name of its suite or, quoted, the beginning of its prompt."""
    kind = TITLES.get(about["source"], "Runs")
    return f"{kind}: " + (about["suite"] or f"“{short(about['prompt'])}”")


def short(text: str, most: int = SHOWN_PROMPT) -> str:
    """A prompt on one line, cut."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[:most].rstrip() + "…"


def front_picture(run: Run) -> Picture:
    """What the preview of the app's own address shows: what it is about, and a recorded run."""
    g = run.generation
    figures = [
        (str(len(g.token_ids)), "tokens"),
        (str(len(g.rounds)), "calls of the target model"),
        (number(g.mean_accepted_tokens, 2), "tokens per call"),
        (markup.speedup_text(run.speedup, run.speedup_uncertainty), "decode speed-up"),
    ]
    title = "Small drafters guess ahead, the target model checks"
    about = "The output is exactly the target model's own. Colours say which drafter guessed the token."
    return drawing.tokens(title, about, figures, g.rounds, g.drafters, foot_of(made_of(run)))


def _headline(
    about: Mapping[str, Any], rows: Sequence[Row], titles: Mapping[str, str]
) -> tuple[str, list[list[str]], str | None]:
    """A title, sentences and the policy that stands out: those of the verdict, if there is one."""
    try:
        advice = of_rows(rows, about["draft_length"])
    except UserError as error:
        return name_of(about), [[markup.sentence(error)]], None
    said = [sentence.split("`") for sentence in sentences(advice)]
    where = f"on {count(advice.prompts, 'prompt')}" + (f" of “{about['suite']}”" if about["suite"] else "")
    if advice.pays == "no":
        return f"Drafting does not pay {where}", said, None
    if advice.none_faster:
        return f"Every policy was slower than no drafter {where}", said, None
    best, few = advice.sure or advice.best, advice.prompts < FEWEST_TO_TELL
    if not (advice.sure or few):
        return f"No certain speed-up of whole requests {where}", said, None
    faster = best.times_as_fast(advice.plain)
    if faster.too_noisy:
        most = advice.saving_most
        save = f"{listed([titles[option.spec] for option in most])} {'save' if most[1:] else 'saves'}"
        saved = f"{save} {percent(most[0].calls_saved)} of the target's calls"
        slower = all(option in advice.on_side(-1) for option in most)
        timed = f"yet {'were' if most[1:] else 'was'} slower" if slower else "timed"
        return f"{saved} {where}, {timed} on a busy machine", said, None
    return f"{titles[best.spec]} answers {faster.text('×')} as fast as no drafter {where}", said, best.spec


def _tasks(rows: Sequence[Row]) -> Markup:
    """Figures by task, without the intervals that nothing would be told by."""
    found = summary.summarise(rows)
    few = any(of.speedup and not of.speedup.interval for of in found.values())
    lines = [{"Task": task, **_line(policy_title(policy), of)} for (task, policy), of in found.items()]
    told = f"Intervals are shown for tasks with at least {FEWEST_TO_TELL} prompts; elsewhere ± is the noise of timings."
    table = markup.table_of(lines, figures=7, label="Policies by task")
    caption = markup.caption_html(told) if few else Markup()
    return markup.folded(f"By task ({count(len(lines), 'row')})", caption + table)


def _rate(named: tuple[str, Figures]) -> float:
    return named[1].request_speedup.value if named[1].request_speedup else 0.0


def _line(title: str, of: Figures) -> dict[str, str]:
    return {
        "Policy": title,
        "Decode speed-up": markup.ratio_html(times(of.speedup)),
        "Request speed-up": markup.ratio_html(times(of.request_speedup)),
        "Tokens per round": number(of.mean_accepted_tokens, 2),
        "Tokens/s": number(of.tokens_per_second, 0),
        "Regret, rounds/prompt": _regret(of.regret_rounds),
        "Runs": str(of.runs),
        "Finished": str(of.finished),
    }


def _regret(ratio: Ratio | None) -> str:
    if ratio is None:
        return markup.UNKNOWN
    return markup.stacked(
        number(ratio.value, 1), "{:z.1f} to {:z.1f}".format(*ratio.interval) if ratio.interval else ""
    )


def _bars(found: Mapping[str, Figures], titles: Mapping[str, str], best: str | None) -> tuple[str, str, list[Bar]]:
    """What a picture shows of the policies, what 1 stands for there, and their bars: speed-ups, or tokens per round
    where texts were decoded together or nothing was timed."""
    timed = {spec: of.request_speedup for spec, of in found.items() if of.request_speedup and spec != PLAIN}
    if timed:
        bars = [_bar(spec, titles[spec], ratio, spec == best) for spec, ratio in timed.items()]
        interval = ", 95 % interval" if any(bar.low is not None for bar in bars) else ""
        return f"Speed-up of whole requests{interval}", "autoregressive = 1", bars
    known = [(spec, of.mean_accepted_tokens) for spec, of in found.items() if of.mean_accepted_tokens]
    bars = [Bar(spec, titles[spec], mat, shown=f"{mat:.2f}", marked=spec == best) for spec, mat in known]
    return "Tokens per round", "1 token per round", bars


def _bar(policy: str, title: str, ratio: Ratio, marked: bool) -> Bar:
    """A policy's speed-up, or nothing but its interval where its timings are too noisy."""
    low, high = ratio.interval or (None, None)
    if ratio.uncertainty:
        low, high = timed_interval(ratio.value, ratio.uncertainty)
    value, shown = ratio.value, f"{ratio.value:.2f}×"
    if ratio.too_noisy:
        value, shown = 0.0, timed_short(ratio.value, ratio.uncertainty, "×")
    return Bar(policy, title, value, low, high, shown, marked=marked)


def place_of(about: Mapping[str, Any]) -> str:
    """The end of the address of an experiment's page."""
    return f"{'race' if about['source'] == 'race' else 'batch'}/{about['id']}"
