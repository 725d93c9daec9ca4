from __future__ import annotations

import json

import pandas as pd
import pytest

from multidraft.ui import charts
from multidraft.ui.theme import drafter_colour

DRAFTERS = ["code", "math"]


def test_probabilities_are_stacked_in_the_legends_colours(make_round) -> None:
    rounds = [make_round(0), make_round(1, probabilities=(0.1, 0.9))]
    figure = charts.policy_figure(rounds, DRAFTERS)
    assert [trace.name for trace in figure.data] == DRAFTERS
    assert [trace.fillcolor for trace in figure.data] == [drafter_colour(0), drafter_colour(1)]
    assert list(figure.data[1].x) == [1, 2]
    assert list(figure.data[1].y) == [0.75, 0.9]


def test_a_deterministic_policy_shows_the_arms_it_played(make_round) -> None:
    none = make_round(1, arm=None, drafter=None, drafted=(), accepted=0, probabilities=None)
    figure = charts.policy_figure([make_round(0, probabilities=None), none], DRAFTERS)
    points = {trace.name: list(zip(trace.x, trace.y, strict=True)) for trace in figure.data}
    assert points == {"code": [], "math": [(1, 1)], "no draft": [(2, 2)]}
    assert list(figure.layout.yaxis.ticktext) == ["code", "math", "no draft"]
    assert figure.data[1].customdata[0] == [2, 3]


def test_before_the_first_round_the_chart_says_so() -> None:
    figure = charts.policy_figure([], DRAFTERS)
    assert not figure.data
    assert "No rounds yet" in figure.layout.annotations[0].text
    assert figure.layout.height == charts.POLICY_HEIGHT


def test_names_are_escaped_in_charts(make_round) -> None:
    for probabilities in ((0.5, 0.5), None):
        figure = charts.policy_figure([make_round(probabilities=probabilities)], ["<b>x</b>", "math"])
        assert figure.data[0].name == "&lt;b&gt;x&lt;/b&gt;"


@pytest.fixture
def runs() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "run_id": [1, 2, 3],
            "created_at": pd.to_datetime(["2026-01-01", "2026-01-02", "2026-01-03"], utc=True),
            "policy": ["ucb", "normal-hedge", "ucb"],
            "task": ["math", None, "sql"],
            "speedup": [1.5, 2.0, None],
            "tokens_per_second": [100.0, 120.0, 90.0],
            "run_number": [1, 1, 2],
            "regret_rounds": [2.0, 0.0, -1.0],
            "cumulative_regret": [2.0, 0.0, 1.0],
        }
    )


def test_speedups_by_policy_leave_out_runs_without_one(runs: pd.DataFrame) -> None:
    figure = charts.speedup_figure(runs, sorted(set(runs["policy"])))
    points = {trace.name: list(trace.y) for trace in figure.data}
    assert points == {"HedgeSpec (NormalHedge)": [2.0], "UCB": [1.5]}
    assert figure.data[0].customdata[0][0] == "no task"
    json.loads(figure.to_json())


def test_regret_grows_by_policy(runs: pd.DataFrame) -> None:
    figure = charts.regret_figure(runs, sorted(set(runs["policy"])))
    lines = {trace.name: (list(trace.x), list(trace.y)) for trace in figure.data}
    assert lines["UCB"] == ([1, 2], [2.0, 1.0])
    assert "rounds" in figure.layout.yaxis.title.text


def test_policies_differ_by_more_than_colour(runs: pd.DataFrame) -> None:
    first, second = charts.regret_figure(runs, sorted(set(runs["policy"]))).data
    assert first.line.dash != second.line.dash
    assert first.marker.symbol != second.marker.symbol


def test_heat_map_leaves_unknown_pairs_empty() -> None:
    frame = pd.DataFrame(
        {"drafter": ["code", "math"], "task": ["sql", "math"], "runs": [3, 4], "mean_accepted_tokens": [1.5, 2.5]}
    )
    heat = charts.drafter_task_figure(frame).data[0]
    assert list(heat.x) == ["math", "sql"] and list(heat.y) == ["code", "math"]
    assert [list(row) for row in heat.z] == [[None, 1.5], [2.5, None]]


def test_bars_of_a_batch() -> None:
    summary = pd.DataFrame(
        {"task": ["math", "math", "sql"], "policy": ["ucb", "random", "ucb"], "speedup": [2.0, 1.1, None]}
    )
    figure = charts.speedup_by_task_figure(summary)
    assert {trace.name: (list(trace.x), list(trace.y)) for trace in figure.data} == {
        "Random drafter": (["math"], [1.1]),
        "UCB": (["math"], [2.0]),
    }
