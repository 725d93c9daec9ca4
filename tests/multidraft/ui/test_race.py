from __future__ import annotations

import json
import threading
from typing import Any

import gradio as gr
import pytest
import torch

from drafters.pool import Pool
from multidraft import generate
from multidraft.draft import Draft
from multidraft.errors import UserError
from multidraft.sampling import SamplingParams
from multidraft.ui import race as race_tab
from multidraft.ui.race import Race, figures_html
from multidraft.ui.race_run import RaceRun
from multidraft.ui.worker import Workbench
from storage import queries
from storage.store import Store

PARAMS = SamplingParams(max_new_tokens=8, draft_length=4)
PROMPT = "abc abd"


class Address:
    """Stands for ``gr.Request`` of a page whose address names a race."""

    def __init__(self, race: str):
        self.query_params = {"race": race}


def race(
    workbench: Workbench, *specs: str | None, prompt: str = PROMPT, tokens: float | None = 8, heat: float = 0
) -> list[tuple[Any, ...]]:
    tab = Race(workbench)
    id, *_ = start(tab, *specs, prompt=prompt, tokens=tokens, heat=heat)
    return list(tab.watch(id))


def start(
    tab: Race, *specs: str | None, prompt: str = PROMPT, tokens: float | None = 8, heat: float = 0, shown: str = ""
) -> tuple[Any, ...]:
    lanes = [*specs, *[""] * (4 - len(specs))]
    return tab.start(shown, prompt, *lanes, tokens, heat, 1, 0, 4, 0)  # type: ignore[arg-type]


def test_lanes_are_measured_recorded_and_replayed(workbench: Workbench, store: Store) -> None:
    first, *_, last = race(workbench, "autoregressive", "ucb", "fixed:near")
    assert first[1]["ready"] is False and len(first[1]["lanes"]) == 3
    assert first[4].interactive is False and first[5].interactive is True  # Race rests, Stop is live
    assert last[4].interactive is True and last[5].interactive is False
    data = json.loads(json.dumps(last[1]))
    assert data["ready"] and data["verdict"]["kind"] == "same"
    assert sorted(lane["place"] for lane in data["lanes"]) == [1, 2, 3]
    text = generate(workbench.pool, PROMPT, "autoregressive", PARAMS).text
    assert {"".join(p for r in lane["rounds"] for p in r["pieces"]) for lane in data["lanes"]} == {text}
    assert "All 3 lanes are measured" in last[0] and "<table>" in last[2]
    assert store.flush()
    runs = queries.runs(store.path)
    assert sorted(runs.policy) == ["autoregressive", "fixed:near", "ucb"] and set(runs.source) == {"race"}
    assert runs.baseline_tokens_per_second.nunique() == 1  # measured once


def test_progress_names_the_lane_and_plain_decoding_goes_first(workbench: Workbench, gate) -> None:
    tab = Race(workbench)
    id, *_ = start(tab, "ucb", "autoregressive")
    assert gate.reached.wait(30)
    watched = tab.watch(id)
    status, stage, *_ = next(watched)
    assert "Lane 2 of 2, No drafter (plain decoding): measured alone" in status
    assert [lane["state"] for lane in stage["lanes"]] == ["waiting", "measuring"]
    gate.open()
    *_, last = watched
    assert [lane["title"] for lane in last[1]["lanes"]] == ["UCB", "No drafter (plain decoding)"]


def test_a_lane_that_has_begun_is_told_at_once(workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race_tab, "UPDATE_SECONDS", 1000.0)
    monkeypatch.setattr(race_tab, "LOOK_SECONDS", 0.001)
    statuses = [part[0] for part in race(workbench, "autoregressive", "ucb", tokens=24)]
    assert any("Lane 2 of 2, UCB" in status for status in statuses)


@pytest.mark.parametrize(
    ("specs", "changes", "words"),
    [
        (("ucb", "random"), {"prompt": ""}, "prompt is empty"),
        (("ucb", "<b>x</b>"), {}, "choose one of"),
        (("ucb", "random"), {"prompt": "a" * 99}, "context window"),
        (("ucb",), {}, "2 to 4 lanes, and 1 has a policy"),
        ((), {}, "none has a policy"),
        (("ucb", "  "), {}, "2 to 4 lanes"),
        (("ucb", None), {}, "2 to 4 lanes"),
        (("ucb", "random"), {"tokens": None}, "Max new tokens"),
    ],
)
def test_bad_input_gets_a_message_and_leaves_the_last_race_where_it_is(
    workbench: Workbench, store: Store, specs: tuple[str, ...], changes: dict[str, Any], words: str
) -> None:
    id, status, *buttons = start(Race(workbench), *specs, **changes)
    assert words in status and 'role="alert"' in status and "<b>" not in status
    assert id == "" and buttons == [gr.skip()] * 2
    assert list(Race(workbench).watch(id)) == [tuple([gr.skip()] * 6)]
    assert store.flush() and queries.count(store.path) == 0


def test_more_lanes_than_four_are_refused(workbench: Workbench) -> None:
    with pytest.raises(UserError, match="2 to 4 lanes"):
        RaceRun(workbench, PROMPT, ["ucb"] * 5, PARAMS)


def test_the_same_policy_may_run_twice(workbench: Workbench) -> None:
    data = race(workbench, "ucb", "ucb")[-1][1]
    assert [lane["title"] for lane in data["lanes"]] == ["UCB", "UCB"]
    assert data["verdict"]["kind"] == "same"
    assert data["lanes"][0]["speedup"]  # against the plain decoding measured before


def test_sampled_lanes_are_not_called_identical(workbench: Workbench) -> None:
    verdict = race(workbench, "ucb", "ucb", heat=1.0)[-1][1]["verdict"]
    assert verdict["kind"] == "sampled" and "identical" not in verdict["text"]


def test_stop_ends_the_race_and_keeps_what_was_measured(workbench: Workbench, gate, store: Store) -> None:
    tab = Race(workbench)
    id, *_ = start(tab, "ucb", "random", "autoregressive")
    watched = tab.watch(id)
    next(watched)
    assert gate.reached.wait(30)
    tab.stop(id)
    gate.open()
    *_, last = watched
    assert "Stopped: 0 of 3 lanes were measured" in last[0]
    assert [lane["state"] for lane in last[1]["lanes"]] == ["left out"] * 3
    assert last[4].interactive is True


def test_stop_after_two_lanes_replays_them(workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RaceRun(workbench, PROMPT, ["ucb", "random", "autoregressive"], PARAMS)
    stopped, score = threading.Event(), workbench.pool.target.score

    def third_lane_held(draft: Draft) -> torch.Tensor:
        assert len(run.measured) < 2 or stopped.wait(30)
        return score(draft)

    monkeypatch.setattr(workbench.pool.target, "score", third_lane_held)
    for _ in run.run():
        if len(run.measured) == 2:
            run.cancel()
            stopped.set()
    data = run.replay()
    assert [lane["title"] for lane in data["lanes"]] == ["UCB", "No drafter (plain decoding)"]
    assert "Stopped: 2 of 3 lanes were measured, they are replayed below" in race_tab._end_html(run.conclude())


def test_a_race_survives_a_reload_and_is_followed_on(workbench: Workbench, gate) -> None:
    tab = Race(workbench)
    id, *_ = start(tab, "ucb", "random", heat=0.5)
    watched = tab.watch(id)
    next(watched)
    assert gate.reached.wait(30)
    watched.close()  # what Gradio does when the connection is gone
    asked, shown, prompt, *form, run, stop = tab.linked(Address(id))  # type: ignore[arg-type]
    assert asked == shown == id and prompt == PROMPT
    assert form == ["ucb", "random", "", "", 8, 0.5, 1, 0, 4, 0]
    assert run.interactive is False and stop.interactive is True
    again = tab.watch(id)
    assert next(again)[1]["ready"] is False
    gate.open()
    *_, last = again
    assert "All 2 lanes" in last[0] and last[1]["ready"]
    *_, run, stop = tab.linked(Address(id))  # type: ignore[arg-type]
    assert run == stop == gr.skip()
    (once_more,) = tab.watch(id)
    assert once_more[:2] == last[:2]


def test_visitors_of_two_races_each_have_their_own(workbench: Workbench) -> None:
    tab = Race(workbench)
    one, *_ = start(tab, "ucb", "random")
    other, *_ = start(tab, "exp3", "random")
    titles = [[lane["title"] for lane in list(tab.watch(id))[-1][1]["lanes"]] for id in (one, other)]
    assert titles[0][0] == "UCB" and titles[1][0] == "EXP3"


def test_a_race_that_the_server_no_longer_holds_is_said_to_be_gone(workbench: Workbench) -> None:
    tab = Race(workbench)
    asked, shown, *form, _, _ = tab.linked(Address("f00"))  # type: ignore[arg-type]
    assert asked == shown == "f00" and form == [gr.skip()] * 11
    ((status, stage, *_, run, stop),) = tab.watch("f00")
    assert "no longer holds the race" in status and stage is None
    assert run.interactive is True and stop.interactive is False
    assert list(tab.watch(tab.linked(Address(""))[0])) == [tuple([gr.skip()] * 6)]  # type: ignore[arg-type]


def test_nothing_is_started_while_the_race_that_is_shown_goes_on(workbench: Workbench, gate, store: Store) -> None:
    tab = Race(workbench)
    id, *_ = start(tab, "ucb", "random")
    assert start(tab, "ucb", "random", shown=id) == tuple([gr.skip()] * 4)
    gate.open()
    list(tab.watch(id))
    assert start(tab, "ucb", "random", shown=id)[0] not in ("", id)


def test_closing_the_workbench_ends_a_race(pool: Pool, store: Store, gate) -> None:
    workbench = Workbench(pool, store)
    tab = Race(workbench)
    id, *_ = start(tab, "ucb", "random")
    assert gate.reached.wait(30)
    gate.open()
    workbench.close()
    assert (run := tab.races.get(id)) and run.ended.wait(30) and run.error is None


def test_a_run_has_one_speed_up_whoever_tells_it(workbench: Workbench, store: Store) -> None:
    """The race, and the history; that of plain decoding is one, wherever its lane is."""
    lanes = race(workbench, "ucb", "autoregressive", "fixed:near", tokens=12)[-1][1]["lanes"]
    assert [lane["title"] for lane in lanes][1] == "No drafter (plain decoding)"
    assert lanes[1]["speedup"] == 1.0
    assert store.flush()
    runs = queries.runs(store.path).set_index("policy")
    for policy, lane in zip(("ucb", "autoregressive", "fixed:near"), lanes, strict=True):
        assert runs.speedup[policy] == pytest.approx(lane["speedup"])
        assert lane["speedup"] == pytest.approx(lane["rate"] / lanes[1]["rate"])


def test_a_lane_that_fails_is_named_and_the_others_are_replayed(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    near = workbench.pool.drafters[0]
    monkeypatch.setattr(near, "propose", lambda *arguments, **settings: 1 / 0)
    last = race(workbench, "fixed:near", "autoregressive", "fixed:lookup")[-1]
    assert "Lane One drafter (near) failed: ZeroDivisionError" in last[0] and "other 2" in last[0]
    assert last[1]["ready"] and len(last[1]["lanes"]) == 2


def test_figures_come_in_finish_order_and_are_escaped(workbench: Workbench) -> None:
    data = race(workbench, "autoregressive", "ucb")[-1][1]
    data["lanes"][0]["title"] = "<i>x</i>"
    html = figures_html(data["lanes"])
    assert "<i>" not in html and "&lt;i&gt;" in html
    first, second = (html.index(f"<td>{place}</td>") for place in (1, 2))
    assert first < second


def test_nothing_of_the_data_is_ever_a_template() -> None:
    """Gradio runs templates as code: the stage must hold no placeholder, the script no way to write markup."""
    assert not any(mark in race_tab.STAGE for mark in ("{{", "${", "`", "@children"))
    assert not any(way in race_tab.SCRIPT for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "eval("))
