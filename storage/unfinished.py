"""Jobs under way, as the history knows them: whoever starts next finds those that a kill has cut off."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from storage.connection import read_rows


def unfinished(path: Path) -> dict[str, dict[str, Any]]:
    """What was handed to ``Store.add`` as the beginning of jobs that have not ended, by their ids, in that order; and
    when, as ``begun_at``."""
    found = read_rows(path, "SELECT id, job, begun_at FROM unfinished ORDER BY begun_at, id")
    return {id: {**json.loads(job), "begun_at": begun_at} for id, job, begun_at in found}


def planned(asked: Mapping[str, Any]) -> int:
    """How many runs a job is of."""
    return len(asked["runs"]) if "runs" in asked else len(asked["items"]) * len(asked["policies"])


@contextmanager
def serving(path: Path) -> Iterator[bool]:
    """Meanwhile the jobs of this process are not taken for cut off by another that serves the same history.

    Yields whether there is no other: then all that :func:`unfinished` returns has been cut off. The kernel lets go of
    the lock, on a file beside the database, with the process, however that ends.
    """
    try:
        file = path.with_name(f"{path.name}-lock").open("a")
    except OSError:  # neither can the history be written there
        yield False
        return
    with file:
        first = False
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            first = True
        fcntl.flock(file, fcntl.LOCK_SH)  # from here on nobody else can be the first
        yield first
