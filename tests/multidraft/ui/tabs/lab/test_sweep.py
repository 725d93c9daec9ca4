"""The chart of a swept setting marks what is best, and does not single out one of several that are level."""

from __future__ import annotations

import pytest

from multidraft.replay.outcomes import Outcome
from multidraft.service.lab import Sweep
from multidraft.ui.tabs.lab.view import SWEPT, sweep_figure


def swept(*rounds: int) -> Sweep:
    outcomes = {0.1 * (n + 1): Outcome(2, 100, count, count / 10, 0.5, 1.0) for n, count in enumerate(rounds)}
    reference = Outcome(2, 100, 10, 0.0, 1.0, 1.0)
    return Sweep("ucb", "beta", outcomes, reference, reference)


@pytest.mark.parametrize(
    ("rounds", "label", "marked"),
    [
        ((40, 20, 50), "highest: 0.2", [5.0]),
        ((20, 20, 50, 20), "highest: 0.1, level with 2 others", [5.0, 5.0, 5.0]),
    ],
)
def test_the_best_points_are_marked_and_ties_told(rounds: tuple[int, ...], label: str, marked: list[float]) -> None:
    name, axis, figure_of, more = SWEPT[0]
    line, best, *_ = sweep_figure(swept(*rounds), False, name, axis, figure_of, more).data
    assert len(line.y) == len(rounds) and list(best.y) == marked
    assert [text for text in best.text if text] == [label]
