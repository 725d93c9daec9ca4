from __future__ import annotations

import json
import re

from playwright.sync_api import Page, expect

from tests.browser.test_play import DONE, run_example

CHARTS = (
    "#ranking-chart",
    "#speedup-chart",
    "#regret-chart",
    "#best-arm-chart",
    "#matrix-chart",
    "#phases-chart",
    "#token-chart",
    "#first-chart",
)


def open_dashboard(page: Page) -> None:
    """Make a run, then look at it."""
    run_example(page, tokens=12)
    expect(page.locator(DONE)).to_be_visible()
    page.get_by_role("tab", name="Dashboard").click()
    expect(page.locator("#run-list tbody tr").first).to_be_visible()


def test_charts_after_a_run(page: Page) -> None:
    open_dashboard(page)
    expect(page.locator("#policy-summary tbody tr").first).to_contain_text("×")
    for chart in CHARTS:
        expect(page.locator(f"{chart} .js-plotly-plot .main-svg").first).to_be_visible()
    expect(page.locator("#matrix-chart .heatmaplayer").first).to_be_attached()


def test_filters_restrict_what_is_shown_and_stay_in_the_address(page: Page) -> None:
    open_dashboard(page)
    page.locator("#filter-tasks input").click()
    page.get_by_role("option", name="json", exact=True).click()
    page.keyboard.press("Escape")
    expect(page.locator("#matrix-chart .xtick text")).to_have_text(["json"])
    expect(page).to_have_url(re.compile(r"\?tab=dashboard&.*pool=.+&hardware=.+&task=json"))
    page.reload()
    expect(page.locator("#filter-tasks")).to_contain_text("json")
    expect(page.locator("#matrix-chart .xtick text")).to_have_text(["json"])


def test_a_run_opens_with_its_rounds_and_can_be_sent(page: Page) -> None:
    open_dashboard(page)
    page.locator("#run-list tbody tr").first.click()
    expect(page.locator("#run-head h2")).to_contain_text("Run ")
    expect(page.locator("#run-texts .md-token").first).to_be_visible()
    for chart in ("#run-arms-chart", "#run-regret-chart"):
        expect(page.locator(f"{chart} .main-svg").first).to_be_visible()
    assert page.locator("#run-rounds tbody tr").count() >= 1
    title = page.locator("#run-head h2").inner_text()
    with page.expect_download() as download:
        page.locator("#export-run").click()
    assert len(json.loads(download.value.path().read_text("utf-8"))["rounds"]) >= 1
    expect(page).to_have_url(re.compile(r"tab=dashboard&.*run=\d+"))
    page.reload()
    expect(page.locator("#run-head h2")).to_have_text(title)
    page.locator("#leave-run").click()
    expect(page.locator("#run-list tbody tr").first).to_be_visible()
    assert "run=" not in page.url


def test_the_runs_can_be_exported(page: Page) -> None:
    open_dashboard(page)
    with page.expect_download() as download:
        page.locator("#export-csv").click()
    assert download.value.suggested_filename == "runs.csv"
    assert download.value.path().read_text("utf-8").startswith("id,created_at,")


def test_pool_page_names_drafters_and_device(page: Page) -> None:
    page.get_by_role("tab", name="Pool").click()
    expect(page.locator("#pool")).to_contain_text("float32")
    assert page.locator("#pool tbody tr").count() >= 2
