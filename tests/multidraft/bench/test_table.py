"""A report and its learning curve as people read them."""

from __future__ import annotations

from multidraft.bench.runner import Entry
from multidraft.bench.suites import SuiteItem
from multidraft.bench.table import _speedup, render_curve
from tests.runs import make_round, make_run


def test_in_a_learning_curve_each_distinct_prompt_counts_once() -> None:
    """Nine tokens in three rounds, and as many in nine; the first was asked three times."""
    few, many = ([make_round(index) for index in range(3)], [make_round(index, tokens=(9,)) for index in range(9)])
    asked = [("often", few)] * 3 + [("once", many)]
    entries = [
        Entry(SuiteItem(str(place), prompt), 0, make_run(prompt=prompt, policy="ucb", rounds=rounds))
        for place, (prompt, rounds) in enumerate(asked)
    ]
    assert render_curve(entries, ["ucb"]).endswith(", 1.50 |")


def test_an_interval_tells_on_which_side_of_1_it_lies() -> None:
    """As everywhere else."""
    found = {"speedup": 1.061, "speedup_interval": [0.9968, 1.128], "prompts": 21}
    assert _speedup(found, "speedup") == "1.06x (0.997–1.13)"
    assert _speedup({**found, "speedup_interval": None}, "speedup") == "1.06x"
