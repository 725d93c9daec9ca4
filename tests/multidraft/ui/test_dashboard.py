from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from multidraft.sampling import SamplingParams
from multidraft.ui import dashboard
from multidraft.ui.dashboard import ALL_HARDWARE, ALL_POOLS, Dashboard
from multidraft.ui.worker import Request, Workbench
from storage.store import Store


@pytest.fixture
def filled(workbench: Workbench, store: Store) -> Dashboard:
    params = SamplingParams(max_new_tokens=8, draft_length=4)
    for policy, task in (("ucb", "letters"), ("fixed:near", "letters"), ("ucb", None)):
        workbench.submit(Request("abc abd", policy, params, task=task)).wait(60)
    assert store.flush()
    return Dashboard(store, "tiny")


def test_an_empty_history_says_how_to_fill_it(store: Store) -> None:
    note, figures, *rest = Dashboard(store, "tiny").show(ALL_POOLS, ALL_HARDWARE, [], [])
    assert "No runs yet" in note and "Play" in note
    assert figures.visible is False and not any(rest)


def test_figures_after_runs(filled: Dashboard) -> None:
    note, figures, summary, speedup, regret, matrix = filled.show(ALL_POOLS, ALL_HARDWARE, [], [])
    assert note == "" and figures.visible is True
    assert "UCB" in summary and "One drafter (near)" in summary
    assert {trace.name for trace in speedup.data} == {"UCB", "One drafter (near)"}
    assert {trace.name for trace in regret.data} == {"UCB", "One drafter (near)"}
    assert set(matrix.data[0].x) == {"letters", "no task"}
    assert set(matrix.data[0].y) == {"near", "far", "alone", "lookup"}  # those never chosen too


def test_filters_offer_what_there_is_and_forget_what_is_gone(filled: Dashboard) -> None:
    pool, hardware, policies, tasks = filled.choices("gone", "gone", ["ucb", "gone"], ["letters", "gone"])
    assert pool.value == ALL_POOLS and [value for _, value in pool.choices] == [ALL_POOLS, "tiny"]
    assert policies.value == ["ucb"] and ("One drafter (near)", "fixed:near") in policies.choices
    assert tasks.value == ["letters"]
    assert hardware.value == ALL_HARDWARE and len(hardware.choices) == 2


def test_runs_of_other_hardware_can_be_left_out(filled: Dashboard, workbench: Workbench) -> None:
    _, figures, *_ = filled.show(ALL_POOLS, workbench.hardware, [], [])
    assert figures.visible is True
    note, figures, *_ = filled.show(ALL_POOLS, "another machine", [], [])
    assert "No finished run fits" in note and figures.visible is False


def test_filters_restrict_the_figures(filled: Dashboard) -> None:
    _, _, summary, speedup, *_ = filled.show("tiny", ALL_HARDWARE, ["fixed:near"], ["letters"])
    assert "UCB" not in summary and len(speedup.data) == 1
    note, figures, *_ = filled.show("tiny", ALL_HARDWARE, ["fixed:near"], ["no such task"])
    assert "No finished run fits" in note and figures.visible is False


def test_a_history_that_is_off_says_so(tmp_path: Path) -> None:
    with Store(tmp_path / "missing" / "runs.db", busy_seconds=0.01, retry_seconds=0.01) as store:
        store.flush(1)
        note, *_ = Dashboard(store, "tiny").show(ALL_POOLS, ALL_HARDWARE, [], [])
    assert "history is not being written" in note and "does not exist" in note


def test_a_damaged_history_is_told_without_a_traceback(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    path.write_bytes(b"this is no database" * 100)
    with Store(path, busy_seconds=0.01, retry_seconds=0.01) as store:
        store.flush(1)
        note, figures, *_ = Dashboard(store, "tiny").show(ALL_POOLS, ALL_HARDWARE, [], [])
        pools, *_ = Dashboard(store, "tiny").choices(ALL_POOLS, ALL_HARDWARE, [], [])
    assert "no SQLite database" in note and figures.visible is False
    assert pools.value == ALL_POOLS


def test_summary_shows_a_dash_for_what_is_unknown() -> None:
    line = {"policy": "<b>x</b>", "runs": 2, "median_speedup": float("nan"), "mean_accepted_tokens": 3.0}
    frame = pd.DataFrame([{**line, "acceptance_rate": 0.5, "regret_rounds": float("nan"), "best_arm_ratio": 0.25}])
    html = dashboard.summary_html(frame)
    assert "<b>x" not in html
    assert html.count('<td class="md-figure">–</td>') == 2 and "50 %" in html and "25 %" in html
