"""Small generations, made of the engine's own records, and the context of their runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from multidraft.records import Generation, Round
from storage.store import RunContext, Store

MakeGeneration = Callable[..., Generation]
MakeContext = Callable[..., RunContext]


def make_round(index: int, **changes: Any) -> Round:
    """A round that drafts three tokens, of which two are accepted, in 10 ms."""
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


@pytest.fixture
def round_of() -> Callable[..., Round]:
    """:func:`make_round`, for tests."""
    return make_round


@pytest.fixture
def generation() -> MakeGeneration:
    """Makes a finished generation of two rounds, six tokens, at 300 tokens per second."""

    def make(*, rounds: list[Round] | None = None, **changes: Any) -> Generation:
        rounds = [make_round(0), make_round(1)] if rounds is None else rounds
        values: dict[str, Any] = {
            "prompt": "What is 2 + 3?",
            "policy": "ucb:beta=0.1",
            "drafters": ("code", "math"),
            "prompt_tokens": 4,
            "token_ids": [token for r in rounds for token in r.tokens],
            "text": "".join(r.text for r in rounds),
            "rounds": rounds,
            "status": "completed",
            "prefill_seconds": 0.003,
        }
        return Generation(**{**values, **changes})

    return make


@pytest.fixture
def context() -> MakeContext:
    """Makes the context of a run of the playground."""

    def make(**changes: Any) -> RunContext:
        values: dict[str, Any] = {
            "source": "play",
            "task": "math",
            "pool": "pocket",
            "card_hash": "c0ffee",
            "parameters": {"temperature": 0.0, "max_new_tokens": 6, "draft_length": 3, "top_p": 1.0},
            "seed": 7,
            "hardware": "CPU",
            "dtype": "float32",
            "version": "1.0",
            "baseline_tokens_per_second": 150.0,
        }
        return RunContext(**{**values, **changes})

    return make


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """An open store that gives up quickly, as tests must not wait."""
    with Store(path, busy_seconds=0.05, retry_seconds=0.05) as store:
        yield store


@pytest.fixture
def filled(store: Store, path: Path, generation, context) -> Path:
    """Runs 1 to 7, one a day from 2026-01-01; ``ucb`` twice on math and once on code, and so on.

    Of three rounds, long enough for a speed-up; the sixth of one.
    """
    rows: list[tuple[str, str | None, str, dict[str, Any]]] = [
        ("ucb", "math", "pocket", {"baseline_tokens_per_second": 100.0, "regret_rounds": 4, "best_arm_ratio": 0.5}),
        ("hedge", "math", "pocket", {"baseline_tokens_per_second": 150.0, "regret_rounds": 1, "best_arm_ratio": 0.9}),
        ("ucb", "math", "pocket", {"baseline_tokens_per_second": 300.0, "regret_rounds": 2, "best_arm_ratio": 0.7}),
        ("ucb", "code", "large", {"baseline_tokens_per_second": 200.0, "source": "bench", "hardware": "GPU"}),
        ("hedge", None, "pocket", {"baseline_tokens_per_second": None, "version": "1.1"}),
    ]
    rounds = [make_round(index) for index in range(3)]
    for policy, task, pool, changes in rows:
        store.add(generation(policy=policy, rounds=rounds), context(task=task, pool=pool, **changes))
    round_of_code = generation().rounds[0]
    slow = type(round_of_code)(**{**vars(round_of_code), "drafter": "code", "accepted": 0, "tokens": (9,)})
    store.add(generation(policy="ucb", rounds=[slow]), context(baseline_tokens_per_second=None, task="code"))
    store.add(generation(policy="ucb", rounds=rounds, status="cancelled"), context(regret_rounds=100))
    assert store.close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE runs SET created_at = printf('2026-01-%02dT00:00:00.000000+00:00', id)")
    connection.commit()
    connection.close()
    return path
