"""Writing while the file cannot be: the caller never notices but for ``problem``, and nothing is lost early."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from storage import queries
from storage import store as store_module
from storage.problems import StorageError, explain
from storage.store import Store
from tests.runs import make_round, make_run


def wait_until(condition: Callable[[], object], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another program's exclusive lock."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


@contextmanager
def unprivileged() -> Iterator[None]:
    """Permissions don't bind root, so act as nobody meanwhile."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("when", ["before it was ever opened", "later"])
def test_locked(path: Path, when: str) -> None:
    if when == "later":
        Store(path).close()
    with Store(path, busy_seconds=2.0, retry_seconds=0.05) as store:
        if when == "later":
            assert store.flush()
        with locked(path):
            start = time.monotonic()
            for i in range(3):
                store.add(make_run(prompt=f"p{i}"))
            assert time.monotonic() - start < 1.5, "add() must not wait for the lock"
            wait_until(lambda: store.problem)
            assert str(path) in store.problem
            assert "locked by another program" in store.problem
            assert "wait in memory to be written: 3." in store.problem
            assert not store.flush(0.1)
        wait_until(lambda: store.problem is None)
        assert store.flush()
        assert sorted(queries.listed(path)["prompt"]) == ["p0", "p1", "p2"]


def test_order_and_times_survive_a_lock(store: Store, path: Path) -> None:
    assert store.flush()
    with locked(path):
        for i in range(4):
            store.add(make_run(prompt=f"p{i}"))
        wait_until(lambda: store.problem)
    assert store.flush()
    frame = queries.listed(path)
    assert list(frame["prompt"]) == ["p3", "p2", "p1", "p0"]
    assert list(frame["id"]) == [4, 3, 2, 1]


def test_the_queue_is_bounded_and_keeps_the_newest(path: Path) -> None:
    with Store(path, queue_limit=3, busy_seconds=0.02, retry_seconds=0.02) as store:
        assert store.flush()
        with locked(path):
            for i in range(8):
                store.add(make_run(prompt=f"p{i}"))
            wait_until(lambda: store.problem and "to be written: 3." in store.problem and "memory: 5." in store.problem)
            assert "Older runs dropped because at most 3 wait in memory: 5." in store.problem
        assert store.flush()
        assert store.problem is None
    assert sorted(queries.listed(path)["prompt"]) == ["p5", "p6", "p7"]


def test_runs_that_come_too_fast_are_not_dropped_in_silence(path: Path, monkeypatch) -> None:
    go = threading.Event()
    open_writer = store_module.open_writer

    def slow(*args):
        go.wait(5)
        return open_writer(*args)

    monkeypatch.setattr(store_module, "open_writer", slow)
    with Store(path, queue_limit=2) as store:
        for i in range(3):
            store.add(make_run(prompt=f"p{i}"))
        assert "arrive faster" in store.problem and "at most 2 wait in memory: 1." in store.problem
        go.set()
        assert store.flush()
        assert store.problem is None
    assert list(queries.listed(path)["prompt"]) == ["p2", "p1"]


def test_close_sets_aside_in_time_what_cannot_be_written_and_the_next_store_takes_it(path: Path) -> None:
    store = Store(path, busy_seconds=0.05, retry_seconds=0.05)
    store.add(make_run(prompt="before"))
    assert store.flush()
    with locked(path):
        for prompt in ("first", "second"):
            assert not store.add(make_run(prompt=prompt)).wait(0.1)
        start = time.monotonic()
        assert store.close(timeout=0.2)
        assert time.monotonic() - start < 2
    assert queries.count(path) == 1 and queries.count(store.aside) == 2
    kept = store.aside.read_bytes()
    for _ in range(2):  # also where a kill comes between the taking in and the deletion
        with Store(path) as store:
            assert store.flush() and not store.aside.exists()
        assert sorted(queries.listed(path)["prompt"]) == ["before", "first", "second"]
        store.aside.write_bytes(kept)


def test_where_nothing_can_be_set_aside_close_says_what_was_lost(path: Path, caplog) -> None:
    store = Store(path, busy_seconds=0.05, retry_seconds=0.05)
    assert store.flush()
    store.aside.mkdir()
    with locked(path):
        store.add(make_run())
        assert not store.close(timeout=0.1)
    assert "are lost: 1" in caplog.text and "Runs that were not written: 1." in store.problem


def test_what_was_set_aside_and_is_damaged_is_left_and_does_not_stop_the_store(path: Path, caplog) -> None:
    aside = path.with_name("runs.db-waiting")
    aside.write_bytes(b"no database" * 100)
    with Store(path) as store:
        assert store.add(make_run()).wait(5)
    assert aside.read_bytes() == b"no database" * 100 and str(aside) in caplog.text


@pytest.mark.parametrize("content", [b"hello, no database", b"x" * 5000], ids=["short", "long"])
def test_a_file_that_is_no_database_is_left_as_it_is(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with Store(path, busy_seconds=0.05, retry_seconds=0.05) as store:
        wait_until(lambda: store.problem)
        store.add(make_run())
        assert "not a SQLite database" in store.problem and str(path) in store.problem and "move it" in store.problem
        assert path.read_bytes() == content
        with pytest.raises(StorageError, match="not a SQLite database"):
            queries.listed(path)
        path.rename(path.with_suffix(".old"))  # what the sentence told the user to do
        assert store.flush()
        assert store.problem is None
    assert queries.count(path) == 1
    assert path.with_suffix(".old").read_bytes() == content


def test_a_damaged_database_is_left_as_it_is(path: Path) -> None:
    with Store(path) as store:
        store.add(make_run())
    content = bytearray(path.read_bytes())
    content[100:4096] = b"\xff" * 3996  # the page that holds the schema
    path.write_bytes(content)
    with Store(path, busy_seconds=0.05, retry_seconds=5) as store:
        wait_until(lambda: store.problem)
        assert "damaged" in store.problem
        store.add(make_run())
        assert store.close(timeout=0.05)
    assert path.read_bytes() == content and queries.count(store.aside) == 1


def test_a_schema_that_is_no_text_is_told_as_damage(path: Path) -> None:
    with Store(path) as store:
        store.add(make_run())
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE runs", b"CREATE \xf2ABLE runs"))
    with pytest.raises(StorageError, match="damaged"):
        queries.count(path)


def test_a_truncated_database_is_left_as_it_is(path: Path) -> None:
    with Store(path) as store:
        store.add(make_run(prompt="x" * 50_000))
    os.truncate(path, path.stat().st_size // 2)
    content = path.read_bytes()
    with Store(path, busy_seconds=0.05, retry_seconds=5) as store:
        assert not store.add(make_run()).wait(5)
        assert "damaged" in store.problem
        with pytest.raises(StorageError, match="damaged"):
            queries.count(path)
        store.close(timeout=0.05)
    assert path.read_bytes() == content


def test_another_programs_database_is_left_as_it_is(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE recipes (name TEXT)")
    other.commit()
    other.close()
    content = path.read_bytes()
    with Store(path, retry_seconds=0.02) as store:
        store.add(make_run())
        wait_until(lambda: store.problem)
        assert "another program's database" in store.problem and str(path) in store.problem
        store.close(timeout=0.05)
    with pytest.raises(StorageError, match=r"another program's database.*'recipes'"):
        queries.listed(path)
    assert path.read_bytes() == content


def test_a_missing_folder(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "runs.db"
    with Store(path, retry_seconds=0.02) as store:
        store.add(make_run())
        wait_until(lambda: store.problem)
        assert f"The folder {path.parent}" in store.problem and "create it" in store.problem
        path.parent.mkdir()
        wait_until(lambda: store.problem is None)
    assert queries.count(path) == 1


def test_the_problem_goes_even_if_no_run_waits(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "runs.db"
    with Store(path, retry_seconds=0.02) as store:
        wait_until(lambda: store.problem)
        path.parent.mkdir()
        wait_until(lambda: store.problem is None)
        assert store.flush()


def test_a_folder_in_place_of_the_file(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        wait_until(lambda: store.problem)
        assert "is a folder" in store.problem
    with pytest.raises(StorageError, match="is a folder"):
        queries.count(tmp_path)


@pytest.mark.parametrize("folder_mode", [0o777, 0o555], ids=["file", "file and folder"])
def test_a_file_that_may_not_be_written(folder_mode: int) -> None:
    folder = Path(tempfile.mkdtemp())  # not tmp_path: nobody may not enter that
    path = folder / "runs.db"
    try:
        Store(path).close()
        path.chmod(0o444)
        folder.chmod(folder_mode)
        with unprivileged():
            store = Store(path, retry_seconds=0.02)
            store.add(make_run())
            wait_until(lambda: store.problem)
            problem = store.problem  # gone soon after, for those whom permissions do not bind
        assert "make the file and its folder writable" in problem or "check the permissions" in problem
        assert str(path) in problem
        folder.chmod(0o777)
        path.chmod(0o666)
        assert store.flush()
        assert store.problem is None
        assert store.close()
        assert queries.count(path) == 1
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_a_disk_that_takes_no_more(store: Store, path: Path) -> None:
    store.add(make_run(prompt="before"))
    assert store.flush()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
    try:
        store.add(make_run(prompt="x" * 1_000_000))
        wait_until(lambda: store.problem)
        problem = store.problem
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(path) in problem and "disk" in problem
    assert store.flush()
    assert store.problem is None
    assert [len(queries.run(path, id).generation.prompt) for id in (2, 1)] == [1_000_000, 6]


def test_a_deleted_file_is_made_anew(store: Store, path: Path) -> None:
    store.add(make_run(prompt="lost with its file"))
    assert store.flush()
    for file in path.parent.glob("runs.db*"):
        file.unlink()
    store.add(make_run(prompt="after"))
    assert store.flush()
    assert list(queries.listed(path)["prompt"]) == ["after"]


def test_one_unstorable_run_does_not_block_the_others(store: Store, path: Path) -> None:
    assert store.flush()
    store.add(make_run(seed=2**64))
    wait_until(lambda: store.problem)
    assert "left out" in store.problem and str(path) in store.problem
    store.add(make_run(prompt="next"))
    assert store.flush()
    assert store.problem is None
    assert list(queries.listed(path)["prompt"]) == ["next"]


def test_a_run_is_written_with_all_its_rounds_or_not_at_all(store: Store, path: Path) -> None:
    assert store.flush()
    store.add(make_run(rounds=[make_round(0), make_round(0)]))  # the same round index twice: the key refuses it
    wait_until(lambda: store.problem)
    assert queries.count(path) == 0
    assert queries.run(path, 1) is None


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("database is locked", "locked by another program"),
        ("attempt to write a readonly database", "is read-only"),
        ("database or disk is full", "is full: free some space"),
        ("file is not a database", "not a SQLite database"),
        ("database disk image is malformed", "damaged"),
        ("unable to open database file", "check the permissions"),
        ("disk I/O error", "disk I/O error"),
    ],
)
def test_sentences_say_what_where_and_what_to_do(path: Path, message: str, said: str) -> None:
    sentence = explain(sqlite3.OperationalError(message), path)
    assert said in sentence and str(path.parent) in sentence and ":" in sentence and sentence.endswith(".")
