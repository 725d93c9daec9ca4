"""Policies that misbehave: invalid choices, and exceptions with the place that raised them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from operator import index
from pathlib import Path
from traceback import walk_tb
from typing import Any

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


def told_number(spec: str, name: str, value: Any) -> float | None:
    """A number that the policy ``spec`` tells for the record; raises :class:`PolicyError` for what is neither a finite
    one nor ``None``: no JSON could hold it."""
    try:
        number = None if value is None else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if number is not None and not math.isfinite(number):
        raise PolicyError(f"policy {spec!r} gave {value!r:.60} as {name}; it must be a finite number or None")
    return number


def told_chances(spec: str, value: Any) -> tuple[float, ...] | None:
    """Likewise the probabilities of its arms, which are as many numbers, or ``None``."""
    chances = tuple(value) if isinstance(value, Iterable) else value
    if chances is None or (isinstance(chances, tuple) and None not in chances):
        return chances and tuple(told_number(spec, "a probability", chance) or 0.0 for chance in chances)
    raise PolicyError(f"policy {spec!r} gave {value!r:.60} as probabilities; they must be a list of numbers, or None")


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


def whole(value: Any) -> int | None:
    """``value`` as an ``int``, NumPy's among them; ``None`` for what is no whole number, such as ``True``."""
    try:
        return None if isinstance(value, bool) else index(value)
    except TypeError:
        return None


def texts_of(value: Any) -> tuple[str, ...] | None:
    """The texts in a list or another collection; ``None`` for what is none, such as a single text, whose letters are
    not meant."""
    found = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (None,)
    return found if all(isinstance(text, str) for text in found) else None
