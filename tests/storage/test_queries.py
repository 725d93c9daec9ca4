"""Lists and runs: on a small database whose answers are known, on an empty one, and on none."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest

from storage import queries
from storage.export import EXPORTS
from storage.problems import StorageError
from storage.queries import Filter
from storage.store import Store


@pytest.mark.parametrize(
    ("filter", "ids"),
    [
        (Filter(), [7, 6, 5, 4, 3, 2, 1]),
        (Filter(pool="large"), [4]),
        (Filter(policies=("hedge",)), [5, 2]),
        (Filter(policies="hedge"), [5, 2]),
        (Filter(policies=["hedge", "ucb"], tasks=("code",)), [6, 4]),
        (Filter(sources="bench"), [4]),
        (Filter(since="2026-01-05"), [7, 6, 5]),
        (Filter(until=datetime(2026, 1, 3)), [2, 1]),
        (Filter(since="2026-01-02T01:00:00+01:00", until="2026-01-04T00:00:00Z"), [3, 2]),
        (Filter(pool="pocket", policies=("ucb",), tasks=("math",), sources=("play",)), [7, 3, 1]),
        (Filter(version="1.1"), [5]),
        (Filter(dtype="float16"), []),
        (Filter(card="c0ffee", hardware="GPU"), [4]),
        (Filter(pool="unknown"), []),
    ],
)
def test_runs_and_count_obey_the_filter(filled: Path, filter: Filter, ids: list[int]) -> None:
    assert list(queries.runs(filled, filter)["id"]) == ids
    assert list(queries.listed(filled, filter)["id"]) == ids
    assert queries.count(filled, filter) == len(ids)


def test_runs_by_the_page(filled: Path) -> None:
    assert list(queries.runs(filled, limit=2)["id"]) == [7, 6]
    assert list(queries.runs(filled, limit=2, offset=5)["id"]) == [2, 1]
    assert queries.runs(filled, limit=2, offset=7).empty


def test_a_filter_says_which_time_it_cannot_read() -> None:
    with pytest.raises(ValueError, match="'yesterday'"):
        Filter(since="yesterday").where()


def test_hardware_is_a_filter(store: Store, path: Path, generation, context) -> None:
    for hardware in ("CPU", "CPU", "GPU"):
        store.add(generation(), context(hardware=hardware))
    assert store.flush()
    assert [queries.count(path, Filter(hardware=name)) for name in ("CPU", "GPU", "TPU")] == [2, 1, 0]


def test_one_run_and_its_rounds(filled: Path) -> None:
    run = queries.run(filled, 4)
    assert run is not None
    assert (run["pool"], run["parameters"]["draft_length"], run["lossless"]) == ("large", 3, None)
    assert queries.run(filled, 99) is None
    rounds = queries.rounds(filled, 6)
    assert rounds[["run_id", "drafter", "accepted"]].values.tolist() == [[6, "code", 0]]
    assert rounds["token_ids"][0] == [9]
    assert queries.rounds(filled, 99).empty


def test_rounds_with_and_without_probabilities(store: Store, path: Path, generation, context, round_of) -> None:
    store.add(generation(rounds=[round_of(0), round_of(1, probabilities=None)]), context())
    assert store.flush()
    assert list(queries.rounds(path, 1)["probabilities"]) == [[0.25, 0.75], None]


def test_lists_show_the_beginning_of_long_prompts(store: Store, path: Path, generation, context) -> None:
    store.add(generation(prompt="p" * 5000), context())
    assert store.flush()
    assert queries.listed(path)["prompt"][0] == "p" * queries.PREVIEW


def missing(path: Path) -> None:
    pass


def empty_file(path: Path) -> None:
    path.touch()


def no_runs(path: Path) -> None:
    Store(path).close()


@pytest.mark.parametrize("make", [missing, empty_file, no_runs])
def test_nothing_there(filled: Path, tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "other.db"
    make(path)
    existed = path.exists()
    for table in (queries.runs, queries.listed):
        frame = table(path)
        assert frame.empty
        assert list(frame.columns) == list(table(filled).columns)
    assert list(queries.rounds(path, 1).columns) == list(queries.rounds(filled, 1).columns)
    assert queries.run(path, 1) is None
    assert queries.count(path) == 0
    assert [write(path, Filter(), tmp_path / suffix) for suffix, write in EXPORTS.items()] == [0, 0, 0]
    assert path.exists() == existed, "reading must not make a file"


def test_ids_and_pages_are_values_not_sql(filled: Path) -> None:
    assert queries.run(filled, "1 OR 1=1") is None  # type: ignore[arg-type]
    assert queries.rounds(filled, "1 OR 1=1").empty  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="invalid literal"):
        queries.runs(filled, limit="1; DROP TABLE runs")  # type: ignore[arg-type]
    assert queries.count(filled) == 7


def test_a_path_is_a_path_not_a_uri(store: Store, filled: Path, tmp_path: Path) -> None:
    odd = tmp_path / "a?mode=rwc&x#y %41.db"
    filled.rename(odd)
    assert queries.count(odd) == 7


def test_connections_cannot_write(filled: Path) -> None:
    with pytest.raises(StorageError, match="read-only"), queries.open_reader(filled) as connection:
        connection.execute("DELETE FROM runs")


def test_a_number_beyond_64_bits_is_no_runs(filled: Path) -> None:
    assert queries.run(filled, 99999999999999999999) is None
    assert queries.rounds(filled, -(10**30)).empty


def test_a_history_without_counts_is_read_before_it_is_brought_up_to_date(filled: Path) -> None:
    known = queries.count(filled), queries.count(filled, Filter(policies=("hedge",)))
    with closing(sqlite3.connect(filled)) as connection:
        for trigger in ("insert", "delete", "update"):
            connection.execute(f"DROP TRIGGER runs_counted_at_{trigger}")
        connection.execute("DROP TABLE run_counts")
        connection.commit()
    assert (queries.count(filled), queries.count(filled, Filter(policies=("hedge",)))) == known == (7, 2)
