"""Nothing is asked of other sites, the first paint comes soon, and what a watching page costs can be measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from multidraft.__main__ import main
from tests.browser.conftest import START_SECONDS
from tests.browser.find_chromium import find_chromium
from tests.browser.test_endpoints import elsewhere
from tests.browser.test_looks import TABS
from tests.browser.test_play import DONE, run_example

PAINT_MS = 3000
"""On an idle machine of two cores; here the tests take their part of it, so each visit may have another try."""


def test_no_view_asks_for_anything_off_the_site(page: Page, address: str) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    run_example(page, tokens=8)
    expect(page.locator(DONE)).to_be_visible()
    for tab in TABS:
        page.get_by_role("tab", name=tab).click()
        page.wait_for_timeout(500)  # Gradio keeps a connection open, so the network is never idle
    assert len(asked) > 10
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []


def test_the_first_useful_paint_comes_soon(chromium: Browser, address: str) -> None:
    best = float("inf")
    for _ in range(3):
        with chromium.new_context() as context:
            page = context.new_page()
            page.goto(address)
            page.locator("#run").wait_for()
            best = min(best, page.evaluate("performance.now()"))  # since the navigation began
    assert best < PAINT_MS, f"{best:.0f} ms until the Run button is there"


@pytest.mark.timeout(START_SECONDS)
def test_what_a_watching_page_costs(pool_card: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["streaming", "--pool", str(pool_card), "--prompt", "abc abd", "--max-new-tokens", "20"]
    arguments += ["--temperature", "0", "--repeat", "1", "--browser", str(find_chromium()), "--json"]
    assert elsewhere(main, arguments) == 0
    measured = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert measured["tokens"] == 20 and len(measured["alone"]) == len(measured["watched"]) == 1
    assert measured["cost"] == pytest.approx(1 - measured["watched"][0] / measured["alone"][0])


def test_a_browser_that_is_not_there(pool_card: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert elsewhere(main, ["streaming", "--pool", str(pool_card), "--browser", "/nowhere/chromium"]) == 2
    assert "the browser cannot be started" in capsys.readouterr().err
