"""Every query: on a small database whose answers are known, on an empty one, and on none."""

from __future__ import annotations

import csv
import io
import math
import sqlite3
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from storage import queries
from storage.problems import StorageError
from storage.queries import Filter
from storage.store import Store

EVIL = "x' OR 1=1; DROP TABLE runs; --"


@pytest.fixture
def filled(store: Store, path: Path, generation, context) -> Path:
    """Runs 1 to 7, one a day from 2026-01-01; ``ucb`` twice on math and once on code, and so on."""
    rows: list[tuple[str, str | None, str, dict[str, Any]]] = [
        ("ucb", "math", "pocket", {"baseline_tokens_per_second": 100.0, "regret_rounds": 4, "best_arm_ratio": 0.5}),
        ("hedge", "math", "pocket", {"baseline_tokens_per_second": 150.0, "regret_rounds": 1, "best_arm_ratio": 0.9}),
        ("ucb", "math", "pocket", {"baseline_tokens_per_second": 300.0, "regret_rounds": 2, "best_arm_ratio": 0.7}),
        ("ucb", "code", "large", {"baseline_tokens_per_second": 200.0, "source": "bench", "hardware": "GPU"}),
        ("hedge", None, "pocket", {"baseline_tokens_per_second": None, "version": "1.1"}),
    ]
    for policy, task, pool, changes in rows:
        store.add(generation(policy=policy), context(task=task, pool=pool, **changes))
    round_of_code = generation().rounds[0]
    slow = type(round_of_code)(**{**vars(round_of_code), "drafter": "code", "accepted": 0, "tokens": (9,)})
    store.add(generation(policy="ucb", rounds=[slow]), context(baseline_tokens_per_second=None, task="code"))
    store.add(generation(policy="ucb", status="cancelled"), context(regret_rounds=100))
    assert store.close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE runs SET created_at = printf('2026-01-%02dT00:00:00.000000+00:00', id)")
    connection.commit()
    connection.close()
    return path


def test_filters(filled: Path) -> None:
    assert queries.filters(filled) == {
        "pools": ["large", "pocket"],
        "policies": ["hedge", "ucb"],
        "tasks": ["code", "math"],
        "hardware": ["CPU", "GPU"],
        "versions": ["1.0", "1.1"],
    }


@pytest.mark.parametrize(
    ("filter", "ids"),
    [
        (Filter(), [7, 6, 5, 4, 3, 2, 1]),
        (Filter(pool="large"), [4]),
        (Filter(policies=("hedge",)), [5, 2]),
        (Filter(policies="hedge"), [5, 2]),
        (Filter(policies=["hedge", "ucb"], tasks=("code",)), [6, 4]),
        (Filter(source="bench"), [4]),
        (Filter(since="2026-01-05"), [7, 6, 5]),
        (Filter(until=datetime(2026, 1, 3)), [2, 1]),
        (Filter(since="2026-01-02T01:00:00+01:00", until="2026-01-04T00:00:00Z"), [3, 2]),
        (Filter(pool="pocket", policies=("ucb",), tasks=("math",), source="play"), [7, 3, 1]),
        (Filter(pool="unknown"), []),
    ],
)
def test_runs_and_count_obey_the_filter(filled: Path, filter: Filter, ids: list[int]) -> None:
    assert list(queries.runs(filled, filter)["id"]) == ids
    assert queries.count(filled, filter) == len(ids)


def test_runs_by_the_page(filled: Path) -> None:
    assert list(queries.runs(filled, limit=2)["id"]) == [7, 6]
    assert list(queries.runs(filled, limit=2, offset=5)["id"]) == [2, 1]
    assert queries.runs(filled, limit=2, offset=7).empty


def test_a_filter_says_which_time_it_cannot_read() -> None:
    with pytest.raises(ValueError, match="'yesterday'"):
        Filter(since="yesterday").where()


def test_speedup_over_time(filled: Path) -> None:
    frame = queries.speedup_over_time(filled)
    assert list(frame["run_id"]) == [1, 2, 3, 4, 5, 6]  # run 7 was cancelled
    assert list(frame["speedup"][:4]) == pytest.approx([3, 2, 1, 1.5])
    assert frame["speedup"][4:].isna().all()
    assert frame["created_at"][0] == pd.Timestamp(2026, 1, 1, tz=timezone.utc)
    assert list(frame["policy"][:3]) == ["ucb", "hedge", "ucb"]
    assert frame["tokens_per_second"][0] == pytest.approx(300)


def test_regret_over_time(filled: Path) -> None:
    frame = queries.regret_over_time(filled)
    columns = ["policy", "run_number", "run_id", "regret_rounds", "cumulative_regret"]
    assert frame[columns].values.tolist() == [["hedge", 1, 2, 1, 1], ["ucb", 1, 1, 4, 4], ["ucb", 2, 3, 2, 6]]


def test_policy_summary(filled: Path) -> None:
    frame = queries.policy_summary(filled).set_index("policy")
    assert list(frame.index) == ["hedge", "ucb"]
    assert list(frame["runs"]) == [2, 4]
    assert list(frame["median_speedup"]) == pytest.approx([2, 1.5])
    assert list(frame["mean_accepted_tokens"]) == pytest.approx([3, (3 + 3 + 3 + 1) / 4])
    assert list(frame["acceptance_rate"]) == pytest.approx([2 / 3, 0.5])
    assert list(frame["regret_rounds"]) == pytest.approx([1, 3])
    assert list(frame["best_arm_ratio"]) == pytest.approx([0.9, 0.6])


def test_policy_summary_where_no_run_has_a_figure(filled: Path) -> None:
    (row,) = queries.policy_summary(filled, Filter(since="2026-01-06")).to_dict("records")
    assert (row["policy"], row["runs"]) == ("ucb", 1)
    assert math.isnan(row["median_speedup"]) and math.isnan(row["regret_rounds"])


def test_drafter_by_task(store: Store, path: Path, generation, context) -> None:
    """Six tokens a run: totals of tokens over totals of rounds, whoever was played."""
    for task, needed in (("math", {"code": 6, "math": 2}), ("math", {"code": 4, "math": 2}), (None, {"code": 3})):
        store.add(generation(), context(task=task, drafter_rounds=needed))
    store.add(generation(), context(task="sql"))  # a sampled run: not known
    store.add(generation(status="cancelled"), context(task="math", drafter_rounds={"code": 1}))
    assert store.flush()
    assert queries.drafter_by_task(path).values.tolist() == [
        ["code", "math", 2, 12 / 10],
        ["code", queries.NO_TASK, 1, 2.0],
        ["math", "math", 2, 3.0],
    ]
    assert queries.drafter_by_task(path, Filter(tasks=("math",)))["runs"].tolist() == [2, 2]


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


def test_export_csv(filled: Path, tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    assert queries.export_csv(filled, Filter(policies=("hedge",)), file) == 2
    frame = pd.read_csv(file)
    assert list(frame.columns) == list(queries.runs(filled).columns)
    assert list(frame["id"]) == [2, 5]
    out = io.StringIO()
    assert queries.export_csv(filled, Filter(pool="unknown"), out) == 0
    assert out.getvalue().startswith("id,created_at,source,")


def test_export_csv_keeps_texts_as_they_are(store: Store, path: Path, generation, context) -> None:
    prompt = 'two\nlines, a "quote", 数学 and\r\na tab\t'
    store.add(generation(prompt=prompt), context())
    assert store.flush()
    out = io.StringIO(newline="")
    assert queries.export_csv(path, Filter(), out) == 1
    out.seek(0)
    assert [row["prompt"] for row in csv.DictReader(out)] == [prompt]


TABLES: list[Callable[..., pd.DataFrame]] = [
    queries.runs,
    queries.speedup_over_time,
    queries.regret_over_time,
    queries.policy_summary,
    queries.drafter_by_task,
]


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
    for table in TABLES:
        frame = table(path)
        assert frame.empty
        assert list(frame.columns) == list(table(filled).columns)
    assert list(queries.rounds(path, 1).columns) == list(queries.rounds(filled, 1).columns)
    assert queries.run(path, 1) is None
    assert queries.count(path) == 0
    assert not any(queries.filters(path).values())
    assert queries.export_csv(path, Filter(), io.StringIO()) == 0
    assert path.exists() == existed, "reading must not make a file"


@pytest.mark.parametrize(
    "filter",
    [Filter(pool=EVIL), Filter(policies=(EVIL,)), Filter(tasks=("math", EVIL)), Filter(source=EVIL)],
)
def test_filters_are_values_not_sql(filled: Path, filter: Filter) -> None:
    expected = 3 if filter.tasks else 0  # of tasks, the harmless one still matches
    finished = len(queries.speedup_over_time(filled, filter))
    assert finished == expected
    for table in TABLES:
        table(filled, filter)
    queries.export_csv(filled, filter, io.StringIO())
    assert queries.count(filled) == 7


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
