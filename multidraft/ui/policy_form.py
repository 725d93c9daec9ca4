"""A form for a policy's settings, made of what its constructor takes: numbers, choices, texts."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from multidraft.errors import UserError
from multidraft.policies import POLICIES, canonical_spec, make_policy, settings_of
from multidraft.policies.base import STARTS
from multidraft.policies.hedge import GAMES, LOSSES
from multidraft.policies.rewards import ALIGNMENT_REWARDS
from multidraft.ui.choices import real_number, whole_number

CHOICES: dict[str, tuple[str, ...]] = {
    "reward": ALIGNMENT_REWARDS,
    "loss": LOSSES,
    "game": GAMES,
    "gamma": ("hard", "soft"),
    "start": STARTS,
}
"""What settings that are texts can be; others are typed freely."""

_ABOUT_START = "what a query begins with: nothing, the router's guess, or how drafters did in the query before"
_ARGS = re.compile(r"^Args:\n(.*?)(?:\n\S|\n\n|\Z)", re.MULTILINE | re.DOTALL)
_SETTING = re.compile(r"^ {4}(\w+): (.+?)(?=^ {4}\w+: |\Z)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Setting:
    """One setting of a policy.

    Attributes:
        name: as in specs.
        default: its value where a spec does not name it; ``None`` where it must.
        about: what it is, in a line; ``""`` if nobody says.
        choices: all it can be, for settings that are no numbers; empty for any text.
    """

    name: str
    default: Any
    about: str
    choices: tuple[str, ...] = ()

    @property
    def numeric(self) -> bool:
        """Whether it is a number."""
        return type(self.default) in (int, float)


def settings(policy: str, drafters: Sequence[str]) -> list[Setting]:
    """The settings of a registered policy, in the order of its constructor."""
    kind = POLICIES[policy]
    about = _descriptions(kind)
    found = []
    for name, parameter in settings_of(kind).items():
        default = None if parameter.default is parameter.empty else parameter.default
        choices: tuple[str, ...] = ()
        if name == "drafter":
            choices = tuple(drafters)
        elif isinstance(default, str):
            choices = CHOICES.get(name, ())
        found.append(Setting(name, default, about.get(name, ""), choices))
    return found


def build(setting: Setting) -> gr.components.Component:
    """The field that a visitor fills in."""
    about = setting.about[:1].upper() + setting.about[1:]
    common: dict[str, Any] = {"label": setting.name, "info": about or None, "min_width": 200, "interactive": True}
    if setting.numeric:
        whole = isinstance(setting.default, int)
        step = 1 if whole else max(setting.default, 0.01) / 10
        return gr.Number(setting.default, step=step, **common)
    if setting.choices:
        value = setting.default or setting.choices[0]
        return gr.Dropdown(list(setting.choices), value=value, **common)
    return gr.Textbox(setting.default or "", **common)


def spec_of(policy: str, settings: Sequence[Setting], values: Sequence[Any], drafters: Sequence[str]) -> str:
    """The spec of a form that was filled in; settings left at their defaults are not in it.

    Raises:
        UserError: a field is empty, or the policy refuses a value.
    """
    parts = []
    for setting, value in zip(settings, values, strict=True):
        number = whole_number if isinstance(setting.default, int) else real_number
        text = str(number(setting.name, value) if setting.numeric else value or "").strip()
        if "," in text:
            raise UserError(f"{setting.name} cannot hold a comma, got {text!r}")
        if text:
            parts.append(f"{setting.name}={text}")
    spec = canonical_spec(f"{policy}:{','.join(parts)}")
    make_policy(spec, drafters)
    return spec


def _descriptions(kind: type) -> dict[str, str]:
    """What docstrings say of the constructor's arguments, a sentence each; the policy's own before its bases'."""
    found = dict[str, str]()
    for base in reversed(kind.__mro__):
        if arguments := _ARGS.search(inspect.cleandoc(base.__doc__ or "")):
            for name, about in _SETTING.findall(arguments.group(1) + "\n"):
                sentence, *_ = " ".join(about.replace("`", "").split()).split(". ")
                found[name] = sentence.rstrip(".")
    return {**found, "start": _ABOUT_START}
