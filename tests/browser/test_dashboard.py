import json
import re

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.conftest import visiting
from tests.browser.test_first_visit import MOST_SHIFT, SHIFTS

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


@pytest.fixture
def page(recorded: None, page: Page) -> Page:
    """The dashboard with a run."""
    return listed(page)


@pytest.fixture
def seen(recorded: None, shared: Page) -> Page:
    """The same for tests that leave its filters alone."""
    return listed(shared)


def listed(page: Page) -> Page:
    page.get_by_role("tab", name="Dashboard").click()
    expect(page.locator("#run-list tbody tr").first).to_be_visible()
    return page


@pytest.mark.parametrize("width", [1400, pytest.param(390, marks=pytest.mark.long)])
def test_nothing_jumps_when_a_link_opens_it(recorded: None, chromium: Browser, address: str, width: int) -> None:
    with visiting(chromium, f"{address}?tab=dashboard", width=width, script=SHIFTS) as page:
        for chart in CHARTS:
            expect(page.locator(f"{chart} .js-plotly-plot .main-svg").first).to_be_visible()
        assert page.evaluate("shifted") < MOST_SHIFT / 2


def test_a_chart_is_saved_as_picture_and_as_figures(seen: Page) -> None:
    expect(seen.locator("#matrix-chart .heatmaplayer").first).to_be_attached()
    menu, saved = seen.locator("#matrix-chart .md-save"), {}
    for name in ("SVG", "PNG", "CSV"):
        menu.locator("summary").click()
        with seen.expect_download() as download:
            menu.get_by_role("button", name=name).click()
        assert download.value.suggested_filename.startswith("mat-of-each-drafter-alone")
        saved[name] = download.value.path().read_bytes()
    assert b"<svg" in saved["SVG"] and saved["PNG"].startswith(b"\x89PNG")
    head, *lines = saved["CSV"].decode().splitlines()
    assert head == "task,drafter,value" and any(line.startswith("json,general,") for line in lines)


def test_for_screen_readers_a_chart_is_one_picture_with_a_name(seen: Page) -> None:
    chart = seen.locator("#matrix-chart .js-plotly-plot")
    expect(chart).to_have_role("img")
    expect(chart).to_have_accessible_name("MAT of each drafter alone")


def test_a_saved_picture_names_lines_that_the_page_names_beside_it(seen: Page) -> None:
    chart = seen.locator("#regret-chart")
    drawn = chart.locator(".scatterlayer .trace")
    expect(drawn.first).to_be_attached()
    before = drawn.count()
    lines = """(graph) => Plotly.addTraces(graph, ["upper", "lower"].map(
      (name) => ({ type: "scatter", mode: "lines", x: [1, 2], y: [1, 2], name })))"""
    chart.locator(".js-plotly-plot").evaluate(lines)
    expect(drawn).to_have_count(before + 2)
    chart.locator(".md-save summary").click()
    with seen.expect_download() as download:
        chart.locator(".md-save").get_by_role("button", name="SVG").click()
    picture = download.value.path().read_text()
    assert ">upper<" in picture and ">lower<" in picture
    chart.locator(".js-plotly-plot").evaluate("graph => Plotly.deleteTraces(graph, [-2, -1])")


def test_filters_restrict_what_is_shown_and_stay_in_the_address(page: Page) -> None:
    page.wait_for_function("location.search.includes('tab=dashboard')")  # the page has followed its address
    page.locator("#filter-task input").click()
    page.get_by_role("option", name="json", exact=True).click()
    page.keyboard.press("Escape")
    expect(page.locator("#matrix-chart .xtick text")).to_have_text(["json"])
    expect(page).to_have_url(re.compile(r"\?tab=dashboard&.*pool=.+&hardware=.+&task=json"))
    page.reload()
    expect(page.locator("#filter-task")).to_contain_text("json")
    expect(page.locator("#matrix-chart .xtick text")).to_have_text(["json"])


def test_a_run_opens_with_its_rounds_and_can_be_sent(page: Page) -> None:
    page.wait_for_function("location.search.includes('tab=dashboard')")  # the page has followed its address
    page.locator("#run-list tbody tr").first.click()
    expect(page.locator("#run-head h2")).to_contain_text("Run ")
    expect(page.locator("#run-texts .md-token").first).to_be_visible()
    for chart in ("#run-arms-chart", "#run-regret-chart"):
        expect(page.locator(f"{chart} .main-svg").first).to_be_visible()
    expect(page.locator("#run-rounds tbody tr").first).to_be_attached()
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


def test_what_the_filters_do_not_take_is_said(page: Page) -> None:
    page.locator("#more-filters > button").click()
    field = page.locator("#filter-from input")
    field.fill("nonsense")
    field.press("Tab")
    expect(page.locator("#filter-from [role=alert]")).to_contain_text("Not taken")
    field.fill("2026-01-02")
    field.press("Tab")
    expect(page.locator("#filter-from [role=alert]")).to_have_count(0)
    expect(page.locator("#more-filters > button")).to_contain_text("1 on: first day")
    box, button = page.locator("#filter-from").bounding_box(), page.locator("#filter-from .calendar").bounding_box()
    assert box and button and button["x"] + button["width"] <= box["x"] + box["width"]
    page.goto(page.url.split("?")[0] + "?tab=dashboard&pool=nope&policy=xyz")
    expect(page.get_by_test_id("toast-body")).to_contain_text("pool=nope, policy=xyz")


@pytest.mark.long
def test_values_of_folded_filters_can_be_read(page: Page) -> None:
    page.locator("#more-filters > button").click()
    for column, value in (("version", "version"), ("baseline_kind", "baseline")):
        field = page.locator(f"#filter-{column} input")
        field.click()
        page.get_by_role("option").nth(1).click()
        expect(page.locator("#more-filters > button")).to_contain_text(value)
        assert field.evaluate("field => field.scrollWidth <= field.clientWidth"), value


def test_back_and_forward_lead_from_a_run_to_the_list_and_again(page: Page) -> None:
    row, head = page.locator("#run-list tbody tr").first, page.locator("#run-head h2")
    row.click()
    expect(head).to_contain_text("Run ")
    page.go_back()
    expect(row).to_be_visible()
    expect(head).to_be_hidden()
    assert "run=" not in page.url and "tab=dashboard" in page.url
    page.go_forward()
    expect(head).to_contain_text("Run ")
    assert re.search(r"run=\d+", page.url)
    page.locator("#leave-run").click()
    expect(row).to_be_visible()
    page.go_forward()  # the button went back: the run lies before us
    expect(head).to_contain_text("Run ")
    page.get_by_role("tab", name="Lab").click()
    page.go_back()
    expect(head).to_be_visible()
    page.go_back()
    expect(row).to_be_visible()
    assert "run=" not in page.url


def test_back_from_another_tab_scrolls_nothing(page: Page) -> None:
    page.evaluate("scrollTo(0, 200)")
    page.get_by_role("tab", name="Race").click()
    page.go_back()
    expect(page.get_by_role("tab", name="Dashboard")).to_be_focused()
    page.wait_for_timeout(2500)  # so long the list may take the focus
    expect(page.get_by_role("tab", name="Dashboard")).to_be_focused()
    expect(page.locator("#run-list")).not_to_be_in_viewport()


def test_quick_steps_back_and_forward_end_where_the_address_says(page: Page) -> None:
    row, head = page.locator("#run-list tbody tr").first, page.locator("#run-head h2")
    row.click()
    expect(head).to_contain_text("Run ")
    page.evaluate("history.back(); setTimeout(() => history.forward(), 30)")
    expect(page).to_have_url(re.compile(r"run=\d+"))
    page.wait_for_timeout(1000)  # for an answer that must not come
    expect(head).to_be_visible()
    expect(row).to_be_hidden()


def test_the_runs_can_be_exported(seen: Page) -> None:
    with seen.expect_download() as download:
        seen.locator("#export-csv").click()
    assert download.value.suggested_filename == "runs.csv"
    assert download.value.path().read_text("utf-8").startswith("id,created_at,")


def test_pool_page_names_drafters_and_device(seen: Page) -> None:
    seen.get_by_role("tab", name="Pool").click()
    expect(seen.locator("#pool")).to_contain_text("float32")
    assert seen.locator("#pool tbody tr").count() >= 2


def test_the_focus_goes_to_the_run_and_back(seen: Page) -> None:
    expect(seen.locator("#first-table details")).to_be_visible()  # the last part
    link = seen.locator("#run-list a[data-run]").first
    run = link.get_attribute("data-run")
    link.focus()
    seen.keyboard.press("Enter")
    expect(seen.locator("#run-head h2")).to_be_focused()
    seen.locator("#leave-run").focus()
    seen.keyboard.press("Enter")
    expect(seen.locator(f'#run-list a[data-run="{run}"]')).to_be_focused()


def test_a_run_leads_to_the_lab(page: Page) -> None:
    page.locator("#run-list tbody tr").first.click()
    page.get_by_role("link", name="Replay in the Lab").click()
    expect(page.locator("#lab-lanes .js-plotly-plot")).to_be_visible()


def test_charts_can_be_read_as_tables(seen: Page) -> None:
    for table, cell in (
        ("#regret-table", "RateHedge (ours)"),
        ("#phases-table", "%"),
        ("#first-table", "RateHedge (ours)"),
    ):
        seen.locator(f"{table} summary").click()
        expect(seen.locator(f"{table} tbody")).to_contain_text(cell)


def test_the_last_of_two_quick_choices_is_shown(page: Page) -> None:
    """The first one's answer, held back until both are made, must neither drop nor undo the second."""
    expect(page.locator("#first-table details")).to_be_visible()  # the last part
    page.locator("#more-filters button").first.click()
    asked: list[Route] = []
    holding = True
    page.route("**/queue/join*", lambda route: asked.append(route) if holding else route.continue_())
    page.locator("#filter-version input").click()
    page.get_by_role("option").nth(1).click()
    page.locator("#filter-source input").click()
    page.get_by_role("option", name="Play", exact=True).click()
    page.keyboard.press("Escape")
    page.locator("#filter-task input").click()
    page.get_by_role("option", name="json", exact=True).click()
    page.keyboard.press("Escape")
    assert asked
    holding = False
    for route in asked:  # of the later choices some may wait until the first is answered
        route.continue_()
    expect(page).to_have_url(re.compile("task=json&.*source=play"))
    expect(page.locator("#matrix-chart .xtick text")).to_have_text(["json"])
    expect(page.locator("#filter-task")).to_contain_text("json")


def test_an_export_under_way_is_told(seen: Page) -> None:
    asked: list[Route] = []
    expect(seen.locator("#first-table details")).to_be_visible()  # the last part

    def hold(route: Route) -> None:  # the second call writes the file
        asked.append(route)
        if len(asked) != 2:
            route.continue_()

    seen.route("**/queue/join*", hold)
    seen.locator("#export-json").click()
    expect(seen.locator("#export-json")).to_have_text("Writing the file …")
    expect(seen.locator("#export-json")).to_be_disabled()
    while len(asked) < 2:
        seen.wait_for_timeout(100)
    with seen.expect_download() as download:
        asked[1].continue_()
    assert download.value.suggested_filename == "runs.json"
    expect(seen.locator("#export-json")).to_have_text("Export JSON")
    seen.unroute("**/queue/join*")
