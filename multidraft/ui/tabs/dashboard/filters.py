"""The dashboard's filters: their controls, their place in the page's address, and the ``Filter`` they amount to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
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

    ``since`` and ``until`` are days, both inclusive, as ``2026-01-31``; ``card`` is the hash of the pool's card.
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
    since: str | None = None
    until: str | None = None

    def filter(self) -> Filter:
        """The runs meant.

        Raises:
            UserError: a date cannot be read, or the last day lies before the first.
        """
        first, last = _day("From", self.since), _day("To", self.until)
        if first and last and last < first:
            raise UserError(f"The filter's last day, {last}, lies before its first, {first}: exchange them.")
        return Filter(
            pool=self.pool or None,
            hardware=self.hardware or None,
            policies=self.policy or (),
            tasks=self.task or (),
            version=self.version or None,
            dtype=self.dtype or None,
            card=self.card or None,
            baseline=self.baseline or None,
            sources=self.source or (),
            since=first.isoformat() if first else None,
            until=(last + timedelta(days=1)).isoformat() if last else None,
        )

    @classmethod
    def from_query(cls, query: str, defaults: Mapping[str, str]) -> Chosen:
        """What a page's address asks for; ``defaults`` stand for parameters that it does not have."""
        asked = parse_qs(query.lstrip("?"), keep_blank_values=True)
        values: dict[str, Any] = {}
        for field, parameter in zip(fields(cls), PARAMETERS):
            given = asked.get(parameter)
            if field.name in _SEVERAL:
                values[field.name] = [value for value in given or [] if value]
            else:
                values[field.name] = given[-1] if given else defaults.get(field.name, "")
        return cls(**{**values, "since": values["since"] or None, "until": values["until"] or None})

    def values(self) -> list[Any]:
        """In the order of the controls."""
        return [getattr(self, field.name) for field in fields(self)]


PARAMETERS = ("pool", "hardware", "policy", "task", "version", "dtype", "card", "baseline", "source", "from", "to")
"""The address's parameters, in the order of the controls."""

CHOICES = 9
"""So many of the controls, the first, offer what the history holds; the last two are days."""

_SINGLE = (
    ("pool", "pools"),
    ("hardware", "hardware"),
    ("version", "versions"),
    ("dtype", "dtypes"),
    ("card", "cards"),
    ("baseline", "baselines"),
)
BASELINES = {"answer": "decoding of the whole answer", "prefix": "decoding of its first tokens, their median"}
"""What a speed-up may compare with, by ``run.BaselineKind``: autoregressive decoding of so much."""

_SEVERAL = {"policy": "policies", "task": "tasks", "source": "sources"}
_SOURCES = {"play": "Play", "race": "Race", "batch": "Batch", "api": "API", "bench": "bench (command line)"}
_MORE = {
    "since": "first day",
    "until": "last day",
    "version": "version",
    "dtype": "dtype",
    "card": "card",
    "baseline": "baseline",
    "source": "source",
}
_EVERY = {
    "pool": "all pools",
    "hardware": "all hardware",
    "version": "all versions",
    "dtype": "all dtypes",
    "card": "all cards",
    "baseline": "all baselines",
}


def build_filters(chosen: Chosen) -> tuple[list[Any], gr.Accordion, gr.Button]:
    """The controls, in the order of :class:`Chosen`, holding ``chosen``, the accordion that has those that are less
    asked for, titled by :func:`more_title`, and the button that reads the history again.

    :func:`offered` tells what else there is to choose.
    """
    with gr.Row(elem_classes="md-filters"):
        pool = _dropdown("Pool", "pool", chosen.pool)
        hardware = _dropdown("Hardware", "hardware", chosen.hardware)
        policies = gr.Dropdown(
            [], multiselect=True, label="Policies (all unless chosen)", min_width=220, elem_id="filter-policies"
        )
        tasks = gr.Dropdown(
            [], multiselect=True, label="Tasks (all unless chosen)", min_width=220, elem_id="filter-tasks"
        )
        refresh = gr.Button("Refresh", size="md", min_width=110, scale=0, elem_id="refresh")
    more = gr.Accordion(more_title(chosen), open=False, elem_id="more-filters")
    with more, gr.Row():
        since = gr.DateTime(
            None, include_time=False, type="string", label="From (UTC)", min_width=150, elem_id="filter-from"
        )
        until = gr.DateTime(
            None, include_time=False, type="string", label="To, inclusive (UTC)", min_width=150, elem_id="filter-to"
        )
        version = _dropdown("Code version", "version", chosen.version)
        dtype = _dropdown("Dtype", "dtype", chosen.dtype)
        card = _dropdown("Pool card (hash)", "card", chosen.card)
        baseline = _dropdown("Baseline of speed-ups", "baseline", chosen.baseline)
        sources = gr.Dropdown([], multiselect=True, label="Sources", min_width=220, elem_id="filter-sources")
    return [pool, hardware, policies, tasks, version, dtype, card, baseline, sources, since, until], more, refresh


def more_title(chosen: Chosen) -> str:
    """What stands over the filters that are folded away: which of them restrict something, if any do."""
    names = [title for name, title in _MORE.items() if getattr(chosen, name)]
    if not names:
        return f"More filters: {', '.join(_MORE.values())}"
    return f"More filters, {len(names)} on: {', '.join(names)}"


def known(found: Mapping[str, Sequence[str]], chosen: Chosen) -> Chosen:
    """``chosen`` without the choices that are gone (``aggregates.filters`` tells what there is)."""
    gone: dict[str, Any] = {name: ALL for name, key in _SINGLE if getattr(chosen, name) not in found[key]}
    left: dict[str, Any] = {
        name: [value for value in getattr(chosen, name) or [] if value in found[key]] for name, key in _SEVERAL.items()
    }
    return replace(chosen, **gone, **left)


def not_taken(found: Mapping[str, Sequence[str]], query: str) -> list[str]:
    """The parts of a page's address that name what the history does not hold, or a day that is none."""
    asked = Chosen.from_query(query, {})
    kept = known(found, asked)
    parts = [f"{name}={value}" for name, _ in _SINGLE if (value := getattr(asked, name)) and not getattr(kept, name)]
    for name in _SEVERAL:
        parts += [f"{name}={value}" for value in getattr(asked, name) if value not in getattr(kept, name)]
    days = (("from", asked.since), ("to", asked.until))
    return parts + [f"{name}={text}" for name, text in days if text and not _known_day(text)]


def offered(found: Mapping[str, Sequence[str]], chosen: Chosen, shown: Chosen | None = None) -> list[Any]:
    """All controls but the days, with what there is to choose, holding ``chosen``, which must be known.

    Where they show that already (``shown``) the value is left out: it may have been changed meanwhile.
    """
    several = {
        "policy": [(title, policy) for policy, title in policy_titles(found["policies"]).items()],
        "task": [(task, task) for task in found["tasks"]],
        "source": [(_SOURCES.get(source, source), source) for source in found["sources"]],
    }
    choices = several | {
        name: [(_EVERY[name], ALL), *((BASELINES.get(text, text), text) for text in found[key])]
        for name, key in _SINGLE
    }
    controls: list[gr.Dropdown] = []
    for field in fields(Chosen)[:CHOICES]:
        value = getattr(chosen, field.name)
        same = shown is not None and (getattr(shown, field.name) or None) == (value or None)
        several_values: dict[str, Any] = {"multiselect": True} if field.name in _SEVERAL else {}
        controls.append(gr.Dropdown(choices[field.name], **several_values, **({} if same else {"value": value})))
    return controls


def days(chosen: Chosen) -> list[Any]:
    """The values of the last two controls; a day that is none is dropped, and one that is not set left alone, since
    setting a day, even to nothing, counts as a change."""
    return [_known_day(text) or gr.skip() for text in (chosen.since, chosen.until)]


def _dropdown(label: str, name: str, value: str) -> gr.Dropdown:
    return gr.Dropdown(_beside_all(name, value), value=value, label=label, min_width=160, elem_id=f"filter-{name}")


def place_choice(name: str, value: str) -> gr.Dropdown:
    """The filter on pool or hardware, holding ``value``, until :func:`offered` tells what else there is."""
    return gr.Dropdown(_beside_all(name, value), value=value)


def _beside_all(name: str, value: str) -> list[tuple[str, str]]:
    return [(_EVERY[name], ALL)] + ([(BASELINES.get(value, value), value)] if value else [])


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
