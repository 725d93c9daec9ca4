"""How a small model is taught what the target writes, a moment at a time, and the swap to what it has learnt."""

from __future__ import annotations

import copy
import logging
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import nn

from drafters.base import Lesson
from drafters.checkpoints.digest import digest_of
from drafters.errors import PoolError
from drafters.learning.memory import Memory, held_out, size
from drafters.learning.versions import Version, Versions

log = logging.getLogger(__name__)

BATCH = 512
"""Tokens of a training step or of a piece of a check: so long may somebody have to wait who comes meanwhile."""

MEASURED = 256
"""Tokens of held-out answers that a check needs at least: with fewer, chance would decide."""

MOST_MEASURED = 8192
"""Tokens of held-out texts, prompts too, that are kept at most."""

SAVINGS = 5.0
"""Seconds of the device that may be saved up at most, while there is nothing to learn."""

PATIENCE = 4
"""After so many checks in a row that it has not passed, training begins again at the version in use."""

STRANGE = 0.05
"""Share of the texts learnt from that are taken for strangers among the others: as far off is what was not learnt."""

KNOWN = "known"
"""Where texts stand, on disk beside the weights."""


Model = TypeVar("Model", bound=nn.Module)
Runner = TypeVar("Runner")


class Course(ABC, Generic[Model, Runner]):
    """How a kind of model is taught."""

    @abstractmethod
    def runner(self, model: Model) -> Runner:
        """What drafts with a model, ready to; texts take twins of it."""

    @abstractmethod
    def fits(self, lesson: Lesson) -> bool:
        """Whether it can be learnt from."""

    @abstractmethod
    def loss(self, model: Model, lessons: Sequence[Lesson]) -> torch.Tensor:
        """What training makes small."""

    @abstractmethod
    def agreed(self, model: Model, lesson: Lesson) -> int:
        """How many tokens of an answer a model finds the likeliest, each after those before it."""

    def place(self, prompt: int, states: torch.Tensor | None) -> torch.Tensor | None:
        """Where a text stands among others by what the target makes of its prompt: a vector of length 1, near for texts
        of one kind. ``None`` where these models do not read it.

        Args:
            prompt: tokens of the prompt.
            states: hidden states of the text as in :class:`~drafters.base.Lesson`, at least those of its prompt.
        """
        return None


@dataclass(frozen=True)
class Schedule:
    """How a student learns.

    Attributes:
        share: of the device's time, at most.
        memory: tokens of past texts that it learns from.
        passes: how often it trains on as many tokens as are new.
        rate: learning rate of AdamW.
        every: tokens trained on between two checks.
    """

    share: float = 0.2
    memory: int = 200_000
    passes: float = 6.0
    rate: float = 1e-3
    every: int = 8192


@dataclass(frozen=True, eq=False)
class Learnt(Generic[Model, Runner]):
    """A version that drafts.

    Attributes:
        runner: what runs it; texts take twins of it.
        agreement: share of the held-out tokens that it guesses, when it was checked; ``None`` before any check.
        tokens: how many those were.
        known: where the texts stand that it was trained on, a row each; see :meth:`Course.place`.
    """

    version: Version
    model: Model
    runner: Runner
    agreement: float | None = None
    tokens: int = 0
    known: torch.Tensor | None = None

    @cached_property
    def reach(self) -> float:
        """Cosine from which on a text counts as one of a kind with its nearest among those known."""
        assert self.known is not None
        return float((self.known @ self.known.T).fill_diagonal_(-1.0).amax(dim=1).quantile(STRANGE))

    def knows(self, place: torch.Tensor | None) -> bool:
        """Whether it has learnt from texts like that which stands there; taken for granted where places are unknown."""
        return self.known is None or place is None or float((self.known @ place).max()) >= self.reach


class Learner(Generic[Model, Runner]):
    """A model in training, of which from time to time a copy takes over.

    Lessons come from any thread; :meth:`study` is called between queries, by the thread that has the device. A copy
    takes over where it guesses as many of the held-out tokens as the present one; queries under way keep theirs.

    Args:
        course: how such models are taught.
        model: what it begins with, as it drafts.
        folder: where versions are kept, if anywhere; the last one there is what it goes on from.
        who: the drafter, for messages.

    Attributes:
        start: what it began with.
        current: what has learnt most.

    Raises:
        PoolError: what is in the folder cannot be used.
    """

    def __init__(
        self,
        course: Course[Model, Runner],
        model: Model,
        schedule: Schedule,
        folder: Path | None = None,
        who: str = "the student",
        clock: Callable[[], float] = time.monotonic,
    ):
        self.course, self.schedule, self.clock = course, schedule, clock
        self.rng = random.Random(0)
        self.memory, self.held = Memory(schedule.memory, self.rng), Memory(MOST_MEASURED, self.rng)
        start = _digest(model)
        self.versions = Versions(folder, who, start) if folder else None
        self.start: Learnt[Model, Runner] = Learnt(Version(0, start), model, course.runner(model))
        self.current = self.start
        if self.versions and (found := self.versions.newest()):
            version, weights = found
            known, learnt = weights.pop(KNOWN, None), copy.deepcopy(model)
            try:
                learnt.load_state_dict(weights)
            except RuntimeError as error:
                raise PoolError(f"{who}: what it learnt does not fit its model: {str(error)[:200]}") from None
            self.current = Learnt(version, learnt, course.runner(learnt), known=known)
        self._lock = threading.Lock()
        self._owed, self._since_check, self._failed = 0.0, 0, 0
        self._saved, self._asked_at = 0.0, clock()
        self._restart()
        self._pieces = self._work()

    def learn(self, lesson: Lesson) -> None:
        """Keep a text to learn from; one prompt in several is kept to measure with."""
        if not lesson.answer or not self.course.fits(lesson):
            return
        with self._lock:
            if held_out(lesson):
                self.held.add(lesson)
            elif self.memory.add(lesson):
                self._owed += self.schedule.passes * size(lesson)

    def version_for(self, place: torch.Tensor | None) -> Learnt[Model, Runner]:
        """What queries of which the prompt stands there draft with: training on texts of one kind makes a drafter
        forget others (LOG), so that of texts unlike all that it was trained on the one that it began as knows more."""
        return self.current if self.current.knows(place) else self.start

    @property
    def owing(self) -> bool:
        """Whether there is anything to do."""
        return bool(len(self.memory)) and (self._owed > 0 or self._since_check >= self.schedule.every)

    def study(self) -> float:
        """Do the next piece of work, a training step or a part of a check, if the share of the device allows it.

        Returns:
            Seconds that it took; 0 where there was nothing to do, or not yet.
        """
        now = self.clock()
        self._saved = min(SAVINGS, self._saved + self.schedule.share * (now - self._asked_at))
        self._asked_at = now
        if self._saved <= 0 or not self.owing:
            return 0.0
        next(self._pieces)
        took = self.clock() - now
        self._saved -= took
        return took

    def _work(self) -> Iterator[None]:
        while True:
            while self._since_check < self.schedule.every:
                self._step()
                yield
            yield from self._check()
            self._since_check = 0
            yield

    def _step(self) -> None:
        with self._lock:
            texts = self.memory.draw(BATCH)
        self.model.train()
        with torch.inference_mode(False), torch.enable_grad():
            loss = self.course.loss(self.model, texts)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        trained = sum(map(size, texts))
        self._owed -= trained
        self._since_check += trained
        if not torch.isfinite(loss):
            log.warning("the student's loss is %s; it begins again at version %s", loss.item(), self.current.version)
            self._restart()

    def _check(self) -> Iterator[None]:
        """Let the copy in training take over if it is no worse on the texts that are held out."""
        with self._lock:
            texts = list(self.held)
        tokens = sum(len(lesson.answer) for lesson in texts)
        if tokens < MEASURED:
            return
        models = self.model.eval(), self.current.model.eval()
        hits = np.zeros(2, dtype=np.int64)
        for lesson in texts:
            hits += [self.course.agreed(model, lesson) for model in models]
            yield
        now, before = (hits / tokens).tolist()
        if now < before:
            self.current = replace(self.current, agreement=before, tokens=tokens)
            self._failed += 1
            if self._failed >= PATIENCE:
                self._restart()
            return
        self._failed = 0
        model = copy.deepcopy(self.current.model)
        model.load_state_dict(self.model.state_dict())
        version = Version(self.current.version.number + 1, _digest(model))
        with self._lock:
            places = [self.course.place(len(lesson.prompt), lesson.states) for lesson in self.memory]
        known = torch.stack([place for place in places if place is not None]) if None not in places else None
        self.current = Learnt(version, model, self.course.runner(model), now, tokens, known)
        if self.versions:
            try:
                self.versions.save(version, model.state_dict() | ({} if known is None else {KNOWN: known}))
            except OSError as error:
                log.warning("version %s of the student is not saved: %s", version, error)

    def _restart(self) -> None:
        """Begin to train at the version in use."""
        with torch.inference_mode(False):
            self.model = copy.deepcopy(self.current.model).float().requires_grad_(True)
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.schedule.rate, betas=(0.9, 0.95))
        self._failed = 0


def _digest(model: nn.Module) -> str:
    return digest_of(model.state_dict())[:8]
