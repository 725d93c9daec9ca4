import csv
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pandas as pd
import plotly.graph_objects as go
import pytest

from drafters.costs import CostMeter
from drafters.errors import UserError
from drafters.sampling import SamplingParams
from drafters.traffic import Traffic
from multidraft.bench.measure import Request
from multidraft.bench.suites import SuiteItem
from multidraft.service.batch import BatchJob
from multidraft.service.lab import LabWork
from multidraft.service.workbench import Workbench
from multidraft.ui.tabs.dashboard import charts as dashboard_charts
from multidraft.ui.tabs.dashboard import tab as dashboard_tab
from multidraft.ui.tabs.dashboard import views as dashboard_views
from multidraft.ui.tabs.dashboard.filters import CONTROLS, Chosen
from multidraft.ui.tabs.dashboard.learnt import answer, beginning_html, learnt_html
from multidraft.ui.tabs.dashboard.tab import Dashboard
from multidraft.ui.tabs.dashboard.views import CHARTS, chart
from multidraft.ui.widgets.verdict import verdict_html
from storage import aggregates, ranking
from storage.filters import Filter
from storage.run import Baseline, Origin
from storage.store import Store
from tests.multidraft.ui.building import built, dashboard_of, laid_out
from tests.multidraft.ui.tabs.visits import click, visit
from tests.runs import make_generation, make_run

ALL = Chosen().values()
SPEED = "note body mixture restrict summary legend usual".split()


@pytest.fixture
def filled(workbench: Workbench, store: Store) -> Dashboard:
    params = SamplingParams(max_new_tokens=8, draft_length=4)
    for policy, task in (("ucb", "letters"), ("fixed:near", "letters"), ("ucb", None)):
        workbench.submit(Request("abc abd", policy, params, origin=Origin("play", task))).wait(60)
    assert store.flush()
    return build(store)


def build(store: Store) -> Dashboard:
    return built(dashboard_of(store, "tiny"))


def overview(dashboard: Dashboard, values: list[Any] = ALL) -> dict[str, Any]:
    return named(dashboard, dashboard.overview(*values))


def named(dashboard: Dashboard, updates: dict[Any, Any]) -> dict[str, Any]:
    """The overview by the names of its parts."""
    return {name: updates[part] for name in SPEED if (part := getattr(dashboard, name)) in updates}


def drawn(dashboard: Dashboard, name: str, values: list[Any] = ALL) -> list[Any]:
    """What a chart's places show."""
    (found,) = [chart for chart in dashboard.places if chart.name == name]
    return list(dashboard.charts([found], *values).values())


def controls_of(dashboard: Dashboard, updates: dict[Any, Any]) -> list[Any]:
    return [updates.get(control, gr.skip()) for control in dashboard.filters[: len(CONTROLS)]]


def test_runs_of_a_batch_that_goes_on_are_told(workbench: Workbench, filled: Dashboard, store: Store) -> None:
    batch = BatchJob(workbench, [SuiteItem("1", "abc abd", "letters")], ["ucb"], SamplingParams(max_new_tokens=8))
    filled.work = SimpleNamespace(workbench=SimpleNamespace(jobs=SimpleNamespace(listed=[batch])))
    assert "still running" not in overview(filled)["note"], "none of its runs is there yet"
    store.add(make_run(batch_id=batch.id))
    assert store.flush()
    assert "A batch is still running: 1 of 1 run so far are among those below" in overview(filled)["note"]


def test_a_verdict_on_the_filtered_runs_and_what_they_taught(workbench: Workbench, filled: Dashboard) -> None:
    dashboard, no_run = Dashboard(LabWork(workbench)), Chosen(policy=["ucb"], since="2999-01-01").values()
    advise = partial(dashboard.advised, dashboard.work.advise, verdict_html, "Working out …", "No verdict")
    *_, verdict = advise(*ALL)
    assert "1 prompt is too few to say which policy is faster" in verdict and "Replayed on 1 recorded text" in verdict
    *_, none = advise(*no_run)
    assert "No verdict: no run can be replayed: runs.db has" in none, "where it lies is the operator's affair"
    teach = partial(dashboard.advised, dashboard.work.learnt, learnt_html, "Replaying …", "Nothing to show")
    *_, taught = teach(*ALL)
    assert "1 recorded text replayed in their order as traffic" in taught and "round from past queries" in taught
    *_, none = teach(*no_run)
    assert "Nothing to show: no run can be replayed: runs.db has" in none


def test_what_the_pool_would_begin_a_prompt_with(workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workbench.pool, "costs", CostMeter(4))  # or what other tests measured would count
    assert "No past run on tiny is like this prompt, and it has no router" in answer(workbench, "abc abd")
    assert "prompt is empty" in answer(workbench, "  ")
    assert isinstance(workbench.pool.traffic, Traffic)
    names = workbench.pool.drafter_names
    told = [0.98 if name == "near" else 0.05 for name in names]
    workbench.pool.traffic.learn([(f"abc ab{n}", told) for n in range(9)])
    shown = answer(workbench, "abc abd")
    assert "By what 9 past runs on tiny tell, RateHedge (ours) would have near draft first, " in shown
    assert "(0.0–" in shown and "±" not in shown, "no draft has less than no token accepted"
    assert shown.index(">near</") < shown.index(">far</") and "as a whole" not in shown
    slow = workbench.beginning("abc abd")._replace(arm=names.index("far"))
    assert "in the answer as a whole." in beginning_html(slow, "tiny", names)


def test_figures_after_runs(filled: Dashboard) -> None:
    shown = overview(filled)
    assert shown["note"] == shown["mixture"] == "" and shown["body"].visible is True
    assert shown["restrict"].visible is False
    assert "UCB" in shown["summary"] and "One drafter (near)" in shown["legend"]
    ranked = {trace.name.removesuffix(", whole request") for trace in drawn(filled, "ranking")[0].data}
    assert ranked == {trace.name for trace in drawn(filled, "speedup")[0].data} == {"UCB", "One drafter (near)"}
    regret, table = drawn(filled, "regret")
    assert {trace.name for trace in regret.data} == {"UCB", "One drafter (near)"}
    assert table.count("<tr>") == 3 and "UCB" in table
    assert drawn(filled, "best_arm")[0].data
    (matrix,) = drawn(filled, "matrix")
    assert set(matrix.data[0].x) == {"letters", "no task"}
    assert set(matrix.data[0].y) == {"near", "far", "alone", "lookup"}  # those never chosen too
    phases, phases_table = drawn(filled, "phases")
    (token,), (first, latency_table) = drawn(filled, "token"), drawn(filled, "first")
    for figure in (phases, token, first):
        assert set(figure.data[1].y) - {None} == {"ucb", "fixed:near"}
        assert set(figure.layout.yaxis.ticktext) == {"UCB", "One drafter (near)"}
    assert phases_table.count("%</small>") == 2 * 4 and latency_table.count("<td") == 2 * 8


def test_filters_restrict_the_figures(filled: Dashboard) -> None:
    shown = overview(filled, Chosen("tiny", policy=["fixed:near"], task=["letters"]).values())
    assert "UCB" not in shown["summary"]
    assert len(drawn(filled, "speedup", Chosen("tiny", policy=["fixed:near"]).values())[0].data) == 1
    shown = overview(filled, Chosen(hardware="another machine").values())
    assert "No finished run" in shown["note"] and shown["body"].visible is False


def test_a_day_that_cannot_be_is_told(filled: Dashboard) -> None:
    values = Chosen(since="2026-13-01").values()
    assert "needs a day such as" in overview(filled, values)["note"]
    assert "needs a day such as" in filled.run_list(0, *values)[filled.runs]
    assert drawn(filled, "matrix", values) == [gr.skip()]
    with pytest.raises(UserError, match="needs a day"):
        filled.export("csv", *values)


def test_mixed_conditions_are_told_and_can_be_left(filled: Dashboard, context_of) -> None:
    context_of(filled.store, hardware="another machine", version="0.0.1")
    shown = overview(filled)
    assert "another machine (1 run)" in shown["mixture"] and "Code version:" in shown["mixture"]
    assert shown["restrict"].visible is True and "3 runs" in shown["restrict"].value
    updates = filled.restricted(shown["usual"], 4, *ALL)
    controls, times = controls_of(filled, updates), updates[filled.narrowed]
    assert [control.value for control in controls[:2]] == ["tiny", shown["usual"]["hardware"]] and times == 5
    values = [control.value for control in controls] + [None, None]
    shown = overview(filled, values)
    assert shown["mixture"] == "" and shown["body"].visible is True
    *_, shown = refreshed(filled, {}, values)
    out_of_sight = "code version, dtype, pool card, autoregressive baseline, draft length, temperature, max new tokens"
    assert shown["more"].label == f"More filters, 7 on: {out_of_sight}"


def test_speedups_over_two_baselines_are_told_apart(filled: Dashboard, context_of) -> None:
    """Long answers alone are compared with their first tokens."""
    (row,) = aggregates.conditions(filled.store.path).to_dict("records")
    row.pop("runs")
    row.pop("baseline_kind")
    row |= {name: as_number(row[name]) for name, as_number in aggregates.SETTINGS.items()}
    for _ in range(4):
        context_of(filled.store, **row, source="race", baseline=Baseline("prefix", 6, 0.01, 0.01))
    shown = overview(filled)
    assert "first tokens, their median (4 runs), " in shown["mixture"] and "whole answer (3 runs)" in shown["mixture"]
    assert "4 runs" in shown["restrict"].value and shown["usual"]["baseline_kind"] == "prefix"
    controls = controls_of(filled, filled.restricted(shown["usual"], 0, *ALL))
    shown = overview(filled, [control.value for control in controls] + [None, None])
    assert shown["mixture"] == "" and shown["body"].visible is True
    shown = overview(filled, Chosen(baseline_kind="answer").values())
    assert shown["mixture"] == "" and "One drafter" in shown["summary"]


def refreshed(dashboard: Dashboard, offered: dict[str, list[str]], values: list[Any]) -> tuple[list[Any], dict, dict]:
    """The controls, what they offer from now on, and the overview with the title of what is folded away."""
    updates = dashboard.refreshed(click(), offered, *values)
    shown = {"more": updates[dashboard.more], **named(dashboard, updates)}
    return controls_of(dashboard, updates), updates[dashboard.found], shown


def test_a_newer_choice_is_not_written_over(filled: Dashboard) -> None:
    """What is chosen while an answer is under way must stand: values go back only where they are gone."""
    controls, found, shown = refreshed(filled, {}, Chosen("tiny", task=["letters"], version="gone").values())
    sent = dict(zip(Chosen.__dataclass_fields__, controls))
    assert [field for field, control in sent.items() if "value" in control.constructor_args] == ["version"]
    assert sent["version"].value == "" and "letters" in dict(sent["task"].choices)
    assert shown["body"].visible is True
    controls, _, _ = refreshed(filled, found, Chosen("tiny").values())
    assert controls == [gr.skip()] * len(CONTROLS)  # nothing new to choose


def test_filters_are_one_event_that_ends_with_the_last_choice(store: Store) -> None:
    """Of two events the older may end last; and Gradio drops what comes while one is under way, but for this mode."""
    page, _ = laid_out(dashboard := dashboard_of(store))
    of_filters = {control._id for control in dashboard.filters}
    events = [fn for fn in page.fns.values() if of_filters & {id for id, _ in fn.targets}]
    (event,) = events
    assert of_filters < {id for id, _ in event.targets} and event.trigger_mode == "always_last"
    parts = {part._id for part in [*dashboard.list, *(part for place in dashboard.places.values() for part in place)]}
    after = [fn for fn in page.fns.values() if fn.trigger_after is not None and parts & {o._id for o in fn.outputs}]
    assert after and all(fn.trigger_mode == "always_last" for fn in after)


@pytest.fixture
def context_of():
    """Stores a made-up run under the given conditions."""

    def add(store: Store, **changes: Any) -> None:
        known: dict[str, Any] = {"source": "api", "pool": "tiny", "version": "1", "baseline": None}
        store.add(make_run(make_generation(), **{**known, **changes}))
        assert store.flush()

    return add


def test_an_address_restores_filters_and_opens_a_run(filled: Dashboard) -> None:
    updates = filled.restore(visit("policy=ucb&task=letters&run=2&from=2026-01-02&pool=gone"))
    restored = [updates[control] for control in filled.filters]
    pool, hardware, policies, tasks, *_, since, until = restored[: len(CONTROLS) + 2]
    assert (pool.value, hardware.value, policies.value, tasks.value) == ("", "", ["ucb"], ["letters"])
    assert (since, until) == ("2026-01-02", gr.skip())
    everything, one, head = (updates[part] for part in (filled.everything, filled.one, filled.run.head))
    assert everything.visible is False and one.visible is True and "Run 2: One drafter (near) on letters" in head
    assert set(filled.restore(visit(""))) == {filled.usual_place, *filled.filters}


def test_a_run_that_is_not_there(filled: Dashboard) -> None:
    for id in ("99", "7777777777", "99999999999999999999", "9" * 100):
        updates = filled.restore(visit(f"run={id}"))
        one, head, number = (updates[part] for part in (filled.one, filled.run.head, filled.run.id))
        assert one.visible is True and f"This history has no run {id}" in head and number == 0


def test_the_list_of_runs_turns_its_pages(filled: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard_views, "PAGE", 2)
    table, line, newer, older, page = (filled.run_list(0, *ALL)[part] for part in filled.list)
    assert 'data-run="3"' in table and 'data-run="1"' not in table and "Runs 1–2 of 3" in line
    assert (newer.interactive, older.interactive, page) == (False, True, 0)
    table, line, newer, older, page = (
        filled.run_list(5, *ALL)[part] for part in filled.list
    )  # beyond the end: the last page
    assert 'data-run="1"' in table and "Run 3 of 3" in line
    assert (newer.interactive, older.interactive, page) == (True, False, 1)


def test_exports(filled: Dashboard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    values = Chosen(policy=["ucb"]).values()
    with open(filled.export("csv", *values), newline="") as file:
        assert [row["policy"] for row in csv.DictReader(file)] == ["ucb", "ucb"]
    assert len(json.loads(Path(filled.export("json", *values)).read_text())) == 2
    assert len(pd.read_parquet(filled.export("parquet", *values))) == 2
    path = Path(filled.run.export(2))
    assert path.name == "run-2.json" and json.loads(path.read_text())["policy"] == "fixed:near"


def test_a_history_that_is_off_says_so(tmp_path: Path) -> None:
    with Store(tmp_path / "missing" / "runs.db", busy_seconds=0.01, retry_seconds=0.01) as store:
        store.flush(1)
        note = overview(build(store))["note"]
    assert "history is not being written" in note and "does not exist" in note


def test_a_damaged_history_is_told_without_a_traceback(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    path.write_bytes(b"this is no database" * 100)
    with Store(path, busy_seconds=0.01, retry_seconds=0.01) as store:
        store.flush(1)
        dashboard = build(store)
        shown = overview(dashboard)
        pools, *_ = controls_of(dashboard, dashboard.refreshed(click(), {}, *Chosen("gone").values()))
        assert "not a SQLite database" in dashboard.restore(visit("run=1"))[dashboard.run.head]
        assert "not a SQLite database" in dashboard.run_list(0, *ALL)[dashboard.runs]
    assert "not a SQLite database" in shown["note"] and shown["body"].visible is False
    assert pools.value == ""


def test_only_so_many_policies_are_drawn(tmp_path: Path) -> None:
    with Store(tmp_path / "many.db") as store:
        for n in range(dashboard_views.MOST_DRAWN + 2):
            for _ in range(2 if n else 1):
                make = make_generation(policy=f"ucb:beta={n}")
                store.add(make_run(make, pool="tiny"))
        assert store.flush()
        view = dashboard_views.overview(store.path, Filter())
        drawn = dashboard_views.ranked(store.path, Filter()).drawn
    assert view is not None
    assert len(drawn) == dashboard_views.MOST_DRAWN and "ucb:beta=0" not in drawn
    assert "and 2 with fewer runs" in view.legend
    assert view.summary.count("<tr>") == dashboard_views.MOST_DRAWN + 3  # the table has them all


def test_speedups_of_many_runs_are_averaged_by_period(filled: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard_charts, "MOST_POINTS", 1)
    (figure,) = drawn(filled, "speedup")
    assert "× over" in figure.data[0].hovertemplate
    assert sum(row[0] for trace in figure.data for row in trace.customdata) == 3


def test_a_chart_is_one_function(filled: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard_views, "CHARTS", charts := [*CHARTS])
    monkeypatch.setattr(dashboard_tab, "CHARTS", charts)

    @chart("Runs of each policy", dashboard_charts.TIME, ranking.policy_summary)
    def how_many(rows: pd.DataFrame, policies: Sequence[str]) -> go.Figure:
        return go.Figure(go.Bar(x=rows["policy"], y=rows["runs"]))

    dashboard = build(filled.store)
    (figure,) = drawn(dashboard, "how_many")
    assert dict(zip(figure.data[0].x, figure.data[0].y)) == {"ucb": 2, "fixed:near": 1}
    (place,) = dashboard.places[charts[-1]]
    assert place.elem_id == "how-many-chart" and figure.layout.title.text == "Runs of each policy"
