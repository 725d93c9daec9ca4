"""Over a real connection: whose jobs they are, and what becomes of them when nobody reads their results."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gradio as gr
import httpx
import pytest
from anyio.from_thread import start_blocking_portal
from gradio.queueing import Queue
from starlette.applications import Starlette

from drafters.pool import Pool
from multidraft.service.jobs import Job
from multidraft.service.workbench import Workbench
from multidraft.serving import callers
from multidraft.ui.app import serve
from storage.store import Store
from tests import tiny

SECONDS = 30


@pytest.fixture(scope="module")
def workbench(pool_card: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    with Store(tmp_path_factory.mktemp("callers") / "runs.db") as store:
        workbench = Workbench(tiny.load(pool_card), store)
        yield workbench
        workbench.close()


@pytest.fixture
def pool(workbench: Workbench) -> Pool:
    """What ``gate`` holds."""
    return workbench.pool


@pytest.fixture(scope="module")
def page(workbench: Workbench) -> Iterator[gr.Blocks]:
    page = serve(workbench)
    yield page
    page.close()


@pytest.fixture
def http(page: gr.Blocks) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=page.local_url, timeout=SECONDS) as client:
        yield client


def call(http: httpx.Client, name: str = "stream", data: list | None = None, **headers: str) -> str:
    asked = ["a b", "ucb", 40, 0, 1, 0, None, 0] if data is None else data
    answer = http.post(f"gradio_api/call/{name}", json={"data": asked}, headers=headers)
    return str(answer.raise_for_status().json()["event_id"])


def under_way(workbench: Workbench) -> Job:
    until = time.monotonic() + SECONDS
    while not workbench.jobs.listed:
        assert time.monotonic() < until
        time.sleep(0.001)
    return workbench.jobs.listed[0]


def test_a_call_that_nobody_reads_ends(http: httpx.Client, workbench: Workbench, gate, monkeypatch) -> None:
    monkeypatch.setattr(callers, "UNREAD_SECONDS", 0.05)
    call(http, **{"X-Forwarded-For": "203.0.113.9, 192.0.2.1"})
    job = under_way(workbench)
    assert job.caller.visitor == "192.0.2.1", "the last proxy's word counts, not the client's"
    assert job.cancelled.wait(SECONDS)
    gate.open()
    assert job.wait(SECONDS)


def test_a_reader_who_goes_ends_the_job_within_the_round(http: httpx.Client, workbench: Workbench, gate) -> None:
    event = call(http)
    with http.stream("GET", f"gradio_api/call/stream/{event}") as answer:
        assert next(answer.iter_lines()).startswith("event:")
        job = under_way(workbench)
    assert job.cancelled.wait(SECONDS), "before the round in progress has ended"
    gate.open()
    assert job.wait(SECONDS) and len(job.run.generation.rounds) <= 1


def test_a_call_that_is_read_has_its_answer_and_nothing_is_kept(http: httpx.Client, workbench: Workbench) -> None:
    read = http.get(f"gradio_api/call/generate/{call(http, 'generate')}").text
    assert "event: complete" in read and '"status": "' in read and not workbench.jobs.listed


def test_a_page_that_reads_once_more_is_not_told_that_its_session_is_unknown(
    http: httpx.Client, workbench: Workbench
) -> None:
    asked = {"data": ["a b", "ucb", 4, 0, 1, 0, None, 0], "session_hash": "page"}
    generate = next(fn for fn in http.get("config").json()["dependencies"] if fn["api_name"] == "generate")

    def join() -> None:
        http.post("gradio_api/queue/join", json=asked | {"fn_index": generate["id"]}).raise_for_status()

    join()
    with http.stream("GET", "gradio_api/queue/data", params={"session_hash": "page"}) as first:
        assert "process_completed" in "".join(first.iter_lines())
    # A page reads again where an answer overtakes the word that its question has arrived.
    with http.stream("GET", "gradio_api/queue/data", params={"session_hash": "page"}) as second:
        join()
        assert "process_completed" in "".join(second.iter_lines())


ASKED = {"name": "generate", "arguments": {"prompt": "a b", "policy": "ucb", "max_new_tokens": 40}}
OVER_MCP = {
    "url": "gradio_api/mcp/",
    "json": {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": ASKED},
    "headers": {"Accept": "application/json, text/event-stream", "X-Forwarded-For": "203.0.113.9"},
}


def test_a_call_over_mcp_is_its_clients_and_ends_with_it(page: gr.Blocks, workbench: Workbench, gate) -> None:
    elsewhere = httpx.HTTPTransport(local_address="127.0.0.2")  # no proxy that may speak for others
    with httpx.Client(base_url=page.local_url, timeout=SECONDS, transport=elsewhere) as client:
        with client.stream("POST", **OVER_MCP):
            job = under_way(workbench)
            assert job.caller.visitor == "127.0.0.2"
        assert job.cancelled.wait(SECONDS)
        gate.open()
        assert job.wait(SECONDS)
        answer = client.post(**OVER_MCP).text
    assert "'status': 'completed'" in answer and not workbench.jobs.listed


def test_calls_over_mcp_that_wait_hold_up_nothing_else(http: httpx.Client, workbench: Workbench) -> None:
    held = threading.Event()
    workbench.jobs.do(held.wait)
    with ThreadPoolExecutor(50) as threads:
        answers = [threads.submit(http.post, **OVER_MCP) for _ in range(50)]
        try:
            until = time.monotonic() + SECONDS
            while len(workbench.jobs.listed) < callers.MCP_CALLS:
                assert time.monotonic() < until
                time.sleep(0.01)
            assert http.get("gradio_api/info", timeout=10).status_code == 200
        finally:
            held.set()
        assert all("'status': 'completed'" in answer.result().text for answer in answers)


def test_nobody_else_says_whose_job_it_is(http: httpx.Client, workbench: Workbench, gate) -> None:
    call(http, **{callers.MCP_CALL: "another's"})
    assert under_way(workbench).caller.session != "another's"
    gate.open()


def test_a_page_that_goes_on_asking_is_not_given_up_before_it_reads(monkeypatch) -> None:
    monkeypatch.setattr(callers, "UNREAD_SECONDS", 0.0)
    queue, left = Queue(False, 1, 0.05, 10, gr.Blocks()), list[str]()
    watched = callers.Callers(Starlette(), lambda: queue, left.append)
    queue.pending_event_ids_session["page"] = {"first", "last"}
    watched._last["page"] = "last"
    with start_blocking_portal() as portal:
        portal.call(watched._give_up, "first", "page")
        assert not left
        portal.call(watched._give_up, "last", "page")
    assert left == ["page"] and not watched._last and not queue.pending_event_ids_session


def test_of_a_call_that_was_read_nothing_is_kept(http: httpx.Client, page: gr.Blocks, monkeypatch) -> None:
    monkeypatch.setattr(callers, "UNREAD_SECONDS", 0.05)
    event = call(http, "generate")
    http.get(f"gradio_api/call/generate/{event}")
    queue, until = page._queue, time.monotonic() + SECONDS
    while event in queue.pending_messages_per_session or event in queue.pending_event_ids_session:
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "generate takes 9 values, got 0: prompt is missing"),
        (["a b", "nonsense", 4, 0, 1, 0, None, 0], "unknown policy 'nonsense'"),
    ],
)
def test_what_is_wrong_is_always_said(http: httpx.Client, data: list, said: str) -> None:
    lines = http.get(f"gradio_api/call/generate/{call(http, 'generate', data)}").text.splitlines()
    assert lines[0] == "event: error" and said in json.loads(lines[1].removeprefix("data: "))["error"]


def test_what_only_the_queue_can_end_is_refused_without_it(http: httpx.Client, workbench: Workbench) -> None:
    answer = http.post("gradio_api/run/generate", json={"data": ["a b", "ucb", 40, 0, 1, 0, None, 0]})
    assert answer.status_code == 500 and "by the queue" in answer.json()["error"] and not workbench.jobs.listed
