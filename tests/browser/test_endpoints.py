"""The endpoints for programs, over the wire: gradio_client, MCP, plain HTTP, and the examples of ``docs/api.md``."""

import ast
import asyncio
import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from gradio_client import Client
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, Tool

from storage import queries
from storage.records import Generation
from tests.history import recorded
from tests.test_docs import blocks

NAMES = {"generate", "stream", "batch", "policies", "pool"}
PROMPT = "List what is known, then calculate. A box holds 12 eggs. How many are in 5 boxes?"


@pytest.fixture(scope="module")
def client(address: str) -> Client:
    return Client(address, verbose=False)


def test_policies(client: Client) -> None:
    listed = client.predict(api_name="/policies")
    assert {"spec", "title", "explanation"} == set(listed[0])
    assert (
        client.predict(PROMPT, policy=listed[-1]["spec"], max_new_tokens=2, api_name="/generate")["output_tokens"] == 2
    )


def test_pool(client: Client) -> None:
    told = client.predict(api_name="/pool")
    assert told["loading"] is False and told["status"] == f"{told['title']} is loaded."
    assert f"fixed:{told['drafters'][0]}" in {policy["spec"] for policy in client.predict(api_name="/policies")}


LONG = {"policy": "draft-all", "max_new_tokens": 900, "temperature": 2.0}
"""Of a prompt that is none of the pool's tasks: hardly ever ends by itself, and takes many seconds."""


@pytest.mark.parametrize(
    ("endpoint", "arguments"),
    [
        ("/generate", {"prompt": "Count on and on.", **LONG}),
        ("/stream", {"prompt": "Count on and on.", **LONG}),
        ("/batch", {"prompts": [PROMPT] * 200, "policies": ["autoregressive"], "max_new_tokens": 60}),
    ],
)
def test_a_job_that_is_cancelled_ends_on_the_server_too(
    client: Client, history: Path, endpoint: str, arguments: dict[str, Any]
) -> None:
    known = queries.count(history)
    job = client.submit(**arguments, api_name=endpoint)
    next(iter(job))
    time.sleep(1.5)  # now it decodes
    job.cancel()
    assert_ended(client, history, known)


PROGRAM = f"""
import os, sys, time
from gradio_client import Client
job = Client(sys.argv[1], verbose=False).submit("Count on and on.", **{LONG}, api_name="/generate")
next(iter(job))
time.sleep(1.5)
os._exit(0)
"""


def test_a_program_that_ends_takes_its_run_with_it(client: Client, address: str, history: Path) -> None:
    known = queries.count(history)
    subprocess.run([sys.executable, "-c", PROGRAM, address], check=True, timeout=120)
    assert_ended(client, history, known)


def assert_ended(client: Client, history: Path, known: int) -> None:
    """The device is free soon, and what was under way is recorded as cancelled, if it had begun."""
    client.predict("Add 2 and 3.", policy="ucb", max_new_tokens=2, api_name="/generate")
    until = time.monotonic() + 30
    while not (runs := since(history, known)) or len(runs[-1].token_ids) > 2:
        assert time.monotonic() < until, "the run that follows was not recorded"
        time.sleep(0.1)
    assert len(runs) < 100 and {run.status for run in runs[:-1] if len(run.token_ids) > 60} <= {"cancelled"}


def since(history: Path, known: int) -> list[Generation]:
    """What was decoded since so many runs were known, the last one last."""
    runs = recorded(history, queries.count(history) - known)
    return [run.generation for run in sorted(runs, key=lambda run: run.created_at)]


def test_what_the_page_does_is_not_offered_to_programs(client: Client) -> None:
    offered = client.view_api(return_format="dict", print_info=False)["named_endpoints"]
    assert set(offered) == {f"/{name}" for name in NAMES}


def elsewhere(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a call in a thread of its own: the browser of other tests keeps an event loop in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(function, *arguments).result()


def over_mcp(address: str, tool: str, arguments: dict[str, Any]) -> tuple[list[Tool], CallToolResult]:
    """What the MCP server offers, and its answer to a call."""

    async def call() -> tuple[list[Tool], CallToolResult]:
        async with (
            streamable_http_client(f"{address}gradio_api/mcp/") as streams,
            ClientSession(*streams[:2]) as session,
        ):
            await session.initialize()
            return (await session.list_tools()).tools, await session.call_tool(tool, arguments)

    return elsewhere(asyncio.run, call())


@pytest.mark.parametrize("tool", ["generate", "stream"])
def test_mcp(client: Client, address: str, tool: str) -> None:
    arguments = {"prompt": PROMPT, "policy": "ucb", "max_new_tokens": 12}
    tools, answer = over_mcp(address, tool, arguments)
    assert {offered.name for offered in tools} == NAMES
    schema = next(offered for offered in tools if offered.name == tool).inputSchema
    assert schema["properties"]["seed"]["type"] == "integer"
    assert "policy spec" in schema["properties"]["policy"]["description"]
    report = ast.literal_eval(answer.content[0].text)
    assert not answer.isError
    assert report["text"] == client.predict(*arguments.values(), api_name="/generate")["text"]


def test_mcp_says_what_is_wrong(address: str) -> None:
    _, answer = over_mcp(address, "generate", {"prompt": "Add 2 and 3.", "policy": "nonsense"})
    assert answer.isError and "choose one of" in answer.content[0].text


def test_the_examples_of_the_documents(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ADDRESS", address)
    names: dict[str, Any] = {}
    for code in blocks("docs/api.md", "python"):
        elsewhere(exec, code, names)
    said = capsys.readouterr().out
    assert "times autoregressive decoding" in said and "'generate', 'stream'" in said
    _, curl = blocks("docs/api.md", "sh")
    events = subprocess.run(["bash", "-c", curl], capture_output=True, text=True, timeout=60, check=True).stdout
    *before, (kind, last) = [
        (kind, json.loads(data)[0]) for kind, data in re.findall(r"event: (\w+)\ndata: (.*)", events)
    ]
    assert kind == "complete" and last["status"] == "completed"
    assert before[-1] == ("generating", last), "the closing event repeats the last update"
    for updates in ([names["rounds"]], [update["new_rounds"] for _, update in before]):
        numbers = [r["index"] for rounds in updates for r in rounds]
        assert numbers and numbers == list(range(len(numbers))), "each round once"


def test_the_examples_of_openais_client(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ADDRESS", address)
    names: dict[str, Any] = {}
    for code in (code for code in blocks("docs/serving.md", "python") if "client" in code):
        elsewhere(exec, code, names)
    text, figures, policies = capsys.readouterr().out.strip().split("\n")
    assert "paint a picture" in text and "tokens per round, {" in figures and policies == "ucb:reward=be autoregressive"
    assert "vllm:spec_decode_num_drafts_total" in urllib.request.urlopen(f"{address}metrics").read().decode()
