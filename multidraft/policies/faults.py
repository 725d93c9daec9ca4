"""Policies that misbehave: what they chose and is not there, what they raised and where."""

from __future__ import annotations

from operator import index
from pathlib import Path
from traceback import walk_tb
from typing import Any

from drafters.errors import PolicyError, UserError, told


def chosen_arm(spec: str, choice: Any, arms: range) -> int:
    """The arm that the policy ``spec`` chose.

    Args:
        arms: all there are, with those that stand for no drafter and for all.

    Raises:
        PolicyError: there is no such arm.
    """
    arm = _whole(choice)
    if arm is None or arm not in arms:
        shown = arm if arm is not None else f"{choice!r:.60}"
        raise PolicyError(f"policy {spec!r} chose drafter {shown}; there are 0 to {arms[-1]}")
    return arm


def chosen_length(spec: str, choice: Any, most: int) -> int:
    """The draft length that the policy ``spec`` chose, cut to ``most``.

    Raises:
        PolicyError: it is no length.
    """
    length = _whole(choice)
    if length is None or length < 0:
        raise PolicyError(f"policy {spec!r} chose the draft length {choice!r:.60}; it must be a number from 0 on")
    return min(length, most)


def raised_by(policy: object, spec: str, error: BaseException) -> PolicyError | None:
    """What to say of an error that came out of the policy's own code; ``None`` where it came from elsewhere, or says
    itself what is wrong."""
    if isinstance(error, UserError) or not isinstance(error, Exception):
        return None
    found = None
    for frame, line in walk_tb(error.__traceback__):
        code = frame.f_code
        # One of its methods, whatever they call themselves.
        if code.co_argcount and frame.f_locals.get(code.co_varnames[0]) is policy:
            found = code.co_filename, line
    return None if found is None else _raised(spec, error, *found)


def raised_at_its_making(spec: str, error: Exception) -> PolicyError:
    """What to say of an error that came out of the policy's constructor."""
    frame, line = list(walk_tb(error.__traceback__))[-1]
    return _raised(spec, error, frame.f_code.co_filename, line)


def _raised(spec: str, error: Exception, file: str, line: int) -> PolicyError:
    here = Path.cwd()
    place = Path(file).relative_to(here) if Path(file).is_relative_to(here) else file
    return PolicyError(f"policy {spec!r} raised {told(error)} ({place}, line {line})")


def _whole(value: Any) -> int | None:
    """``value`` as an ``int``, NumPy's among them; ``None`` for what is no whole number."""
    try:
        return index(value)
    except TypeError:
        return None
