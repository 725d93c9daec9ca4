"""The one spelling of a policy spec, so that a history does not tell apart what is the same."""

from __future__ import annotations

from multidraft.policies.base import read_spec, settings_of


def canonical_spec(spec: str) -> str:
    """The spelling under which a spec's runs are recorded.

    The name in small letters; settings in the policy's order, the first without its name if it must be given, numbers
    as short as they can be, and none that is at its default: ``UCB:reward=bd, beta=0.10`` is ``ucb:beta=0.1``.

    Raises:
        PolicyError: unknown name, unknown setting, or no number where one is needed.
    """
    kind, values = read_spec(spec)
    known = settings_of(kind)
    lone = next((key for key, parameter in known.items() if parameter.default is parameter.empty), None)
    lone = lone if lone == next(iter(known), None) else None  # without a name a value is the first setting's
    parts = [
        _text(values[key]) if key == lone else f"{key}={_text(values[key])}"
        for key, parameter in known.items()
        if key in values and values[key] != parameter.default
    ]
    return f"{kind.name}:{','.join(parts)}" if parts else kind.name


def _text(value: str | int | float) -> str:
    """A setting as a person would type it: ``0.1``, and ``3`` for 3.0."""
    if not isinstance(value, float):
        return str(value)
    return short if float(short := f"{value:g}") == value else repr(value)
