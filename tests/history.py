"""What a history holds, for tests."""

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


def recorded(path: Path, limit: int = 1000) -> list[Run]:
    """The newest runs, the last one first; none may have been deleted."""
    newest = queries.count(path)
    return [run for id in range(newest, max(newest - limit, 0), -1) if (run := queries.run(path, id))]


def prompts(path: Path) -> list[str]:
    """The prompts of all runs, sorted."""
    return sorted(queries.listed(path)["prompt"])
