"""A few visitors for a few seconds; and what a report of many says."""

from pathlib import Path

import pytest

from drafters.errors import BusyError
from multidraft.service.limits import Limits
from tests import tiny
from tests.reliability.crowd import POLITE, crowd
from tests.reliability.crowd_report import Report


def report(growth: float = 0.0, minutes: float = 30) -> Report:
    """One action, and memory that grows by a part of it from its first quarter to its end, after a steep start."""
    memory = [(minutes * n / 100, 100.0 if n < 20 else 1000 * (1 + growth * (n - 25) / 75)) for n in range(101)]
    return Report({"Play": [1.0]}, memory=memory, minutes=minutes)


def test_memory_that_grows_is_noticed() -> None:
    assert report().well and report().growth == pytest.approx((0, 0), abs=1e-6)
    assert report(0.1).growth == pytest.approx((100 / 22.5 * 60, 0.1 / 1.05), rel=0.01)
    assert not report(0.1).well and "GROWS" in str(report(0.1))
    assert report(0.1, minutes=2).well and "too short" in str(report(0.1, minutes=2))


@pytest.mark.parametrize(
    "what",
    [{"errors": ["x"]}, {"wrong": 1}, {"wrong_records": 1}, {"seconds": {}}, {"status": -9}, {"ended_by_itself": 0}],
)
def test_what_goes_wrong_is_noticed(what: dict) -> None:
    found = report()
    vars(found).update(what)
    assert not found.well


@pytest.mark.long
def test_a_small_crowd(tmp_path: Path) -> None:
    (tmp_path / "pool").mkdir()
    card = tiny.write_pool(tmp_path / "pool")
    found = crowd(tmp_path, str(card), tiny.texts(8, 6, 1), visitors=4, minutes=0.2, tokens=16, think=0.1)
    assert found.well and found.recorded, str(found)


@pytest.mark.parametrize("taken", [["a"] * 8, ["b"] * 2])
def test_what_limits_say_is_known_as_a_refusal(taken: list[str]) -> None:
    with pytest.raises(BusyError) as refused:
        Limits(share=0.25).check_place("batches", 8, taken, "b")
    assert any(words in str(refused.value) for words in POLITE)
