"""What the page writes: figures and names, and HTML from the templates that stand beside the code that fills them.

All text is escaped on its way into a template, unless it is :class:`markupsafe.Markup`, which only templates make.
``markup.html`` says what the macros take that are named here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from drafters.errors import without_folders
from multidraft.bench.table import NOTHING as UNKNOWN
from multidraft.bench.table import count as count
from multidraft.bench.table import left_out as left_out
from multidraft.bench.table import percent as percent
from multidraft.policies.titles import policy_title
from storage.figures import FEWEST_TOKENS, TOO_NOISY, timed_interval, timed_short, timed_side
from storage.figures import too_noisy as too_noisy

MAT = "Mean accepted tokens: emitted tokens per round, the target's own token counted"
REGRET = "Rounds beyond those that the best single drafter needs, mean over prompts; known for greedy runs"
BEST_ARM = "Share of the rounds with a drafter that played the best single drafter in hindsight, or one as good"
"""Hints to terms of the field, where a column or a figure is called so."""


def number(value: float | None, digits: int, unit: str = "") -> str:
    """A figure with its unit; a dash for ``None`` and NaN."""
    return UNKNOWN if value is None or pd.isna(value) else f"{value:z,.{digits}f}{unit}"


def signed(value: float | None, digits: int) -> str:
    """A difference with its sign, likewise; one that rounds to zero has none."""
    text = UNKNOWN if value is None or pd.isna(value) else f"{value:+z,.{digits}f}"
    return text if text.strip("+0.") else text[1:]


def place(ahead: int, wait_seconds: float | None) -> str:
    """Where a job stands in the queue, and how long it has to wait, no finer than that is known."""
    stands = f"{count(ahead, 'job')} ahead of yours" if ahead else "yours is next"
    if wait_seconds is None:
        return stands
    if wait_seconds < 90:
        return f"{stands}, about {max(1, 5 * round(wait_seconds / 5))} s"
    return f"{stands}, about {round(wait_seconds / 60)} min"


_TURNING = dict.fromkeys((0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)))


def straight(text: str) -> str:
    """A text without the control characters that turn the direction of writing: in a sentence of the page the name of a
    file or a task would turn all that follows it."""
    return text.translate(_TURNING)


def sentence(text: object) -> str:
    """An error's message as a sentence. Names that it begins with, of files and parameters, stay as they are."""
    text = str(text)
    first, *_ = text.split(maxsplit=1) or [""]
    if first.replace("-", "").isalpha():
        text = text[:1].upper() + text[1:]
    return text + ("" if text.endswith((".", "?", "!", "…")) else ".")


_UI = Path(__file__).parents[1]


def source(name: str) -> str:
    """The text of a script, a style sheet or a frame that scripts fill, named by its path below ``ui``."""
    return (_UI / name).read_text(encoding="utf-8")


def minute(time: str) -> str:
    """A time as the history holds it (ISO 8601, UTC), to the minute."""
    return time[:16].replace("T", " ")


_environment = Environment(
    loader=FileSystemLoader(_UI), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
_environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
_environment.filters.update(count=count, minute=minute, number=number, percent=percent)
_environment.filters.update(straight=straight, title_of=policy_title)


@cache
def macros(template: str) -> Any:
    """The macros of a template, named by its path below ``ui``, as functions that return ``Markup``. A value that a
    macro needs and is not given is an error."""
    return _environment.get_template(template).module


def page(template: str, **values: Any) -> str:
    """A whole document from a template, named likewise."""
    return _environment.get_template(template).render(values)


_macros = macros("widgets/markup.html")
message_html, progress_html = _macros.message, _macros.progress
tiles_html, facts_html, empty_html = _macros.tiles, _macros.facts, _macros.empty
heading_html, caption_html, note_html = _macros.heading, _macros.caption, _macros.note
table_start, row_html, table_html = _macros.table_start, _macros.row, _macros.table
folded, stacked, best, tip = _macros.folded, _macros.stacked, _macros.best, _macros.tip
shared_html, kept_html = _macros.shared, _macros.kept
refusal_html, explanation_html = _macros.refusal, _macros.explanation
explanations_html = _macros.explanations


def problem_html(error: object) -> Markup:
    """What is wrong, as a status line."""
    return message_html("error", without_folders(sentence(error)))


def refused_html(error: object, hint: str = "") -> Markup:
    """Why nothing was started, likewise; ``events.forget_refusal`` takes it away."""
    return message_html("error", without_folders(sentence(error)) + hint, refused=True)


def table_of(lines: Sequence[Mapping[str, Any]], **settings: Any) -> Markup:
    """A table of lines, each of which names its cells by their columns; ``settings`` are those of ``table_html``."""
    columns = list(lines[0]) if lines else []
    return table_html(columns, [line.values() for line in lines], **settings)


def ratio_html(cell: str, starred: bool = False) -> Markup | str:
    """A ratio as of ``Ratio.text``, perhaps marked as the best, and below it its interval; other cells as they are."""
    found = re.fullmatch(r"(.*×|faster|slower):? \(?(.*?)\)?", cell)
    value, interval = found.groups() if found else (cell, "")
    return stacked(best(value) if starred else value, interval)


def times(speedup: float | None, tokens: float | None, uncertainty: float | None = None) -> str:
    """An answer's speed-up and by how much it may be off; in place of the figure why there is none, where the answer is
    too short for one, or the interval, where the machine was too noisy.

    Args:
        uncertainty: ``Run.speedup_uncertainty``.
    """
    if tokens is not None and tokens < FEWEST_TOKENS:
        return tip(UNKNOWN, f"Too short to say: fewer than {FEWEST_TOKENS} tokens")
    if speedup is None or pd.isna(speedup) or uncertainty is None or pd.isna(uncertainty) or not uncertainty:
        return number(speedup, 2, "×")
    shown = timed_short(speedup, uncertainty, "×").replace("± ", "±\N{NO-BREAK SPACE}")
    return tip(shown, interval_text(speedup, uncertainty))


def speedup_text(speedup: float | None, uncertainty: float | None) -> str:
    """As of ``storage.figures.timed_short``; a dash where there is none."""
    return UNKNOWN if speedup is None or pd.isna(speedup) else timed_short(speedup, uncertainty, "×")


def interval_text(speedup: float, uncertainty: float) -> str:
    """A sentence on what a single run's speed-up may be."""
    low, high = timed_interval(speedup, uncertainty)
    noise = " Variation of the timings"
    if too_noisy(uncertainty):
        known = {1: "Faster, but by how much is uncertain", -1: "Slower, but by how much is uncertain"}
        said = known.get(timed_side(speedup, uncertainty), "Faster or slower: cannot tell")
        noise = f" {said}, since the machine was busy with other work"
    return f"95 % interval {low:.2f}× to {high:.2f}×.{noise} during this run and its baseline."


def noisy_runs(noisy: int, runs: int) -> str:
    """What a chart says below it of runs that are too noisy to tell, as short as a phone is wide; empty where there are
    none."""
    return f"{noisy:,} of {count(runs, 'run')} uncertain by > ± {percent(TOO_NOISY)}" if noisy else ""


def listed_of(what: str, first: int, shown: int, total: int) -> str:
    """Which of a list stand on its page: so many from the ``first`` on."""
    if shown == 1:
        return f"{what} {first:,} of {total:,}"
    return f"{what}s {first:,}–{first + shown - 1:,} of {total:,}"
