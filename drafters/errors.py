"""Errors that a user can mend: each message says what is wrong, where, and what to do."""

import re
import sys
from collections.abc import Iterable
from difflib import get_close_matches

from pydantic_core import ErrorDetails

_FOLDERS = re.compile(r"""(?<![^\s'"(=:\[])(?:[A-Za-z]:\\|~?/)(?:[^\s'",;()/\\]+[/\\])+(?=[^\s/\\])""")
"""Of a path that begins at the root, all but its last part."""

LONGEST_MESSAGE = 2_000
"""Characters of an error's message that are shown: input that is quoted in one may be as long as a request."""


class UserError(ValueError):
    """Base of all errors caused by input; shown without a traceback. A long message loses its middle."""

    def __str__(self) -> str:
        text, half = super().__str__(), LONGEST_MESSAGE // 2
        return text if len(text) <= LONGEST_MESSAGE else f"{text[:half]} … {text[-half:]}"


def quoted(value: object, most: int = 40) -> str:
    """A value as a message quotes it: at most ``most`` characters of its ``repr``."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, or lists in lists without end
        return f"a value of type {type(value).__name__} that is too large to print"
    return text if len(text) <= most else f"{text[:most]}…"


def meant(name: str, known: Iterable[str]) -> str:
    """``did you mean …? `` and a space, with the nearest of the known names; empty where none is near."""
    near = get_close_matches(name, list(known), 1)
    return f"did you mean {near[0]}? " if near else ""


def error_message(error: BaseException) -> str:
    """An error as users read it: its message; its type and its notes too, unless it is a :class:`UserError`."""
    if isinstance(error, UserError):
        return str(error)
    message = ": ".join(filter(None, (type(error).__name__, str(error))))
    return without_folders(" ".join([message, *(f"({note})" for note in getattr(error, "__notes__", ()))]))


def without_folders(text: str) -> str:
    """A message without the folders of the files that it names: where they lie is the operator's affair."""
    return _FOLDERS.sub("", text)


def fault_message(fault: ErrorDetails, place: str = "") -> str:
    """A fault that pydantic found in some fields: where, by default its whole path, what is wrong, and what stands
    there."""
    place = place or ".".join(part for part in map(str, fault["loc"]) if part != "str" and "[" not in part)
    if fault["type"] == "missing":
        return f"{place} is missing"
    if fault["type"] in ("model_type", "dict_type", "mapping_type"):
        return f"{place}: input should be an object with named fields, got {quoted(fault['input'])}"
    if fault["type"] == "too_short" and not fault["input"]:
        return f"{place} is empty"
    said = fault["msg"].removeprefix("Value error, ")
    return f"{place}: {said[0].lower()}{said[1:]}, got {quoted(fault['input'])}"


def first_line(error: BaseException) -> str:
    """The first line of an error's message, with the next one if it ends in a colon, without its full stop; its type if
    there is no message."""
    first, *more = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return (f"{first} {more[0]}" if more and first.endswith(":") else first).rstrip(".")


def unreadable(error: Exception) -> str:
    """Why a file of text could not be read, in one line and in words for users."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if "integer string conversion" in str(error):
        return f"a number in it has more than {sys.get_int_max_str_digits():,} digits"
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 text: byte {error.object[error.start]:#04x} at position {error.start:,}"
    return " ".join(str(error).split())


class BusyError(UserError):
    """Nothing is wrong with what was asked for, but it cannot be done now: try again later."""


class StoppingError(BusyError):
    """Likewise, because the server is shutting down: whoever comes after it may answer."""


class PromptError(UserError):
    """A prompt that cannot be run, e.g. an empty one."""


class ContextWindowError(PromptError):
    """A prompt that does not fit the target's context window."""


class TextMemoryError(PromptError):
    """A text whose keys and values do not fit the memory: there is never room for them, or it ran out."""


class PolicyError(UserError):
    """A policy spec that names no policy, or settings it cannot take; or a policy that misbehaves."""


class PoolError(UserError):
    """A pool that is unknown, incomplete or corrupt."""


class PoolMemoryError(PoolError):
    """A pool that does not fit into the free memory; ``missing`` bytes are needed beyond it (``None``: unknown)."""

    def __init__(self, message: str, missing: int | None = None):
        super().__init__(message)
        self.missing = missing


class MisfitError(PoolError):
    """A pool whose parts do not fit together, as their configurations tell before any weights are read."""


class TargetError(UserError):
    """A target whose scores are no numbers: nothing can be chosen by them."""


class DrafterError(UserError):
    """A drafter of one's own that failed, or took too long."""


class DraftError(ValueError):
    """A draft that cannot be verified."""


class SuiteError(UserError):
    """A file of prompts that cannot be read."""


class TrainingError(UserError):
    """Training that cannot begin, or cannot go on."""
