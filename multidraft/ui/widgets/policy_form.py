"""A form for a policy's settings: numbers within their bounds, choices, texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import gradio as gr

from drafters.errors import UserError
from multidraft.policies import POLICIES, Setting, canonical_spec, make_policy, settings_of
from multidraft.service.inputs import real_number, whole_number


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
