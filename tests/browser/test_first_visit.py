"""The first minute: a recording plays, *Run* works at once, and any round can be taken step by step."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from storage import queries
from tests.browser.conftest import visiting
from tests.browser.test_output import bars
from tests.browser.test_play import DONE, set_length

SHIFTS = """(() => {
  window.shifted = 0;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifted += entry.value;
  }).observe({ type: "layout-shift", buffered: true });
})()"""

MOST_SHIFT = 0.1
"""Of the layout; what Google's Web Vitals call good."""


@pytest.mark.parametrize("width", [1400, 390])
def test_a_recording_plays_at_once_and_a_click_runs_the_prompt_that_is_there(
    chromium: Browser, address: str, history: Path, width: int
) -> None:
    with visiting(chromium, address, width=width, script=SHIFTS) as page:
        lanes = page.locator("#recorded .md-lane")
        expect(lanes.last.locator(".md-token").first).to_be_visible()
        expect(lanes.last).to_be_in_viewport()
        known = queries.count(history)
        expect(page.locator("#recorded .md-race-verdict")).to_contain_text("identical")
        assert queries.count(history) == known
        set_length(page, 24)
        page.locator("#run").click()
        expect(page.locator("#recorded")).to_be_hidden()
        expect(page.locator(DONE)).to_contain_text("24 tokens in")
        assert page.evaluate("shifted") < MOST_SHIFT


def test_titles_of_lanes_are_whole_at_any_width(page: Page) -> None:
    titles = page.locator("#recorded .md-lane h3")
    expect(titles).to_have_count(2)
    for width in (1400, 1000, 800, 400, 320):
        page.set_viewport_size({"width": width, "height": 900})
        cut = "all => all.filter(h3 => h3.scrollHeight > h3.clientHeight || h3.scrollWidth > h3.clientWidth).length"
        assert titles.evaluate_all(cut) == 0, f"of a page {width} px wide"


def test_who_wants_no_motion_sees_the_end_of_the_recording(chromium: Browser, address: str) -> None:
    with visiting(chromium, address, reduced_motion="reduce") as page:
        expect(page.locator("#recorded .md-race-verdict")).to_contain_text("identical")
        expect(page.locator("#recorded .md-race-play")).to_have_text("Play")
        page.locator("#recorded .md-step-open").last.click()
        page.wait_for_timeout(700)
        expect(page.locator(".md-step-say")).to_contain_text("Step, or play")
        guess = page.locator(".md-step-guess").first
        assert guess.evaluate("guess => getComputedStyle(guess).transitionProperty") == "none"


def test_a_round_of_the_recording_step_by_step(page: Page) -> None:
    page.locator("#recorded .md-race-scrub").evaluate(
        "bar => { bar.value = bar.max; bar.dispatchEvent(new Event('input', {bubbles: true})); }"
    )
    corrected = page.locator("#recorded .md-lane").last.locator(".md-round:has(.md-own):has([class*=md-arm])").first
    corrected.locator(".md-token").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading")).to_contain_text(re.compile(r"Round \d+ of \d+: \w+"))
    say, places = dialog.locator(".md-step-say"), dialog.locator(".md-step-places li")
    dialog.press("ArrowRight")
    expect(say).to_contain_text("guesses")
    said = []
    while dialog.get_by_role("button", name="Step", exact=True).is_enabled():
        said.append(say.inner_text())
        dialog.press("ArrowRight")
    assert any("One forward pass of the target checks" in line for line in said), said
    assert not any(re.search("“ | ”", line) for line in said), said
    expect(say).to_contain_text("for one pass")
    assert places.locator(".md-step-choice.md-own").count() == 1
    assert dialog.locator(".md-kept").count() + 1 == int(re.findall(r"(\d+) tokens", say.inner_text())[0])
    before = dialog.get_by_role("heading").inner_text()
    dialog.press("PageDown")
    expect(dialog.get_by_role("heading")).not_to_have_text(before)
    dialog.press("Escape")
    expect(dialog).to_be_hidden()


def test_it_plays_by_itself_and_any_round_of_a_run_can_be_chosen(page: Page) -> None:
    set_length(page, 24)
    page.locator("#run").click()
    expect(page.locator(DONE)).to_be_visible()
    timeline = page.get_by_role("slider", name="Round", exact=True)
    timeline.press("End")
    timeline.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading")).to_contain_text(f"Round {bars(page).count()} of {bars(page).count()}")
    expect(dialog.get_by_role("button", name="Again")).to_be_visible()
    expect(dialog.locator(".md-step-say")).to_contain_text("pass")
