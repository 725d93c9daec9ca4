"""What the middleware makes of Gradio's answers."""

from collections.abc import Mapping

import brotli
import pytest
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from multidraft.ui.middleware import Delivery

PAGE = (
    '<html><head><script>first()</script><meta property="og:title" content="Gradio" />\n<meta\n\tname="twitter:card" />'
    '<style></style><meta property="og:url" content="https://gradio.app/" />'
    '<script>window.gradio_config = {"a": "a text"}</script></head>'
)
PAGE += "<p>text</p>" * 1000
ASKED: list[str] = []


def tags(query: Mapping[str, str], root: str) -> str:
    return f'<meta property="og:title" content="{root}?run={query.get("run")}">'


def asset(request: Request) -> Response:
    ASKED.append(name := request.path_params["name"])
    return PlainTextResponse("no such file", 404) if name == "gone.js" else PlainTextResponse("let a = 1;" * 100)


APP = Starlette(
    routes=[
        Route("/", lambda _: HTMLResponse(PAGE)),
        Route("/assets/{name}", asset),
        Route("/config", lambda _: PlainTextResponse("other" * 100)),
    ]
)


@pytest.fixture
def browser() -> TestClient:
    ASKED.clear()
    return TestClient(Delivery(APP, tags), headers={"Accept-Encoding": "gzip, br"})


def test_a_fixed_file_is_read_once_and_kept_by_browsers(browser: TestClient) -> None:
    for _ in range(3):
        answer = browser.get("/assets/a.js")
        assert answer.text == "let a = 1;" * 100
        assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        assert answer.headers["Content-Encoding"] == "br" and answer.headers["Vary"] == "Accept-Encoding"
        assert int(answer.headers["Content-Length"]) < 100
    assert browser.get("/assets/b.js").status_code == 200 and ASKED == ["a.js", "b.js"]


def test_what_middleware_further_out_adds_for_one_visitor_is_not_kept() -> None:
    app = CORSMiddleware(Delivery(APP, tags), allow_origin_regex=".*", allow_credentials=True)
    browser = TestClient(app, headers={"Accept-Encoding": "br"})
    for origin in ("https://one", "https://two", "https://two"):
        answer = browser.get("/assets/a.js", headers={"Origin": origin})
        assert answer.headers["Access-Control-Allow-Origin"] == origin
        assert answer.headers["Vary"] == "Accept-Encoding, Origin"
    assert "Access-Control-Allow-Origin" not in browser.get("/assets/a.js").headers


def test_half_a_file_is_not_kept() -> None:
    async def cut(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"let a", "more_body": True})

    delivery = Delivery(cut, tags)
    browser = TestClient(delivery)
    assert "Cache-Control" not in browser.get("/assets/a.js").headers and not delivery._cached


def test_other_spellings_of_a_path_are_not_kept() -> None:
    delivery = Delivery(APP, tags)
    TestClient(delivery).get("/assets/x/..%2fa.js")
    assert not delivery._cached


def test_a_missing_file_is_asked_for_again(browser: TestClient) -> None:
    answers = [browser.get("/assets/gone.js") for _ in range(2)]
    assert [(answer.status_code, answer.text) for answer in answers] == [(404, "no such file")] * 2
    assert "Cache-Control" not in answers[0].headers and ASKED == ["gone.js"] * 2


def test_the_page_begins_with_its_own_script(browser: TestClient) -> None:
    with browser.stream("GET", "/") as answer:
        text = brotli.decompress(b"".join(answer.iter_raw())).decode()
    head, rest = text.split("</script>", 1)
    assert head.startswith("<html><head><script>// Before all other scripts") and "requestAnimationFrame" in head
    assert rest.startswith("<meta") and rest.endswith(PAGE.partition("window.gradio_config")[2])
    assert int(answer.headers["Content-Length"]) < len(PAGE) / 5


def test_fonts_are_kept_as_they_are(browser: TestClient) -> None:
    answer = browser.get("/assets/a.woff2")
    assert "Cache-Control" in answer.headers and "Content-Encoding" not in answer.headers


def test_browsers_without_brotli_get_the_same_uncompressed(browser: TestClient) -> None:
    for _ in range(2):
        answer = browser.get("/assets/a.js", headers={"Accept-Encoding": "identity"})
        assert answer.text == "let a = 1;" * 100 and "Content-Encoding" not in answer.headers
        assert "Cache-Control" in answer.headers
    assert ASKED == ["a.js"]
    answer = browser.get("/", headers={"Accept-Encoding": "identity"})
    assert "requestAnimationFrame" in answer.text and answer.text.endswith(PAGE.partition("window.gradio_config")[2])


def test_other_questions_are_gradio_s(browser: TestClient) -> None:
    for _ in range(2):
        assert "Cache-Control" not in browser.get("/assets/a.js", headers={"Range": "bytes=0-3"}).headers
    assert ASKED == ["a.js"] * 2
    assert "Content-Encoding" not in browser.get("/config").headers
    assert browser.post("/").status_code == 405


def test_under_a_path_of_its_own() -> None:
    inside = TestClient(Delivery(APP, tags), headers={"Accept-Encoding": "br"}, root_path="/space")
    assert inside.get("/space/assets/a.js").headers["Content-Encoding"] == "br"


def test_the_page_has_our_tags_for_previews_of_links_and_none_of_gradios() -> None:
    page = TestClient(Delivery(APP, tags)).get("/?run=7").text
    assert page.count("og:title") == 1 and "gradio.app" not in page and 'content="http://testserver?run=7"' in page
    assert "twitter:card" not in page and "first()" in page and "<p>text</p>" in page
