"""Experiments are read off their runs; notes are written beside them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from storage import experiments
from storage.connection import open_reader
from storage.experiments import Sought
from storage.filters import Filter
from storage.store import Store
from storage.sync import snapshot, take_in
from tests.runs import make_round, make_run

ROUNDS = [make_round(index) for index in range(3)]


@pytest.fixture
def history(store: Store, path: Path) -> Path:
    """Two batches of two prompts and a race, a day each; and a run of its own."""
    for day, batch, policy, prompt, baseline, more in (
        (1, "old", "ucb", "Add 2 and 3", 300.0, {"version": "1.0", "suite": "sums", "regret_rounds": 3}),
        (1, "old", "ucb", "Add 5 and 8", 300.0, {"version": "1.0", "suite": "sums", "regret_rounds": 1}),
        (1, "old", "exp3", "Add 5 and 8", 400.0, {"version": "1.0", "suite": "sums"}),
        (2, "new", "ucb", "Add 2 and 3", 150.0, {"version": "1.1", "suite": "sums", "draft_length": 5}),
        (2, "new", "autoregressive", "Add 2 and 3", 10.0, {"version": "1.1", "suite": "sums"}),
        (3, "race", "ucb", "100 % of_it", None, {"source": "race"}),
        (4, None, "ucb", "Add 2 and 3", 100.0, {}),
    ):
        values = {
            "source": "batch",
            "batch_id": batch,
            "policy": policy,
            "prompt": prompt,
            "baseline": baseline,
            **more,
        }
        store.add(make_run(rounds=ROUNDS, created_at=datetime(2026, 1, day, tzinfo=UTC), **values))
    store.note("old", "before the change")
    assert store.flush()
    return path


def ids(path: Path, **sought: object) -> list[str]:
    return [row["id"] for row in experiments.listed(path, Sought(**sought))]  # type: ignore[arg-type]


def test_what_is_listed_of_an_experiment(history: Path) -> None:
    race, new, old = experiments.listed(history)
    assert (old["runs"], old["prompts"], old["suite"], old["note"]) == (3, 2, "sums", "before the change")
    assert set(old["policies"]) == {"ucb", "exp3"} and old["prompt"] == "Add 2 and 3"
    assert (old["version"], new["version"], new["draft_length"], race["source"]) == ("1.0", "1.1", 5, "race")
    assert (old["timed"], new["timed"], race["timed"]) == (3, 1, 0), "without baseline, or without drafters"
    assert new["note"] is None
    assert experiments.count(history) == 3


def test_what_is_sought_is_found_and_in_order(history: Path, store: Store) -> None:
    assert ids(history, order="oldest") == ["old", "new", "race"]
    assert ids(history, order="runs")[0] == "old" and ids(history, order="version")[-1] == "old"
    assert ids(history, words=("add", "8")) == ["old"]
    assert ids(history, words=("before",)) == ["old"] and ids(history, words=("%",)) == ["race"]
    assert ids(history, words=("of_it",)) == ["race"] and ids(history, words=("ofxit",)) == []
    assert ids(history, words=("1.1",)) == ["new"], "a version"
    assert ids(history, words=("arms (2",), titles=(("exp3", "Arms (2)"), ("ucb", "Other"))) == ["old"]
    assert ids(history, words=("SUMS",), runs=Filter(version="1.1")) == ["new"]
    assert ids(history, runs=Filter(source=("race",))) == ["race"]
    assert experiments.count(history, Sought(words=("add",))) == 2
    assert len(experiments.listed(history, limit=1, offset=1)) == 1


def test_runs_of_an_experiment(history: Path) -> None:
    found = experiments.figures(history, "old")
    assert [row["prompt"] for row in found] == ["Add 2 and 3", "Add 5 and 8", "Add 5 and 8"]
    assert found[0]["round_count"] == 3
    (first, second) = experiments.runs(history, "old", 2)
    assert len(first.generation.rounds) == 3 and second.generation.prompt == "Add 5 and 8"
    assert experiments.figures(history, "nope") == []


def test_a_note_is_replaced_and_comes_along_when_histories_are_united(
    history: Path, store: Store, tmp_path: Path
) -> None:
    store.note("old", "rather this")
    assert store.flush()
    copy, other = tmp_path / "copy.db", tmp_path / "other.db"
    snapshot(history, copy)
    with Store(other) as another:
        another.note("old", "its own")
        another.note("new", "fast")
    take_in(other, copy)
    with open_reader(other) as connection:
        notes = dict(connection.execute("SELECT batch_id, note FROM notes"))
    assert notes == {"old": "its own", "new": "fast"}
    assert experiments.listed(history)[-1]["note"] == "rather this"


def test_an_absent_history_has_none(tmp_path: Path) -> None:
    assert experiments.listed(tmp_path / "no.db") == [] and experiments.count(tmp_path / "no.db") == 0


def test_the_list_is_read_off_its_index(history: Path) -> None:
    with open_reader(history) as connection:
        sql = "SELECT batch_id, min(created_at), max(suite), count(*) FROM runs WHERE batch_id IS NOT NULL GROUP BY 1"
        plan = [row[-1] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}")]
    assert any("COVERING INDEX idx_runs_batch" in step for step in plan)
