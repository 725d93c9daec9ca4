"""The page as a whole, and its endpoints for programs."""

from __future__ import annotations

import inspect
import itertools
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from gradio.utils import get_function_description

from drafters.costs import CostMeter
from drafters.pool import Pool
from drafters.sampling import SamplingParams
from multidraft.bench.measure import Request
from multidraft.service.batch import BatchJob
from multidraft.service.pool_loading import PoolLoader
from multidraft.service.workbench import RunJob, Workbench
from multidraft.serving import api
from multidraft.serving.api import Api
from multidraft.ui.app import build
from multidraft.ui.tabs.play.tab import Play
from multidraft.ui.tabs.pool.tab import NO_MATRIX, PoolTab, pool_html
from multidraft.ui.widgets.templates import render
from storage.records import PHASES
from storage.run import Origin
from storage.store import Store
from tests.history import recorded
from tests.multidraft.ui.building import after, built
from tests.runs import make_run

ENDPOINTS = {"/generate", "/stream", "/batch", "/policies", "/pool"}


def test_only_the_stable_endpoints_are_public(pool: Pool, store: Store) -> None:
    page = build(pool, store)
    assert set(page.get_api_info()["named_endpoints"]) == ENDPOINTS
    assert page.analytics_enabled is False


def test_no_event_puts_a_sign_of_work_on_what_it_changes(pool: Pool, store: Store) -> None:
    """With each message the page would update the signs of all components that ever had one."""
    events = [fn for fn in build(pool, store).fns.values() if fn.fn and fn.api_visibility == "private"]
    assert len(events) > 50 and all(fn.show_progress_on == [] for fn in events)


def test_no_field_rounds_what_was_typed(pool: Pool, store: Store) -> None:
    """What is no whole number is refused, where the field still shows it."""
    numbers = [block for block in build(pool, store).blocks.values() if isinstance(block, gr.Number)]
    assert numbers and all(field.precision is None for field in numbers)


def last(items: Iterator[Any]) -> Any:
    """The result of an endpoint that gives signs of life until it has one."""
    *alive, result = items
    assert alive and set(alive) == {None}
    return result


def test_generate_returns_text_and_figures(workbench: Workbench) -> None:
    report = last(Api(workbench).generate("abc abd", "ucb", max_new_tokens=8, draft_length=4))
    assert report["status"] == "completed" and report["output_tokens"] == 8
    assert set(report) == set(make_run().to_json())
    assert report["speedup"] == pytest.approx(report["tokens_per_second"] * report["baseline_seconds_per_token"])
    assert report["request_speedup"] > 0 and len(report["rounds"]) == report["round_count"]
    assert sum(report["drafter_shares"].values()) == pytest.approx(1.0)
    assert report["best_drafter"] in [drafter.name for drafter in workbench.pool.drafters]


@pytest.mark.parametrize(
    ("prompt", "policy", "words"),
    [("", "ucb", "empty"), ("abc", "nonsense", "choose one of"), ("a" * 99, "ucb", "window")],
)
def test_generate_refuses_with_a_clear_message(workbench: Workbench, prompt: str, policy: str, words: str) -> None:
    with pytest.raises(gr.Error, match=words):
        next(Api(workbench).generate(prompt, policy))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"prompt": [2, 3]}, "prompt must be a text"),
        ({"prompt": None}, "prompt must be a text"),
        ({"policy": 7}, "policy must be a text"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"seed": -1}, "the seed must be a whole number from 0"),
        ({"seed": "x"}, "seed must be a number"),
        ({"max_new_tokens": "many"}, "max new tokens must be a number"),
        ({"draft_length": 10**8}, "draft length must be at most 64, got 100000000"),
        ({"prompt": "a" * 10**7}, "10,000,000 characters, but the context window of pool 'tiny' holds 64 tokens"),
        ({"prompt": "half \ud83d"}, "half of one"),
    ],
)
def test_whatever_json_is_sent_gets_a_sentence(workbench: Workbench, arguments: dict[str, object], said: str) -> None:
    with pytest.raises(gr.Error, match=said):
        next(Api(workbench).generate(**{"prompt": "abc", **arguments}))


@pytest.mark.parametrize(
    ("prompts", "policies", "changes", "said"),
    [
        ("abc", ["ucb"], {}, "must be lists"),
        (["abc"], "ucb", {}, "must be lists"),
        (["abc", 7], ["ucb"], {}, "prompt 2 must be a text"),
        (["abc"], [None], {}, "policy must be a text"),
        (["abc"], [], {}, "no policy is chosen"),
        (["abc"], ["ucb"], {"seed": -1}, "the seed must be a whole number from 0"),
        ([], ["ucb"], {}, "at least one prompt"),
        (
            ["abc"] * 334,
            ["ucb", "random", "exp3"],
            {},
            "334 prompts under 3 policies are 1,002 runs; send at most 1,000",
        ),
    ],
)
def test_batches_that_cannot_run_get_a_sentence(
    workbench: Workbench, prompts: Any, policies: Any, changes: dict[str, int], said: str
) -> None:
    with pytest.raises(gr.Error, match=said):
        next(Api(workbench).batch(prompts, policies, **changes))


def batches(workbench: Workbench) -> list[BatchJob]:
    """Those that are known."""
    return [job for job in workbench.jobs._found.values() if isinstance(job, BatchJob)]


def test_a_batch_that_is_left_ends_and_is_let_go(workbench: Workbench, gate) -> None:
    asked = Api(workbench).batch(["abc", "abd"], ["ucb", "random"], max_new_tokens=6, draft_length=4)
    next(asked)
    (batch,) = batches(workbench)
    assert gate.reached.wait(30)
    asked.close()  # what Gradio does when its caller cancels or has gone
    gate.open()
    assert batch.wait(30) and len(batch.rows) < batch.total and not batches(workbench)


def test_the_end_of_the_server_ends_batches_of_programs(pool: Pool, store: Store, gate) -> None:
    workbench = Workbench(pool, store)
    asked = Api(workbench).batch(["abc", "abd"], ["ucb", "random"], max_new_tokens=6, draft_length=4)
    next(asked)
    (batch,) = batches(workbench)
    assert gate.reached.wait(30)
    closing = threading.Thread(target=workbench.close)
    closing.start()
    assert batch.cancelled.wait(30)
    gate.open()
    closing.join(30)
    *_, report = asked
    assert report and len(report["rows"]) < 4


def test_programs_and_visitors_share_the_limit_on_batches(workbench: Workbench, gate) -> None:
    runs = [Api(workbench).batch(["abc"], ["ucb"], max_new_tokens=6) for _ in range(BatchJob.limit + 1)]
    for run in runs[:-1]:
        next(run)
    with pytest.raises(gr.Error, match="batches are under way"):
        next(runs[-1])
    for run in runs:
        run.close()


def test_generate_that_is_left_ends_its_run(workbench: Workbench, gate, store: Store) -> None:
    asked = Api(workbench).generate("abc abd", "ucb", max_new_tokens=50)
    next(asked)
    assert gate.reached.wait(30)
    asked.close()
    gate.open()
    assert workbench.submit(Request("abc", "ucb", SamplingParams(max_new_tokens=4, draft_length=4))).wait(60)
    assert store.flush() and [run.generation.prompt for run in recorded(store.path)] == ["abc"]


def test_a_stream_gives_signs_of_life_while_it_waits(
    workbench: Workbench, gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "ALIVE_SECONDS", 0.2)
    updates = Api(workbench).stream("abc abd", "ucb", max_new_tokens=8, draft_length=4)
    waiting = [next(updates) for _ in range(3)]  # the gate is shut
    assert {update["status"] for update in waiting} == {"running"} and not any(u["new_rounds"] for u in waiting)
    gate.open()
    *_, end = updates
    assert end["status"] == "completed"


def test_a_failure_is_a_status_of_generate_and_an_error_of_stream(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workbench.pool.target, "score", lambda draft: 1 / 0)
    report = last(Api(workbench).generate("abc", "ucb", max_new_tokens=4))
    assert report["status"] == "error" and "ZeroDivisionError" in report["error"]
    with pytest.raises(gr.Error, match="the run failed: ZeroDivisionError"):
        list(Api(workbench).stream("abc", "ucb", max_new_tokens=4))


def test_stream_tells_every_round_once(workbench: Workbench) -> None:
    *_, end = updates = list(Api(workbench).stream("abc abd", "ucb", max_new_tokens=8, draft_length=4))
    report = last(Api(workbench).generate("abc abd", "ucb", max_new_tokens=8, draft_length=4))
    assert (end["status"], end["text"], end["tokens"]) == ("completed", report["text"], 8)
    rounds = [r for update in updates for r in update["new_rounds"]]
    assert [r["index"] for r in rounds] == list(range(report["round_count"]))
    assert "".join(r["text"] for r in rounds) == report["text"]
    assert all(later["text"].startswith(earlier["text"]) for earlier, later in itertools.pairwise(updates))


def test_a_stream_refuses_with_a_clear_message_and_leaving_it_ends_the_run(workbench: Workbench, gate) -> None:
    with pytest.raises(gr.Error, match="choose one of"):
        next(Api(workbench).stream("abc", "nonsense"))
    gate.open()
    stream = Api(workbench).stream("abc abd", "ucb", max_new_tokens=50)
    next(stream)
    stream.close()
    assert workbench.submit(Request("abc", "ucb", SamplingParams(max_new_tokens=4, draft_length=4))).wait(60)


def test_the_policies_are_those_of_the_page(workbench: Workbench) -> None:
    listed = {policy["spec"]: policy for policy in Api(workbench).policies()}
    assert {"ucb", "fixed:far"} <= set(listed) and "oracle" not in listed
    assert all(policy["title"] and policy["explanation"] for policy in listed.values())


def test_batch_returns_rows_and_summary(workbench: Workbench, store: Store) -> None:
    report = last(Api(workbench).batch(["abc", "a" * 99], ["ucb", "random"], max_new_tokens=6, draft_length=4))
    assert [row["status"] for row in report["rows"]] == ["completed"] * 2 + ["too long"] * 2
    assert [line["too_long"] for line in report["summary"]] == [1, 1]
    assert store.flush()
    origins = {(run.origin.source, run.origin.suite) for run in recorded(store.path)}
    assert origins == {("api", None)}, "no suite that the Lab would list"


def test_endpoints_are_documented_for_their_callers() -> None:
    for endpoint in (Api.generate, Api.stream, Api.batch):
        _, explained, _ = get_function_description(endpoint)
        names = list(inspect.signature(endpoint).parameters)[1:]
        assert len(names) > 4 and all(explained[name] for name in names)


def test_the_types_of_results_are_documented(pool: Pool, store: Store) -> None:
    described = build(pool, store).get_api_info()["named_endpoints"]
    types = {name: described[name]["returns"][0]["type"] for name in ENDPOINTS}
    assert types["/generate"]["type"] == "object"
    assert types["/stream"]["properties"]["new_rounds"]["items"]["properties"]["drafted"] == {"type": "integer"}
    assert types["/policies"]["type"] == "array" and types["/batch"]["properties"]["rows"]["type"] == "array"


def test_the_explanation_names_every_tab(pool: Pool, store: Store) -> None:
    tabs = [block.label for block in build(pool, store).blocks.values() if isinstance(block, gr.Tab)]
    assert len(tabs) == 6 and all(f"<i>{tab}</i>" in render("header.html") for tab in tabs)


def test_pool_page_names_all_that_is_loaded(pool: Pool) -> None:
    html = pool_html(pool, "A <fast> chip", "1.0")
    for drafter in pool.drafters:
        assert drafter.name in html
    assert "A &lt;fast&gt; chip" in html and pool.card_hash[:8] in html and "float32" in html
    size = sum(p.numel() for p in pool.target.model.parameters())
    assert f"{size:,} parameters ({4 * size / 1024:.0f} KiB)" in html


def test_pool_page_says_whose_output_a_quantised_target_writes(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Quantised" not in pool_html(pool, "chip", "1.0")
    target = pool.card.target.model_copy(update={"quantization": "nf4"})
    monkeypatch.setattr(pool, "card", pool.card.model_copy(update={"target": target}))
    assert "Quantised</dt><dd>to nf4: outputs are exactly this quantised target" in pool_html(pool, "chip", "1.0")


def test_pool_page_shows_what_was_measured_and_what_suits_which_task(workbench: Workbench) -> None:
    workbench.pool.costs = CostMeter(len(workbench.pool.drafters))  # as if nothing had run on it
    tab = built(PoolTab(PoolLoader(workbench)), workbench)
    before = tab.show()
    assert before[tab.hint] == NO_MATRIX and not before[tab.matrix].visible
    params = SamplingParams(16, draft_length=4)
    job = workbench.submit(Request("abc", "round-robin", params, origin=Origin("play", "letters")))
    assert job.wait(60)
    workbench.store.flush()
    shown = tab.show()
    chart = shown[tab.matrix]
    assert shown[tab.hint] == "" and chart.visible and json.loads(chart.value["plot"])["data"][0]["x"] == ["letters"]
    assert "measured with the first run" in before[tab.pool] and "measured with the first" not in shown[tab.pool]


class Visitor:
    """Stands for ``gr.Request``."""

    session_hash = "someone"

    def __init__(self, **query: str):
        self.query_params = query


def play(
    workbench: Workbench, prompt: str, policy: str | None = "ucb", tokens: float | None = 8, turns: tuple = ()
) -> tuple[Play, list[dict[Any, Any]]]:
    tab = built(Play(workbench), workbench)
    return tab, list(tab.run(turns, prompt, policy, tokens, 0, 1, 0, 4, 0))  # type: ignore[arg-type]


def test_play_streams_to_the_end(workbench: Workbench) -> None:
    tab, updates = play(workbench, "abc abd")
    first, last = updates[0], after(updates)
    run, stop = tab.buttons.both
    assert first[run].interactive is False and first[stop].interactive is True
    assert last[run].interactive is True and last[stop].interactive is False
    assert "8 tokens" in last[tab.status] and "md-token" in last[tab.output]
    assert last[tab.output].startswith(first[tab.output])
    assert "Every round in detail" in last[tab.details]
    assert first[tab.copy].interactive is False and last[tab.copy].interactive is True  # there is a run to copy


def test_the_run_as_json(workbench: Workbench) -> None:
    tab, updates = play(workbench, "abc abd")
    record = json.loads(Path(after(updates)[tab.download].value["path"]).read_text())
    assert record["prompt"] == "abc abd" and record["policy"] == "ucb" and record["status"] == "completed"
    assert [token for r in record["rounds"] for token in r["tokens"]] == record["token_ids"]
    assert record["max_new_tokens"] == 8 and record["seed"] == 0 and record["source"] == "play"
    assert record["hardware"] == workbench.hardware and record["version"] == workbench.version
    assert sum(record[f"{phase}_seconds"] for phase in PHASES) == pytest.approx(record["decode_seconds"])
    assert record["speedup"] > 0 and record["request_speedup"] > 0 and record["baseline_kind"] == "prefix"


def test_a_pool_of_single_prompts_keeps_the_prompt_and_no_turns(workbench: Workbench) -> None:
    tab, updates = play(workbench, "abc abd")
    assert not {tab.prompt, tab.conversation, tab.turns, tab.anew} & set(after(updates))


def talking(workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> Play:
    """A tab on a pool that knows conversations."""
    monkeypatch.setattr(type(workbench.pool), "conversational", True)
    return built(Play(workbench), workbench)


def say(tab: Play, prompt: str, turns: tuple) -> Iterator[dict[Any, Any]]:
    return tab.run(turns, prompt, "ucb", 8, 0, 1, 0, 4, 0)  # type: ignore[arg-type]


def test_an_answer_becomes_a_turn_and_no_conversation_begins_meanwhile(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    tab = talking(workbench, monkeypatch)
    first, *rest = say(tab, "abc", (("ab", "de"),))
    assert first[tab.prompt] == "" and "abc" in first[tab.conversation] and tab.turns not in first
    assert first[tab.anew].interactive is False
    end = after(rest)
    assert end[tab.turns][0] == ("ab", "de") and end[tab.turns][1][0] == "abc" and 0 < len(end[tab.turns][1][1]) <= 8
    assert end[tab.anew].interactive is True


def test_a_run_stopped_in_line_is_no_turn_and_gives_the_prompt_back(
    workbench: Workbench, gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    tab = talking(workbench, monkeypatch)
    parts = say(tab, "abc", (("ab", "de"),))
    next(parts)
    (job,) = (job for job in workbench.jobs._found.values() if isinstance(job, RunJob))
    tab.buttons.cancel(job.id)
    gate.open()
    end = after(parts)
    assert end[tab.prompt] == "abc" and tab.turns not in end and end[tab.anew].interactive is True
    assert "de" in end[tab.conversation] and "abc" not in end[tab.conversation]


def test_rejected_guesses_are_struck_through(workbench: Workbench) -> None:
    tab, updates = play(workbench, "abc abd", policy="fixed:far", tokens=30)
    output = after(updates)[tab.output]
    rejected = re.findall(r"<del[^>]*>([^<]*)</del>", output)
    assert rejected and all(rejected)
    assert output.count("data-corrected") <= len(rejected)


def restored(workbench: Workbench, **query: str) -> tuple[Play, dict[Any, Any]]:
    tab = built(Play(workbench), workbench)
    return tab, tab.restore(Visitor(**query))  # type: ignore[arg-type]


def test_a_link_restores_prompt_policy_and_settings(workbench: Workbench) -> None:
    tab, shown = restored(
        workbench, prompt="abc <b>", with_policy="ucb", max_new_tokens="20", temperature="0.5", seed="3", run="7"
    )
    length, heat, *_, seed = tab.settings
    assert "Press Run" in shown[tab.status] and shown[tab.prompt] == "abc <b>" and shown[tab.policy].value == "ucb"
    assert ("UCB · ucb", "ucb") in shown[tab.policy].choices, "the page may have been built with those of another pool"
    assert {field: shown.get(field) for field in tab.settings if field in shown} == {length: 20, heat: 0.5, seed: 3}
    tab, shown = restored(workbench, with_policy="ucb:beta=0.1")
    assert shown[tab.policy].value == "ucb:beta=0.1"
    tab, shown = restored(workbench, prompt="a", with_policy="<b>", policy="ucb")
    status = shown[tab.status]
    assert 'role="alert"' in status and "choose one of" in status and "<b>" not in status
    assert shown[tab.prompt] == "a" and tab.policy not in shown


def test_other_parameters_of_the_address_are_none_of_plays(workbench: Workbench) -> None:
    tab, shown = restored(workbench, tab="dashboard", run="3", policy="ucb")
    assert shown == {tab.status: gr.skip()}


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"max_new_tokens": "<b>many</b>"}, "max new tokens must be a number"),
        ({"max_new_tokens": "0"}, "max new tokens"),
        ({"temperature": "-1"}, "temperature"),
        ({"seed": "1.5"}, "seed must be a whole number"),
        ({"top_k": "nan"}, "whole number"),
    ],
)
def test_a_broken_link_says_what_is_wrong_and_changes_nothing(workbench: Workbench, query: dict, words: str) -> None:
    tab, shown = restored(workbench, prompt="abc", **query)
    status = shown.pop(tab.status)
    assert words in status and 'role="alert"' in status and "<b>" not in status
    assert not shown


@pytest.mark.parametrize(
    ("prompt", "policy", "tokens", "words"),
    [
        ("", "ucb", 8, "prompt is empty"),
        ("abc", "<b>x</b>", 8, "choose one of"),
        ("abc", "", 8, "choose one of"),
        ("abc", None, 8, "choose one of"),
        ("a" * 99, "ucb", 8, "context window"),
        ("abc", "ucb", None, "Max new tokens"),
    ],
)
def test_play_says_what_is_wrong_in_the_page(
    workbench: Workbench, prompt: str, policy: str | None, tokens: float | None, words: str
) -> None:
    tab, (shown,) = play(workbench, prompt, policy, tokens=tokens)
    status, run, stop = (shown[part] for part in (tab.status, *tab.buttons.both))
    assert words in status and 'role="alert"' in status and "<b>" not in status
    assert run.interactive is True and stop.interactive is False


def test_leaving_the_page_ends_the_run(workbench: Workbench, gate, store: Store) -> None:
    tab = built(Play(workbench), workbench)
    parts = tab.run((), "abc abd", "ucb", 8, 0, 1, 0, 4, 0)  # type: ignore[arg-type]
    next(parts)
    assert gate.reached.wait(30)
    parts.close()  # what Gradio does when the connection is gone
    gate.open()
    params = SamplingParams(max_new_tokens=4, draft_length=4)
    follower = workbench.submit(Request("abc", "ucb", params))
    assert follower.wait(60)
    assert store.flush() and [run.generation.prompt for run in recorded(store.path)] == ["abc"]
