"""What one server does at most: for all, and for each visitor. ``settings`` reads it from environment variables."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from drafters.errors import BusyError, PromptError, UserError
from drafters.hardware import format_bytes


@dataclass(frozen=True)
class Limits:
    """By default those of a page that only this machine can reach; :data:`PUBLIC` has those of one that others can.

    ``None`` sets no limit.

    Attributes:
        queue: jobs (runs, races, batches, replays) that may be under way or wait at once.
        share: of one visitor, as a part of whatever is limited for all: places in the queue, batches, texts of
            programs, uploads.
        prompt_tokens, new_tokens: of a text, beside the target's context window.
        batch_runs: prompts times policies of a batch.
        run_seconds: of the device, that a run, a replay or a reading may take.
        batch_seconds: likewise, a batch or a race.
        stored_bytes: of uploads within a day.
    """

    queue: int = 128
    share: float = 1.0
    prompt_tokens: int | None = None
    new_tokens: int | None = None
    batch_runs: int | None = None
    run_seconds: float | None = None
    batch_seconds: float | None = None
    stored_bytes: int = 2 * 2**30

    def own(self, of_all: int) -> int:
        """What one visitor may have of something of which there is so much for all; at least one."""
        return max(1, math.floor(of_all * self.share))

    def check_place(self, plural: str, most: int, taken: Sequence[str], visitor: str) -> None:
        """Refuse another job of a visitor.

        Args:
            most: places for such jobs, called ``plural``.
            taken: the visitors of those that are taken.

        Raises:
            BusyError: all are taken, or as many as one visitor may have.
        """
        if len(taken) >= most:
            raise BusyError(f"{most} {plural} are already running on this server; try again when one has ended")
        if visitor and (own := taken.count(visitor)) >= (share := self.own(most)):
            raise BusyError(f"{own} {plural} of yours are already running, and a visitor may have {share} here")

    def check_text(self, prompt_tokens: int, new_tokens: int) -> None:
        """Raise :class:`UserError` for a text that is longer than texts may be here."""
        if self.prompt_tokens is not None and prompt_tokens > self.prompt_tokens:
            raise PromptError(
                f"the prompt has {prompt_tokens:,} tokens, but prompts may have {self.prompt_tokens:,} on this server; "
                "shorten it"
            )
        self.check_answer(new_tokens)

    def check_answer(self, new_tokens: int) -> None:
        """Raise :class:`UserError` if answers of so many tokens may not be asked for."""
        if self.new_tokens is not None and new_tokens > self.new_tokens:
            raise UserError(f"max new tokens must be at most {self.new_tokens:,} on this server, got {new_tokens:,}")

    def check_batch(self, prompts: int, policies: int) -> None:
        """Raise :class:`UserError` for a batch of more runs than a batch may have."""
        if self.batch_runs is not None and (runs := prompts * policies) > self.batch_runs:
            raise UserError(
                f"{prompts:,} prompts under {policies:,} policies are {runs:,} runs, but a batch may have "
                f"{self.batch_runs:,} on this server; choose fewer prompts or policies"
            )


PUBLIC = Limits(share=0.25, batch_runs=1_000, run_seconds=300.0, batch_seconds=3_600.0)
"""Of a server that others than its own machine can reach, unless it is told others."""

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
