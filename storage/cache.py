"""Answers that are cached until the history changes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache, partial, wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from storage.connection import read_rows
from storage.replaced import state_of

P = ParamSpec("P")
T = TypeVar("T")

MOST = 64
"""Cached answers to each question of one database."""

DATABASES = 8
"""Of so many, those asked last, answers are cached."""


def cached(ask: Callable[Concatenate[Path, P], T]) -> Callable[Concatenate[Path, P], T]:
    """``ask``, a question to the database named first, but asked again only once the database has changed.

    All who ask are given the same object: it must not be changed. Further arguments must be hashable.
    """

    @lru_cache(DATABASES)
    def answers_of(path: Path) -> dict[Hashable, Callable[..., T]]:
        return {}

    @wraps(ask)
    def asked(path: Path, *args: P.args, **named: P.kwargs) -> T:
        state, answers = _state(path), answers_of(path)
        if (answer := answers.get(state)) is None:
            answer = lru_cache(MOST)(partial(ask, path))
            answers.clear()  # of the database as it was, nobody asks again
            answers[state] = answer
        return answer(*args, **named)  # type: ignore[arg-type]

    return asked


def _state(path: Path) -> Hashable:
    """What every change of the database changes: size and time of its files, and the newest run's number, by which
    runs differ that were written within one tick of the file system's clock."""
    newest = read_rows(path, "SELECT max(id) FROM runs")
    return newest[0], state_of(path), state_of(path.with_name(f"{path.name}-wal"))
