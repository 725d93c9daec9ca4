"""Policies to choose from, what each does, and a form for the settings of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import gradio as gr
from markupsafe import Markup

from drafters.errors import PolicyError, UserError
from drafters.pool import Pool
from multidraft.policies import POLICIES, Policy, Setting, canonical_spec, make_policy, settings_of
from multidraft.policies.settings import STARTS
from multidraft.policies.titles import policy_choices, policy_title
from multidraft.service.inputs import real_number, whole_number
from multidraft.ui.widgets import markup


def offered(pool: Pool) -> list[tuple[str, str]]:
    """Titles and specs of the policies that a pool can run."""
    return to_type(policy_choices(pool.drafter_names, pool.router is not None))


def to_type(offered: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The same choices in an order that suits typing: a field takes the first choice that has the text anywhere in it,
    so whatever is named within another choice comes before that; typing ``ucb`` does not end up at ``d-ucb``."""
    times = Counter(_name(spec) for _, spec in offered)
    found: list[tuple[str, str]] = []
    for title, spec in offered:
        keys = {title.lower(), spec.lower()} | ({_name(spec)} if times[_name(spec)] == 1 else set())
        within = (i for i, choice in enumerate(found) if any(key in " · ".join(choice).lower() for key in keys))
        found.insert(next(within, len(found)), (title, spec))
    return found


def with_specs(offered: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The same choices in such an order, each title with its spec: ``UCB · ucb``; so it is found by either."""
    return [(f"{title} · {spec}", spec) for title, spec in to_type(offered)]


def completed(specs: Sequence[str], offered: Sequence[tuple[str, str]]) -> Any:
    """An update of a field for several policies, which takes a text as it stands: what is no spec becomes the first
    choice that has it anywhere in it."""
    found: list[str] = []
    for spec in specs:
        try:
            canonical_spec(spec)
        except PolicyError:
            spec = next((value for choice, value in offered if spec.lower() in f"{choice} {value}".lower()), spec)
        found += [] if spec in found else [spec]
    return gr.skip() if found == specs else found


def _name(spec: str) -> str:
    return spec.partition(":")[0].lower()


def explanation_html(spec: str, drafters: Sequence[str], *, titled: bool = False, field: str = "") -> Markup:
    """What the policy does in a line that opens to the rest and where it comes from, after its title where it is
    ``titled``; for a spec that cannot be used, what is wrong with it, after the ``field`` that it stands in."""
    try:
        policy = make_policy(spec, drafters)
    except PolicyError as error:
        wrong, cut, choices = str(error).partition("; choose one of:")
        if not wrong.startswith("unknown policy"):  # of policies the field above it lists them
            wrong += cut + choices
        return markup.refusal_html(markup.sentence(f"{field}: {wrong}" if field else wrong))
    first, _, rest = _explained(policy).partition(". ")
    title = policy_title(spec) if titled else ""
    return markup.explanation_html(f"{first.removesuffix('.')}.", rest, policy.source, title)


def explanations_html(specs: Sequence[str], drafters: Sequence[str]) -> Markup:
    """The same of several policies, one after the other; without those that cannot be used."""
    found = []
    for spec in specs:
        with suppress(PolicyError):
            policy = make_policy(spec, drafters)
            found.append((policy_title(spec), _explained(policy), policy.source))
    return markup.explanations_html(found) if found else Markup()


def _explained(policy: Policy) -> str:
    start = getattr(policy.settings, "start", None)
    return f"{policy.explanation} Begins a query {STARTS[start]} (start={start})." if start else policy.explanation


def settings(policy: str, drafters: Sequence[str]) -> list[Setting]:
    """The settings of a registered policy in their order; those that name a drafter offer the pool's."""
    known = settings_of(POLICIES[policy]).values()
    return [replace(setting, choices=tuple(drafters)) if setting.names_drafter else setting for setting in known]


def build(setting: Setting) -> gr.components.Component:
    """The field that a visitor fills in."""
    about = setting.description[:1].upper() + setting.description[1:]
    common: dict[str, Any] = {"label": setting.name, "info": about or None, "min_width": 200, "interactive": True}
    if setting.numeric:
        default = setting.default if isinstance(setting.default, int | float) else None
        step = 1 if setting.whole else max(default or 0.0, 0.01) / 10
        return gr.Number(default, step=step, **common)
    if setting.choices:
        value = setting.default or setting.choices[0]
        return gr.Dropdown(list(setting.choices), value=value, **common)
    return gr.Textbox(str(setting.default or ""), **common)


def spec_of(policy: str, settings: Sequence[Setting], values: Sequence[Any], drafters: Sequence[str]) -> str:
    """The spec of a form that was filled in; settings left at their defaults are not in it.

    Raises:
        UserError: a field is empty, or the policy refuses a value.
    """
    parts = []
    for setting, value in zip(settings, values, strict=True):
        number = whole_number if setting.whole else real_number
        text = str(number(setting.name, value) if setting.numeric else value or "").strip()
        if "," in text:
            raise UserError(f"{setting.name} cannot hold a comma, got {text!r}")
        if text:
            parts.append(f"{setting.name}={text}")
    spec = canonical_spec(f"{policy}:{','.join(parts)}")
    make_policy(spec, drafters)
    return spec
