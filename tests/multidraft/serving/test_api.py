"""What programs get from the endpoints."""

import inspect
import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import gradio as gr
import pytest
from gradio.utils import get_function_description

from drafters.errors import UserError
from drafters.sampling import SamplingParams
from multidraft.bench.measure import Request
from multidraft.service.batch import BatchJob
from multidraft.service.lab import LabWork, Verdicts
from multidraft.service.limits import PUBLIC
from multidraft.service.pool_loading import PoolLoader
from multidraft.service.workbench import Workbench
from multidraft.serving import api
from multidraft.serving.api import Api
from multidraft.ui.app import build
from storage.store import Store
from tests.history import recorded
from tests.runs import make_run

ENDPOINTS = {"/generate", "/stream", "/batch", "/policies", "/pool"}


def last(items: Iterator[Any]) -> Any:
    """The result of an endpoint that gives signs of life until it has one."""
    *alive, result = items
    assert alive and set(alive) == {None}
    return result


def test_what_is_not_to_be_learnt_from_says_so_in_the_history(workbench: Workbench, store: Store) -> None:
    pool = workbench.pool
    pool.previous.clear()
    last(Api(workbench).generate("abc", "ucb", max_new_tokens=4, learn=False))
    last(Api(workbench).batch(["abd"], ["ucb"], max_new_tokens=4, learn=False))
    assert not pool.previous
    with pytest.raises(UserError, match="learn must be true or false"):
        next(Api(workbench).generate("abc", learn="no"))
    last(Api(workbench).generate("abc", "ucb", max_new_tokens=4))
    assert pool.previous and store.flush()
    assert [run.origin.learn for run in recorded(store.path)] == [True, False, False]


def test_new_tokens_are_by_default_what_the_server_allows(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Api(workbench).submit("abc").run.params.max_new_tokens == 128
    monkeypatch.setattr(workbench, "limits", replace(workbench.limits, new_tokens=5))
    assert Api(workbench).submit("abc").run.params.max_new_tokens == 5


def test_generate_returns_text_and_figures(workbench: Workbench) -> None:
    report = last(Api(workbench).generate("abc abd", "ucb", max_new_tokens=8, draft_length=4))
    assert report["status"] == "completed" and report["output_tokens"] == 8
    assert set(report) == set(make_run().to_json())
    assert report["speedup"] == pytest.approx(report["tokens_per_second"] * report["baseline_seconds_per_token"])
    assert report["request_speedup"] > 0 and len(report["rounds"]) == report["round_count"]
    assert sum(report["drafter_shares"].values()) == pytest.approx(1.0)
    assert report["best_drafter"] in workbench.pool.drafter_names


@pytest.mark.parametrize(
    ("prompt", "policy", "words"),
    [("  ", "ucb", "empty"), ("abc", "nonsense", "choose one of"), ("a" * 99, "ucb", "window")],
)
def test_generate_refuses_with_a_clear_message(workbench: Workbench, prompt: str, policy: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
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
    with pytest.raises(UserError, match=said):
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
            "334 prompts under 3 policies are 1,002 runs, but a batch may have 1,000 on this server",
        ),
    ],
)
def test_batches_that_cannot_run_get_a_sentence(
    workbench: Workbench, prompts: Any, policies: Any, changes: dict[str, int], said: str
) -> None:
    workbench.limits = PUBLIC
    with pytest.raises(UserError, match=said):
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


def test_programs_and_visitors_share_the_limit_on_batches(workbench: Workbench, gate) -> None:
    runs = [Api(workbench).batch(["abc"], ["ucb"], max_new_tokens=6) for _ in range(BatchJob.limit + 1)]
    for run in runs[:-1]:
        next(run)
    with pytest.raises(UserError, match="batches are already running"):
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
    assert store.flush()
    left = [run.generation for run in recorded(store.path) if run.generation.prompt != "abc"]
    assert all(g.status == "cancelled" and len(g.rounds) == 1 for g in left)


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
    with pytest.raises(UserError, match="choose one of"):
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
    report = last(Api(workbench).batch(["abc", "a" * 99, ""], ["ucb", "random"], max_new_tokens=6, draft_length=4))
    assert [row["status"] for row in report["rows"]] == ["completed"] * 2 + ["too long"] * 2 + ["error"] * 2
    assert [row["prompt"] for row in report["rows"]] == ["abc"] * 2 + ["a" * 99] * 2 + [""] * 2
    assert [line["too_long"] for line in report["summary"]] == [1, 1]
    assert store.flush()
    origins = {(run.origin.source, run.origin.suite) for run in recorded(store.path)}
    assert origins == {("api", None)}, "no suite that the Lab would list"


def test_a_batch_of_several_texts_at_once_returns_its_throughput(workbench: Workbench) -> None:
    report = last(Api(workbench).batch(["abc", "abd"], ["ucb", "autoregressive"], max_new_tokens=9, texts_at_once=2))
    assert [line["policy"] for line in report["throughput"]] == ["ucb", "autoregressive"]
    assert all(line["tokens_per_second"] > 0 < line["over_batch"] for line in report["throughput"])
    assert {(row["streams"], row["speedup"]) for row in report["rows"]} == {(2, None)}
    with pytest.raises(UserError, match="texts at once must be one of 1, 2, 4, 8, 16, got 5"):
        next(Api(workbench).batch(["abc"], ["ucb"], texts_at_once=5))


def test_endpoints_are_documented_for_their_callers() -> None:
    for endpoint in (Api.generate, Api.stream, Api.batch):
        _, explained, _ = get_function_description(endpoint)
        names = list(inspect.signature(endpoint).parameters)[1:]
        assert len(names) > 4 and all(explained[name] for name in names)


def test_only_the_stable_endpoints_are_public_and_the_types_of_their_results_are_documented(
    workbench: Workbench,
) -> None:
    page = build(workbench, PoolLoader(workbench), Verdicts(LabWork(workbench)))
    described = page.get_api_info()["named_endpoints"]
    assert set(described) == ENDPOINTS and page.analytics_enabled is False
    types = {name: described[name]["returns"][0]["type"] for name in ENDPOINTS}
    assert types["/generate"]["type"] == "object"
    assert types["/stream"]["properties"]["new_rounds"]["items"]["properties"]["drafted"] == {"type": "integer"}
    assert types["/policies"]["type"] == "array" and types["/batch"]["properties"]["rows"]["type"] == "array"
