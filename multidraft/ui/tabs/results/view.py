"""The list of experiments as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from drafters.errors import UserError
from multidraft.bench import summary
from multidraft.bench.measured_verdict import of_rows
from multidraft.bench.summary import Row
from multidraft.policies.titles import policy_title
from multidraft.replay.advice import Advice
from multidraft.service.batch import BatchJob
from multidraft.ui.result_pages.conditions import settings_of
from multidraft.ui.result_pages.result import name_of, place_of
from multidraft.ui.widgets import markup
from multidraft.ui.widgets.markup import count, number
from storage import experiments
from storage.cache import cached
from storage.figures import FEWEST_TO_TELL
from storage.unfinished import planned, unfinished

PAGE = 20
"""Experiments on a page of the list."""

MOST_LISTED = 4
"""Policies of an experiment whose names stand in the list; of more, their number."""

template = markup.macros("tabs/results/view.html")

EXAMPLES = markup.message_html(
    "idle", "Recorded examples: benchmarks measured beforehand, which are not part of this server's history."
)
NOTHING_FITS = markup.empty_html("No results match.", "Clear the search, or choose another kind or version.")

SPEEDUP = (
    "Of whole requests over autoregressive decoding, with its 95 % interval: of the fastest policy, or of the one "
    "ahead of others that cannot be told from it"
)
REGRET = f"{markup.REGRET}; of the policy that the speed-up is of"


def list_html(
    path: Path, found: Sequence[Mapping[str, Any]], may_note: bool, running: Sequence[BatchJob] = ()
) -> Markup:
    """One experiment a line (``experiments.listed``), each with a link to its page; and how far those are that have not
    ended: here, or as the history has it of those that wait or that another server is at."""
    ran = {one["id"]: one["runs"] for one in found}
    left = {id: ("unfinished", ran[id], planned(asked)) for id, asked in unfinished(path).items() if id in ran}
    left |= {job.id: ("running", job.runs_done, job.total) for job in running}
    lines = [_line(path, one, may_note, left.get(one["id"])) for one in found]
    return template.compare() + markup.table_of(lines, figures=1, kind="md-experiments", label="Results")


def _line(path: Path, one: Mapping[str, Any], may_note: bool, left: tuple[str, int, int] | None) -> dict[str, Any]:
    name = f"{name_of(one)}, draft length {one['draft_length']}"
    policies = one["policies"]
    ratio, said, regret, first = _first(path, one) if one["timed"] else (markup.UNKNOWN, "", None, "")
    if left:
        state, done, total = left
        ratio, said, regret = state, f"{done:,} of {count(total, 'run')}", None
    tip, stacked = markup.tip, markup.stacked
    titles = ", ".join(map(policy_title, policies))
    listed = titles if len(policies) <= MOST_LISTED else tip(count(len(policies), "policy"), titles)
    machine = one["hardware"] or ""
    prompt = one["prompt"] if one["suite"] else ""
    untimed = not one["timed"] or bool(left)
    return {
        tip("Compare", "Choose two"): template.chosen(one["id"], name, one["created_at"], untimed),
        "Result": template.link(place_of(one), name, prompt, _briefly(one["ending"])),
        tip("Request speed-up", SPEEDUP): stacked(ratio, said),
        "Made (UTC), version": stacked(markup.minute(one["created_at"]), one["version"]),
        "Settings, policies": stacked(f"{count(one['prompts'], 'prompt')}, {settings_of(one)}", listed),
        "Pool, machine": stacked(one["pool"], tip(machine, machine)),
        "Note": template.note(one["id"], one["note"] or "", may_note),
        tip("Regret, rounds/prompt", REGRET): stacked(number(regret, 1), first if regret is not None else ""),
    }


def _briefly(ending: str | None) -> str:
    """How a batch ended early, without the reason, which its page has."""
    return markup.sentence(ending.partition(":")[0]) if ending else ""


def _first(path: Path, one: Mapping[str, Any]) -> tuple[str, str, float | None, str]:
    """The speed-up of the experiment's first policy (``Advice.first``), its name, with how many cannot be told from it
    where prompts are enough to tell, its regret, if it is known, and the name alone."""
    if not (found := verdict(path, one["id"])):
        return markup.UNKNOWN, "", None, ""
    first, level = found.first, len(found.level()) if found.prompts >= FEWEST_TO_TELL else 0
    name = policy_title(first.spec)
    said = name + (f", not significantly faster than {count(level, 'other policy')}" if level else "")
    return first.times_as_fast(found.plain).text("×"), said, regrets(path, one["id"]).get(first.spec), name


@cached
def verdict(path: Path, id: str) -> Advice | None:
    """What the runs of an experiment say by themselves; ``None`` where nothing can be compared."""
    try:
        return of_rows(_figures(path, id), 0)
    except UserError:
        return None


@cached
def _figures(path: Path, id: str) -> list[Row]:
    """The rows of an experiment's runs, without texts."""
    return [Row.recorded(values) for values in experiments.figures(path, id, texts=False)]


@cached
def regrets(path: Path, id: str) -> dict[str, float]:
    """The regret of each policy of an experiment, as its page has it."""
    found = summary.overall(_figures(path, id))
    return {spec: of.regret_rounds.value for spec, of in found.items() if of.regret_rounds}
