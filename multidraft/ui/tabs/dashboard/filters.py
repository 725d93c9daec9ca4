"""The dashboard's filters: their controls, their place in the page's address, and the ``Filter`` they amount to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from typing import Any
from urllib.parse import parse_qs

import gradio as gr

from drafters.errors import UserError
from multidraft.policies.titles import policy_titles
from storage.filters import Filter

ALL = ""
"""The value of a filter that restricts nothing."""


@dataclass(frozen=True)
class Chosen:
    """What the controls hold, in their order; ``""``, ``None`` and empty lists restrict nothing.

    ``length``, ``sampling`` and ``limit`` are draft length, temperature and max new tokens; in the address those names
    are the settings of *Play*.
    ``since`` and ``until`` are days, both inclusive, as ``2026-01-31``; ``card`` is the hash of the pool's card.
    ``unshared`` ranks policies over all their prompts, whether the others ran them or not.
    """

    pool: str = ALL
    hardware: str = ALL
    policy: Sequence[str] = ()
    task: Sequence[str] = ()
    version: str = ALL
    dtype: str = ALL
    card: str = ALL
    baseline: str = ALL
    source: Sequence[str] = ()
    length: str = ALL
    sampling: str = ALL
    limit: str = ALL
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
        chosen: dict[str, Any] = {control.field: control.wanted(getattr(self, control.name)) for control in CONTROLS}
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
        given: dict[str, Any] = {c.name: [one for one in asked.get(c.name, []) if one] for c in CONTROLS if not c.every}
        single = {c.name: asked.get(c.name, [defaults.get(c.name, ALL)])[-1] for c in CONTROLS if c.every}
        since, until = (asked.get(end, [""])[-1] or None for end in ("from", "to"))
        unshared = asked.get("unshared", [""])[-1] == "true"
        return cls(**given, **single, since=since, until=until, unshared=unshared)

    def values(self) -> list[Any]:
        """In the order of the controls."""
        return list(vars(self).values())


@dataclass(frozen=True)
class Control:
    """A filter that offers what the history holds.

    Attributes:
        name: of its field in :class:`Chosen`, and of its parameter in the address.
        label: above it.
        key: of what there is to choose (``aggregates.filters``).
        every: what restricts nothing is called; empty where several values can be chosen, and none restricts nothing.
        titles: of values that are not shown as they are.
        attribute: of ``Filter``, where it is not called like this one, or like ``key``.
    """

    name: str
    label: str
    key: str
    every: str = ""
    titles: Mapping[str, str] = field(default_factory=dict)
    attribute: str = ""

    @property
    def field(self) -> str:
        """The attribute of ``Filter``."""
        return self.attribute or self.name if self.every else self.key

    def wanted(self, value: Any) -> str | tuple[str, ...] | None:
        """What ``Filter`` takes for a value."""
        return (value or None) if self.every else tuple(value or ())

    def known(self, value: Any, there: Sequence[str]) -> Any:
        """A value without what is gone."""
        if self.every:
            return value if value in there else ALL
        return [one for one in value or [] if one in there]

    def choices(self, values: Sequence[str]) -> list[tuple[str, str]]:
        titles = policy_titles(values) if self.name == "policy" else self.titles
        offered = [(titles.get(value, value), value) for value in values]
        return [(self.every, ALL), *offered] if self.every else offered

    def build(self, chosen: Chosen, min_width: int) -> gr.Dropdown:
        """The control, until :func:`offered` says what else there is."""
        place: dict[str, Any] = {"label": self.label, "elem_id": f"filter-{self.field}", "min_width": min_width}
        if not self.every:
            return gr.Dropdown([], multiselect=True, **place)
        value = getattr(chosen, self.name)
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
    Control("pool", "Pool", "pools", "all pools"),
    Control("hardware", "Hardware", "hardware", "all hardware"),
    Control("policy", "Policies (all unless chosen)", "policies"),
    Control("task", "Tasks (all unless chosen)", "tasks"),
    Control("version", "Code version", "versions", "all versions"),
    Control("dtype", "Dtype", "dtypes", "all dtypes"),
    Control("card", "Pool card (hash)", "cards", "all cards"),
    Control("baseline", "Baseline of speed-ups", "baselines", "all baselines", BASELINES),
    Control("source", "Sources", "sources", titles=SOURCES),
    Control("length", "Draft length", "draft_lengths", "all draft lengths", attribute="draft_length"),
    Control("sampling", "Temperature", "temperatures", "all temperatures", GREEDY, attribute="temperature"),
    Control("limit", "Max new tokens", "limits", "all limits", attribute="max_new_tokens"),
)
"""All but the two days and the switch, which follow them."""

FOLDED = 4
"""So many of them are always in sight; the others, and the days, are folded away."""

PARAMETERS = (*(control.name for control in CONTROLS), "from", "to", "unshared")
"""The address's parameters, in the order of the controls."""


def build_filters(chosen: Chosen) -> tuple[list[Any], gr.Accordion, gr.Button]:
    """The controls, in the order of :class:`Chosen`, holding ``chosen`` (the last, a switch, is to be put beside the
    ranking), the accordion that has those that are less
    asked for, titled by :func:`more_title`, and the button that reads the history again."""
    with gr.Row(elem_classes="md-filters"):
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
    folded = {"since": "first day", "until": "last day"} | {
        c.name: c.attribute.replace("_", " ") or c.name for c in CONTROLS[FOLDED:]
    }
    on = [title for name, title in folded.items() if getattr(chosen, name)]
    if not on:
        return f"More filters: {', '.join(folded.values())}"
    return f"More filters, {len(on)} on: {', '.join(on)}"


def known(found: Mapping[str, Sequence[str]], chosen: Chosen) -> Chosen:
    """``chosen`` without the choices that are gone (``aggregates.filters`` says what there is)."""
    return replace(chosen, **{c.name: c.known(getattr(chosen, c.name), found[c.key]) for c in CONTROLS})


def not_taken(found: Mapping[str, Sequence[str]], query: str) -> list[str]:
    """The parts of a page's address that name what the history does not hold, or an invalid day."""
    asked = Chosen.from_query(query, {})
    parts = []
    for control in CONTROLS:
        value = getattr(asked, control.name)
        values = [value] if isinstance(value, str) and value else value
        parts += [f"{control.name}={one}" for one in values if one not in found[control.key]]
    days = (("from", asked.since), ("to", asked.until))
    return parts + [f"{name}={text}" for name, text in days if text and not _known_day(text)]


def offered(found: Mapping[str, Sequence[str]], chosen: Chosen, shown: Chosen | None = None) -> list[Any]:
    """All controls but the days, with what there is to choose, holding ``chosen``, which must be known.

    Where they show that already (``shown``) the value is left out: it may have been changed meanwhile.
    """
    updates = []
    for control in CONTROLS:
        value = getattr(chosen, control.name)
        same = shown is not None and (getattr(shown, control.name) or None) == (value or None)
        settings: dict[str, Any] = {} if same else {"value": value}
        updates.append(gr.Dropdown(control.choices(found[control.key]), multiselect=not control.every, **settings))
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
