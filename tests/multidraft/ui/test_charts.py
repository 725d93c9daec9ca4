from __future__ import annotations

import json

import pandas as pd
import plotly.graph_objects as go

from multidraft.ui import charts
from multidraft.ui.round_charts import policy_chart, policy_plot
from multidraft.ui.theme import drafter_colour

DRAFTERS = ["code", "math"]


def test_probabilities_are_stacked_in_the_legends_colours(make_round) -> None:
    rounds = [make_round(0), make_round(1, probabilities=(0.1, 0.9))]
    figure = go.Figure(policy_chart(rounds, DRAFTERS))
    assert [trace.name for trace in figure.data] == DRAFTERS
    assert [trace.fillcolor for trace in figure.data] == [drafter_colour(0), drafter_colour(1)]
    assert list(figure.data[1].x) == [1, 2]
    assert list(figure.data[1].y) == [0.75, 0.9]


def test_a_deterministic_policy_shows_the_arms_it_played(make_round) -> None:
    none = make_round(1, arm=None, drafter=None, drafted=(), accepted=0, probabilities=None)
    figure = go.Figure(policy_chart([make_round(0, probabilities=None), none], DRAFTERS))
    points = {trace.name: list(zip(trace.x, trace.y, strict=True)) for trace in figure.data}
    assert points == {"code": [], "math": [(1, 1)], "no draft": [(2, 2)]}
    assert list(figure.layout.yaxis.ticktext) == ["code", "math", "no draft"]
    assert figure.data[1].customdata[0] == [2, 3]


def test_what_the_page_gets_is_the_figure(make_round) -> None:
    for probabilities, figure in (((0.5, 0.5), charts.weights_figure), (None, charts.arms_figure)):
        rounds = [make_round(0, probabilities=probabilities)]
        sent = json.loads(policy_plot(rounds, DRAFTERS).plot)
        whole = json.loads(figure(rounds, DRAFTERS).to_json())
        whole["layout"].pop("template")  # "none", as without one
        assert sent == whole


def test_names_are_escaped_in_charts(make_round) -> None:
    for probabilities in ((0.5, 0.5), None):
        figure = go.Figure(policy_chart([make_round(probabilities=probabilities)], ["<b>x</b>", "math"]))
        assert figure.data[0].name == "&lt;b&gt;x&lt;/b&gt;"


def test_bars_of_a_batch() -> None:
    summary = pd.DataFrame(
        {"task": ["math", "math", "sql"], "policy": ["ucb", "random", "ucb"], "speedup": [2.0, 1.1, None]}
    )
    figure = charts.speedup_by_task_figure(summary)
    assert {trace.name: (list(trace.x), list(trace.y)) for trace in figure.data} == {
        "Random drafter": (["math"], [1.1]),
        "UCB": (["math"], [2.0]),
    }
