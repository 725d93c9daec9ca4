"""Writing while all is well."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from storage import queries
from storage import store as store_module
from storage.store import Store
from tests.runs import make_run


def test_round_trip(store: Store, path: Path) -> None:
    run = make_run(suite="spec", batch_id="b1", best_drafter="math", best_arm_ratio=0.5, lossless=True)
    store.add(run)
    assert store.flush()
    assert store.problem is None
    run.id = 1
    assert queries.run(path, 1) == run


@pytest.mark.parametrize("text", ["nul \x00 inside", "lone \udcff", "数学 😀", "'; DROP TABLE runs; --"])
def test_any_text_is_stored_and_the_writer_lives_on(store: Store, path: Path, text: str) -> None:
    store.add(make_run(prompt=text, text=text, policy=text, task=text, suite=text))
    store.add(make_run(prompt="next"))
    assert store.flush()
    assert store.problem is None
    prompts = [queries.run(path, id).generation.prompt for id in (1, 2)]
    assert prompts == [text.replace("\udcff", "\ufffd"), "next"]


def test_write_ahead_log_and_one_thread_that_connects(path: Path, monkeypatch) -> None:
    connecting: list[str] = []
    open_writer = store_module.open_writer

    def spy(*args):
        connecting.append(threading.current_thread().name)
        return open_writer(*args)

    monkeypatch.setattr(store_module, "open_writer", spy)
    with Store(path) as store:
        callers = [threading.Thread(target=lambda: [store.add(make_run()) for _ in range(5)]) for _ in "ab"]
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


def test_readers_are_not_held_up_by_a_writer(store: Store, path: Path) -> None:
    store.add(make_run())
    assert store.flush()
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("UPDATE runs SET prompt = 'uncommitted'")
    assert list(queries.listed(path)["prompt"]) == ["What is 2 + 3?"]
    writer.execute("ROLLBACK")
    writer.close()


def test_readers_see_whole_runs_while_the_store_writes(store: Store, path: Path) -> None:
    assert store.flush()
    for _ in range(30):
        store.add(make_run())
    seen = 0
    while seen < 30:
        reader = sqlite3.connect(path)
        seen, rounds = reader.execute("SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM rounds)").fetchone()
        reader.close()
        assert rounds == 2 * seen
        assert queries.count(path) >= seen


def test_close_writes_what_is_queued(path: Path) -> None:
    store = Store(path)
    for _ in range(3):
        store.add(make_run())
    assert store.close()
    assert store.close()
    assert store.flush(0)
    assert queries.count(path) == 3
    with pytest.raises(RuntimeError, match="closed"):
        store.add(make_run())


def test_a_program_that_ends_without_closing_loses_nothing(path: Path) -> None:
    program = """
import sys
from storage.store import Store
from tests.runs import make_run
Store(sys.argv[1]).add(make_run(source="api"))
"""
    root = Path(store_module.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    subprocess.run([sys.executable, "-c", program, str(path)], env=environment, check=True, timeout=60)
    assert list(queries.listed(path)["source"]) == ["api"]
