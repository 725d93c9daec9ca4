"""The form of *Play* and *Race*: what it offers is in sight and stays where it is."""

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import visiting
from tests.browser.test_play import ran_example, wait_for_text

TOP = "node => node.getBoundingClientRect().top + scrollY"


@pytest.mark.parametrize("field", ["#policy", "#race-lane-4"])
def test_a_list_begins_at_its_top_and_shows_the_chosen_entry(shared: Page, field: str) -> None:
    shared.get_by_role("tab", name="Play" if field == "#policy" else "Race").click()
    shared.locator(f"{field} input").click()
    expect(shared.get_by_role("option").first).to_be_in_viewport(ratio=1)
    chosen = shared.get_by_role("option", selected=True)
    expect(chosen).to_have_count(1)
    expect(chosen).to_be_in_viewport(ratio=1)
    shared.keyboard.press("Escape")


@pytest.mark.parametrize("width", [1400, 390])
def test_an_example_moves_no_control(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    controls = [page.locator(control) for control in ("#run", "#policy", "#settings")]
    before = [control.evaluate(TOP) for control in controls]
    for task in ("mixed", "json"):
        page.locator("#example-task").get_by_text(task, exact=True).click()
        expect(page.locator("#example-2")).to_be_hidden() if task == "mixed" else page.wait_for_timeout(500)
        assert [control.evaluate(TOP) for control in controls] == before, task


def test_a_warning_leaves_run_in_sight_of_a_low_window_and_where_it_was(page: Page) -> None:
    page.set_viewport_size({"width": 1280, "height": 640})
    before = page.locator("#run").evaluate(TOP)
    page.locator("#prompt textarea").fill("Who was the first person on the moon?")
    expect(page.locator("#fit .md-odd")).to_contain_text("may be nonsense")
    expect(page.locator("#run")).to_be_in_viewport(ratio=1)
    assert page.locator("#run").evaluate(TOP) == before


def test_the_colours_are_told_next_to_the_text_they_are_in(page: Page) -> None:
    lanes, legend = page.locator("#recorded .md-lanes"), page.locator("#recorded .md-legend")
    for width, most in ((1400, 150), (390, 60)):
        page.set_viewport_size({"width": width, "height": 900})
        assert 0 < lanes.evaluate(TOP) - legend.evaluate(TOP) < most
        expect(legend).to_be_in_viewport(ratio=1)
    shown = page.locator("#recorded .md-lane .md-token:not(.md-own)").evaluate_all(
        "all => all.map(one => one.className)"
    )
    named = legend.locator(".md-token:not(.md-own)").evaluate_all("all => all.map(one => one.className)")
    assert {name.split()[1] for name in shown} == {name.split()[1] for name in named}


@pytest.mark.long
def test_the_colours_stay_in_sight_beside_lanes_higher_than_a_phone(chromium: Browser, address: str) -> None:
    with visiting(chromium, f"{address}?tab=race", width=390) as page:
        page.locator("#race-run").click()
        expect(page.locator("#race-stage .md-lane")).to_have_count(4)
        # In one step: the stage of a race that runs is drawn anew at any time.
        page.evaluate("[...document.querySelectorAll('#race-stage .md-lane')].at(-1).scrollIntoView()")
        expect(page.locator("#race-legend")).to_be_in_viewport(ratio=1)
        expect(page.locator("#race-stage .md-race-play")).to_be_enabled()
        expect(page.locator("#race-legend")).to_be_in_viewport(ratio=1)


def test_a_results_link_is_copied_and_that_is_said(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    expect(page.locator("#copy-page")).to_be_disabled()
    ran_example(page, tokens=8)
    page.locator("#copy-page").click()
    wait_for_text(page, "#copy-page", "Link copied")
    link = page.evaluate("navigator.clipboard.readText()")
    assert "/result/run/" in link and page.request.get(link).ok


def test_what_was_typed_outlives_back_and_reload(page: Page, address: str) -> None:
    field, tab = page.locator("#prompt textarea"), page.get_by_role("tab", selected=True)
    field.fill("Typed")
    for name in ("Race", "Results"):
        page.get_by_role("tab", name=name).click()
    expect(page).to_have_url(re.compile("tab=results"))
    page.go_back()
    expect(tab).to_have_text("Race")
    expect(tab).to_be_focused()
    page.locator("#race-prompt textarea").fill("Typed too")
    page.go_back()
    expect(tab).to_have_text("Play")
    expect(field).to_have_value("Typed")
    assert "tab=" not in page.url
    page.reload()
    expect(field).to_have_value("Typed")
    page.go_forward()
    page.go_forward()
    expect(tab).to_have_text("Results")
    page.get_by_role("tab", name="Race").click()
    expect(page.locator("#race-prompt textarea")).to_have_value("Typed too")
    page.locator("#race-example-task").get_by_text("json", exact=True).click()
    assert page.evaluate("sessionStorage.getItem('race-prompt')") is None, "an example took its place"
    page.goto(f"{address}?prompt=Linked")
    expect(page.locator("#status")).to_contain_text("Taken from the link")
    expect(field).to_have_value("Linked")


def test_a_tab_chosen_while_the_page_is_restored_is_a_step_of_back(chromium: Browser, address: str) -> None:
    never_restored = "Object.defineProperty(window, 'openTab', { get: () => () => {}, set: () => {} })"
    with visiting(chromium, address, script=never_restored) as page:
        page.get_by_role("tab", name="Race").click()
        expect(page).to_have_url(re.compile("tab=race"))
        page.go_back()
        expect(page.get_by_role("tab", selected=True)).to_have_text("Play")


@pytest.mark.parametrize(
    ("asked", "shown", "kept"), [("nosuch", "Play", ""), ("PLAY", "Play", ""), ("RACE", "Race", "race")]
)
def test_the_address_names_a_tab_in_any_case_and_none_that_there_is_not(
    chromium: Browser, address: str, asked: str, shown: str, kept: str
) -> None:
    with visiting(chromium, f"{address}?tab={asked}") as page:
        expect(page.get_by_role("tab", selected=True)).to_have_text(shown)
        expect(page).to_have_url(f"{address}?tab={kept}" if kept else address)


def test_tab_leads_from_a_list_to_the_next_field(shared: Page) -> None:
    shared.get_by_role("tab", name="Race").click()
    shared.locator("#race-lane-1 input").click()
    expect(shared.get_by_role("option", selected=True)).to_be_in_viewport()
    shared.keyboard.press("Tab")
    expect(shared.locator("#race-lane-2 input")).to_be_focused()


def test_what_is_kept_of_a_run_leads_to_the_box_for_it(page: Page) -> None:
    page.locator(".md-kept-here:visible a").click()
    expect(page.locator("#learn")).to_be_in_viewport()
