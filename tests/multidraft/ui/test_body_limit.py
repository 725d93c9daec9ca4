"""Requests that are too large are refused before they are held in memory."""

from collections.abc import Iterator

import gradio as gr
import httpx
import pytest
from starlette.testclient import TestClient

from multidraft.service.limits import Allowance, Limits
from multidraft.service.workbench import Workbench
from multidraft.ui import app, middleware
from multidraft.ui.app import SESSIONS, serve
from multidraft.ui.middleware import BodyLimit


async def echo(scope, receive, send) -> None:
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(size).encode()})


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "MAX_BODY", 1000)
    monkeypatch.setattr(middleware, "FORM", 100)


@pytest.mark.parametrize(("path", "most"), [("/gradio_api/queue/join", 1000), ("/gradio_api/upload", 5100)])
def test_a_body_may_have_so_many_bytes(limits: None, path: str, most: int) -> None:
    browser = TestClient(BodyLimit(echo, upload=5000, allowance=Allowance(Limits())))
    assert browser.post(path, content=b"x" * most).text == str(most)
    answer = browser.post(path, content=b"x" * (most + 1))
    assert answer.status_code == 413 and f"may have {most:,} bytes" in answer.json()["detail"]
    assert browser.post(path, headers={"Content-Length": "9" * 5000}).status_code == 413
    assert browser.get(path).text == "0"


def test_programs_are_told_in_openais_form(limits: None) -> None:
    browser = TestClient(BodyLimit(echo, upload=5000, allowance=Allowance(Limits())))
    answer = browser.post("/v1/completions", content=b"x" * 1001)
    assert answer.status_code == 413 and "may have 1,000 bytes" in answer.json()["error"]["message"]


@pytest.fixture(scope="module")
def served(unused: Workbench) -> Iterator[gr.Blocks]:
    page = serve(unused)
    yield page
    page.close()


def parts(size: int) -> Iterator[bytes]:
    """A body of unknown length."""
    yield b'{"data": ["'
    for _ in range(size >> 16):
        yield b"x" * 65536
    yield b'"]}'


def test_the_served_page_refuses_large_bodies(served: gr.Blocks) -> None:
    url = served.local_url.rstrip("/")
    small = httpx.post(f"{url}/gradio_api/call/policies", json={"data": []})
    assert small.status_code == 200
    refused = httpx.post(f"{url}/gradio_api/call/policies", content=parts(middleware.MAX_BODY + 2**20))
    assert refused.status_code == 413 and "send fewer or shorter prompts" in refused.text
    content = b"x" * (app.MAX_BYTES + 2**20)
    refused = httpx.post(f"{url}/gradio_api/upload", files={"files": ("a.txt", content)})
    assert refused.status_code == 413 and "split the file" in refused.text
    kept = httpx.post(f"{url}/gradio_api/upload", files={"files": ("a.txt", b"x" * 2**20)})
    assert kept.status_code == 200


def test_the_state_of_few_sessions_is_held(served: gr.Blocks, monkeypatch: pytest.MonkeyPatch) -> None:
    url, holder = served.local_url.rstrip("/"), served.app.state_holder
    assert holder.capacity == SESSIONS * 128
    monkeypatch.setattr(holder, "capacity", 3)
    seen = set()
    for n in range(6):
        data = {"data": [], "session_hash": f"visitor {n}"}
        assert httpx.post(f"{url}/gradio_api/run/policies", json=data).status_code == 200
        seen |= set(holder.session_data)
        assert len(holder.session_data) <= 3
    assert {f"visitor {n}" for n in range(6)} <= seen and "visitor 0" not in holder.session_data
