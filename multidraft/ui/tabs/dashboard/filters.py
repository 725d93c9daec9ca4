"""The dashboard's filters: their controls, their place in the page's address, and the ``Filter`` they amount to; which
of them to let go where together they leave no finished run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import gradio as gr
from markupsafe import Markup

from drafters.errors import UserError
from multidraft.policies.titles import policy_titles
from multidraft.ui.tabs.dashboard import tables
from multidraft.ui.widgets import markup
from storage import aggregates
from storage.filters import Filter

ALL = ""
"""The value of a filter that restricts nothing."""


@dataclass(frozen=True)
class Chosen:
    """What the controls hold, in their order; ``""``, ``None`` and empty lists restrict nothing.

    ``since`` and ``until`` are days, both inclusive, as ``2026-01-31``.
    ``unshared`` ranks policies over all their prompts, whether the others ran them or not.
    """

    pool: str = ALL
    hardware: str = ALL
    policy: Sequence[str] = ()
    task: Sequence[str] = ()
    version: str = ALL
    dtype: str = ALL
    card_hash: str = ALL
    baseline_kind: str = ALL
    source: Sequence[str] = ()
    draft_length: str = ALL
    temperature: str = ALL
    max_new_tokens: str = ALL
    since: str | None = None
    until: str | None = None
    unshared: bool = False

    def filter(self) -> Filter:
        """The runs meant.

        Raises:
            UserError: a date cannot be read, or the last day lies before the first.
        """
        first, last = _day("From", self.since), _day("To", self.until)
        if first and last and last < first:
            raise UserError(f"The filter's last day, {last}, is before its first, {first}: swap them.")
        chosen: dict[str, Any] = {c.column: c.wanted(getattr(self, c.column)) for c in CONTROLS}
        return Filter(
            **chosen,
            since=first.isoformat() if first else None,
            until=(last + timedelta(days=1)).isoformat() if last else None,
            shared=not self.unshared,
        )

    @classmethod
    def from_query(cls, query: str, defaults: Mapping[str, str]) -> Chosen:
        """What a page's address asks for; ``defaults`` stand for parameters that it does not have."""
        asked = parse_qs(query.lstrip("?"), keep_blank_values=True)
        chosen: dict[str, Any] = {
            c.column: [one for one in asked.get(c.parameter, []) if one]
            if c.several
            else asked.get(c.parameter, [defaults.get(c.column, ALL)])[-1]
            for c in CONTROLS
        }
        since, until = (asked.get(end, [""])[-1] or None for end in ("from", "to"))
        unshared = asked.get("unshared", [""])[-1] == "true"
        return cls(**chosen, since=since, until=until, unshared=unshared)

    def values(self) -> list[Any]:
        """In the order of the controls."""
        return list(vars(self).values())


@dataclass(frozen=True)
class Control:
    """A filter that offers what the history holds in a column.

    Attributes:
        column: so its field in :class:`Chosen` and in ``Filter`` is called.
        label: above it.
        every: what restricts nothing is called.
        titles: of values that are not shown as they are.
        several: whether several values can be chosen; none restricts nothing then.
        address: what the page's address calls it, where that is not the column: there such names are settings of
            *Play*, or shorter.
    """

    column: str
    label: str
    every: str
    titles: Mapping[str, str] = field(default_factory=dict)
    several: bool = False
    address: str = ""

    @property
    def parameter(self) -> str:
        """Of the page's address."""
        return self.address or self.column

    def wanted(self, value: Any) -> str | tuple[str, ...] | None:
        """What ``Filter`` takes for a value."""
        return tuple(value or ()) if self.several else value or None

    def known(self, value: Any, there: Sequence[str]) -> Any:
        """A value without what is gone."""
        if self.several:
            return [one for one in value or [] if one in there]
        return value if value in there else ALL

    def choices(self, values: Sequence[str]) -> list[tuple[str, str]]:
        titles = policy_titles(values) if self.column == "policy" else self.titles
        offered = [(titles.get(value, value), value) for value in values]
        return offered if self.several else [(self.every, ALL), *offered]

    def build(self, chosen: Chosen, min_width: int) -> gr.Dropdown:
        """The control, until :func:`offered` says what else there is."""
        place: dict[str, Any] = {"label": self.label, "elem_id": f"filter-{self.column}", "min_width": min_width}
        if self.several:
            return gr.Dropdown([], multiselect=True, **place)
        value = getattr(chosen, self.column)
        # A value of one's own is no error: the choices may have changed on the server before the page knows, and
        # :func:`known` drops what is not there.
        place["allow_custom_value"] = True
        return gr.Dropdown(self.choices([value] if value else []), value=value, **place)


BASELINES = {"answer": "whole answer", "prefix": "first tokens, their median"}
"""What a speed-up may compare with, by ``run.BaselineKind``: autoregressive decoding of so much."""

WIDE = 230
"""Pixels in which the values of the filters that are folded away can be read; five stand in a row."""

SOURCES = {
    "play": "Play",
    "race": "Race",
    "batch": "Batch",
    "api": "API",
    "bench": "bench (command line)",
    "vllm": "vLLM",
    "spec-bench": "Spec-Bench (imported)",
    "specdec_bench": "specdec_bench (imported)",
    "aiperf": "AIPerf (imported)",
}

GREEDY = {"0.0": "0 (greedy)"}
"""Temperatures that are not shown as they are."""

CONTROLS = (
    Control("pool", "Pool", "all pools"),
    Control("hardware", "Hardware", "all hardware"),
    Control("policy", "Policies (all unless chosen)", "all policies", several=True),
    Control("task", "Tasks (all unless chosen)", "all tasks", several=True),
    Control("version", "Code version", "all versions"),
    Control("dtype", "Dtype", "all dtypes"),
    Control("card_hash", "Pool card", "all cards", address="card"),
    Control("baseline_kind", "Autoregressive baseline", "all baselines", BASELINES, address="baseline"),
    Control("source", "Sources", "all sources", SOURCES, several=True),
    Control("draft_length", "Draft length", "all draft lengths", address="length"),
    Control("temperature", "Temperature", "all temperatures", GREEDY, address="sampling"),
    Control("max_new_tokens", "Max new tokens", "all limits", address="limit"),
)
"""All but the two days and the switch, which follow them."""

FOLDED = 4
"""So many of them are always in sight; the others, and the days, are folded away."""

PARAMETERS = (*(control.parameter for control in CONTROLS), "from", "to", "unshared")
"""The address's parameters, in the order of the controls."""


def build_filters(chosen: Chosen) -> tuple[list[Any], gr.Accordion, gr.Button]:
    """The controls, in the order of :class:`Chosen`, holding ``chosen`` (the last, a switch, is to be put beside the
    ranking), the accordion that has those that are less
    asked for, titled by :func:`more_title`, and the button that reads the history again."""
    with gr.Row():
        shown = [control.build(chosen, 160) for control in CONTROLS[:FOLDED]]
        refresh = gr.Button("Refresh", size="md", min_width=110, scale=0, elem_id="refresh")
    more = gr.Accordion(more_title(chosen), open=False, elem_id="more-filters")
    with more, gr.Row():
        days = [
            gr.DateTime(None, include_time=False, type="string", label=label, min_width=WIDE, elem_id=f"filter-{end}")
            for label, end in (("From (UTC)", "from"), ("To, inclusive (UTC)", "to"))
        ]
        folded = [control.build(chosen, WIDE) for control in CONTROLS[FOLDED:]]
    switch = gr.Checkbox(
        label="Rank over all prompts, also those that not all policies ran",
        container=False,
        render=False,
        elem_id="unshared",
    )
    return [*shown, *folded, *days, switch], more, refresh


def more_title(chosen: Chosen) -> str:
    """What stands over the filters that are folded away: which of them restrict something, if any do."""
    folded = {"since": "first day", "until": "last day"} | {c.column: c.label.lower() for c in CONTROLS[FOLDED:]}
    on = [title for name, title in folded.items() if getattr(chosen, name)]
    if not on:
        return f"More filters: {', '.join(folded.values())}"
    return f"More filters, {len(on)} on: {', '.join(on)}"


def known(found: Mapping[str, Sequence[str]], chosen: Chosen) -> Chosen:
    """``chosen`` without the choices that are gone (``aggregates.filters`` says what there is)."""
    return replace(chosen, **{c.column: c.known(getattr(chosen, c.column), found[c.column]) for c in CONTROLS})


def not_taken(found: Mapping[str, Sequence[str]], query: str) -> list[str]:
    """The parts of a page's address that name what the history does not hold, or an invalid day."""
    asked = Chosen.from_query(query, {})
    parts = []
    for control in CONTROLS:
        value = getattr(asked, control.column)
        values = [value] if isinstance(value, str) and value else value
        parts += [f"{control.parameter}={one}" for one in values if one not in found[control.column]]
    days = (("from", asked.since), ("to", asked.until))
    return parts + [f"{name}={text}" for name, text in days if text and not _known_day(text)]


def offered(found: Mapping[str, Sequence[str]], chosen: Chosen, shown: Chosen | None = None) -> list[Any]:
    """All controls but the days, with what there is to choose, holding ``chosen``, which must be known.

    Where they show that already (``shown``) the value is left out: it may have been changed meanwhile.
    """
    updates = []
    for control in CONTROLS:
        value = getattr(chosen, control.column)
        same = shown is not None and (getattr(shown, control.column) or None) == (value or None)
        settings: dict[str, Any] = {} if same else {"value": value}
        updates.append(gr.Dropdown(control.choices(found[control.column]), multiselect=control.several, **settings))
    return updates


def days(chosen: Chosen) -> list[Any]:
    """The values of the two days and the switch; an invalid day is dropped, and one that is not set left alone, since
    setting a day, even to nothing, counts as a change."""
    return [*(_known_day(text) or gr.skip() for text in (chosen.since, chosen.until)), chosen.unshared]


def _known_day(text: str | None) -> str | None:
    """The day, if it is one: the page's control takes nothing else."""
    try:
        return str(day) if (day := _day("", text)) else None
    except UserError:
        return None


def _day(name: str, text: str | None) -> date | None:
    if not text or not text.strip():
        return None
    try:
        return date.fromisoformat(text.strip()[:10])
    except ValueError:
        raise UserError(f"The filter {name!r} needs a day such as 2026-01-31, not {text!r:.30}.") from None


_NAMES = [control.column for control in CONTROLS]
_FREE = vars(Chosen())
_DAYS = "since", "until"


def let_go(path: Path, chosen: Chosen, changed: int) -> Chosen:
    """``chosen`` where finished runs match; else without those choices below the control that was changed, by its
    place, that leave none beside those above them."""
    if _runs(path, chosen):
        return chosen
    below = _NAMES[changed + 1 :]
    kept = replace(chosen, **_free(below))
    if not _runs(path, kept):
        return chosen
    for name in below:
        tried = replace(kept, **{name: getattr(chosen, name)})
        kept = tried if _runs(path, tried) else kept
    return kept


def relaxed(chosen: Chosen, names: str) -> Chosen:
    """``chosen`` without restriction by some filters, as a button of :func:`nothing_fits_html` names them."""
    return replace(chosen, **_free([name for name in names.split() if name in _FREE]))


def nothing_fits_html(path: Path, chosen: Chosen) -> Markup:
    """That no run fits, with a button for each filter without which some do; where there is none, for all at once."""
    ways = [(control.column, control.every) for control in CONTROLS if getattr(chosen, control.column)]
    ways += [(" ".join(_DAYS), "all days")] if chosen.since or chosen.until else []
    found = [(names, title, _runs(path, relaxed(chosen, names))) for names, title in ways]
    every = " ".join((*_NAMES, *_DAYS))
    shown = [way for way in found if way[2]] or [(every, "no filter", _runs(path, relaxed(chosen, every)))]
    if not shown[0][2]:
        return markup.empty_html("No run has finished yet.")
    return markup.empty_html("No finished run matches these filters.", tables.template.ways(shown))


def _free(names: list[str]) -> dict[str, Any]:
    return {name: _FREE[name] for name in names}


def _runs(path: Path, chosen: Chosen) -> int:
    """How many finished runs match."""
    return int(aggregates.conditions(path, chosen.filter())["runs"].sum())
