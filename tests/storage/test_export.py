import csv
import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from storage import export
from storage.connection import read_dicts
from storage.export import EXPORTS, PACKED, export_csv, export_json, export_parquet
from storage.filters import Filter
from storage.store import Store
from tests.runs import columns_of, make_run

HEDGE = Filter(policy=("hedge",))
PROMPT = 'two\nlines, a "quote", 数学 and\r\na tab\t'


def test_csv(filled: Path, tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    assert export_csv(filled, HEDGE, file) == 2
    frame = pd.read_csv(file)
    assert list(frame.columns) == [column for column in columns_of("runs") if column not in PACKED]
    assert list(frame["id"]) == [2, 5] and set(frame["status"]) == {"at max tokens"}
    assert export_csv(filled, Filter(pool="unknown"), file) == 0
    assert file.read_text().startswith("id,created_at,source,task,")


def test_json(filled: Path, tmp_path: Path) -> None:
    file = tmp_path / "runs.json"
    assert export_json(filled, HEDGE, file) == 2
    first, second = json.loads(file.read_text())
    assert (first["id"], first["draft_length"], first["drafter_rounds"]) == (2, 3, None)
    assert first["status"] == "completed", "as it is stored"
    assert (second["id"], second["task"]) == (5, None) and "acceptance" not in second
    assert first["learn"] is True


@pytest.mark.parametrize("lossless", [True, False, None])
def test_json_says_true_and_false_as_the_json_of_a_run_does(store: Store, path: Path, tmp_path: Path, lossless) -> None:
    run = make_run()
    run.scores, run.origin = replace(run.scores, lossless=lossless), replace(run.origin, learn=False)
    store.add(run)
    assert store.flush()
    export_json(path, Filter(), tmp_path / "runs.json")
    (found,), own = json.loads((tmp_path / "runs.json").read_text()), run.to_json()
    assert found["lossless"] is own["lossless"] is lossless and found["learn"] is own["learn"] is False


@pytest.mark.parametrize("group", [1, 2, 100])
def test_parquet_is_the_table_with_its_types(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: int
) -> None:
    monkeypatch.setattr(export, "ROW_GROUP", group)
    file = tmp_path / "runs.parquet"
    columns = ", ".join(column for column in columns_of("runs") if column not in PACKED)
    known = read_dicts(filled, f"SELECT {columns} FROM runs ORDER BY id")
    assert export_parquet(filled, Filter(), file) == len(known)
    assert pq.read_table(file).to_pylist() == known
    schema = pq.read_schema(file)
    assert [str(schema.field(name).type) for name in ("id", "tokens_per_second", "task")] == [
        "int64",
        "double",
        "string",
    ]
    assert export_parquet(filled, Filter(pool="unknown"), file) == 0
    assert pq.read_schema(file) == schema and pd.read_parquet(file).empty


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet"])
def test_texts_are_kept_as_they_are(store: Store, path: Path, tmp_path: Path, suffix: str) -> None:
    store.add(make_run(prompt=PROMPT))
    assert store.flush()
    file = tmp_path / "runs"
    assert EXPORTS[suffix](path, Filter(), file) == 1
    if suffix == "csv":
        with open(file, newline="") as opened:
            found = [row["prompt"] for row in csv.DictReader(opened)]
    else:
        found = [row["prompt"] for row in json.loads(file.read_text())] if suffix == "json" else None
        found = found or list(pd.read_parquet(file)["prompt"])
    assert found == [PROMPT]


@pytest.mark.parametrize("begins", ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(1)", "\t=1", "\r=1", "\uff1d1"])
def test_no_text_is_a_formula(store: Store, path: Path, tmp_path: Path, begins: str) -> None:
    store.add(make_run(prompt=begins))
    assert store.flush()
    export_csv(path, Filter(), tmp_path / "runs.csv")
    with open(tmp_path / "runs.csv", encoding="utf-8", newline="") as file:
        assert next(csv.DictReader(file))["prompt"] == "'" + begins
    assert export.cell(-1.5) == -1.5 and export.cell("a=1") == "a=1"
