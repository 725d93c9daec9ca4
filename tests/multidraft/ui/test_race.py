from __future__ import annotations

import json
import threading
from typing import Any

import gradio as gr
import pytest
import torch

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


class Visitor:
    """Stands for ``gr.Request``."""

    session_hash = "someone"


def race(
    workbench: Workbench, *specs: str | None, prompt: str = PROMPT, tokens: float | None = 8, heat: float = 0
) -> list[tuple[Any, ...]]:
    return list(parts(Race(workbench), *specs, prompt=prompt, tokens=tokens, heat=heat))


def parts(tab: Race, *specs: str | None, prompt: str = PROMPT, tokens: float | None = 8, heat: float = 0):
    lanes = [*specs, *[""] * (4 - len(specs))]
    return tab.run(prompt, *lanes, tokens, heat, 1, 0, 4, 0, Visitor())  # type: ignore[arg-type]


def test_lanes_are_measured_recorded_and_replayed(workbench: Workbench, store: Store) -> None:
    first, *_, last = race(workbench, "autoregressive", "ucb", "fixed:near")
    assert first[1]["ready"] is False and len(first[1]["lanes"]) == 3
    assert first[3].interactive is False and first[4].interactive is True  # Race rests, Stop is live
    assert last[3].interactive is True and last[4].interactive is False
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


def test_progress_names_the_lane(workbench: Workbench) -> None:
    statuses = [part[0] for part in race(workbench, "autoregressive", "ucb")]
    assert any("Lane 1 of 2, No drafter (plain decoding)" in status for status in statuses)
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
    ((status, stage, figures, run, stop),) = race(workbench, *specs, **changes)
    assert words in status and 'role="alert"' in status and "<b>" not in status
    assert stage == figures == gr.skip()
    assert run.interactive is True and stop.interactive is False
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
    running = parts(tab, "ucb", "random", "autoregressive")
    next(running), next(running)  # the second comes when the first lane is in line
    assert gate.reached.wait(30)
    tab.stop(Visitor())  # type: ignore[arg-type]
    gate.open()
    *_, last = running
    assert "Stopped: 0 of 3 lanes were measured" in last[0]
    assert [lane["state"] for lane in last[1]["lanes"]] == ["left out"] * 3
    assert last[3].interactive is True


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
    assert [lane["title"] for lane in data["lanes"]] == ["UCB", "Random drafter"]
    assert "Stopped: 2 of 3 lanes were measured, they are replayed below" in race_tab._end_html(run)


def test_leaving_the_page_ends_the_race(workbench: Workbench, gate, store: Store) -> None:
    running = parts(Race(workbench), "ucb", "random")
    next(running), next(running)  # the second comes when the first lane is in line
    assert gate.reached.wait(30)
    running.close()  # what Gradio does when the connection is gone
    gate.open()
    *_, last = race(workbench, "ucb", "random")
    assert "All 2 lanes" in last[0]
    assert store.flush() and queries.count(store.path) == 2


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
