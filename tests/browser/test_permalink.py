"""Links that restore a run, and the run as JSON."""

import json
import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Page, expect

from tests.browser.test_play import choose_policy, ran_example, set_number, wait_for_text

PROMPT = "Add 2 & 3 = ?\n<b>ähm</b> + #1"

WATCH_PLAY = """
window.playWasSeen = false;
(function look() {
  if (document.querySelector("#run")?.checkVisibility({ visibilityProperty: true })) window.playWasSeen = true;
  requestAnimationFrame(look);
})();
"""


def test_a_copied_link_restores_prompt_policy_and_settings(page: Page, address: str) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.add_init_script(WATCH_PLAY)
    page.goto(f"{address}?run=7&policy=x&tab=dashboard")
    expect(page.get_by_role("tab", name="Dashboard")).to_have_attribute("aria-selected", "true")
    assert page.evaluate("window.playWasSeen") is False
    page.get_by_role("tab", name="Play").click()
    page.locator("#prompt textarea").fill(PROMPT)
    choose_policy(page, "UCB · ucb")
    set_number(page, "#max-new-tokens", 20)
    page.locator("#copy-link").click()
    wait_for_text(page, "#copy-link", "Link copied")
    link = page.evaluate("navigator.clipboard.readText()")
    query = {name: values[0] for name, values in parse_qs(urlsplit(link).query).items()}
    assert query["prompt"] == PROMPT and query["with_policy"] == "ucb" and query["max_new_tokens"] == "20"
    assert query["with_pool"] == page.locator(".md-pool-line").get_attribute("data-pool")
    # The parameters of others stay; Play is where the page opens.
    assert query["run"] == "7" and "tab" not in query
    expect(page.locator("#copy-link")).to_have_text("Copy settings link")

    page.goto(link)
    expect(page.locator("#prompt textarea")).to_have_value(PROMPT)
    expect(page.locator("#policy input")).to_have_value("UCB · ucb")
    expect(page.locator("#status")).to_contain_text("Press Run")
    expect(page.locator("#recorded")).to_be_hidden()  # it answers another prompt
    page.locator("#settings > button").click()
    expect(page.locator("#max-new-tokens input[type=number]")).to_have_value("20")
    wide = page.viewport_size
    page.set_viewport_size({"width": 390, "height": 844})
    page.evaluate("window.scrollTo(0, 0)")  # where the link opens on a phone
    expect(page.locator("#run")).to_be_in_viewport()
    page.set_viewport_size(wide)

    page.get_by_role("tab", name="Lab").click()
    expect(page).to_have_url(re.compile("tab=lab"))
    page.wait_for_function("!location.search.includes('with_policy')")  # it changes in two steps
    assert not {"prompt", "with_policy", "with_pool", "seed"} & set(parse_qs(urlsplit(page.url).query)), page.url


def test_what_is_right_in_a_broken_link_is_taken(page: Page, address: str) -> None:
    page.goto(f"{address}?prompt=abc&temperature=hot&max_new_tokens=20")
    expect(page.locator("#status [role=alert]")).to_contain_text("default: temperature must be a number, got 'hot'.")
    expect(page.locator("#prompt textarea")).to_have_value("abc")
    page.locator("#settings > button").click()
    expect(page.locator("#max-new-tokens input[type=number]")).to_have_value("20")
    expect(page.locator("#temperature input[type=number]")).to_have_value("0")


def test_a_prompt_too_long_for_a_link_gets_a_message(page: Page) -> None:
    before = page.url
    page.locator("#prompt textarea").fill("ä" * 2000)
    page.locator("#copy-link").click()
    problem = page.locator("#status [role=alert]")
    expect(problem).to_contain_text("too long for a link")
    expect(problem).to_contain_text("Links longer than 6,000 characters may be cut off.")
    assert page.url == before


def test_the_run_is_copied_and_downloaded_as_json(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    expect(page.locator("#copy-run")).to_be_disabled()
    ran_example(page, tokens=16)
    with page.expect_download() as download:
        page.locator("#download-run").click()
    record = json.loads(Path(download.value.path()).read_text())
    assert record["prompt"] == page.locator("#prompt textarea").input_value()
    assert len(record["rounds"]) == page.locator("#output .md-round").count()
    page.locator("#copy-run").click()
    wait_for_text(page, "#copy-run", "Run copied")
    assert json.loads(page.evaluate("navigator.clipboard.readText()")) == record
