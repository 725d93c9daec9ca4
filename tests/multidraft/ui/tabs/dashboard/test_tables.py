"""Tables of the dashboard, from figures made by hand."""

from math import nan
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from multidraft.ui.result_pages.result import run_result
from multidraft.ui.tabs.dashboard import tables as dashboard_tables
from multidraft.ui.tabs.dashboard.run_page import head_html
from storage import aggregates, queries
from storage.run import Baseline
from storage.store import Store
from tests.runs import make_round, make_run


def line_of(policy: str, runs: int, figures: dict[str, float], around: float = nan, **changes: Any) -> dict[str, Any]:
    """A policy's line of the summary, each of its figures with the same interval."""
    line = {"policy": policy, "runs": runs, "short_runs": 0, "compared": True, "apart": False}
    line |= {"common": 0, "ran": 0, "rank": nan, "speedup_uncertainty": nan, **changes}
    for name, value in figures.items():
        line |= {name: value, f"{name}_low": around, f"{name}_high": around}
        line |= {f"{name}_runs": runs, f"{name}_prompts": runs}
    return line


def test_summary_shows_a_dash_for_what_is_unknown() -> None:
    known = {"mean_accepted_tokens": 3.0, "acceptance_rate": 0.5, "best_arm_ratio": 0.25}
    line = line_of("<b>x</b>", 2, dict.fromkeys(aggregates.RATIOS, nan) | known, short_runs=2)
    html = dashboard_tables.summary_html(pd.DataFrame([line]))
    assert "<b>x" not in html and html.count("<small") == 1
    assert "takes 5 prompts with a speed-up; this policy has 2" in html
    assert "2 runs of fewer than 8 tokens are left out of speed-ups" in html
    assert "left out" not in dashboard_tables.summary_html(pd.DataFrame([line | {"short_runs": 0}]))
    assert html.count('<td class="md-figure">–</td>') == 3 and "50 %" in html and "25 %" in html


@pytest.mark.parametrize(("off", "shown"), [(0.1, "2.00×<small>± 0.20</small>"), (0.6, "too noisy"), (nan, "2.00×")])
def test_a_speedup_of_few_prompts_is_as_certain_as_its_timings(off: float, shown: str) -> None:
    line = line_of("ucb", 2, dict.fromkeys(aggregates.RATIOS, 2.0), speedup_uncertainty=off)
    html = dashboard_tables.summary_html(pd.DataFrame([line]))
    assert html.count(f">{shown}</span>") == 2
    assert html.count("Over 2 runs of 2 prompts, with the 95 % interval of their timings") == (2 if off > 0 else 0)


def test_policies_of_few_runs_have_no_rank_and_say_why() -> None:
    summary = pd.DataFrame(
        line_of(policy, runs, dict.fromkeys(aggregates.RATIOS, value), value, rank=rank)
        for policy, runs, value, rank in (("ucb", 41, 2.0, 1.0), ("hedge", 1, 2.67, nan))
    )
    html, mixed = dashboard_tables.summary_html(summary), dashboard_tables.summary_html(summary, mixed=True)
    assert dashboard_tables.MIXED in mixed and ">Rank*<" in mixed
    assert dashboard_tables.MIXED not in html and ">Rank<" in html
    unranked = dashboard_tables.summary_html(summary.assign(rank=nan), mixed=True)
    assert "Rank*" not in unranked, "there is none to doubt"
    many, few = html.split("<tr>")[2:]
    assert many.startswith("<td>1</td>") and "too few prompts" not in many
    assert few.startswith("<td>–</td>") and "has 1" in few and "too few prompts to rank" in few
    assert few.index("2.67×") < few.index('<td class="md-figure">1</td>'), "speed-up stands beside the policy"


def test_the_table_says_on_which_prompts_the_policies_are_compared() -> None:
    ranked = (("ucb", True, 1.0), ("exp3", True, 1.0), ("sh", False, nan))
    timed = {"common": 4, "request_speedup_prompts": 4}
    lines = [{"policy": policy, "compared": c, "rank": rank} | timed for policy, c, rank in ranked]
    said = dashboard_tables.compared_on(pd.DataFrame(lines))
    assert "Ranked policies are compared on 4 prompts that all of them ran. Those that cannot be told" in said
    assert "1 policy did not run all of them and is listed below, without a rank." in said
    some = dashboard_tables.compared_on(pd.DataFrame([line | {"request_speedup_prompts": 3} for line in lines]))
    assert "on 4 prompts that all of them ran, and ranked by the 3 of these with a speed-up." in some
    own = dashboard_tables.compared_on(pd.DataFrame([line | {"compared": True, "common": 0} for line in lines]))
    assert "Ranked policies are compared on prompts of their own, which may differ." in own
    none = dashboard_tables.compared_on(pd.DataFrame([line | {"compared": True, "rank": nan} for line in lines]))
    assert none == "Each prompt counts once. No policy is ranked: a rank takes 5 prompts with a speed-up."
    assert dashboard_tables.compared_on(pd.DataFrame(lines[:1])) == ""


@pytest.mark.parametrize(("ran", "said"), [(3, "3 of 7 prompts"), (0, "other prompts")])
def test_fewer_of_the_same_prompts_are_not_called_others(ran: int, said: str) -> None:
    line = line_of("ucb", 3, dict.fromkeys(aggregates.RATIOS, 2.0), compared=False, common=7, ran=ran)
    html = dashboard_tables.summary_html(pd.DataFrame([line]))
    assert f">{said}</small>" in html and ("other prompts" in html) == (not ran)


def test_spellings_of_one_policy_are_told_apart() -> None:
    frame = pd.DataFrame({"policy": ["ucb", "UCB"], "run_number": 1, "cumulative_regret": 2.0})
    _, rows = dashboard_tables.regret(frame, ["ucb", "UCB"])
    for shown in (dashboard_tables.legend_html(["ucb", "UCB"]), str(list(rows))):
        assert "UCB · ucb" in shown and "UCB · UCB" in shown
    assert "·" not in dashboard_tables.legend_html(["ucb", "ucb:beta=0.2"])


def test_prompts_in_lists_are_escaped() -> None:
    columns = "id created_at policy task status output_tokens round_count tokens_per_second".split()
    columns += "speedup request_speedup speedup_uncertainty prompt".split()
    evil = '"><img src=x onerror=alert(1)>'
    html = dashboard_tables.list_html(
        pd.DataFrame([[1, "2026-01-02T03:04:05", evil, evil, evil, 1, 1, 1.0, None, None, None, evil]], columns=columns)
    )
    assert "<img" not in html and "2026-01-02 03:04" in html


@pytest.mark.parametrize(("status", "speedups"), [("error", 0), ("completed", 2)])
def test_a_run_that_failed_has_no_speed_up(tmp_path: Path, status: str, speedups: int) -> None:
    rounds, baseline = [make_round(number) for number in range(4)], Baseline("answer", 12, 0.02, 0.002, 0.0)
    with Store(tmp_path / "runs.db") as store:
        store.add(run := make_run(rounds=rounds, baseline=baseline, status=status))
    assert dashboard_tables.list_html(queries.listed(tmp_path / "runs.db", limit=1)).count("×") == speedups
    assert head_html(run).count("×") == speedups
    page = run_result(tmp_path / "runs.db", 1)
    assert page and ("the run failed" in page.description) is ("×" not in page.description) is (not speedups)
