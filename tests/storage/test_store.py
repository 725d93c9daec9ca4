"""Writing while all is well."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from storage import queries
from storage import store as store_module
from storage.run import Scores
from storage.store import Store
from storage.unfinished import unfinished
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


def test_what_is_handed_over_is_told_when_it_is_committed(store: Store, path: Path) -> None:
    kept = store.add(make_run(prompt="a"), make_run(prompt="b"))
    assert kept.wait(5) and kept.ids == [1, 2]
    assert [queries.run(path, id).generation.prompt for id in kept.ids] == ["a", "b"]


def test_what_waits_is_committed_together(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go, together = threading.Event(), []
    open_writer, writing = store_module.open_writer, store_module.writing
    monkeypatch.setattr(store_module, "open_writer", lambda *args: (go.wait(5), open_writer(*args))[1])
    monkeypatch.setattr(store_module, "writing", lambda db: (together.append(db), writing(db))[1])
    with Store(path) as store:
        found = [store.add(make_run(policy=f"p{n}"), begins=(str(n), {"number": n})) for n in range(5)]
        bad = store.add(make_run(), make_run(seed=2**64))
        go.set()
        assert all(kept.wait(5) for kept in found) and not bad.wait(5) and bad.left_out
        assert len(together) == 1 + 6  # all at once, and then one by one, to find the one that is at fault
        found = [store.add(ends=str(n)) for n in range(1, 5)]
        assert found[-1].wait(5)
    assert queries.count(path) == 5 and [job["number"] for job in unfinished(path).values()] == [0]


def test_a_run_is_brought_up_to_date(store: Store, path: Path) -> None:
    run = make_run()
    first, other = store.add(run), store.add(make_run(prompt="another"))
    run.scores = Scores(lossless=True, regret_rounds=3.0)
    assert store.add(run, anew=first).wait(5)
    run.id = 1
    assert queries.run(path, 1) == run and queries.run(path, 2).scores.lossless is None and other.ids == [2]
    assert queries.count(path) == 2
    for file in path.parent.glob("runs.db*"):
        file.unlink()
    store.add(make_run(prompt="has the same number in another file"))
    assert store.add(run, anew=first).wait(5)
    assert queries.count(path) == 1 and queries.run(path, 1).scores.lossless is None


def test_rounds_that_have_come_since_are_added(store: Store, path: Path) -> None:
    whole = make_run()
    rounds = whole.generation.rounds
    rounds.append(replace(rounds[1], index=len(rounds)))
    cut = replace(rounds[1], tokens=rounds[1].tokens[:1], pieces=rounds[1].pieces[:1], text=rounds[1].pieces[0])
    part = replace(whole, generation=replace(whole.generation, rounds=[rounds[0], cut, *rounds[2:-1]]))
    first = store.add(part)
    assert store.add(whole, anew=first).wait(5)
    found = queries.run(path, 1)
    assert queries.count(path) == 1 and found.generation.rounds == rounds


def test_what_a_run_that_is_left_out_becomes_is_left_out_too(store: Store, path: Path) -> None:
    bad = make_run(seed=2**64)
    first = store.add(bad)
    store.add(bad, anew=first)
    assert store.add(make_run()).wait(5) and first.left_out and queries.count(path) == 1


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
