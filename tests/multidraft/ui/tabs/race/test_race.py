import json
import re
import threading
import time
from typing import Any

import gradio as gr
import pytest
import torch

from drafters.draft import Draft
from drafters.errors import UserError
from drafters.sampling import SamplingParams
from multidraft import generate
from multidraft.bench.measure import Measurement
from multidraft.policies import POLICIES
from multidraft.service.race import RaceJob
from multidraft.service.workbench import Workbench
from multidraft.ui.tabs.race import tab as race_tab
from multidraft.ui.tabs.race.tab import Race, figures_html
from multidraft.ui.widgets import lanes
from multidraft.ui.widgets.markup import speedup_text
from storage import queries
from storage.store import Store
from tests.history import recorded
from tests.multidraft.ui.building import after, built
from tests.multidraft.ui.tabs.visits import visit

PARAMS = SamplingParams(max_new_tokens=8, draft_length=4)
PROMPT = "abc abd"

Updates = dict[Any, Any]


@pytest.fixture
def tab(workbench: Workbench) -> Race:
    return built(Race(workbench), workbench)


def start(
    tab: Race, *specs: str | None, prompt: str = PROMPT, tokens: float | None = 8, heat: float = 0, shown: str = ""
) -> Updates:
    lanes = [*specs, *[""] * (4 - len(specs))]
    return tab.start(shown, prompt, *lanes, tokens, heat, 1, 0, 4, 0)


def started(tab: Race, *specs: str, **settings: Any) -> str:
    """The id of a race."""
    return start(tab, *specs, **settings)[tab.buttons.asked]


def race(tab: Race, *specs: str, **settings: Any) -> list[Updates]:
    """What the tab shows of a race step by step."""
    return list(tab.buttons.watch(started(tab, *specs, **settings)))


def raced(tab: Race, *specs: str, **settings: Any) -> dict[str, Any]:
    """The stage of a race in the end."""
    return after(race(tab, *specs, **settings))[tab.stage]


def test_visitors_may_keep_their_runs_to_themselves(tab: Race) -> None:
    form = [PROMPT, "ucb", "random", "", "", 4, 0, 1, 0, 4, 0]
    for learn in (False, True):
        race = tab.buttons.find(tab.start("", *form, learn)[tab.buttons.asked])
        assert race.wait(30) and {run.origin.learn for run in race.runs.values()} == {learn}


def test_lanes_are_measured_recorded_and_replayed(workbench: Workbench, tab: Race, store: Store) -> None:
    updates = race(tab, "autoregressive", "ucb", "fixed:near")
    first, last, (run, stop) = updates[0], after(updates), tab.buttons.both
    assert first[tab.stage]["ready"] is False and len(first[tab.stage]["lanes"]) == 3
    assert first[run].interactive is False and first[stop].interactive is True
    assert last[run].interactive is True and last[stop].interactive is False
    data = json.loads(json.dumps(last[tab.stage]))
    assert data["ready"] and data["verdict"]["kind"] == "same"
    known = [lane["place"] for lane in data["lanes"] if lane["place"]]  # on a busy machine not all are
    assert len(known) != 2 and len({*known} & {1, 2, 3}) == len(known)
    text = generate(workbench.pool, PROMPT, "autoregressive", PARAMS).text
    assert {"".join(p for r in lane["rounds"] for p in r["pieces"]) for lane in data["lanes"]} == {text}
    assert "All 3 lanes are measured" in last[tab.status] and "<table>" in last[tab.figures]
    assert store.flush()
    runs = recorded(store.path)
    assert sorted(run.generation.policy for run in runs) == ["autoregressive", "fixed:near", "ucb"]
    assert {run.origin.source for run in runs} == {"race"}
    assert len({run.baseline for run in runs}) == 1 and runs[0].baseline.kind == "answer"


def test_progress_names_the_lane_and_autoregressive_decoding_goes_first(tab: Race, gate) -> None:
    id = started(tab, "ucb", "autoregressive")
    assert gate.reached.wait(30)
    watched = tab.buttons.watch(id)
    first = next(watched)
    assert "Lane 2 of 2, No drafter (autoregressive): being measured" in first[tab.status]
    assert [lane["state"] for lane in first[tab.stage]["lanes"]] == ["waiting", "measuring"]
    gate.open()
    assert [lane["title"] for lane in after(watched)[tab.stage]["lanes"]] == ["UCB", "No drafter (autoregressive)"]


def test_a_lane_that_has_begun_is_shown_at_once(tab: Race, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race_tab, "UPDATE_SECONDS", 1000.0)
    monkeypatch.setattr(race_tab, "LOOK_SECONDS", 0.001)
    updates = race(tab, "autoregressive", "ucb", tokens=24)
    assert any("Lane 2 of 2, UCB" in update[tab.status] for update in updates)


def test_bad_input_gets_a_message_and_leaves_the_last_race_where_it_is(tab: Race, store: Store) -> None:
    for specs, changes, words in (
        (("ucb", "random"), {"prompt": ""}, "prompt is empty"),
        (("ucb", "<b>x</b>"), {}, "choose one of"),
        (("ucb", "", "ucb:bet=3"), {}, "Lane 3: policy"),
        (("ucb", "random"), {"prompt": "a" * 99}, "context window"),
        (("ucb",), {}, "2 to 4 lanes, and 1 has a policy"),
        ((), {}, "none has a policy"),
        (("ucb", "  "), {}, "2 to 4 lanes"),
        (("ucb", None), {}, "2 to 4 lanes"),
        (("ucb", "random"), {"tokens": None}, "Max new tokens"),
    ):
        shown = start(tab, *specs, **changes)
        status = shown[tab.status]
        assert words in status and 'role="alert"' in status and "<b>" not in status
        assert set(shown) == {tab.buttons.asked, tab.status, *tab.buttons.both}, words
        assert shown[tab.buttons.asked] == "" and shown[tab.buttons.run].interactive, words
    assert list(tab.buttons.watch("")) == [gr.skip()]
    assert store.flush() and queries.count(store.path) == 0


def test_more_lanes_than_four_are_refused(workbench: Workbench) -> None:
    with pytest.raises(UserError, match="2 to 4 lanes"):
        RaceJob(workbench, PROMPT, ["ucb"] * 5, PARAMS)


def test_how_the_policies_of_the_lanes_choose_is_told(tab: Race) -> None:
    told = tab.explained("autoregressive", " ucb", "ucb", "", None, "nonsense")
    assert told.count("<summary>") == 2 and "<b>No drafter.</b>" in told and told.count("<b>UCB.</b>") == 1
    assert "Lane 6: unknown policy &#39;nonsense&#39;" in told and "choose one of: " in tab.explained("fixed:nope")
    assert tab.how.value == tab.explained(*(lane.value for lane in tab.lanes)) and "RateHedge" in tab.how.value


def test_the_first_lanes_know_more_and_more_and_suit_the_pool(workbench: Workbench, tab: Race) -> None:
    first = workbench.pool.drafters[0].name
    assert tab.usual == ("autoregressive", f"fixed:{first}", "ucb", "rate-hedge")
    assert tuple(lane.value for lane in tab.lanes) == tab.usual
    shown = tab.follow("abc", 20, None, "", "fixed:of another pool", " ", "ucb:beta=1")
    assert [shown[lane].value for lane in tab.lanes] == ["", f"fixed:{first}", " ", "ucb:beta=1"]


def test_the_same_policy_may_run_twice(tab: Race) -> None:
    data = raced(tab, "ucb", "ucb")
    assert [lane["title"] for lane in data["lanes"]] == ["UCB", "UCB"]
    assert data["verdict"]["kind"] == "same"
    assert data["lanes"][0]["speedup"]  # against the baseline measured before


def test_sampled_lanes_are_not_called_identical(tab: Race) -> None:
    verdict = raced(tab, "ucb", "ucb", heat=1.0)["verdict"]
    assert verdict["kind"] == "sampled" and "identical" not in verdict["text"]


def test_stop_ends_the_race_and_keeps_what_was_measured(tab: Race, gate) -> None:
    id = started(tab, "ucb", "random", "autoregressive")
    watched = tab.buttons.watch(id)
    next(watched)
    assert gate.reached.wait(30)
    tab.buttons.cancel(id)
    gate.open()
    last = after(watched)
    assert "Stopped: 0 of 3 lanes were measured" in last[tab.status]
    assert [lane["state"] for lane in last[tab.stage]["lanes"]] == ["left out"] * 3
    assert last[tab.buttons.run].interactive is True


def test_a_race_of_the_history_with_too_few_lanes_is_not_said_to_have_a_result(tab: Race, store: Store, gate) -> None:
    id = started(tab, "ucb", "random")
    assert gate.reached.wait(30)
    tab.buttons.cancel(id)
    gate.open()
    list(tab.buttons.watch(id))
    assert store.flush() and tab._kept(id)
    (shown,) = tab._gone(id)
    assert "ended before two lanes were measured" in shown[tab.status] and not shown[tab.stage]


def test_stop_after_two_lanes_replays_them(workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RaceJob(workbench, PROMPT, ["ucb", "random", "autoregressive"], PARAMS)
    reached, stopped, score = threading.Event(), threading.Event(), workbench.pool.target.score

    def third_lane_held(draft: Draft) -> torch.Tensor:
        if len(run.measured) == 2:
            reached.set()
            assert stopped.wait(30)
        return score(draft)

    monkeypatch.setattr(workbench.pool.target, "score", third_lane_held)
    workbench.jobs.submit(run)
    assert reached.wait(30)
    run.cancel()
    stopped.set()
    assert run.wait(60)
    measured = lanes.replay_data(run.measured)["lanes"]
    assert [lane["title"] for lane in measured] == ["UCB", "No drafter (autoregressive)"]
    assert measured[0]["speedup"], "the baseline was measured"
    assert "Stopped: 2 of 3 lanes were measured and are replayed below" in race_tab.end_html(run)


def test_a_race_survives_a_reload_and_is_followed_on(tab: Race, gate) -> None:
    id = started(tab, "ucb", "random", heat=0.5)
    watched = tab.buttons.watch(id)
    next(watched)
    assert gate.reached.wait(30)
    watched.close()  # what Gradio does when the connection is gone
    linked = tab.buttons.linked(visit(race=id))
    assert linked[tab.buttons.asked] == linked[tab.buttons.id] == id
    assert [linked[field] for field in tab.buttons.form] == [PROMPT, "ucb", "random", "", "", 8, 0.5, 1, 0, 4, 0]
    run, stop = tab.buttons.both
    assert linked[run].interactive is False and linked[stop].interactive is True
    again = tab.buttons.watch(id)
    assert next(again)[tab.stage]["ready"] is False
    gate.open()
    last = after(again)
    assert "All 2 lanes" in last[tab.status] and last[tab.stage]["ready"]
    assert not {run, stop} & set(tab.buttons.linked(visit(race=id)))
    (once_more,) = tab.buttons.watch(id)
    assert [once_more[part] for part in (tab.status, tab.stage)] == [last[part] for part in (tab.status, tab.stage)]


def test_visitors_of_two_races_each_have_their_own(tab: Race) -> None:
    ids = [started(tab, "ucb", "random"), started(tab, "exp3", "random")]
    titles = [[lane["title"] for lane in after(tab.buttons.watch(id))[tab.stage]["lanes"]] for id in ids]
    assert titles[0][0] == "UCB" and titles[1][0] == "EXP3"


def test_a_race_that_the_server_no_longer_holds_is_said_to_be_gone(tab: Race) -> None:
    assert tab.buttons.linked(visit(race="f00")) == {tab.buttons.asked: "f00", tab.buttons.id: "f00"}
    (shown,) = tab.buttons.watch("f00")
    assert "There is no such race here" in shown[tab.status] and shown[tab.stage] is None
    assert shown[tab.buttons.run].interactive is True and shown[tab.buttons.stop].interactive is False
    assert tab.buttons.linked(visit(race="")) == {tab.buttons.asked: gr.skip()}


def test_nothing_is_started_while_the_race_that_is_shown_goes_on(tab: Race, gate) -> None:
    id = started(tab, "ucb", "random")
    assert start(tab, "ucb", "random", shown=id) == {tab.buttons.asked: gr.skip()}
    gate.open()
    list(tab.buttons.watch(id))
    assert start(tab, "ucb", "random", shown=id)[tab.buttons.asked] not in ("", id)


def test_a_run_has_one_speed_up_whoever_tells_it(tab: Race, store: Store) -> None:
    """The race, and the history; that of autoregressive decoding is one, wherever its lane is."""
    lanes = raced(tab, "ucb", "autoregressive", "fixed:near", tokens=12)["lanes"]
    assert [lane["title"] for lane in lanes][1] == "No drafter (autoregressive)"
    assert lanes[1]["speedup"] == "1.00×"
    assert store.flush()
    runs = {run.generation.policy: run for run in recorded(store.path)}
    rates = {policy: run.generation.tokens_per_second for policy, run in runs.items()}
    for policy, lane in zip(("ucb", "autoregressive", "fixed:near"), lanes, strict=True):
        run = runs[policy]
        for name, speedup in (("speedup", run.speedup), ("request_speedup", run.request_speedup)):
            assert lane[name] == speedup_text(speedup, run.speedup_uncertainty)
        assert run.speedup == pytest.approx(rates[policy] / rates["autoregressive"])


def test_a_lane_that_fails_is_named_and_the_others_are_replayed(tab: Race, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(POLICIES["round-robin"], "select", lambda policy: 1 / 0)
    updates = race(tab, "round-robin", "autoregressive", "fixed:lookup")
    status, stage = (after(updates)[part] for part in (tab.status, tab.stage))
    assert f"Lane {POLICIES['round-robin'].title} failed: " in status and "other 2" in status
    assert stage["ready"] and len(stage["lanes"]) == 2


def test_figures_come_in_finish_order_and_are_escaped(workbench: Workbench) -> None:
    race = workbench.jobs.submit(RaceJob(workbench, PROMPT, ["autoregressive", "ucb"], PARAMS))
    assert race.wait(60)
    runs = race.measured
    runs[0].generation.policy = "<i>x</i>"
    html = figures_html(runs)
    assert "<i>" not in html and "&lt;i&gt;" in html
    names = ["1. &lt;i&gt;", "2. UCB"]  # the number tells lanes of one policy apart
    names.sort(key=lambda name: runs["UCB" in name].generation.seconds)
    assert html.index(names[0]) < html.index(names[1])
    shares = re.findall(r">(\d+) %<", html)
    assert len(shares) == 8 and all(98 <= sum(map(int, lane)) <= 102 for lane in (shares[:4], shares[4:]))


def test_nothing_of_the_data_is_ever_a_template() -> None:
    """Gradio runs templates as code: the stage must hold no placeholder, the script no way to write markup."""
    assert not any(mark in lanes._STAGE for mark in ("{{", "${", "`", "@children"))
    assert not any(way in lanes._SCRIPT for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "eval("))


def test_each_lane_s_prompt_is_read_once_before_its_clock_starts(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the device did before is in no lane's prefill: the first to be measured would pay for it."""
    pool, cold = workbench.pool, list[bool]()
    prefill = pool.target.prefill

    def slow_at_first(ids: list[int]) -> None:
        cold.append(len(cold) % 2 == 0)
        if cold[-1]:
            time.sleep(0.2)
        prefill(ids)

    run = RaceJob(workbench, PROMPT, ["autoregressive", "ucb"], PARAMS)
    monkeypatch.setattr(pool.target, "prefill", slow_at_first)
    monkeypatch.setattr(Measurement, "_score", lambda _: None)  # it reads the prompt too
    workbench.jobs.submit(run)
    assert run.wait(60) and len(run.measured) == 2
    assert cold == [True, False] * 2
    assert all(lane.generation.prefill_seconds < 0.2 for lane in run.measured)
