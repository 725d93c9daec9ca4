"""Lists and runs: on a small database whose answers are known, on an empty one, and on none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from storage import queries
from storage.connection import open_reader
from storage.export import EXPORTS
from storage.filters import Filter
from storage.problems import StorageError
from storage.store import Store
from tests.runs import make_run


@pytest.mark.parametrize(
    ("filter", "ids"),
    [
        (Filter(), [7, 6, 5, 4, 3, 2, 1]),
        (Filter(pool="large"), [4]),
        (Filter(policy=("hedge",)), [5, 2]),
        (Filter(policy=("hedge", "ucb"), task=("code",)), [6, 4]),
        (Filter(source=("bench",)), [4]),
        (Filter(since="2026-01-05"), [7, 6, 5]),
        (Filter(until="2026-01-03"), [2, 1]),
        (Filter(since="2026-01-02T00:00:00", until="2026-01-04"), [3, 2]),
        (Filter(pool="pocket", policy=("ucb",), task=("math",), source=("play",)), [7, 3, 1]),
        (Filter(version="1.1"), [5]),
        (Filter(dtype="float16"), []),
        (Filter(card_hash="c0ffee", hardware="GPU"), [4]),
        (Filter(hardware="TPU"), []),
        (Filter(pool="unknown"), []),
    ],
)
def test_runs_and_count_obey_the_filter(filled: Path, filter: Filter, ids: list[int]) -> None:
    assert list(queries.listed(filled, filter)["id"]) == ids
    assert queries.count(filled, filter) == len(ids)


def test_runs_by_the_page(filled: Path) -> None:
    assert list(queries.listed(filled, limit=2)["id"]) == [7, 6]
    assert list(queries.listed(filled, limit=2, offset=5)["id"]) == [2, 1]
    assert queries.listed(filled, limit=2, offset=7).empty


def test_one_run_and_its_rounds(filled: Path) -> None:
    run = queries.run(filled, 4)
    assert run is not None
    assert (run.conditions.pool, run.params.draft_length, run.scores.lossless) == ("large", 3, None)
    assert queries.run(filled, 99) is None
    run = queries.run(filled, 6)
    assert run is not None
    assert [(r.drafter, r.accepted, r.tokens) for r in run.generation.rounds] == [("code", 0, (9,))]


def test_timed_rounds(filled: Path) -> None:
    first, *_, last = queries.timed_rounds(filled, [6, 1])
    assert (first["run_id"], first["arm"], first["drafted"], first["emitted"], first["nodes"]) == (1, 1, 3, 3, 3)
    assert (last["run_id"], last["arm"], last["emitted"]) == (6, 0, 1)


def test_costs_are_of_our_own_engine_alone(store: Store, path: Path) -> None:
    for source in ("play", "vllm"):
        store.add(make_run(source=source))
    assert store.flush() and queries.ids_on(path, "c0ffee", "CPU", "float32") == [1]


def test_lists_show_the_beginning_of_long_prompts(store: Store, path: Path) -> None:
    store.add(make_run(prompt="p" * 5000))
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
    frame = queries.listed(path)
    assert frame.empty and list(frame.columns) == list(queries.listed(filled).columns)
    assert queries.run(path, 1) is None
    assert queries.count(path) == 0
    assert [EXPORTS[suffix](path, Filter(), tmp_path / suffix) for suffix in ("csv", "json", "parquet")] == [0, 0, 0]
    assert path.exists() == existed, "reading must not make a file"


def test_ids_and_pages_are_values_not_sql(filled: Path) -> None:
    assert queries.run(filled, "1 OR 1=1") is None  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="invalid literal"):
        queries.listed(filled, limit="1; DROP TABLE runs")  # type: ignore[arg-type]
    assert queries.count(filled) == 7


def test_a_path_is_a_path_not_a_uri(store: Store, filled: Path, tmp_path: Path) -> None:
    odd = tmp_path / "a?mode=rwc&x#y %41.db"
    filled.rename(odd)
    assert queries.count(odd) == 7


def test_connections_cannot_write(filled: Path) -> None:
    with pytest.raises(StorageError, match="read-only"), open_reader(filled) as connection:
        connection.execute("DELETE FROM runs")


def test_a_number_beyond_64_bits_is_no_runs(filled: Path) -> None:
    assert queries.run(filled, 99999999999999999999) is None
    assert queries.run(filled, -(10**30)) is None
