"""The sweep of a setting: its chart marks what is best, and does not single out one of several that are level; the
address has what is swept."""

from typing import Any

import gradio as gr
import pytest

from multidraft.replay.outcomes import Outcome
from multidraft.service.lab import Sweep
from multidraft.ui.tabs.lab.sweep import SweepSection, default_range
from multidraft.ui.tabs.lab.view import SWEPT, sweep_figure
from tests.multidraft.ui.tabs.visits import visit


def swept(*rounds: int) -> Sweep:
    outcomes = {0.1 * (n + 1): Outcome(2, 100, count, count / 10, 0.5, 1.0) for n, count in enumerate(rounds)}
    reference = Outcome(2, 100, 10, 0.0, 1.0, 1.0)
    return Sweep("ucb", "beta", outcomes, reference, reference)


@pytest.mark.parametrize(
    ("rounds", "label", "marked"),
    [
        ((40, 20, 50), "beta<br>highest at 0.2", [5.0]),
        ((20, 20, 50, 20), "beta<br>highest at 0.1 and 2 others", [5.0, 5.0, 5.0]),
        ((20, 20), "beta<br>level at all", [5.0, 5.0]),
    ],
)
def test_the_best_points_are_marked_and_ties_told(rounds: tuple[int, ...], label: str, marked: list[float]) -> None:
    name, axis, figure_of, more = SWEPT[0]
    figure = sweep_figure(swept(*rounds), False, name, axis, figure_of, more)
    line, best, *_ = figure.data
    assert len(line.y) == len(rounds) and list(best.y) == marked
    assert figure.layout.xaxis.title.text == label


def test_the_address_has_the_sweep_and_nonsense_in_it_is_passed_over() -> None:
    def of(query: str) -> list[Any]:
        section = SweepSection(None, None)
        return section.restore(visit(query))

    query = "lab_sweep=ucb&lab_setting=beta&lab_from=0.5&lab_to=2&lab_points=4&lab_steps=linear"
    policy, setting, *range = of(query)
    assert policy == "ucb" and setting.value == "beta" and range == [0.5, 2, 4, "linear"]
    for wrong in ("ucb&lab_setting=gamma", "nobody&lab_setting=beta", "ucb&lab_setting=beta&lab_from=nan"):
        assert of(f"lab_sweep={wrong}&lab_to=2&lab_points=4&lab_steps=linear") == [gr.skip()] * 6
    assert of(query.replace("=4", "=inf")) == of("") == [gr.skip()] * 6


def test_default_ranges_hold_what_the_policy_takes() -> None:
    assert default_range("ucb", "beta") == (0.01 / 16, 0.16, True)
    assert default_range("rate-hedge", "memory")[1] == 1.0
    assert default_range("sw-ucb:window=5", "window") == (5, 320, False)
    assert default_range("ucb", "draft length", 12) == (1, 12, False)
