"""Writing while all is well."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from storage import queries
from storage import store as store_module
from storage.store import Store


def test_round_trip(store: Store, path: Path, generation, context) -> None:
    before = datetime.now(UTC)
    store.add(generation(), context(suite="spec", batch_id="b1", best_arm="math", best_arm_ratio=0.5, lossless=True))
    assert store.flush()
    assert store.problem is None

    run = queries.run(path, 1)
    assert run is not None
    assert before <= datetime.fromisoformat(run["created_at"]) <= datetime.now(UTC)
    expected = {
        "source": "play",
        "suite": "spec",
        "batch_id": "b1",
        "prompt": "What is 2 + 3?",
        "output": "abcabc",
        "policy": "ucb:beta=0.1",
        "parameters": {"temperature": 0.0, "max_new_tokens": 6, "draft_length": 3, "top_p": 1.0},
        "seed": 7,
        "best_arm": "math",
        "best_arm_ratio": 0.5,
        "lossless": True,
        "regret_rounds": None,
        "expected_regret": None,
        "error": None,
    }
    assert {key: run[key] for key in expected} == expected

    rounds = queries.rounds(path, 1)
    first = rounds.iloc[0]
    assert list(rounds["round_index"]) == [0, 1]
    assert (first["drafted_ids"], first["token_ids"], first["probabilities"]) == ([5, 6, 7], [5, 6, 9], [0.25, 0.75])
    assert (first["drafted"], first["accepted"], first["emitted"], first["own_token"]) == (3, 2, 3, 9)
    assert first["verify_seconds"] == 0.006


@pytest.mark.parametrize("text", ["nul \x00 inside", "lone \udcff", "数学 😀", "'; DROP TABLE runs; --"])
def test_any_text_is_stored_and_the_writer_lives_on(store: Store, path: Path, generation, context, text: str) -> None:
    store.add(generation(prompt=text, text=text, policy=text), context(task=text, parameters={"note": text}))
    store.add(generation(prompt="next"), context())
    assert store.flush()
    assert store.problem is None
    assert list(queries.runs(path)["prompt"]) == ["next", text.replace("\udcff", "\ufffd")]


def test_write_ahead_log_and_one_thread_that_connects(path: Path, generation, context, monkeypatch) -> None:
    connecting: list[str] = []
    open_writer = store_module.open_writer

    def spy(*args):
        connecting.append(threading.current_thread().name)
        return open_writer(*args)

    monkeypatch.setattr(store_module, "open_writer", spy)
    with Store(path) as store:
        callers = [
            threading.Thread(target=lambda: [store.add(generation(), context()) for _ in range(5)]) for _ in "ab"
        ]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        assert store.flush()
        reader = sqlite3.connect(path)
        assert reader.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert reader.execute("SELECT count(*) FROM runs").fetchone() == (10,)
        reader.close()
    assert connecting == ["storage-writer"]


def test_readers_are_not_held_up_by_a_writer(store: Store, path: Path, generation, context) -> None:
    store.add(generation(), context())
    assert store.flush()
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("UPDATE runs SET prompt = 'uncommitted'")
    assert list(queries.runs(path)["prompt"]) == ["What is 2 + 3?"]
    writer.execute("ROLLBACK")
    writer.close()


def test_readers_see_whole_runs_while_the_store_writes(store: Store, path: Path, generation, context) -> None:
    assert store.flush()
    for _ in range(30):
        store.add(generation(), context())
    seen = 0
    while seen < 30:
        reader = sqlite3.connect(path)
        seen, rounds = reader.execute("SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM rounds)").fetchone()
        reader.close()
        assert rounds == 2 * seen
        assert queries.count(path) >= seen


def test_close_writes_what_is_queued(path: Path, generation, context) -> None:
    store = Store(path)
    for _ in range(3):
        store.add(generation(), context())
    assert store.close()
    assert store.close()
    assert store.flush(0)
    assert queries.count(path) == 3
    with pytest.raises(RuntimeError, match="closed"):
        store.add(generation(), context())


def test_a_program_that_ends_without_closing_loses_nothing(path: Path) -> None:
    program = """
import sys
from types import SimpleNamespace as Any_
from storage.store import RunContext, Store
out = Any_(prompt="p", policy="ucb", prompt_tokens=1, token_ids=[], text="", rounds=[], status="completed", error=None,
           prefill_seconds=0.0, seconds=0.0, tokens_per_second=0.0, mean_accepted_tokens=0.0, acceptance_rate=0.0)
store = Store(sys.argv[1])
store.add(out, RunContext(source="api", pool="p", card_hash="", seed=0, hardware="", dtype="", version=""))
"""
    root = Path(store_module.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    subprocess.run([sys.executable, "-c", program, str(path)], env=environment, check=True, timeout=60)
    assert list(queries.runs(path)["source"]) == ["api"]


def test_the_store_imports_nothing_of_ours() -> None:
    program = """
import sys, storage.store, storage.queries
sys.exit(any(name.split(".")[0] in ("multidraft", "drafters", "gradio", "torch") for name in sys.modules))
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(store_module.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=60)


def test_a_queue_without_room_is_refused(path: Path) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Store(path, queue_limit=0)
