"""axe-core finds nothing serious on any tab: light and dark, phone and wide, before and after a run."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import visiting
from tests.browser.test_looks import TABS
from tests.browser.test_play import ran_example

SERIOUS = ("serious", "critical")
SETTLED_SECONDS = 30

AXE = Axe()


@pytest.fixture(params=[(1400, "light"), pytest.param((390, "dark"), marks=pytest.mark.long)], ids=str)
def visit(request: pytest.FixtureRequest, chromium: Browser, address: str) -> Iterator[Page]:
    """The page in both widths and both sets of colours: what is wrong depends on the one or on the other."""
    width, scheme = request.param
    # Colours that are still changing would be judged as they are at the moment.
    with visiting(chromium, address, width=width, color_scheme=scheme, reduced_motion="reduce") as page:
        yield page


def serious_problems(page: Page) -> list[str]:
    """What axe finds seriously wrong once the page has come to rest: charts that are still drawn are no state of it."""
    until = time.monotonic() + SETTLED_SECONDS
    while (found := problems_now(page)) and time.monotonic() < until:
        page.wait_for_timeout(1000)
    return found


def problems_now(page: Page) -> list[str]:
    """A line for each element that axe finds seriously wrong."""
    found: list[dict[str, Any]] = AXE.run(page).response["violations"]
    return [
        f"{violation['id']}: {node['target']} {node['html'][:120]} {node['failureSummary']}"
        for violation in found
        if violation["impact"] in SERIOUS
        for node in violation["nodes"]
    ]


def test_no_serious_problem_on_any_tab(visit: Page) -> None:
    visit.locator("#recorded .md-step-open").last.click()
    expect(visit.get_by_role("dialog")).to_be_visible()
    problems = {"a round": serious_problems(visit)}
    visit.get_by_role("button", name="Close").click()
    ran_example(visit, tokens=16)  # it opens the settings, too
    visit.get_by_label("Show rejected guesses").check()
    visit.get_by_text("Every round in detail").click()
    visit.get_by_role("slider", name="Round", exact=True).press("ArrowRight")
    for tab in TABS:
        visit.get_by_role("tab", name=tab).click()
        problems[tab] = serious_problems(visit)
    assert problems == {what: [] for what in ("a round", *TABS)}


def test_no_serious_problem_after_a_race_or_in_a_refusal(visit: Page) -> None:
    visit.locator("#prompt textarea").fill("")
    visit.locator("#run").click()
    expect(visit.locator("#status [role=alert]")).to_be_visible()
    refused = serious_problems(visit)
    visit.get_by_role("tab", name="Race").click()
    visit.locator("#race-prompt textarea").fill("")
    visit.locator("#race-example-0").click()
    visit.locator("#race-settings > button").click()
    visit.locator("#race-max-new-tokens input[type=number]").fill("12")
    visit.locator("#race-max-new-tokens input[type=number]").blur()
    expect(visit.locator("#race-prompt textarea")).not_to_have_value("")
    visit.locator("#race-run").click()
    expect(visit.locator("#race-status .md-done")).to_be_visible()
    visit.get_by_text("Results in figures").click()
    assert (refused, serious_problems(visit)) == ([], [])
