"""What the middleware makes of Gradio's answers."""

from __future__ import annotations

import brotli
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from multidraft.ui.delivery import Delivery

PAGE = "<html><head><script>first()</script></head>" + "<p>text</p>" * 1000
ASKED: list[str] = []


def asset(request: Request) -> Response:
    ASKED.append(name := request.path_params["name"])
    return PlainTextResponse("no such file", 404) if name == "gone.js" else PlainTextResponse("let a = 1;" * 100)


def other(request: Request) -> Response:
    return PlainTextResponse("other" * 100)


APP = Starlette(
    routes=[Route("/", lambda _: HTMLResponse(PAGE)), Route("/assets/{name}", asset), Route("/config", other)]
)


@pytest.fixture
def browser() -> TestClient:
    ASKED.clear()
    return TestClient(Delivery(APP), headers={"Accept-Encoding": "gzip, br"})


def test_a_fixed_file_is_read_once_and_kept_by_browsers(browser: TestClient) -> None:
    for _ in range(3):
        answer = browser.get("/assets/a.js")
        assert answer.text == "let a = 1;" * 100
        assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        assert answer.headers["Content-Encoding"] == "br" and answer.headers["Vary"] == "Accept-Encoding"
        assert int(answer.headers["Content-Length"]) < 100
    assert browser.get("/assets/b.js").status_code == 200 and ASKED == ["a.js", "b.js"]


def test_a_missing_file_is_asked_for_again(browser: TestClient) -> None:
    answers = [browser.get("/assets/gone.js") for _ in range(2)]
    assert [(answer.status_code, answer.text) for answer in answers] == [(404, "no such file")] * 2
    assert "Cache-Control" not in answers[0].headers and ASKED == ["gone.js"] * 2


def test_the_page_begins_with_its_own_script(browser: TestClient) -> None:
    with browser.stream("GET", "/") as answer:
        text = brotli.decompress(b"".join(answer.iter_raw())).decode()
    head, rest = text.split("</script>", 1)
    assert head.startswith("<html><head><script>// Before all other scripts") and "requestAnimationFrame" in head
    assert rest == PAGE.removeprefix("<html><head>")
    assert int(answer.headers["Content-Length"]) < len(PAGE) / 5


@pytest.mark.parametrize(
    "headers", [{"Accept-Encoding": "gzip"}, {"Range": "bytes=0-3"}, {"If-None-Match": "x"}], ids=str
)
def test_other_questions_are_gradio_s(browser: TestClient, headers: dict[str, str]) -> None:
    for _ in range(2):
        answer = browser.get("/assets/a.js", headers=headers)
        assert answer.text.startswith("let a") and "Content-Encoding" not in answer.headers
    assert ASKED == ["a.js"] * 2
    assert "Content-Encoding" not in browser.get("/config").headers
    assert browser.post("/").status_code == 405


def test_under_a_path_of_its_own(browser: TestClient) -> None:
    inside = TestClient(Delivery(APP), headers={"Accept-Encoding": "br"}, root_path="/space")
    assert inside.get("/space/assets/a.js").headers["Content-Encoding"] == "br"
