"""The memory of keys and values: how much the texts under way on a pool may take, and which of them may begin."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import lru_cache
from typing import Protocol
from weakref import WeakKeyDictionary, WeakSet, ref

from drafters.errors import TextMemoryError
from drafters.hardware import format_bytes, free_unused, is_out_of_memory

SETTING = "MULTIDRAFT_CACHE_MEMORY"
"""The environment variable by which the app's budget is set, in GiB."""

STEP = 16
"""Texts are counted with a multiple of so many tokens."""


class Holder(Protocol):
    """What has the caches of one text at a time: a pool, or a twin of it."""

    @property
    def caches(self) -> Caches:
        """The budget that it shares with others."""

    def renew(self) -> None:
        """Have empty caches instead of those it has, whose memory nothing refers to any more."""


class Waiting:
    """A text that waits for its caches."""


class Caches:
    """The budget of a pool and its twins. Texts that do not fit wait until others have ended; used on one thread.

    Caches keep their memory when their text has ended, so that the next one need not fetch it again. It is given back
    as soon as another text does not fit beside it.

    Args:
        size: bytes that a text of at most so many tokens takes.
        budget: bytes of all texts; ``None`` sets no bound.
    """

    def __init__(self, size: Callable[[int], int] = lambda tokens: 0, budget: int | None = None):
        self._size, self.budget = lru_cache(maxsize=None)(size), budget
        self._held: WeakKeyDictionary[Holder, int] = WeakKeyDictionary()
        self._busy: WeakSet[Holder] = WeakSet()
        self._line = list[ref[Waiting]]()

    def size(self, tokens: int) -> int:
        """Bytes of a text of at most ``tokens`` tokens."""
        return self._size(-(-tokens // STEP) * STEP)

    @property
    def held(self) -> int:
        """Bytes to which the caches may have grown."""
        return sum(self._held.values())

    def check(self, prompt: int, answer: int, window: int) -> int:
        """Refuse a text for which there is never room, before anything of it is computed.

        Args:
            prompt, answer: tokens of it, of the answer at most.
            window: tokens of the longest text.

        Returns:
            Tokens of the text at most.

        Raises:
            TextMemoryError: it alone needs more than the budget.
        """
        longest = min(prompt + answer, window)
        if self.budget is None or (size := self.size(longest)) <= self.budget:
            return longest
        raise TextMemoryError(
            f"the prompt has {prompt:,} tokens and its answer may have {min(answer, window - prompt):,}: their "
            f"keys and values take {format_bytes(size)}, but all texts together may take "
            f"{format_bytes(self.budget)} here; shorten the prompt, ask for fewer tokens, or raise {SETTING}"
        )

    def admit(self, text: Waiting, holder: Holder, tokens: int) -> bool:
        """Whether ``text``, of at most ``tokens`` tokens, may begin now in the caches of ``holder``.

        Texts begin in the order in which they first asked, or a long one would wait for ever. One that may not begin
        asks again; it waits no longer when it leaves, or nothing refers to it any more.
        """
        self._line = [other for other in self._line if other() is not None]
        if not any(other() is text for other in self._line):
            self._line.append(ref(text))
        if self._line[0]() is not text or not self.grow(holder, tokens):
            return False
        self.leave(text)
        self._busy.add(holder)
        return True

    def grow(self, holder: Holder, tokens: int) -> bool:
        """Whether the text under way in the caches of ``holder`` may have so many tokens from now on."""
        size = self.size(tokens)
        if self._excess(holder, size) and (idle := [other for other in self._held if other not in self._busy]):
            self.release(*idle)
        if self._excess(holder, size):
            return False
        self._held[holder] = max(size, self._held.get(holder, 0))
        return True

    def leave(self, text: Waiting) -> None:
        """A text waits no longer."""
        self._line = [other for other in self._line if other() is not text]

    def end(self, holder: Holder) -> None:
        """The text in the caches of ``holder`` has ended."""
        self._busy.discard(holder)

    def release(self, *holders: Holder) -> None:
        """Give back the memory of some caches, which no text needs any more."""
        for holder in holders:
            holder.renew()
            self._held.pop(holder, None)
        free_unused()

    def _excess(self, holder: Holder, size: int) -> bool:
        """Whether there would be more than the budget if the caches of ``holder`` grew to ``size`` bytes."""
        more = max(size - self._held.get(holder, 0), 0)
        return self.budget is not None and self.held + more > self.budget


def ran_out(error: BaseException, holder: Holder, tokens: int) -> TextMemoryError | None:
    """What to say of an error that came of too little memory, and ``None`` of another; the caches of ``holder`` are
    given back then.

    Args:
        tokens: how many the text had that they are for.
    """
    if not is_out_of_memory(error):
        return None
    traceback.clear_frames(error.__traceback__)  # which hold what was being computed
    holder.caches.release(holder)
    return TextMemoryError(
        f"the memory ran out after {tokens:,} tokens; this text's memory has been freed: try again with a shorter "
        f"prompt or fewer new tokens, or lower {SETTING}, so that fewer texts are decoded at once"
    )
