"""What is refused because too much is asked for, and what waits."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest

from multidraft.service import jobs as service_jobs
from multidraft.service.limits import Limits
from multidraft.serving.openai import server as servers
from multidraft.serving.openai.answers import CompletionForm
from multidraft.serving.openai.requests import CompletionAsked


def test_texts_beyond_the_limit_are_refused_for_now(http: httpx.Client, workbench, monkeypatch, gate) -> None:
    monkeypatch.setattr(servers, "MOST_TEXTS", 3)
    workbench.limits = Limits(queue=3)
    with ThreadPoolExecutor() as threads:
        first = threads.submit(http.post, "/v1/completions", json={"prompt": "abc", "n": 2, "max_tokens": 4})
        assert gate.reached.wait(30)
        refused = http.post("/v1/completions", json={"prompt": "abc", "n": 2})
        assert refused.status_code == 429 and refused.headers["Retry-After"]
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert http.post("/v1/completions", json={"prompt": "abc", "n": 4}).json()["error"]["param"] == "n"
        gate.open()
        assert first.result().status_code == 200
    assert http.post("/v1/completions", json={"prompt": "abc", "n": 3, "max_tokens": 2}).status_code == 200


def test_readings_that_wait_hold_up_nothing_that_needs_no_device(http: httpx.Client, workbench) -> None:
    echo, held = {"prompt": "abc", "max_tokens": 0, "echo": True}, threading.Event()
    workbench.jobs.do(held.wait)
    with ThreadPoolExecutor(50) as threads:
        read = [threads.submit(http.post, "/v1/completions", json={**echo, "logprobs": 0}) for _ in range(50)]
        try:
            while len(workbench.jobs.listed) < 40:
                time.sleep(0.01)
            assert http.post("/v1/completions", json=echo, timeout=10).status_code == 200
        finally:
            held.set()
        assert {answer.result().status_code for answer in read} == {200}


def test_an_answer_that_takes_long_to_write_down_holds_up_no_other(http: httpx.Client, monkeypatch) -> None:
    writing, held = threading.Event(), threading.Event()
    monkeypatch.setattr(CompletionForm, "answer", lambda *_: (writing.set(), held.wait(30)))
    with ThreadPoolExecutor() as threads:
        answer = threads.submit(http.post, "/v1/completions", json={"prompt": "abc", "max_tokens": 2})
        try:
            assert writing.wait(30) and http.get("/health", timeout=10).status_code == 200
        finally:
            held.set()
        assert answer.result().status_code == 200


def test_a_default_length_yields_to_the_servers_limit(http: httpx.Client, workbench) -> None:
    workbench.limits = Limits(new_tokens=2)
    answer = http.post("/v1/completions", json={"prompt": "abc", "ignore_eos": True}).json()
    assert answer["usage"]["completion_tokens"] == 2
    refused = http.post("/v1/completions", json={"prompt": "abc", "max_tokens": 3}).json()["error"]
    assert refused["message"] == "max_tokens must be at most 2 on this server, got 3"


@pytest.mark.parametrize(("asked", "field"), [({"prompt": "abc", "n": 3}, "n"), ({"prompt": ["abc"] * 3}, "prompt")])
def test_more_texts_than_a_visitor_may_ever_have_are_not_to_be_asked_for_again(
    http: httpx.Client, workbench, monkeypatch, asked, field
) -> None:
    workbench.limits = Limits(queue=8, share=0.25)
    monkeypatch.setattr(CompletionAsked, "prompts", lambda *_: 1 / 0)  # a million of them would take long to read
    refused = http.post("/v1/completions", json=asked)
    assert refused.status_code == 400 and "Retry-After" not in refused.headers
    assert refused.json()["error"]["param"] == field
    assert "may ask for 2 texts at once, this one asks for 3" in refused.json()["error"]["message"]


def test_where_the_queue_is_full_clients_are_asked_to_wait(client: openai.OpenAI, workbench, monkeypatch) -> None:
    monkeypatch.setattr(workbench, "submit", lambda *_: Limits().check_place("jobs", 1, ["another"], "this"))
    with pytest.raises(openai.RateLimitError, match="1 jobs are already running on this server") as busy:
        client.with_options(max_retries=0).completions.create(model="tiny", prompt="abc")
    assert busy.value.response.headers["Retry-After"] == "1" and busy.value.code == "rate_limit_exceeded"


def test_what_takes_longer_than_it_may_is_not_asked_for_again(http: httpx.Client, workbench, monkeypatch) -> None:
    monkeypatch.setattr(service_jobs, "TURN_SECONDS", 0.0)  # every round is a turn
    workbench.jobs.limits = Limits(run_seconds=1e-9)
    answer = http.post("/v1/completions", json={"prompt": "abc", "max_tokens": 60})
    assert answer.status_code == 400 and answer.json()["error"]["code"] == "ended_early"
    assert "ask for less" in answer.json()["error"]["message"] and "Retry-After" not in answer.headers
