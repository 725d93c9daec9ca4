"""Another pool, loaded while the app goes on with the one it has, then exchanged for it between two runs."""

from __future__ import annotations

import gc
import logging
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Literal

import torch

from drafters.card import Card, find_card, load_card
from drafters.hub import HubDownError
from drafters.loading import PoolMemoryError, first_line, is_out_of_memory
from drafters.memory import in_words
from drafters.pool import Pool, load_pool
from drafters.progress import Step
from multidraft.errors import PoolError, UserError
from multidraft.ui.worker import Workbench

log = logging.getLogger(__name__)

FREE_SECONDS, MOST_FREE_SECONDS = 0.5, 30.0
"""How long to wait before looking again whether anybody still uses the old pool: at first, and in the end."""

RETRY_SECONDS, MOST_RETRY_SECONDS = 15.0, 600.0
"""How long a patient loading waits for a Hub that is down: at first, and in the end."""

WORTH_FREEING = 1 << 30
"""Bytes of the pool in use from which on freeing them may help where it is not known how much is missing."""

Phase = Literal["loading", "waiting", "switching", "warming", "done", "failed", "cancelled"]


class Loading:
    """One pool on its way; read it from any thread.

    Attributes:
        source: the card's bundled name or path.
        title: the pool's.
        step: what is being done; ``None`` before the first.
        patient: whether it tries again when the Hub is down.
        from_hub: whether any of its models is the Hub's.
        phase: ``waiting`` before it tries again, ``switching`` while it waits for the runs in line, ``warming`` while
            it decodes its first tokens, just before it is in use.
        error: what is wrong, where, and what to do, if it failed or has to wait.
        ended: it is in use, or was given up.
    """

    def __init__(self, source: str, title: str, patient: bool = False, from_hub: bool = False):
        self.source, self.title, self.patient, self.from_hub = source, title, patient, from_hub
        self.step: Step | None = None
        self.phase: Phase = "loading"
        self.error = ""
        self.cancelled, self.ended = threading.Event(), threading.Event()
        self._began = self._noted = time.monotonic()
        self._ended = 0.0

    @property
    def seconds(self) -> float:
        """How long it has taken so far, or took."""
        return (self._ended if self.ended.is_set() else time.monotonic()) - self._began

    @property
    def asks_hub(self) -> bool:
        """Whether what is done now is up to the Hub: before the first step its files tell the pool's size."""
        return self.from_hub and self.phase == "loading" and (self.step is None or self.step.doing == "fetching")

    @property
    def silence(self) -> float:
        """Seconds since the last step, or the last bytes of it."""
        return time.monotonic() - self._noted

    @property
    def since_end(self) -> float:
        """Seconds since it ended; 0 before."""
        return time.monotonic() - self._ended if self.ended.is_set() else 0.0

    def note(self, step: Step) -> None:
        """Take down what is being done.

        Raises:
            PoolError: it is not wanted any more.
        """
        self.check()
        self.step, self.phase, self._noted = step, "loading", time.monotonic()

    def wait(self, error: str, seconds: float) -> None:
        """Wait before the next try.

        Raises:
            PoolError: it is not wanted any more.
        """
        self.error, self.phase = error, "waiting"
        self.cancelled.wait(seconds)
        self.check()

    def check(self) -> None:
        """Raise :class:`PoolError` if it is not wanted any more."""
        if self.cancelled.is_set():
            raise PoolError("stopped")

    def end(self, phase: Phase, error: str = "") -> None:
        """It came to an end."""
        self.phase, self.error, self._ended = phase, error, time.monotonic()
        self.ended.set()


def hub_models(card: Card) -> list[str]:
    """The Hub repositories that a pool is made of."""
    return list(dict.fromkeys(id for id in (card.target.id, *(entry.id for entry in card.drafters)) if id))


class PoolLoader:
    """Loads pools for a workbench, one at a time, each in a thread of its own.

    Args:
        workbench: has its pool exchanged.
        allowed: whether visitors of the page may ask for another pool.
        cards: folder of further cards beside the bundled ones.
        load: what loads them.
    """

    def __init__(
        self,
        workbench: Workbench,
        allowed: bool = True,
        cards: Path | None = None,
        load: Callable[..., Pool] = load_pool,
    ):
        self.workbench, self.allowed, self.cards, self._load = workbench, allowed, cards, load
        self.last: Loading | None = None
        self._beginning = threading.Lock()
        self._closed = threading.Event()
        workbench.at_close(self.close)

    @property
    def under_way(self) -> Loading | None:
        """What is being loaded, if anything."""
        last = self.last
        return last if last and not last.ended.is_set() else None

    def start(self, source: str | Path, patient: bool = False) -> Loading:
        """Load a pool by a bundled card's name or a path, and switch to it; this returns at once.

        Args:
            patient: try again, less and less often, while the Hub is down; where nobody can ask for the pool again.

        Raises:
            UserError: another is being loaded, or the card cannot be read.
        """
        card, _ = load_card(find_card(source))
        with self._beginning:
            if now := self.under_way:
                raise UserError(f"{now.title} is being loaded; wait for it, or stop it first")
            self.last = loading = Loading(str(source), card.title, patient, bool(hub_models(card)))
        threading.Thread(target=self._work, args=(loading,), name="pool-loader", daemon=True).start()
        return loading

    def cancel(self) -> None:
        """Give up what is being loaded: after the model or the bytes at hand."""
        if now := self.under_way:
            now.cancelled.set()

    def close(self) -> None:
        """The server shuts down."""
        self._closed.set()
        self.cancel()

    def _work(self, loading: Loading) -> None:
        old = weakref.ref(self.workbench.pool)
        try:
            self._exchange(loading)
            loading.end("done")
        except BaseException as error:  # whatever ends it: a loading that never ended would hold all others up
            if loading.cancelled.is_set():
                loading.end("cancelled")
            else:
                log.warning("pool %s: %s", loading.source, error, exc_info=not isinstance(error, UserError))
                loading.end("failed", _reason(error, self.workbench.pool.weight_bytes))
        self._free(old if loading.phase == "done" else None)

    def _exchange(self, loading: Loading) -> None:
        pool = self._loaded(loading)

        def begin() -> None:
            loading.check()
            loading.phase = "warming"

        loading.phase = "switching"
        self.workbench.switch(pool, begin).result()

    def _loaded(self, loading: Loading) -> Pool:
        pause = RETRY_SECONDS
        while True:
            try:
                return self._load(loading.source, progress=loading.note)
            except HubDownError as error:
                if not loading.patient:
                    raise
                log.warning("pool %s, tried again in %.0f s: %s", loading.source, pause, error)
                loading.wait(str(error), pause)
            pause = min(2 * pause, MOST_RETRY_SECONDS)

    def _free(self, old: weakref.ref[Pool] | None) -> None:
        """Free the memory of ``old`` once nobody uses it, or of a pool that was loaded in part."""
        pause = FREE_SECONDS
        while not self._closed.is_set():
            try:
                self.workbench.between_runs(free_memory).result()
            except (CancelledError, RuntimeError):  # the server shuts down
                return
            if old is None or old() is None:
                return
            self._closed.wait(pause)
            pause = min(2 * pause, MOST_FREE_SECONDS)


def _reason(error: BaseException, in_use: int) -> str:
    """What is wrong, and what to do; ``in_use`` are the bytes of the pool that is still there."""
    if isinstance(error, PoolMemoryError):
        return f"{error}{_make_room(in_use, error.missing)}"
    if isinstance(error, UserError):
        return str(error)
    if is_out_of_memory(error):
        return f"it was loaded, but memory ran out when it decoded{_make_room(in_use)}"
    return f"{type(error).__name__}: {first_line(error)}"


def _make_room(in_use: int, missing: int | None = None) -> str:
    """The advice to free the pool in use, where that could make the difference."""
    if in_use < (WORTH_FREEING if missing is None else missing):
        return ""
    return (
        f". The pool in use takes up {in_words(in_use)} as well: load a small one first, such as pocket, and then this "
        "one"
    )


def free_memory() -> None:
    """Give back what nobody refers to: a pool's parts refer to each other, so they wait for the collector."""
    gc.collect()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
