"""Nothing heavy comes before its time."""

from playwright.sync_api import Page, expect

from tests.browser.test_play import take_example


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
