"""Another pool, loaded while the app goes on with the one it has, then exchanged for it between two runs."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Literal

from drafters.card import Card, load_card
from drafters.checkpoints.hub import HubDownError
from drafters.errors import PoolError, PoolMemoryError, UserError, first_line
from drafters.hardware import describe, format_bytes, free_unused, is_out_of_memory
from drafters.pool import Pool, load_pool
from drafters.progress import Step
from multidraft.service.jobs import Job
from multidraft.service.learning import traffic_of
from multidraft.service.recovery import resume
from multidraft.service.workbench import Workbench

log = logging.getLogger(__name__)

FREE_SECONDS, MOST_FREE_SECONDS = 0.5, 30.0
"""How long to wait before looking again whether anybody still uses the old pool: at first, and in the end."""

RETRY_SECONDS, MOST_RETRY_SECONDS = 15.0, 600.0
"""How long a patient loading waits for a Hub that is down: at first, and in the end."""

WORTH_FREEING = 1 << 30
"""Bytes of the pool in use from which on freeing them may help where it is not known how much is missing."""

Phase = Literal["loading", "waiting", "switching", "warming", "done", "failed", "cancelled"]


class Loading(Job[None]):
    """One pool that is loaded beside the present one, then exchanged for it between two turns of other jobs.

    Args:
        source: the bundled name or path of ``card``.
        patient: whether it tries again when the Hub is down.

    Attributes:
        step: what is being done; ``None`` before the first.
        phase: ``waiting`` before it tries again, ``switching`` while it waits for its turn, ``warming`` while it
            decodes its first tokens, just before it is in use.
        error: what is wrong, where, and what to do, if it failed or has to wait.
    """

    kind, plural, decodes = "pool loading", "pool loadings", False

    def __init__(self, workbench: Workbench, source: str, card: Card, load: Callable[..., Pool], patient: bool = False):
        super().__init__()
        self.workbench, self.source, self.title, self.patient = workbench, source, card.title, patient
        self._from_hub = bool(hub_models(card))
        self.step: Step | None = None
        self.phase: Phase = "loading"
        self._load = load
        self._pool: Pool | None = None
        self._old = weakref.ref(workbench.pool)
        self._began = self._noted = time.monotonic()
        self._ended = 0.0

    def prepare(self) -> None:
        pause = RETRY_SECONDS
        while self._pool is None:
            self._check()
            try:
                self._pool = self._load(self.source, progress=self.note)
            except HubDownError as error:
                if not self.patient:
                    raise
                log.warning("pool %s, tried again in %.0f s: %s", self.source, pause, error)
                self.error, self.phase = str(error), "waiting"
                self.cancelled.wait(pause)
            pause = min(2 * pause, MOST_RETRY_SECONDS)
        self.error, self.phase = None, "switching"

    def steps(self) -> Generator[None, None, None]:
        yield from ()
        pool = self._pool
        assert pool is not None
        self.phase = "warming"
        pool.traffic = traffic_of(pool, self.workbench.store.path)
        self.workbench.lender.warm_up(pool)
        if not self.cancelled.is_set():
            self.workbench.pool, self.workbench.hardware = pool, describe(pool.device)
            self.phase = "done"

    def explain(self, error: BaseException) -> str:
        why, enough = str(error), None  # bytes that make enough room, where room is what is missing
        if isinstance(error, PoolMemoryError):
            enough = WORTH_FREEING if error.missing is None else error.missing
        elif is_out_of_memory(error):
            why, enough = "it was loaded, but decoding ran out of memory", WORTH_FREEING
        elif not isinstance(error, UserError):
            why = f"{type(error).__name__}: {first_line(error)}"
        in_use = self.workbench.pool.weight_bytes
        if enough is None or in_use < enough:
            return why
        return (
            f"{why}. The pool in use takes up {format_bytes(in_use)} as well: load a small one first, such as pocket, "
            "and then this one"
        )

    def finish(self) -> None:
        self._pool, self._ended = None, time.monotonic()
        if self.phase != "done":
            self.phase = "cancelled" if self.cancelled.is_set() else "failed"
        unused = self._old if self.phase == "done" else None
        threading.Thread(target=_settle, args=(self.workbench, unused), name="pool-settling", daemon=True).start()

    @property
    def seconds(self) -> float:
        """How long it has taken so far, or took."""
        return (self._ended if self.done else time.monotonic()) - self._began

    @property
    def asks_hub(self) -> bool:
        """Whether what is done now is up to the Hub: before the first step its files tell the pool's size."""
        return self._from_hub and self.phase == "loading" and (self.step is None or self.step.doing == "fetching")

    @property
    def silence(self) -> float:
        """Seconds since the last step, or the last bytes of it."""
        return time.monotonic() - self._noted

    @property
    def since_end(self) -> float:
        """Seconds since it ended; 0 before."""
        return time.monotonic() - self._ended if self.done else 0.0

    def note(self, step: Step) -> None:
        """Note what is being done; raises :class:`PoolError` if it was cancelled."""
        self._check()
        self.step, self.phase, self._noted = step, "loading", time.monotonic()

    def _check(self) -> None:
        if self.cancelled.is_set():
            raise PoolError("cancelled")


def hub_models(card: Card) -> list[str]:
    """The Hub repositories that a pool is made of."""
    return list(dict.fromkeys(source.id for source in card.sources if source.id))


class PoolLoader:
    """Loads pools for a workbench, one at a time.

    Args:
        allowed: whether visitors of the page may ask for another pool.
        cards: folder of further cards beside the bundled ones.
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

    @property
    def under_way(self) -> Loading | None:
        """What is being loaded, if anything."""
        return last if (last := self.last) and not last.done else None

    def start(self, source: str | Path, patient: bool = False, within: Path | None = None) -> Loading:
        """Load a pool by a bundled card's name or a path, and switch to it; this returns at once.

        Args:
            patient: try again, less and less often, while the Hub is down; where nobody can ask for the pool again.
            within: as of :func:`~drafters.card.load_card`.

        Raises:
            UserError: another is being loaded, or the card cannot be read.
        """
        card, _ = load_card(source, within)
        with self._beginning:
            if now := self.under_way:
                raise UserError(f"{now.title} is being loaded; wait for it, or stop it first")
            self.last = Loading(self.workbench, str(source), card, self._load, patient)
            return self.workbench.jobs.submit(self.last)

    def cancel(self) -> None:
        """Give up what is being loaded, after the present model or the bytes under way."""
        if now := self.under_way:
            now.cancel()


def _settle(workbench: Workbench, old: weakref.ref[Pool] | None) -> None:
    """Resume what waits for the pool in use, and free the memory of ``old`` once nobody uses it, or of a pool that was
    loaded in part."""
    resume(workbench)
    pause = FREE_SECONDS
    while True:
        try:
            workbench.jobs.do(free_unused).result()
        except (CancelledError, UserError):  # the server is shutting down
            return
        if old is None or old() is None:
            return
        time.sleep(pause)
        pause = min(2 * pause, MOST_FREE_SECONDS)
