from __future__ import annotations

import csv
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pandas as pd
import pytest
from starlette.datastructures import QueryParams

from multidraft.sampling import SamplingParams
from multidraft.ui import dashboard_tables, dashboard_views
from multidraft.ui.dashboard import Dashboard
from multidraft.ui.dashboard_cost import view_milliseconds
from multidraft.ui.dashboard_filters import CHOICES, Chosen
from multidraft.ui.worker import Request, Workbench
from storage import figures
from storage.filters import Filter
from storage.store import Store

ALL = Chosen().values()
SPEED = "note body mixture restrict summary legend ranking usual".split()


@pytest.fixture
def filled(workbench: Workbench, store: Store) -> Dashboard:
    params = SamplingParams(max_new_tokens=8, draft_length=4)
    for policy, task in (("ucb", "letters"), ("fixed:near", "letters"), ("ucb", None)):
        workbench.submit(Request("abc abd", policy, params, task=task)).wait(60)
    assert store.flush()
    return build(store)


def build(store: Store) -> Dashboard:
    dashboard = Dashboard(store, lambda: {"pool": "tiny"})
    with gr.Blocks() as page, gr.Tab("Dashboard") as tab:
        dashboard.build(page, tab)
    return dashboard


def of_address(query: str) -> Any:
    return SimpleNamespace(query_params=QueryParams(query))


def overview(dashboard: Dashboard, values: list[Any] = ALL) -> dict[str, Any]:
    return dict(zip(SPEED, dashboard.overview(*values), strict=True))


def test_an_empty_history_says_how_to_fill_it(store: Store) -> None:
    shown = overview(build(store))
    assert "No runs yet" in shown["note"] and "Play" in shown["note"]
    assert shown["body"].visible is False
    assert build(store).chart("speedup", *ALL) == gr.skip()


def test_figures_after_runs(filled: Dashboard) -> None:
    shown = overview(filled)
    assert shown["note"] == shown["mixture"] == "" and shown["body"].visible is True
    assert shown["restrict"].visible is False
    assert "UCB" in shown["summary"] and "One drafter (near)" in shown["legend"]
    assert {trace.name for trace in filled.chart("speedup", *ALL).data} == {"UCB", "One drafter (near)"}
    regret, table = filled.chart("regret", *ALL)
    assert {trace.name for trace in regret.data} == {"UCB", "One drafter (near)"}
    assert table.count("<tr>") == 3 and "UCB" in table
    assert filled.chart("best_arm", *ALL).data
    matrix = filled.chart("matrix", *ALL)
    assert set(matrix.data[0].x) == {"letters", "no task"}
    assert set(matrix.data[0].y) == {"near", "far", "alone", "lookup"}  # those never chosen too
    phases, phases_table = filled.chart("phases", *ALL)
    token, first, latency_table = filled.chart("latency", *ALL)
    for figure in (phases, token, first):
        assert set(figure.data[1].y) - {None} == {"ucb", "fixed:near"}
        assert set(figure.layout.yaxis.ticktext) == {"UCB", "One drafter (near)"}
    assert phases_table.count("%</small>") == 2 * 4 and latency_table.count("<td") == 2 * 8


def test_filters_restrict_the_figures(filled: Dashboard) -> None:
    shown = overview(filled, Chosen("tiny", policy=["fixed:near"], task=["letters"]).values())
    assert "UCB" not in shown["summary"]
    assert len(filled.chart("speedup", *Chosen("tiny", policy=["fixed:near"]).values()).data) == 1
    for chosen in (Chosen("tiny", task=["no such task"]), Chosen(hardware="another machine")):
        shown = overview(filled, chosen.values())
        assert "No finished run fits" in shown["note"] and shown["body"].visible is False


def test_a_day_that_cannot_be_is_told(filled: Dashboard) -> None:
    values = Chosen(since="2026-13-01").values()
    assert "needs a day such as" in overview(filled, values)["note"]
    assert "needs a day such as" in filled.run_list(0, *values)[0]
    assert filled.chart("matrix", *values) == gr.skip()
    with pytest.raises(gr.Error, match="needs a day"):
        filled.export("csv", *values)


def test_mixed_conditions_are_told_and_can_be_left(filled: Dashboard, context_of) -> None:
    context_of(filled.store, hardware="another machine", version="0.0.1")
    shown = overview(filled)
    assert "another machine (1 run)" in shown["mixture"] and "Versions" in shown["mixture"]
    assert "Number types" in shown["mixture"] or "dtype" not in shown["mixture"]
    assert shown["restrict"].visible is True and "3 runs" in shown["restrict"].value
    *controls, times = filled.restricted(shown["usual"], 4, *ALL)
    assert [control.value for control in controls[:2]] == ["tiny", shown["usual"]["hardware"]] and times == 5
    shown = overview(filled, [control.value for control in controls] + [None, None])
    assert shown["mixture"] == "" and shown["body"].visible is True


def test_speedups_over_two_measurements_of_plain_decoding_are_told_apart(filled: Dashboard, context_of) -> None:
    """Runs of bench compare with the whole answer decoded plainly, all others with its first tokens."""
    (row,) = figures.conditions(filled.store.path).to_dict("records")
    for _ in range(4):
        context_of(filled.store, **{**row, "source": "bench"})
    shown = overview(filled)
    assert "the whole answer (bench) (4 runs), its first 64 tokens" in shown["mixture"]
    assert "4 runs" in shown["restrict"].value and shown["usual"]["source"] == ["bench"]
    *controls, _ = filled.restricted(shown["usual"], 0, *ALL)
    shown = overview(filled, [control.value for control in controls] + [None, None])
    assert shown["mixture"] == "" and shown["body"].visible is True
    shown = overview(filled, Chosen(source=["play", "race"]).values())
    assert shown["mixture"] == "" and "One drafter" in shown["summary"]


def refreshed(dashboard: Dashboard, offered: dict[str, list[str]], values: list[Any]) -> tuple[list[Any], dict, dict]:
    """The controls, what they offer from now on, and the overview with the title of what is folded away."""
    parts = dashboard.refreshed(offered, *values)
    return parts[:CHOICES], parts[CHOICES], dict(zip(["more", *SPEED], parts[CHOICES + 1 :], strict=True))


def test_a_newer_choice_is_not_written_over(filled: Dashboard) -> None:
    """What is chosen while an answer is under way must stand: values go back only where they are gone."""
    controls, found, shown = refreshed(filled, {}, Chosen("tiny", task=["letters"], version="gone").values())
    sent = dict(zip(Chosen.__dataclass_fields__, controls))
    assert [field for field, control in sent.items() if "value" in control.constructor_args] == ["version"]
    assert sent["version"].value == "" and "letters" in dict(sent["task"].choices)
    assert shown["body"].visible is True
    controls, _, _ = refreshed(filled, found, Chosen("tiny").values())
    assert controls == [gr.skip()] * CHOICES  # nothing new to choose


def test_filters_out_of_sight_are_told_when_the_most_frequent_kind_is_chosen(filled: Dashboard, context_of) -> None:
    context_of(filled.store, hardware="another machine", version="0.0.1")
    usual = overview(filled)["usual"]
    *controls, _ = filled.restricted(usual, 0, *ALL)
    values = [*(control.value for control in controls), None, None]
    *_, shown = refreshed(filled, {}, values)
    assert shown["more"].label == "More filters, 3 on: version, number type, card"


def test_filters_are_one_event_that_ends_with_the_last_choice(filled: Dashboard) -> None:
    """Of two events the older may end last; and Gradio drops what comes while one is under way, but for this mode."""
    with gr.Blocks() as page, gr.Tab("Dashboard") as tab:
        filled.build(page, tab)
    of_filters = {control._id for control in filled.filters}
    events = [fn for fn in page.fns.values() if of_filters & {id for id, _ in fn.targets}]
    (event,) = events
    assert of_filters < {id for id, _ in event.targets} and event.trigger_mode == "always_last"
    parts = {part._id for part in filled._list + filled._charts["matrix"]}
    after = [fn for fn in page.fns.values() if fn.trigger_after is not None and parts & {o._id for o in fn.outputs}]
    assert after and all(fn.trigger_mode == "always_last" for fn in after)


@pytest.fixture
def context_of(make_generation):
    """Stores a made-up run under the given conditions."""
    from storage.rows import RunContext

    def add(store: Store, **changes: Any) -> None:
        known: dict[str, Any] = {
            "source": "api",
            "pool": "tiny",
            "card_hash": "c0ffee",
            "hardware": "CPU",
            "dtype": "float32",
            "version": "1",
        }
        changes.pop("runs", None)
        store.add(make_generation(), RunContext(seed=0, **{**known, **changes}))
        assert store.flush()

    return add


def test_an_address_restores_filters_and_opens_a_run(filled: Dashboard) -> None:
    restored = filled.restore(of_address("policy=ucb&task=letters&run=2&from=2026-01-02&pool=gone"))
    pool, hardware, policies, tasks, *_, since, until = restored[:10]
    assert (pool.value, hardware.value, policies.value, tasks.value) == ("", "", ["ucb"], ["letters"])
    assert (since, until) == ("2026-01-02", gr.skip())
    everything, one, head = restored[10:13]
    assert everything.visible is False and one.visible is True and "Run 2: One drafter (near) on letters" in head
    assert all("visible" not in part for part in filled.restore(of_address(""))[10:])


@pytest.mark.parametrize("id", ["99", "7777777777", "99999999999999999999", "9" * 100])
def test_a_run_that_is_not_there(filled: Dashboard, id: str) -> None:
    _, one, head, *_, number = filled.restore(of_address(f"run={id}"))[10:]
    assert one.visible is True and f"There is no run {id}" in head and number == 0


def test_the_list_of_runs_turns_its_pages(filled: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard_views, "PAGE", 2)
    table, line, newer, older, page = filled.run_list(0, *ALL)
    assert 'data-run="3"' in table and 'data-run="1"' not in table and "Runs 1–2 of 3" in line
    assert (newer.interactive, older.interactive, page) == (False, True, 0)
    table, line, newer, older, page = filled.run_list(5, *ALL)  # beyond the end: the last page
    assert 'data-run="1"' in table and "Runs 3–3 of 3" in line
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
        pools, *_ = dashboard.refreshed({}, *Chosen("gone").values())
        assert "no SQLite database" in dashboard.restore(of_address("run=1"))[12]
        assert "no SQLite database" in dashboard.run_list(0, *ALL)[0]
    assert "no SQLite database" in shown["note"] and shown["body"].visible is False
    assert pools.value == ""


def test_only_so_many_policies_are_drawn(tmp_path: Path, make_generation, context_of) -> None:
    with Store(tmp_path / "many.db") as store:
        for n in range(dashboard_views.MOST_DRAWN + 2):
            for _ in range(2 if n else 1):
                make = make_generation(policy=f"ucb:beta={n}")
                store.add(make, _context())
        assert store.flush()
        view = dashboard_views.overview(store.path, Filter())
        drawn = dashboard_views.ranked(store.path, Filter()).drawn
    assert view is not None
    assert len(drawn) == dashboard_views.MOST_DRAWN and "ucb:beta=0" not in drawn
    assert "and 2 with fewer runs" in view.legend
    assert view.summary.count("<tr>") == dashboard_views.MOST_DRAWN + 3  # the table has them all


def _context() -> Any:
    from storage.rows import RunContext

    return RunContext(
        source="api",
        pool="tiny",
        card_hash="x",
        seed=0,
        hardware="CPU",
        dtype="float32",
        version="1",
        baseline_tokens_per_second=100.0,
    )


def test_summary_shows_a_dash_for_what_is_unknown() -> None:
    nan = float("nan")
    line: dict[str, Any] = {"policy": "<b>x</b>", "runs": 2, "short_runs": 2}
    for name, value in (
        ("speedup", nan),
        ("mean_accepted_tokens", 3.0),
        ("acceptance_rate", 0.5),
        ("regret_rounds", nan),
        ("best_arm_ratio", 0.25),
    ):
        line |= {name: value, f"{name}_low": nan, f"{name}_high": nan, f"{name}_runs": 2}
    html = dashboard_tables.summary_html(pd.DataFrame([line]))
    assert "<b>x" not in html and html.count("<small") == 1 and "takes 3 runs with a speed-up; there are 2" in html
    assert "2 runs of fewer than 8 tokens are left out of speed-ups" in html
    assert "left out" not in dashboard_tables.summary_html(pd.DataFrame([line | {"short_runs": 0}]))
    assert html.count('<td class="md-figure">–</td>') == 2 and "50 %" in html and "25 %" in html


def test_policies_of_few_runs_have_no_rank_and_say_why() -> None:
    lines = []
    for policy, runs, value in (("ucb", 41, 2.0), ("hedge", 1, 2.67)):
        line: dict[str, Any] = {"policy": policy, "runs": runs, "short_runs": 0}
        for name in ("speedup", "mean_accepted_tokens", "acceptance_rate", "regret_rounds", "best_arm_ratio"):
            line |= {name: value, f"{name}_low": value, f"{name}_high": value, f"{name}_runs": runs}
        lines.append(line)
    many, few = dashboard_tables.summary_html(pd.DataFrame(lines)).split("<tr>")[2:]
    assert many.startswith("<td>1</td>") and "too few runs" not in many
    assert few.startswith("<td>–</td>") and "there is 1" in few and "too few runs to rank" in few
    assert few.index("2.67×") < few.index('<td class="md-figure">1</td>'), "speed-up stands beside the policy"


def test_spellings_of_one_policy_are_told_apart() -> None:
    frame = pd.DataFrame({"policy": ["ucb", "UCB"], "run_number": 1, "cumulative_regret": 2.0})
    for html in (dashboard_tables.legend_html(["ucb", "UCB"]), dashboard_tables.regret_html(frame, ["ucb", "UCB"])):
        assert "UCB · ucb" in html and "UCB · UCB" in html
    assert "·" not in dashboard_tables.legend_html(["ucb", "ucb:beta=0.2"])


def test_prompts_in_lists_are_escaped() -> None:
    columns = "id created_at policy task status output_tokens rounds tokens_per_second speedup prompt".split()
    evil = '"><img src=x onerror=alert(1)>'
    html = dashboard_tables.list_html(
        pd.DataFrame([[1, "2026-01-02T03:04:05", evil, evil, evil, 1, 1, 1.0, None, evil]], columns=columns)
    )
    assert "<img" not in html and "2026-01-02 03:04" in html


def test_speedups_of_many_runs_are_averaged_by_period(filled: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard_views, "MOST_POINTS", 1)
    figure = filled.chart("speedup", *ALL)
    assert "by period" in figure.layout.title.text
    assert sum(row[0] for trace in figure.data for row in trace.customdata) == 3


def test_what_every_view_costs_is_measured(filled: Dashboard) -> None:
    """``history`` times what the tab does: all handlers, figures included."""
    views = {name: times for name, *times in view_milliseconds(filled.store)}
    assert {name.replace("_", " ") for name in dashboard_views.CHARTS} < set(views)
    assert {"filters and ranking", "list, first page", "one run"} < set(views)
    assert all(first > 0 and again > 0 for first, again in views.values())
