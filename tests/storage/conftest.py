"""A store, and a small history whose answers are known."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from storage.store import Store
from tests.runs import make_round, make_run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """An open store that gives up quickly, as tests must not wait."""
    with Store(path, busy_seconds=0.05, retry_seconds=0.05) as store:
        yield store


@pytest.fixture
def filled(store: Store, path: Path) -> Path:
    """Runs 1 to 7, one a day from 2026-01-01; ``ucb`` twice on math and once on code, and so on.

    Of three rounds, long enough for a speed-up, each of its own prompt; the sixth of one round.
    """
    rounds = [make_round(index) for index in range(3)]
    code = make_round(0, drafter="code", arm=0, accepted=0, tokens=(9,), pieces=("c",), text="c")
    runs: list[dict[str, Any]] = [
        {"policy": "ucb", "baseline": 100.0, "regret_rounds": 4, "best_arm_ratio": 0.5},
        {"policy": "hedge", "baseline": 150.0, "regret_rounds": 1, "best_arm_ratio": 0.9},
        {"policy": "ucb", "baseline": 300.0, "regret_rounds": 2, "best_arm_ratio": 0.7},
        {"policy": "ucb", "task": "code", "pool": "large", "baseline": 200.0, "source": "bench", "hardware": "GPU"},
        {"policy": "hedge", "task": None, "baseline": None, "version": "1.1"},
        {"policy": "ucb", "task": "code", "baseline": None, "rounds": [code]},
        {"policy": "ucb", "status": "cancelled", "regret_rounds": 100},
    ]
    for day, run in enumerate(runs, start=1):
        values = {"rounds": rounds, "prompt": f"Prompt {day}", "created_at": datetime(2026, 1, day, tzinfo=UTC), **run}
        store.add(make_run(**values))
    assert store.close()
    return path
