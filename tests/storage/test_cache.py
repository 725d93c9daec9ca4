from __future__ import annotations

import gc
import os
import sqlite3
from pathlib import Path
from weakref import WeakSet

import pytest

from storage import queries
from storage.cache import cached
from storage.filters import ALL, Filter
from storage.problems import StorageError
from storage.store import Store
from tests.runs import make_run

MATH = Filter(task=("math",))


@pytest.fixture
def asked() -> list[Filter]:
    return []


@pytest.fixture
def count(asked: list[Filter]):
    @cached
    def count(path: Path, filter: Filter = ALL) -> int:
        asked.append(filter)
        return queries.count(path, filter)

    return count


def test_a_question_is_asked_once(count, asked, filled: Path) -> None:
    assert [count(filled), count(filled), count(filled, MATH), count(filled, MATH)] == [7, 7, 4, 4]
    assert asked == [ALL, MATH]


def test_a_new_run_is_seen(count, store: Store, path: Path) -> None:
    for runs in (1, 2, 3):
        store.add(make_run())
        assert store.flush() and count(path) == runs


def test_answers_about_the_database_as_it_was_are_let_go(store: Store, path: Path) -> None:
    class Answer:
        pass

    given = WeakSet[Answer]()

    @cached
    def ask(path: Path, number: int) -> Answer:
        given.add(answer := Answer())
        return answer

    for _ in range(3):
        store.add(make_run())
        assert store.flush()
        for number in range(4):
            assert ask(path, number) is ask(path, number)
        gc.collect()
        assert len(given) == 4


def test_another_programs_change_is_seen(count, filled: Path) -> None:
    os.utime(filled, (0, 0))  # not within the same tick of the file system's clock
    assert count(filled, MATH) == 4
    with sqlite3.connect(filled) as connection:
        connection.execute("UPDATE runs SET task = 'code' WHERE id = 1")
    connection.close()
    assert count(filled, MATH) == 3


def test_a_failure_is_not_kept(count, tmp_path: Path, filled: Path) -> None:
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"no database" * 100)
    with pytest.raises(StorageError):
        count(broken)
    broken.write_bytes(filled.read_bytes())
    assert count(broken) == 7
