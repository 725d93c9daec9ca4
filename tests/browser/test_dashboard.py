from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.test_play import DONE, run_example


def test_charts_after_a_run(page: Page) -> None:
    run_example(page, tokens=12)
    expect(page.locator(DONE)).to_be_visible()
    page.get_by_role("tab", name="Dashboard").click()
    for chart in ("#speedup-chart", "#regret-chart", "#matrix-chart"):
        expect(page.locator(f"{chart} .js-plotly-plot .main-svg").first).to_be_visible()
    expect(page.locator("#matrix-chart .heatmaplayer").first).to_be_attached()
    expect(page.locator("#policy-summary tbody tr").first).to_contain_text("×")


def test_filters_restrict_what_is_shown(page: Page) -> None:
    run_example(page, tokens=12)
    expect(page.locator(DONE)).to_be_visible()
    page.get_by_role("tab", name="Dashboard").click()
    expect(page.locator("#policy-summary tbody tr").first).to_be_visible()
    page.locator("#filter-tasks input").click()
    page.get_by_role("option", name="json", exact=True).click()
    page.keyboard.press("Escape")
    expect(page.locator("#matrix-chart .xtick text")).to_have_text(["json"])


def test_pool_page_names_drafters_and_device(page: Page) -> None:
    page.get_by_role("tab", name="Pool").click()
    expect(page.locator("#pool")).to_contain_text("float32")
    assert page.locator("#pool tbody tr").count() >= 2
