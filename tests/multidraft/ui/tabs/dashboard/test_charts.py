import json

import numpy as np
import pandas as pd
import pytest

from multidraft.policies.titles import policy_title
from multidraft.ui.tabs.dashboard import charts
from multidraft.ui.tabs.dashboard.views import CHARTS, Chart

DRAWN = ["normal-hedge", "ucb"]


@pytest.fixture
def runs() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "run_id": [1, 2, 3],
            "created_at": pd.to_datetime(["2026-01-01", "2026-01-02", "2026-01-03"], utc=True),
            "policy": ["ucb", "normal-hedge", "ucb"],
            "task": ["math", None, "sql"],
            "speedup": [1.5, 2.0, 2.5],
            "tokens_per_second": [100.0, 120.0, 90.0],
            "run_number": [1, 1, 2],
            "regret_rounds": [2.0, 0.0, -1.0],
            "cumulative_regret": [2.0, 0.0, 1.0],
        }
    )


def lines(figure) -> dict[str, tuple[list, list]]:
    return {trace.name: (list(trace.x), list(trace.y)) for trace in figure.data if trace.name}


def test_speedups_of_single_runs(runs: pd.DataFrame) -> None:
    figure = charts.speedup(runs, DRAWN)
    assert {name: y for name, (_, y) in lines(figure).items()} == {"HedgeSpec (NormalHedge)": [2.0], "UCB": [1.5, 2.5]}
    assert figure.data[0].customdata[0][0] == "no task"
    assert figure.layout.showlegend is False
    json.loads(figure.to_json())


def test_noisy_runs_are_counted_and_an_outlier_leaves_room(runs: pd.DataFrame) -> None:
    figure = charts.speedup(runs.assign(speedup_uncertainty=[0.1, np.nan, 0.3], speedup=[50.0, 2.0, 9.0]), DRAWN)
    assert {name: y for name, (_, y) in lines(figure).items()} == {"HedgeSpec (NormalHedge)": [2.0], "UCB": [50.0, 9.0]}
    assert figure.layout.xaxis.title.text == "1 of 3 runs uncertain by > ± 25 %"
    low, high = figure.layout.yaxis.range
    assert figure.layout.yaxis.type == "log" and low < 0 and high < 1.8


def test_tasks_in_hover_texts_are_escaped(runs: pd.DataFrame) -> None:
    """Plotly takes some tags in them for its own."""
    figure = charts.speedup(runs.assign(task="<b>x</b>"), DRAWN)
    assert {row[0] for trace in figure.data for row in trace.customdata} == {"&lt;b&gt;x&lt;/b&gt;"}


def test_speedups_by_period_have_their_intervals(runs: pd.DataFrame) -> None:
    frame = runs.drop(columns="run_id").assign(speedup_low=[1.0, np.nan, 2.0], speedup_high=[2.0, np.nan, 3.0], runs=4)
    (ucb,) = [trace for trace in charts.speedup(frame, DRAWN).data if trace.name == "UCB"]
    assert [list(row) for row in ucb.customdata] == [[4, "95 % interval 1.00–2.00"], [4, "95 % interval 2.00–3.00"]]
    assert "× over" in ucb.hovertemplate


def test_around_a_single_run_the_axis_spans_minutes(runs: pd.DataFrame) -> None:
    start, end = charts.speedup(runs[:1], DRAWN).layout.xaxis.range
    assert pd.Timestamp(end) - pd.Timestamp(start) == pd.Timedelta(minutes=6)


def test_policies_without_a_colour_are_not_drawn_as_lines(runs: pd.DataFrame) -> None:
    assert set(lines(charts.regret(runs, ["ucb"]))) == {"UCB"}


def test_regret_grows_by_policy(runs: pd.DataFrame) -> None:
    figure = charts.regret(runs, DRAWN)
    assert lines(figure)["UCB"] == ([1, 2], [2.0, 1.0])
    assert "rounds" in figure.layout.yaxis.title.text and figure.layout.xaxis.dtick == 1


def test_regret_by_date_is_the_mean_since_the_point_before() -> None:
    rows = pd.DataFrame({"policy": "ucb", "run_number": [10, 20, 25], "cumulative_regret": [20, 60, 50]})
    figure = charts.regret_by_date(rows.assign(created_at=["2026-01-01", "2026-01-02", "2026-02-01"]), ["ucb"])
    assert lines(figure)["UCB"] == (["2026-01-01", "2026-01-02", "2026-02-01"], [2.0, 4.0, -2.0])


def test_policies_differ_by_more_than_colour(runs: pd.DataFrame) -> None:
    first, second = (trace for trace in charts.regret(runs, DRAWN).data if trace.name)
    assert first.line.dash != second.line.dash and first.marker.symbol != second.marker.symbol


def test_ranking_has_an_interval_where_there_is_one() -> None:
    summary = pd.DataFrame(
        {
            "policy": ["ucb", "random", "sh"],
            "speedup": [2.0, 1.5, 2.0],
            "speedup_low": [1.8, np.nan, np.nan],
            "speedup_high": [2.3, np.nan, np.nan],
            "speedup_uncertainty": [np.nan, np.nan, 0.2],
            "speedup_runs": [9, 1, 1],
            "request_speedup": [1.7, 1.4, 1.9],
        }
    )
    figure = charts.ranking(summary, ["ucb"])
    assert figure.layout.meta == {"x": "speed-up", "y": "policy"}, "heads of columns in the CSV"
    points = {trace.name: trace for trace in figure.data[::2]}
    assert [(trace.x[0], trace.marker.symbol) for trace in figure.data[1::2]] == [
        (1.7, "diamond-open"),
        (1.4, "circle-open"),
        (1.9, "circle-open"),
    ]
    halving = points.pop(policy_title("sh"))
    assert (halving.error_x.array[0], halving.error_x.arrayminus[0]) == pytest.approx((0.4, 0.4))
    assert set(points) == {"UCB", "Random drafter"}
    ucb, rest = points["UCB"], points["Random drafter"]
    assert (ucb.error_x.array[0], ucb.error_x.arrayminus[0]) == pytest.approx((0.3, 0.2))
    assert rest.error_x.array[0] == 0 and "too few for an interval" in rest.hovertemplate
    assert ucb.marker.color != rest.marker.color


def test_best_drafter_by_round_leaves_out_what_few_runs_reach() -> None:
    frame = pd.DataFrame({"policy": "ucb", "round": [1, 2, 3], "ratio": [0.2, 0.5, 1.0], "runs": [100, 60, 2]})
    (trace,) = charts.best_arm(frame, DRAWN).data
    assert list(trace.x) == [1, 2] and list(trace.customdata) == [100, 60] and trace.mode == "lines"
    assert list(trace.y) == pytest.approx([50 / 160, 50 / 160])  # each is around the other
    (trace,) = charts.best_arm(frame[:1], DRAWN).data
    assert list(trace.y) == [0.2] and trace.mode == "markers"  # a point has no line


def test_best_drafter_by_round_keeps_rounds_in_which_few_drafted() -> None:
    runs, ratio = [100] * 4 + [15] * 4 + [100] * 4, [1.0] * 4 + [0.0] * 4 + [1.0] * 4
    frame = pd.DataFrame({"policy": "ucb", "round": range(1, 13), "ratio": ratio, "runs": runs})
    (trace,) = charts.best_arm(frame, DRAWN).data
    assert list(trace.customdata) == runs and min(trace.y) == pytest.approx(100 / 160)


def test_best_drafter_by_round_is_a_mean_over_the_runs_around() -> None:
    """With a gap where nobody drafted for as long."""
    rounds, ratio, runs = [1, 2, 3, 4, 11, 12], [1.0, 0.0, 1.0, 0.0, 0.5, 0.0], [10, 10, 20, 10, 4, 4]
    (trace,) = charts.best_arm(
        pd.DataFrame({"policy": "ucb", "round": rounds, "ratio": ratio, "runs": runs}), DRAWN
    ).data
    expected = [30 / 40, 30 / 50, 30 / 50, 20 / 40, 20 / 30, 0.0, None, None, 0.5, 0.25, 0.25, 0.25]
    assert list(trace.x) == list(range(1, 13)) and not trace.connectgaps
    assert [y if y is None else round(y, 6) for y in trace.y] == [e if e is None else round(e, 6) for e in expected]


def test_names_of_three_lines_have_room() -> None:
    policies = ["normal-hedge:start=router", "ucb", "random"]
    heights = [charts._by_policy("", these).layout.height for these in (policies, [*policies[1:], "exp3"], [])]
    assert heights[0] == heights[1] + 3 * charts.look.NAME_HEIGHT and heights[1] == heights[2]


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_charts_of_nothing_say_so(chart: Chart) -> None:
    """Instead of empty axes."""
    figure = chart.figure(pd.DataFrame(), DRAWN)
    assert not figure.layout.xaxis.visible and figure.layout.annotations[0].text
    assert figure.layout.title.text == chart.title


def test_spellings_of_one_policy_stay_apart() -> None:
    """Histories hold specs as they were typed."""
    specs = ["ucb", "UCB", "ucb:", "random"]
    seconds = dict.fromkeys(("verify_seconds", "draft_seconds", "evaluate_seconds", "policy_seconds"), 0.25)
    frame = pd.DataFrame(
        {"policy": specs, "runs": 1, "output_tokens": 10, **seconds, "speedup": 2.0, "request_speedup": 1.8}
    )
    frame = frame.assign(token_p50=1.0, token_p90=2.0, token_p99=3.0, speedup_low=1.0, speedup_high=3.0, speedup_runs=9)
    for figure in (charts.phases(frame, []), charts.token(frame, []), charts.ranking(frame, specs)):
        assert {y for trace in figure.data for y in trace.y} == set(specs)
        assert list(figure.layout.yaxis.tickvals) == specs
        assert list(figure.layout.yaxis.ticktext) == ["UCB · ucb", "UCB · UCB", "UCB · ucb:", "Random drafter"]
    drawn = charts.ranking(frame, specs)
    assert len({trace.name for trace in drawn.data}) == 2 * 4


def test_heat_map_leaves_unknown_pairs_empty() -> None:
    frame = pd.DataFrame(
        {"drafter": ["code", "math"], "task": ["sql", "math"], "runs": [3, 4], "mean_accepted_tokens": [1.5, 2.5]}
    )
    figure = charts.matrix(frame, [])
    heat = figure.data[0]
    assert figure.layout.meta == {"y": "drafter"}
    assert list(heat.x) == ["math", "sql"] and list(heat.y) == ["code", "math"]
    assert [list(row) for row in heat.z] == [[None, 1.5], [2.5, None]]


def test_phases_are_shares_and_milliseconds_a_token() -> None:
    frame = pd.DataFrame(
        {
            "policy": ["ucb"],
            "runs": [2],
            "output_tokens": [10],
            "verify_seconds": [0.06],
            "draft_seconds": [0.02],
            "evaluate_seconds": [0.0],
            "policy_seconds": [0.02],
        }
    )
    figure = charts.phases(frame, [])
    assert {bar.name: (bar.x[0], bar.customdata[0]) for bar in figure.data} == {
        "Verification": pytest.approx((0.6, 6.0)),
        "Drafting": pytest.approx((0.2, 2.0)),
        "Full-information evaluation": pytest.approx((0, 0)),
        "Policy overhead": pytest.approx((0.2, 2.0)),
    }


def test_latency_is_in_milliseconds() -> None:
    frame = pd.DataFrame({"policy": ["ucb"], "runs": [5], "token_p50": 0.004, "token_p90": 0.006, "token_p99": 0.009})
    figure = charts.token(frame, [])
    assert figure.layout.meta == {"y": "policy"}
    assert {trace.name: trace.x[0] for trace in figure.data if trace.name} == pytest.approx(
        {"median": 4, "p90": 6, "p99": 9}
    )
    assert list(figure.data[0].x) == [pytest.approx(4), pytest.approx(9), None]


def test_names_are_escaped(runs: pd.DataFrame) -> None:
    evil = "<b>x</b>"
    frame = runs.assign(policy=evil)
    for figure in (charts.speedup(frame, [evil]), charts.regret(frame, [evil])):
        assert figure.data[0].name == "&lt;b&gt;x&lt;/b&gt;"
    assert "<b>" not in charts._label(evil)
