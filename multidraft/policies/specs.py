"""Policy specs such as ``ucb:beta=0.1,reward=be``: read, checked, built, and spelled in one way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from drafters.arguments import texts_of, whole
from drafters.errors import PolicyError, quoted
from multidraft.policies.base import POLICIES, Policy, policy_names
from multidraft.policies.custom import FILES
from multidraft.policies.faults import raised_by
from multidraft.policies.settings import Setting, explained, settings_of_model
from storage.records import PLAIN


def settings_of(kind: type[Policy]) -> dict[str, Setting]:
    """The settings that a spec of this policy may give, in their order."""
    return settings_of_model(kind.Settings)


def parse_spec(spec: str) -> tuple[str, dict[str, str]]:
    """Split ``name:key=value,…`` into name and settings; a lone value (``fixed:math``) is the key ``""``.

    Any text can be split, such as the name of a policy that nobody here knows: of equal keys the last one counts.
    """
    name, settings = _parts(spec)
    return name, dict(settings)


def _parts(spec: str) -> tuple[str, list[tuple[str, str]]]:
    if not isinstance(spec, str):
        raise PolicyError(f"a policy is one spec, such as 'rate-hedge', or a Policy, got {type(spec).__name__}")
    name, _, rest = spec.strip().partition(":")
    settings = list[tuple[str, str]]()
    for part in filter(None, (p.strip() for p in rest.split(","))):
        key, equals, value = part.partition("=")
        settings.append((key.strip(), value.strip()) if equals else ("", key.strip()))
    return name.strip().lower(), settings


def read_spec(spec: str) -> tuple[type[Policy], dict[str, Any]]:
    """The policy that a spec names, and the settings it gives, as texts where one that must be given is missing.

    Raises:
        PolicyError: unknown policy, unknown setting, one that is given twice, or a value out of bounds; the message
            lists what is valid.
    """
    name, texts = _parts(spec)
    if name not in POLICIES:
        offered = [name for name in policy_names() if POLICIES[name].live]
        near = get_close_matches(name, offered, 1) or [known for known in offered if name and known.startswith(name)]
        hint = f"did you mean {near[0]}?" if near else f"choose one of: {', '.join(offered)}"
        if name.endswith(".py"):
            hint = f"name files of policies in {FILES}, and here a policy that they register"
        raise PolicyError(f"unknown policy {name!r:.60}; {hint}")
    kind = POLICIES[name]
    known = settings_of(kind)
    values: dict[str, Any] = {}
    for key, text in texts:
        setting = key or next(iter(known), text)  # the lone value of `fixed:math` is the first setting
        if not key and text in known and not _may_be(known[setting], text):
            raise PolicyError(f"policy {name!r}: the setting {text!r} has no value; it must be {known[text].valid}")
        if setting in values:
            raise PolicyError(f"policy {name!r}: {setting} is given twice, {values[setting]!r:.60} and {text!r:.60}")
        values[setting] = text
    try:
        settings = kind.Settings(**values)
    except ValidationError as error:
        if all(fault["type"] == "missing" for fault in error.errors()):
            return kind, values
        raise PolicyError(f"policy {name!r}: {explained(kind.Settings, error)}") from None
    return kind, {key: getattr(settings, key) for key in known if key in values}


def _may_be(setting: Setting, text: str) -> bool:
    """Whether a setting can have a value that is the name of a setting."""
    return text in setting.choices if setting.choices else not setting.numeric


def make_policy(spec: str, arms: int | Sequence[str], seed: int = 0) -> Policy:
    """Build a policy from its spec.

    Args:
        spec: a name with optional settings, e.g. ``"ucb"``, ``"ucb:beta=0.1,reward=be"``, ``"fixed:math"``.
        arms: the drafters' names, or just how many there are.
        seed: seed of the policy's own generator, from 0 on.

    Raises:
        PolicyError: as :func:`read_spec`; arms or a seed that are none; a setting is missing; the policy's own code
            failed.
    """
    kind, values = read_spec(spec)
    name, names = kind.name, _names(arms)
    if (number := whole(seed)) is None or number < 0:
        raise PolicyError(f"the seed of a policy must be a whole number from 0 on, got {quoted(seed)}")
    if not names and name != PLAIN:
        raise PolicyError(f"policy {name!r} needs at least one drafter in the pool")
    if missing := _missing(kind, values):
        raise PolicyError(f"policy {name!r} needs {missing[0]}, e.g. {name}:{names[0]}; drafters: {', '.join(names)}")
    try:
        return kind(names, number, **values)
    except (Exception, SystemExit) as error:
        raise raised_by(None, spec, error) or PolicyError(f"policy {spec!r}: {error}") from error


def _names(arms: object) -> list[str]:
    """The names of drafters that are given by these, or made up for so many."""
    if (count := whole(arms)) is not None:
        return [f"arm{i}" for i in range(count)]
    if (names := texts_of(arms)) is None:
        raise PolicyError(f"arms must be a list of the drafters' names, or how many there are, got {quoted(arms)}")
    return list(names)


def is_plain(spec: str) -> bool:
    """Whether a spec, of whatever spelling, names the policy that drafts nothing."""
    return parse_spec(spec)[0] == PLAIN


def spec_list(specs: Iterable[str]) -> tuple[str, ...]:
    """The specs of several policies; a :class:`PolicyError` for a single text, whose letters are none."""
    if (found := texts_of(specs)) is None:
        raise PolicyError(f"policies must be a list of specs, such as ['ucb', 'rate-hedge'], got {quoted(specs)}")
    return found


def check_specs(specs: Sequence[str]) -> None:
    """Refuse what no pool can play, before one is loaded: the names of its drafters alone are not checked.

    Raises:
        PolicyError: there is no spec, or a bad one, or one that can only be replayed; see :func:`make_policy`.
    """
    if not specs:
        raise PolicyError("no policy is chosen; choose at least one")
    for spec in spec_list(specs):
        kind, values = read_spec(spec)
        check_live(kind)
        if not _missing(kind, values):
            make_policy(spec, stand_ins(values))


def stand_ins(values: dict[str, Any]) -> list[str]:
    """Names of drafters for a policy that is made only to be checked: whatever its settings name, and another."""
    return [*(value for value in values.values() if isinstance(value, str) and value), "another"]


def check_live(policy: Policy | type[Policy]) -> None:
    """Raise :class:`PolicyError` for a policy that can only be replayed."""
    if not policy.live:
        raise PolicyError(f"policy {policy.name!r} cannot be played live; it is for replays")


def canonical_spec(spec: str) -> str:
    """The spelling under which a spec's runs are recorded, so that equal policies are found under one name.

    The name in small letters; settings in the policy's order, the first without its name if it must be given, numbers
    as short as they can be, and none that is at its default: ``UCB:reward=bd, beta=0.10`` is ``ucb:beta=0.1``.

    Raises:
        PolicyError: as :func:`read_spec`.
    """
    kind, values = read_spec(spec)
    known = settings_of(kind)
    first = next(iter(known.values()), None)
    parts = [
        _text(values[key]) if setting is first and setting.default is None else f"{key}={_text(values[key])}"
        for key, setting in known.items()
        if key in values and values[key] != setting.default
    ]
    return f"{kind.name}:{','.join(parts)}" if parts else kind.name


def starts_of(specs: Sequence[str]) -> dict[str, list[str]]:
    """The specs of policies that take a start, by theirs; without those of policies that are not known here."""
    found: dict[str, list[str]] = {}
    for spec in specs:
        with suppress(PolicyError):
            if "start" in settings_of(read_spec(spec)[0]):
                found.setdefault(start_of(spec), []).append(spec)
    return found


def start_of(spec: str) -> str:
    """What a query begins with under a spec; ``cold`` for policies that take no start."""
    kind, values = read_spec(spec)
    start = settings_of(kind).get("start")
    return str(values.get("start", start.default)) if start else "cold"


def with_start(spec: str, start: str) -> str:
    """``spec`` in its canonical spelling, with another start if the policy takes one."""
    return with_setting(spec, "start", start) if "start" in settings_of(read_spec(spec)[0]) else canonical_spec(spec)


def with_setting(spec: str, setting: str, value: Any) -> str:
    """``spec`` in its canonical spelling, with another value of one of its settings.

    Raises:
        PolicyError: the policy has no such setting, or it cannot take the value.
    """
    kind, values = read_spec(spec)
    named = ",".join(f"{key}={_text(each)}" for key, each in {**values, setting: value}.items())
    return canonical_spec(f"{kind.name}:{named}")


def _text(value: str | int | float) -> str:
    """A setting as a person would type it: ``0.1``, and ``3`` for 3.0."""
    if not isinstance(value, float):
        return str(value)
    value += 0.0  # -0.0 is 0
    return short if float(short := f"{value:g}") == value else repr(value)


def _missing(kind: type[Policy], values: dict[str, Any]) -> list[str]:
    """Settings that must be given and are not."""
    return [key for key, setting in settings_of(kind).items() if setting.default is None and key not in values]


def without_divergence(spec: str) -> str:
    """``spec`` in its one spelling, with ``reward=be`` where it would learn from block divergence, which recorded texts
    do not hold.

    Raises:
        PolicyError: no pool can play it, or it can learn from nothing else.
    """
    kind, values = read_spec(spec)
    if kind.name == "fixed" or not make_policy(spec, stand_ins(values)).uses_block_divergence:
        return canonical_spec(spec)
    if "reward" not in settings_of(kind):
        raise PolicyError(f"policy {kind.name!r} learns from block divergence, which recorded texts do not hold")
    return with_setting(spec, "reward", "be")


def replayed_as(spec: str) -> str:
    """The same; a policy that no pool can play, as a history may hold it, stays what it is."""
    try:
        return without_divergence(spec)
    except PolicyError:
        return spec
