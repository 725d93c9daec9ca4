"""What a click on a button that starts something says before the server answers, and where it does not take it."""

from typing import NamedTuple

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.test_batch import open_batch
from tests.browser.test_lab import open_lab
from tests.browser.test_play import set_length, type_into
from tests.browser.test_race import two_lanes

JOIN, PREDICT = "**/queue/join*", "**/run/predict*"


class Starter(NamedTuple):
    """A button, where it is told how what it starts stands, what that is called, and the button that stops it."""

    button: str
    status: str
    name: str
    stop: str = ""


STARTERS = [
    Starter("#run", "#status", "run", "#stop"),
    Starter("#race-run", "#race-status", "race", "#race-stop"),
    Starter("#batch-run", "#batch-status", "batch"),
    Starter("#lab-replay", "#lab-status", "replay"),
    Starter("#lab-sweep", "#lab-sweep-status", "sweep"),
]


def open_short(page: Page, name: str) -> None:
    """Prepare the shortest one of its kind."""
    if name == "run":
        set_length(page, 8)
    elif name == "race":
        two_lanes(page)
        type_into(page.locator("#race-max-new-tokens input[type=number]"), "8")
    elif name == "batch":
        open_batch(page)
        type_into(page.locator("#limit input"), "1")
    else:
        open_lab(page)


def release(page: Page, url: str, held: list[Route]) -> None:
    for route in held:
        route.continue_()
    page.unroute(url)


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("starter", STARTERS, ids=lambda starter: starter.name)
def test_it_is_said_to_start_before_the_server_answers(page: Page, starter: Starter) -> None:
    open_short(page, starter.name)
    held: list[Route] = []
    page.route(JOIN, lambda route: held.append(route))
    button, status = page.locator(starter.button), page.locator(starter.status)
    button.click()
    expect(status).to_have_text(f"Starting the {starter.name} …")
    expect(button).to_be_disabled()
    release(page, JOIN, held)
    expect(status.locator(".md-done")).to_be_visible()
    expect(button).to_be_enabled()


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("starter", STARTERS, ids=lambda starter: starter.name)
def test_what_the_server_does_not_take_can_be_asked_for_again(page: Page, starter: Starter) -> None:
    open_short(page, starter.name)
    page.route(JOIN, lambda route: route.fulfill(status=503))
    page.locator(starter.button).click()
    status = page.locator(starter.status)
    expect(status.get_by_role("alert")).to_contain_text(f"The {starter.name} has not started")
    page.unroute(JOIN)
    page.locator(starter.button).click()
    expect(status.locator(".md-done")).to_be_visible()


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize(
    ("button", "place", "doing", "failed"),
    [
        ("#advise", "#dashboard-verdict", "Working out the verdict …", "No verdict"),
        ("#learnt", "#dashboard-lessons", "Replaying the queries …", "Nothing to show"),
        ("#beginning-ask", "#beginning", "Predicting …", "No prediction"),
    ],
)
def test_what_the_dashboard_works_out_is_said_before_the_server_answers(
    page: Page, button: str, place: str, doing: str, failed: str
) -> None:
    page.get_by_role("tab", name="Dashboard").click()
    expect(page.locator("#policy-summary")).to_contain_text("RateHedge")
    page.wait_for_timeout(1000)  # the charts are asked for by the queue as well
    page.locator("#beginning-prompt textarea").fill("Add 2 and 3.")
    held: list[Route] = []
    page.route(JOIN, lambda route: held.append(route))
    page.locator(button).click()
    expect(page.locator(place)).to_have_text(doing)
    page.unroute(JOIN)
    expect(page.locator(f"{place} .md-busy")).to_have_count(0)
    page.route(JOIN, lambda route: route.fulfill(status=503))
    page.locator(button).click()
    expect(page.locator(f"{place} [role=alert]")).to_contain_text(f"{failed}: the server did not take it.")


@pytest.mark.parametrize("button", ["#load-without", "#pools [data-pool]:enabled"])
def test_a_pool_is_said_to_be_asked_for_before_the_server_answers(page: Page, button: str) -> None:
    page.get_by_role("tab", name="Pool").click()
    load, status = page.locator(button).first, page.locator("#pool-status")
    expect(load).to_be_enabled()
    page.wait_for_timeout(1000)  # opening the tab asks the server as well
    held: list[Route] = []
    page.route(JOIN, lambda route: held.append(route))
    load.click()
    expect(status).to_have_text("Asking for the pool …")
    for route in held:
        route.fulfill(status=503)
    expect(status.get_by_role("alert")).to_contain_text("The pool is not being loaded")


def test_a_race_that_can_no_longer_be_followed_is_found_again(page: Page) -> None:
    open_short(page, "race")
    joins: list[Route] = []

    def second_fails(route: Route) -> None:
        joins.append(route)
        route.fulfill(status=503) if len(joins) == 2 else route.continue_()

    page.route(JOIN, second_fails)
    page.locator("#race-run").click()
    expect(page.locator("#race-status [role=alert]")).to_contain_text("Reload the page")
    page.reload()
    expect(page.locator("#race-stage .md-lane")).to_have_count(2)


def test_a_race_of_plays_prompt_is_said_to_start_at_once(page: Page) -> None:
    set_length(page, 8)
    held: list[Route] = []
    page.route(PREDICT, lambda route: held.append(route))
    page.locator("#race-this").click()
    expect(page.locator("#race-status")).to_have_text("Starting the race …")
    release(page, PREDICT, held)
    expect(page.locator("#race-status .md-done")).to_be_visible()


@pytest.mark.parametrize("starter", STARTERS[:2], ids=lambda starter: starter.name)
def test_stop_says_so_before_the_server_answers(page: Page, starter: Starter) -> None:
    open_short(page, starter.name)
    length = "#race-max-new-tokens" if starter.name == "race" else "#max-new-tokens"
    type_into(page.locator(f"{length} input[type=number]"), "900")
    button, stop, status = (page.locator(id) for id in (starter.button, starter.stop, starter.status))
    status.evaluate(
        "status => { window.said = []; new MutationObserver(() => said.push(status.innerText))"
        ".observe(status, {childList: true, subtree: true, characterData: true}); }"
    )
    button.click()
    page.route(PREDICT, lambda route: route.fulfill(status=503))
    stop.click()
    page.wait_for_function(f"said.includes('Stopping the {starter.name} …')")  # progress may take its place
    expect(stop).to_have_text("Stop")
    expect(stop).to_be_enabled()  # the server did not take it
    page.unroute(PREDICT)
    held: list[Route] = []
    page.route(PREDICT, lambda route: held.append(route))
    stop.click()
    expect(stop).to_have_text("Stopping …")
    expect(stop).to_be_disabled()
    release(page, PREDICT, held)
    expect(status.locator(".md-cancelled")).to_contain_text("Stopped")
    expect(stop).to_have_text("Stop")
    expect(stop).to_be_disabled()
    expect(button).to_be_enabled()


def test_a_race_asked_for_beside_another_one_is_told_to_wait(page: Page) -> None:
    open_short(page, "race")
    type_into(page.locator("#race-max-new-tokens input[type=number]"), "900")
    page.locator("#race-run").click()
    expect(page.locator("#race-stop")).to_be_enabled()
    page.get_by_role("tab", name="Play").click()
    page.locator("#prompt textarea").fill("Add 2 and 3.")
    page.route(PREDICT, lambda route: route.fulfill(status=503))  # it is said without the server
    page.locator("#race-this").click()
    expect(page.locator("#race-prompt [role=alert]")).to_have_text(
        "A race is still under way: press Race when it has ended, or stop it first."
    )
    page.unroute(PREDICT)
    page.locator("#race-stop").click()
    expect(page.locator("#race-run")).to_be_enabled()
    page.locator("#race-run").click()
    expect(page.locator("#race-prompt [role=alert]")).to_have_count(0)
    page.locator("#race-stop").click()
