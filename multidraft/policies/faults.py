"""Policies that misbehave: invalid choices, and exceptions with the place that raised them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from traceback import walk_tb
from typing import Any

from drafters.arguments import whole
from drafters.errors import PolicyError, UserError, error_message


def chosen_arm(spec: str, choice: Any, arms: range) -> int:
    """The arm that the policy ``spec`` chose; raises :class:`PolicyError` if it is not among ``arms``, those for no
    drafter and for all included."""
    arm = whole(choice)
    if arm is None or arm not in arms:
        shown = arm if arm is not None else f"{choice!r:.60}"
        raise PolicyError(
            f"policy {spec!r} chose drafter {shown}; there are 0 to {arms[-1]}, -1 for none, and -2 for all at once"
        )
    return arm


def chosen_length(spec: str, choice: Any, most: int) -> int:
    """The draft length that the policy ``spec`` chose, cut to ``most``; raises :class:`PolicyError` if it is none."""
    length = whole(choice)
    if length is None or length < 0:
        raise PolicyError(f"policy {spec!r} chose the draft length {choice!r:.60}; it must be a number from 0 on")
    return min(length, most)


def chosen_span(spec: str, choice: Any) -> int | None:
    """How many of the last positions the policy ``spec`` wants evaluated, ``None`` for all; raises
    :class:`PolicyError` if that is no count."""
    span = whole(choice)
    if choice is not None and (span is None or span < 1):
        raise PolicyError(
            f"policy {spec!r} gave {choice!r:.60} as evaluation_span; it must be a number from 1 on or None"
        )
    return span


def chosen_readers(spec: str, choice: Any, count: int) -> tuple[int, ...]:
    """The drafters that the policy ``spec`` wants to read the prompt; raises :class:`PolicyError` unless they are some
    of ``count``."""
    readers = tuple(map(whole, choice)) if isinstance(choice, Iterable) else (None,)
    if any(arm not in range(count) for arm in readers):
        raise PolicyError(f"policy {spec!r} gave {choice!r:.60} as candidates; they must be among 0 to {count - 1}")
    return readers  # type: ignore[return-value]


def told_number(spec: str, name: str, value: Any) -> float:
    """A number that the policy ``spec`` tells for the record; raises :class:`PolicyError` for what is no finite one,
    which no JSON could hold."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise PolicyError(f"policy {spec!r} gave {value!r:.60} as {name}; it must be a finite number")
    return number


def told_numbers(spec: str, name: str, value: Any) -> tuple[float, ...]:
    """Likewise several."""
    if not isinstance(value, Iterable):
        raise PolicyError(f"policy {spec!r} gave {value!r:.60} as {name}; they must be a list of numbers")
    return tuple(told_number(spec, f"one of the {name}", one) for one in value)


def raised_by(policy: object | None, spec: str, error: BaseException) -> PolicyError | None:
    """What to say of an error that came out of the policy's own code, its constructor where ``policy`` is ``None``;
    ``None`` where it came from elsewhere, or says itself what is wrong."""
    if isinstance(error, UserError) or not isinstance(error, Exception | SystemExit):
        return None
    found = None
    for frame, line in walk_tb(error.__traceback__):
        code = frame.f_code
        # One of its methods, whatever they call themselves.
        if policy is None or (code.co_argcount and frame.f_locals.get(code.co_varnames[0]) is policy):
            found = Path(code.co_filename), line
    if found is None:
        return None
    file, line = found
    place = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    return PolicyError(f"policy {spec!r} raised {error_message(error)} ({place}, line {line})")
