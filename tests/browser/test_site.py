"""Nothing comes from other sites, nothing heavy before its time, and what a watching page costs can be measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from multidraft.__main__ import main
from tests.browser.conftest import START_SECONDS
from tests.browser.find_chromium import find_chromium
from tests.browser.test_endpoints import elsewhere
from tests.browser.test_looks import TABS
from tests.browser.test_play import DONE, run_example, take_example


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


def test_the_first_visit_does_not_wait_for_the_charts_library(page: Page, address: str) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    take_example(page, tokens=8)  # so all of the tab is there
    assert asked and not [url for url in asked if "plotly" in url.lower()]
    page.locator("#run").click()
    expect(page.locator("#chart .js-plotly-plot")).to_be_visible()
    assert [url for url in asked if "plotly" in url.lower()]


def test_a_browser_may_keep_the_scripts(page: Page, address: str) -> None:
    script = page.locator("head script[type=module]").first.get_attribute("src")
    answer = page.request.get(f"{address}{script}")
    assert answer.ok and "immutable" in answer.headers["cache-control"]


def test_a_page_at_rest_does_nothing(page: Page, address: str) -> None:
    page.add_init_script(
        "window.frames_asked = []; const ask = window.requestAnimationFrame;"
        "window.requestAnimationFrame = (frame) => { window.frames_asked.push(String(frame)); return ask(frame); }"
    )
    page.goto(address)
    expect(page.locator("#run")).to_be_visible()
    for _ in range(60):  # what it does once it is there takes some seconds
        page.evaluate("frames_asked = []")
        page.wait_for_timeout(1000)
        if not (asked := page.evaluate("frames_asked")):
            break
    assert not asked, set(asked)


@pytest.mark.timeout(START_SECONDS)
def test_what_a_watching_page_costs(pool_card: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["streaming", "--pool", str(pool_card), "--prompt", "abc abd", "--max-new-tokens", "20"]
    arguments += ["--temperature", "0", "--visits", "1", "--pairs", "2", "--browser", str(find_chromium()), "--json"]
    assert elsewhere(main, arguments) == 0
    measured = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert measured["tokens"] == 20 and len(measured["alone"]) == len(measured["watched"]) == 2
    ratios = [watched / alone for watched, alone in zip(measured["watched"], measured["alone"], strict=True)]
    assert measured["cost"] == pytest.approx(1 - sum(ratios) / 2)
    assert measured["interval"] is None, "two pairs say nothing about the spread"
    assert len(measured["paints"]) == 1 and measured["paints"][0] > 0
    assert measured["cpu_alone"][0] > 0 and measured["cpu_watched"][0] > 0


def test_a_browser_that_is_not_there(pool_card: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert elsewhere(main, ["streaming", "--pool", str(pool_card), "--browser", "/nowhere/chromium"]) == 2
    assert "the browser cannot be started" in capsys.readouterr().err
