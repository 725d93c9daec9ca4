"""What visitors may use up within a day, such as bytes of uploads."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable

from drafters.errors import BusyError
from drafters.hardware import format_bytes
from multidraft.service.limits import Limits

HOURS = 24
"""After so many, what was used is free again."""


class Allowance:
    """So many bytes for all within a day, and for each visitor a share of them; from any thread.

    Args:
        limits: say how many, and the share.
        now: seconds, by a clock that only goes forwards.
    """

    def __init__(self, limits: Limits, now: Callable[[], float] = time.monotonic):
        self.limits, self._now = limits, now
        self._hours = deque[tuple[int, Counter[str]]]()
        self._used = Counter[str]()
        self._lock = threading.Lock()

    def take(self, visitor: str, count: int) -> None:
        """Use up ``count`` bytes.

        Raises:
            BusyError: with them the visitor would have more than their share, or all together more than there is.
        """
        hour = int(self._now() // 3600)
        with self._lock:
            while self._hours and self._hours[0][0] <= hour - HOURS:
                self._used -= self._hours.popleft()[1]
            most = self.limits.stored_bytes
            if self._used[visitor] + count > (share := self.limits.own(most)):
                raise BusyError(f"a visitor may upload {format_bytes(share)} a day here; try again later")
            if self._used.total() + count > most:
                raise BusyError(f"{format_bytes(most)} of uploads are kept here for a day; try again later")
            if not self._hours or self._hours[-1][0] != hour:
                self._hours.append((hour, Counter()))
            self._hours[-1][1][visitor] += count
            self._used[visitor] += count
