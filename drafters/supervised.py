"""A drafter of one's own, called on copies, in a thread with a deadline: what it does wrong is told, not suffered."""

from __future__ import annotations

import copy
import ctypes
import logging
import os
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator

from drafters.base import Acceptances, Drafter, Evidence, FeatureSource, Lesson
from drafters.draft import Draft
from drafters.errors import DrafterError, DraftError
from drafters.hardware import format_bytes, free_memory
from drafters.sampling import SamplingParams

log = logging.getLogger(__name__)

LEARNING = ("learn", "study")
"""The methods that may train: all others are called without gradients, which the target's logits cannot have."""

WATCHED = 0.05
"""Seconds after which the memory that a call takes is looked at, and between looks."""


class Supervised(Drafter):
    """Calls ``inner`` and raises :class:`DrafterError` for whatever goes wrong there, exits too, but for a
    :class:`DraftError` about what it proposed.

    What it is handed are copies: neither the context nor the target's scores can be changed, and its randomness is its
    own, so that it can neither foresee nor influence what verification draws. A call that takes longer than
    ``seconds``, or more than half of the free memory, is abandoned: ``SystemExit`` is raised in its thread, which ends
    any loop in Python. Until the thread has ended further calls are refused, so there is one of them at most; it does
    not keep the process from ending.

    It is no sandbox. What runs in the process can end it (``os._exit``, a crash), hold the interpreter in one long call
    of a library, or reach into what it finds.

    Args:
        file: the inner drafter's; messages name its lines.
    """

    def __init__(self, inner: Drafter, name: str, file: Path, seconds: float):
        self._inner, self._file, self._seconds = inner, file, seconds
        self._thread: threading.Thread | None = None
        self._studies = True
        self.name, self.parameter_count, self.stored_bytes = name, inner.parameter_count, inner.stored_bytes
        self.learns = inner.learns

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._inner, name)

    @property
    def version(self) -> str:  # type: ignore[override]
        return str(self._inner.version)

    def begin(self, context: Sequence[int]) -> None:
        self._call("begin", list(context))

    def prepare(self, context: Sequence[int]) -> None:
        self._call("prepare", list(context))

    def forget(self) -> None:
        self._call("forget")

    def twin(self, target: FeatureSource) -> Drafter:
        twin = self._inner.twin(target)
        return self if twin is self._inner else Supervised(twin, self.name, self._file, self._seconds)

    def propose(
        self, context: Sequence[int], length: int, params: SamplingParams, generator: Generator, *, with_q: bool = False
    ) -> Draft:
        seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
        own = Generator(device=generator.device).manual_seed(seed)
        draft = self._call("propose", list(context), length, params, own, with_q=with_q)
        if not isinstance(draft, Draft) or not isinstance(draft.q, torch.Tensor):
            return draft  # type: ignore[no-any-return]
        return replace(draft, q=draft.q.detach().clone())

    def observe(self, draft: Draft, logits: torch.Tensor) -> None:
        self._call("observe", draft, logits.clone())

    def learn(self, lesson: Lesson) -> None:
        self._call("learn", copy.deepcopy(lesson))

    def study(self) -> float:
        try:
            return float(self._call("study")) if self._studies else 0.0
        except DrafterError as error:  # no query is under way that it could be benched for
            log.warning("drafter %s no longer learns between queries: %s", self.name, error)
            self._studies = False
            return 0.0

    def report(self) -> str:
        # Not by a call: pages ask for it while the device's thread may be in one.
        with suppress(Exception):
            return str(self._inner.report())
        return ""

    def gamma(self, evidence: Evidence) -> np.ndarray:
        p = None if evidence.p is None else evidence.p.clone()
        return self._call("gamma", replace(evidence, context=list(evidence.context), p=p))  # type: ignore[no-any-return]

    def acceptances(self, context: Sequence[int], start: int, length: int) -> Acceptances:
        return self._call("acceptances", list(context), start, length)  # type: ignore[no-any-return]

    def _call(self, method: str, *arguments: Any, **options: Any) -> Any:
        if self._thread and self._thread.is_alive():
            raise DrafterError("an earlier call has not returned")
        found, failed = list[Any](), list[BaseException]()

        def work() -> None:
            try:
                with torch.set_grad_enabled(method in LEARNING):  # a thread of its own begins with gradients on
                    found.append(getattr(self._inner, method)(*arguments, **options))
            except BaseException as error:
                failed.append(error)

        self._thread = thread = threading.Thread(target=work, name=f"drafter {self.name}", daemon=True)
        thread.start()
        thread.join(min(self._seconds, WATCHED))
        if thread.is_alive() and (problem := self._outlasted(thread)):
            # Of a thread that has ended by now there is nothing to stop.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))
            raise DrafterError(f"{method} {problem}")
        self._thread = None
        if failed and isinstance(failed[0], DraftError):  # found by what calls its file
            raise failed[0]
        if failed:
            raise DrafterError(described(failed[0], self._file)) from failed[0]
        return found[0]

    def _outlasted(self, thread: threading.Thread) -> str | None:
        """Wait for a call that takes longer than most; what is wrong if it has to be abandoned."""
        until, before = time.monotonic() + self._seconds - WATCHED, resident()
        most = (free_memory("cpu") or 1 << 62) // 2
        while thread.is_alive():
            if (left := until - time.monotonic()) <= 0:
                return f"took longer than {self._seconds:g} seconds (the card's setting seconds)"
            if resident() - before > most:
                return f"took more than {format_bytes(most)} of memory, half of what was free"
            thread.join(min(left, WATCHED))
        return None


def resident() -> int:
    """Bytes of memory that the process has; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, AttributeError):
        return 0


def described(error: BaseException, file: Path) -> str:
    """An error in one line, with the last line of ``file`` that it came through."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f"{error.msg} in line {error.lineno} of {file.name}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    where = f" in line {lines[-1]} of {file.name}" if lines else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())}{where}"
