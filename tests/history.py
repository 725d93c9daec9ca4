"""What a history holds, for tests."""

from __future__ import annotations

from pathlib import Path

from storage import queries
from storage.run import Run
from storage.store import Store
from tests.runs import make_run


def add(path: Path, *asked: str) -> Path:
    """Write a run of each of these prompts, in a store of its own."""
    with Store(path) as store:
        for prompt in asked:
            store.add(make_run(prompt=prompt))
    return path


def recorded(path: Path) -> list[Run]:
    """All runs, newest first; none may have been deleted."""
    runs = [queries.run(path, id) for id in range(queries.count(path), 0, -1)]
    return [run for run in runs if run is not None]


def prompts(path: Path) -> list[str]:
    """The prompts of all runs, sorted."""
    return sorted(queries.listed(path)["prompt"])
