import json

import pandas as pd
import plotly.graph_objects as go

from multidraft.ui.result_pages import drawing
from multidraft.ui.result_pages.drawing import Bar
from multidraft.ui.widgets import charts
from multidraft.ui.widgets.charts import plot_of, policy_chart
from multidraft.ui.widgets.theme import POLICY_COLOURS, drafter_colour
from tests.runs import make_round

DRAFTERS = ["code", "math"]


def test_probabilities_are_stacked_in_the_legends_colours() -> None:
    rounds = [make_round(0), make_round(1, probabilities=(0.1, 0.9))]
    figure = go.Figure(policy_chart(rounds, DRAFTERS))
    assert [trace.name for trace in figure.data] == DRAFTERS
    assert [trace.fillcolor for trace in figure.data] == [drafter_colour(1), drafter_colour(0)]  # code, math
    assert list(figure.data[1].x) == [1, 2]
    assert list(figure.data[1].y) == [0.75, 0.9]


def test_long_names_of_tasks_are_cut_below_a_chart_and_all_drafters_named_beside_it() -> None:
    tasks = ("math", "mathematical_reasoning <1>")
    lines = [{"drafter": "code", "task": task, "mean_accepted_tokens": 2.0, "runs": 1} for task in tasks]
    figure = charts.drafter_task_figure(pd.DataFrame(lines))
    assert tuple(figure.data[0].x) == figure.layout.xaxis.tickvals == ("math", "mathematical_reasoning &lt;1&gt;")
    assert figure.layout.xaxis.ticktext == ("math", "mathematical_re…") and figure.layout.yaxis.dtick == 1


def test_a_deterministic_policy_shows_the_arms_it_played() -> None:
    none = make_round(1, arm=None, drafter=None, drafted=(), accepted=0, probabilities=None)
    figure = go.Figure(policy_chart([make_round(0, probabilities=None), none], DRAFTERS))
    points = {trace.name: list(zip(trace.x, trace.y, strict=True)) for trace in figure.data}
    assert points == {"code": [], "math": [(1, "math")], "no draft": [(2, "no draft")]}
    assert list(figure.layout.yaxis.categoryarray) == ["code", "math", "no draft"]
    assert figure.layout.meta == {"x": "round", "y": "drafter"}, "heads of columns in the CSV"
    assert figure.data[1].customdata[0] == [2, 3]


def test_what_the_page_gets_is_the_figure() -> None:
    for probabilities in ((0.5, 0.5), None):
        chart = policy_chart([make_round(0, probabilities=probabilities)], DRAFTERS)
        sent = json.loads(plot_of(chart).plot)
        whole = json.loads(go.Figure(chart).update_layout(template="none").to_json())
        whole["layout"].pop("template")  # "none", as without one
        assert sent == whole


def test_names_are_escaped_in_charts() -> None:
    for probabilities in ((0.5, 0.5), None):
        figure = go.Figure(policy_chart([make_round(probabilities=probabilities)], ["<b>x</b>", "math"]))
        assert figure.data[0].name == "&lt;b&gt;x&lt;/b&gt;"


def test_arms_beyond_the_hues_have_a_second_mark() -> None:
    """Colour alone would leave the ninth drafter the same as the first."""
    names = ["math", "eagle-math", *(f"d{arm}" for arm in range(8))]
    first, ninth, *_ = policy_chart([make_round(probabilities=(0.1,) * 10)], names)["data"]
    assert first["fillcolor"] == ninth["fillcolor"] and first["fillpattern"]["shape"] != ninth["fillpattern"]["shape"]
    played = [make_round(arm, arm=arm, drafter=names[arm], probabilities=None) for arm in (0, 1)]
    first, ninth, *_ = policy_chart(played, names)["data"]
    assert first["marker"]["color"] == ninth["marker"]["color"]
    assert first["marker"]["symbol"] != ninth["marker"]["symbol"]
    go.Figure(policy_chart(played, names))  # Plotly checks the names


def test_a_policy_has_its_colour_in_every_chart_and_never_a_drafters() -> None:
    assert not set(POLICY_COLOURS) & {drafter_colour(place) for place in range(32)}
    for spec in ("ucb", "fixed:general", "exp3:gamma=0.2"):
        picture = drawing.bars("title", "", [Bar(spec, "name", 1.0)], "", "").svg()
        for among in ([spec], ["rate-hedge", "ucb", spec], [f"fixed:{number}" for number in range(20)]):
            colour = charts.policy_style(spec, among)["line"]["color"]
            assert colour in POLICY_COLOURS and f'style="fill:{colour}"' in picture
            assert charts.bar_marker(spec, among)["color"] == colour
    usual = ["rate-hedge", "ucb", "normal-hedge", "autoregressive", "ucbspec", "exp3spec", "fixed:general", "router"]
    assert len({charts.policy_style(spec, usual)["line"]["color"] for spec in usual}) == len(usual)
    many = [f"ucb:beta=0.{number}" for number in range(1, 25)]
    styles = [charts.policy_style(spec, many) for spec in many]
    marks = {(style["line"]["color"], style["line"]["dash"], style["marker"]["symbol"]) for style in styles}
    assert len(marks) == 24 and len({colour for colour, *_ in marks}) == 1, "one policy, whatever its settings"
    assert {bool(charts.bar_marker(spec, many)["pattern"]["shape"]) for spec in many} == {False, True}


def test_a_message_has_no_axes() -> None:
    figure = charts.message_figure("Nothing")
    assert not figure.layout.xaxis.visible and not figure.layout.yaxis.visible
    assert figure.layout.annotations[0].text == "Nothing"
