"""How far the loading of a pool is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True)
class Step:
    """One step of many: a model is fetched from the Hub, or loaded into memory.

    Attributes:
        what: the model, in words.
        number, of: the step's number, from 1, and how many there are.
        done_bytes, total_bytes: of what is fetched; 0 of 0 until the Hub reports a size.
    """

    doing: Literal["fetching", "loading"]
    what: str
    number: int
    of: int
    done_bytes: int = 0
    total_bytes: int = 0


Report = Callable[[Step], None]
"""Called with every step, and as bytes arrive; from several threads. What it raises ends the loading."""


class Steps:
    """Counts the steps of one loading, and reports each."""

    def __init__(self, of: int, report: Report):
        self._now, self._report = Step("loading", "", 0, of), report

    @property
    def what(self) -> str:
        """The model at work."""
        return self._now.what

    def begin(self, doing: Literal["fetching", "loading"], what: str) -> None:
        """The next step begins."""
        self._now = Step(doing, what, self._now.number + 1, self._now.of)
        self._report(self._now)

    def fetched(self, done: int, total: int) -> None:
        """So many bytes of the model have arrived."""
        self._report(replace(self._now, done_bytes=done, total_bytes=total))
