"""What the Stop buttons of the page end."""

from __future__ import annotations

from collections.abc import Callable


class Stops:
    """What the Stop button of each visitor ends."""

    def __init__(self) -> None:
        self._cancels: dict[str, Callable[[], None]] = {}

    def set(self, visitor: str | None, cancel: Callable[[], None]) -> None:
        """From now on Stop of ``visitor`` calls ``cancel``."""
        self._cancels[visitor or ""] = cancel

    def forget(self, visitor: str | None) -> None:
        """The run of ``visitor`` ended."""
        self._cancels.pop(visitor or "", None)

    def stop(self, visitor: str | None) -> None:
        """End what ``visitor`` has running, if anything."""
        if cancel := self._cancels.get(visitor or ""):
            cancel()
