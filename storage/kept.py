"""Answers that are kept until the history changes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from storage.connection import open_reader

P = ParamSpec("P")
T = TypeVar("T")

MOST = 64
"""Answers that are kept of each question."""


def kept(ask: Callable[Concatenate[Path, P], T]) -> Callable[Concatenate[Path, P], T]:
    """``ask``, a question to the database named first, but asked again only once the database has changed.

    All who ask are given the same object: it must not be changed. Further arguments must be hashable.
    """

    @lru_cache(MOST)
    def answer(state: Hashable, path: Path, *args: Any, **named: Any) -> T:
        return ask(path, *args, **named)

    @wraps(ask)
    def asked(path: Path, *args: P.args, **named: P.kwargs) -> T:
        return answer(_state(path), path, *args, **named)  # type: ignore[arg-type]

    return asked


def _state(path: Path) -> Hashable:
    """What every change of the database changes: the newest run's number, and size and time of its files.

    The number tells runs apart that were written within one tick of the file system's clock.

    Raises:
        StorageError: the database cannot be read.
    """
    with open_reader(path) as connection:
        newest = connection.execute("SELECT max(id) FROM runs").fetchone()
    return (newest, *map(_file_state, (path, path.with_name(f"{path.name}-wal"))))


def _file_state(path: Path) -> Hashable:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
