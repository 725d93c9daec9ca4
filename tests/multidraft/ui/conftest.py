"""A workbench on the tiny pool, and rounds made by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafters.pool import Pool, load_pool
from multidraft.records import Generation, Round
from multidraft.ui.worker import Workbench
from storage.store import Store

MakeRound = Callable[..., Round]


@pytest.fixture
def make_round() -> MakeRound:
    """Makes a round that drafts three tokens, of which two are accepted."""

    def make(index: int = 0, **changes: Any) -> Round:
        values: dict[str, Any] = {
            "index": index,
            "arm": 1,
            "drafter": "math",
            "drafted": (5, 6, 7),
            "accepted": 2,
            "tokens": (5, 6, 9),
            "own": 9,
            "text": "abc",
            "pieces": ("a", "b", "c"),
            "draft_length": 3,
            "reward": 0.5,
            "block_divergence": None,
            "probabilities": (0.25, 0.75),
            "draft_seconds": 0.001,
            "verify_seconds": 0.006,
            "policy_seconds": 0.002,
            "evaluate_seconds": 0.001,
        }
        return Round(**{**values, **changes})

    return make


@pytest.fixture
def make_generation(make_round: MakeRound) -> Callable[..., Generation]:
    """Makes a finished generation of two rounds, six tokens, at 300 tokens per second."""

    def make(**changes: Any) -> Generation:
        rounds = changes.pop("rounds", [make_round(0), make_round(1)])
        values: dict[str, Any] = {
            "prompt": "What is 2 + 3?",
            "policy": "ucb",
            "drafters": ("code", "math"),
            "prompt_tokens": 4,
            "token_ids": [token for r in rounds for token in r.tokens],
            "text": "".join(r.text for r in rounds),
            "rounds": rounds,
            "status": "completed",
        }
        return Generation(**{**values, **changes})

    return make


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "runs.db", busy_seconds=0.05, retry_seconds=0.05) as store:
        yield store


@pytest.fixture
def workbench(pool: Pool, store: Store) -> Iterator[Workbench]:
    workbench = Workbench(pool, store)
    yield workbench
    workbench.close()


class Gate:
    """Holds the target before each forward until it is opened; ``reached`` tells that a run is under way."""

    def __init__(self) -> None:
        self.reached, self._open = threading.Event(), threading.Event()

    def open(self) -> None:
        self._open.set()

    def wait(self) -> None:
        self.reached.set()
        assert self._open.wait(30), "the test never opened the gate"


@pytest.fixture
def gate(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate, score = Gate(), pool.target.score
    monkeypatch.setattr(pool.target, "score", lambda draft: (gate.wait(), score(draft))[1])
    yield gate
    gate.open()  # else a failed test would wait for its worker


@pytest.fixture
def other_card(pool_card: Path, tmp_path: Path) -> Path:
    """Card of a pool with the same target and two drafters, of which one is called as the other pool's."""
    content = yaml.safe_load(pool_card.read_text())
    drafters = [{"name": "far", "kind": "lm", "path": "far"}, {"name": "copy", "kind": "suffix"}]
    content |= {"name": "other", "title": "Another <pool>", "draft_length": 6, "drafters": drafters}
    content["examples"] = [{"task": "letters", "prompt": "a b"}]
    for entry in (content["target"], drafters[0]):
        entry["path"] = str(pool_card.parent / entry["path"])
    path = tmp_path / "other" / "card.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture
def own_bench(pool_card: Path, store: Store) -> Iterator[Workbench]:
    """A workbench whose pool nothing else refers to."""
    workbench = Workbench(load_pool(pool_card), store)
    yield workbench
    workbench.close()
