"""Which recorded texts can be replayed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from drafters.base import Acceptances
from drafters.traffic import Prior
from storage import texts
from storage.filters import Filter
from storage.store import Store
from storage.texts import TextFilter
from tests.runs import make_run

TABLE = {"acceptance": Acceptances(*np.zeros((3, 2, 6), dtype=int)), "drafter_rounds": {"code": 3, "math": 2}}


@pytest.fixture
def filled(store: Store, path: Path) -> Path:
    """Runs 1 to 7: the prompt ``a`` twice, ``b`` of a suite, ``c`` on a GPU; three that cannot be replayed."""
    store.add(make_run(prompt="a", policy="ucb", **TABLE))
    store.add(make_run(prompt="a", policy="hedge", **TABLE))
    store.add(make_run(prompt="b", status="stopped", **TABLE, task="code", suite="mine"))
    store.add(make_run(prompt="c", **TABLE, hardware="GPU"))
    store.add(make_run(prompt="d"))
    store.add(make_run(prompt="e", status="cancelled", **TABLE))
    store.add(make_run(prompt="a", policy="random", **TABLE))
    assert store.flush()
    return path


def ids(path: Path, **filter: object) -> list[int]:
    return [run.id for run in texts.replayable(path, TextFilter(**filter))]  # type: ignore[arg-type]


def test_each_text_once_newest_first(filled: Path) -> None:
    assert ids(filled) == [7, 4, 3]
    assert texts.replayable(filled)[0].generation.drafters == ("code", "math")


def test_the_run_that_knew_what_past_queries_taught_stands_for_the_text(store: Store, path: Path) -> None:
    """If it is of the same batch."""
    knowing = make_run(policy="rate-hedge", batch_id="b", **TABLE)
    knowing.generation.prior = Prior((0.5, 0.6), (0.1, 0.2), 7)
    store.add(make_run(policy="ucb", batch_id="b", **TABLE), knowing, make_run(policy="random", batch_id="b", **TABLE))
    assert store.flush()
    (text,) = texts.replayable(path)
    assert text.id == 2 and text.generation.prior == knowing.generation.prior
    assert ids(path, id=3) == [3] and texts.size(path).texts == 1
    store.add(make_run(policy="random", batch_id="later", **TABLE))
    assert store.flush() and ids(path) == [4]


def test_one_prompt_after_two_talks_is_two_texts(store: Store, path: Path) -> None:
    for text in ("one", "two", "one"):
        store.add(make_run(prompt="Go on.", text=text, **TABLE))
    assert store.flush()
    assert ids(path) == [3, 2] and texts.size(path).texts == 2
    assert [bench.texts for bench in texts.benches(path)] == [2]


def test_a_number_beyond_64_bits_is_no_runs(filled: Path) -> None:
    assert ids(filled, id=99999999999999999999) == []


def test_filters(filled: Path) -> None:
    assert ids(filled, newest=2) == [7, 4]
    assert ids(filled, runs=Filter(hardware="CPU")) == [7, 3]
    assert ids(filled, suite="mine") == [3]
    assert ids(filled, runs=Filter(task=("code", "math"), hardware="CPU"), newest=1) == [7]
    assert ids(filled, among=4) == [7, 4] and len(texts.benches(filled, TextFilter(among=1))) == 1
    assert ids(filled, id=1) == [1]
    assert ids(filled, id=5) == ids(filled, id=6) == ids(filled, suite="x' OR 1=1; --") == []


def test_size_counts_texts_and_tokens(filled: Path) -> None:
    assert texts.size(filled) == texts.Size(3, 18, 3, (3,), ("1.0",), 0)
    assert texts.size(filled, TextFilter(newest=1)) == texts.Size(1, 6, 1, (3,), ("1.0",), 2)
    assert texts.size(filled, TextFilter(suite="none")) == texts.Size(0, 0, 0, (), (), 0)


def test_pools_and_machines_by_their_newest_run(filled: Path) -> None:
    cpu, gpu = texts.benches(filled)
    assert (cpu.pool, cpu.hardware, cpu.texts, cpu.drafters) == ("pocket", "CPU", 2, ("code", "math"))
    assert (gpu.hardware, gpu.texts) == ("GPU", 1)


def test_suites_and_tasks_of_texts(filled: Path) -> None:
    assert texts.groups(filled) == {"suites": ["mine"], "tasks": ["code", "math"]}
    assert texts.groups(filled, TextFilter(Filter(hardware="GPU"))) == {"suites": [], "tasks": ["math"]}


def test_no_database_has_no_texts(tmp_path: Path) -> None:
    path = tmp_path / "none.db"
    assert texts.replayable(path) == [] and texts.benches(path) == [] and texts.size(path).texts == 0
    assert not path.exists()
