"""Where the time of a round goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from storage.records import PHASES


class Laps:
    """The time of a round by phase: the clock's seconds, and of them a text's own, which in a batch are fewer.

    Args:
        clock: the seconds at the moment.
        own: the text's own, of these.
    """

    def __init__(self, clock: Callable[[], float], own: Callable[[float], float]):
        self._clock, self._own, self._last = clock, own, clock()
        self._last_own = own(self._last)
        self.seconds, self.own = dict.fromkeys(PHASES, 0.0), dict.fromkeys(PHASES, 0.0)

    def end(self, phase: str) -> None:
        """What passed since the last call, or the beginning, was of this phase."""
        now = self._clock()
        self.seconds[phase] += now - self._last
        own = self._own(now)
        self.own[phase] += own - self._last_own
        self._last, self._last_own = now, own

    def record(self) -> dict[str, Any]:
        """The fields ``draft_seconds`` and so on of a :class:`~storage.records.Round`."""
        return {f"{phase}_seconds": seconds for phase, seconds in self.seconds.items()}
