"""Where the time of a round goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from storage.records import PHASES


class Laps:
    """The time of a round by phase: the clock's seconds, and of them a text's own, which in a batch are fewer.

    Args:
        now: both at the moment.
    """

    def __init__(self, now: Callable[[], tuple[float, float]]):
        self._now, self._last = now, now()
        self.seconds, self.own = dict.fromkeys(PHASES, 0.0), dict.fromkeys(PHASES, 0.0)

    def end(self, phase: str) -> None:
        """What passed since the last call, or the beginning, was of this phase."""
        seconds, own = self._now()
        self.seconds[phase] += seconds - self._last[0]
        self.own[phase] += own - self._last[1]
        self._last = seconds, own

    def record(self) -> dict[str, Any]:
        """The fields ``draft_seconds`` and so on of a :class:`~storage.records.Round`."""
        return {f"{phase}_seconds": seconds for phase, seconds in self.seconds.items()}
