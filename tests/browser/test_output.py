"""The output and the timeline of its rounds."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.test_play import DONE, ran_example, run_example
from tests.history import recorded


@pytest.fixture
def ran(shared: Page) -> Page:
    """A page with a run, of which no round is chosen."""
    if not shared.locator(DONE).is_visible():
        run(shared)
    return shared


def run(page: Page) -> None:
    ran_example(page, tokens=48)
    expect(page.locator("#output .md-coming")).to_have_count(0)


def bars(page: Page) -> Locator:
    return page.locator("#output .md-bar")


def rounds(page: Page) -> Locator:
    return page.locator("#output .md-round")


LIT = re.compile("md-lit")


def test_a_bar_for_each_round_as_high_as_its_draft(ran: Page) -> None:
    assert bars(ran).count() == rounds(ran).count() > 3
    heights = bars(ran).evaluate_all("bars => bars.map(bar => bar.getBoundingClientRect().height)")
    drafted = rounds(ran).evaluate_all("all => all.map(one => Number(one.dataset.drafted))")
    assert len({round(height - 48 / 16 * most) for height, most in zip(heights, drafted, strict=True)}) == 1
    corrected = ran.locator("#output .md-bar[data-corrected]").count()
    assert corrected == ran.locator("#output .md-round[data-corrected]").count()


def test_quick_rounds_come_in_slow_motion_and_the_page_says_so(page: Page) -> None:
    run_example(page, tokens=96)
    expect(page.locator("#output .md-round:not(.md-coming)").first).to_be_visible()
    expect(page.locator("#output .md-run-title")).to_contain_text(re.compile(r"Slow motion: decoding took \d+\.\d\d s"))
    page.locator(".md-run-skip").dispatch_event("click")  # no harm if all is shown by now
    expect(page.locator(DONE)).to_be_visible()
    expect(page.locator("#output .md-coming")).to_have_count(0)


def test_the_page_has_the_times_that_are_kept(page: Page, history: Path) -> None:
    """Rounds that were drawn are timed again; what is pointed at says so, and not what they took first."""
    run(page)
    newest = recorded(history)[0]
    kept = [round(1000 * r.seconds, 2) for r in newest.generation.rounds]
    shown = rounds(page).evaluate_all("all => all.map(one => Number(one.dataset.ms))")
    assert shown == pytest.approx(kept, abs=0.011)


def test_a_bar_and_its_text_show_each_other(ran: Page) -> None:
    about = ran.locator("#output .md-run-about")
    expect(about).to_contain_text("One bar per round")
    bars(ran).nth(2).hover()
    expect(rounds(ran).nth(2)).to_have_class(LIT)
    expect(about).to_contain_text("Round 3:")
    rounds(ran).nth(1).locator(".md-token").first.hover()
    expect(bars(ran).nth(1)).to_have_class(LIT)
    expect(bars(ran).nth(2)).not_to_have_class(LIT)
    bars(ran).nth(3).click()
    ran.mouse.move(0, 0)
    expect(rounds(ran).nth(3)).to_have_class(LIT)
    expect(about).to_contain_text("Round 4:")
    bars(ran).nth(3).click()
    ran.mouse.move(0, 0)
    expect(about).to_contain_text("One bar per round")


def test_the_timeline_goes_by_keys(ran: Page) -> None:
    timeline = ran.get_by_role("slider", name="Round", exact=True)
    for name in ("aria-valuenow", "aria-valuemin"):  # no round is chosen
        expect(timeline).to_have_attribute(name, "0")
    timeline.focus()
    last = bars(ran).count()
    for key, expected in (("ArrowRight", 1), ("ArrowRight", 2), ("End", last), ("ArrowRight", last), ("Home", 1)):
        ran.keyboard.press(key)
        expect(timeline).to_have_attribute("aria-valuenow", str(expected))
        expect(timeline).to_have_attribute("aria-valuetext", re.compile(f"^Round {expected}:"))
        expect(rounds(ran).nth(expected - 1)).to_have_class(LIT)
    ran.keyboard.press("Escape")
    expect(ran.locator("#output .md-lit")).to_have_count(0)


def test_rejected_guesses_are_shown_on_demand_and_never_read_out(ran: Page) -> None:
    rejected = ran.locator("#output del")
    assert rejected.count() > 0
    expect(rejected.first).to_be_hidden()
    ran.get_by_label("Show rejected guesses").check()
    expect(rejected.first).to_be_visible()
    expect(rejected.first).to_have_css("text-decoration-line", "line-through")
    assert set(rejected.evaluate_all("all => all.map(one => one.getAttribute('aria-hidden'))")) == {"true"}
    ran.get_by_label("Show rejected guesses").uncheck()


@pytest.mark.long
def test_the_next_run_begins_with_an_empty_timeline(page: Page) -> None:
    run(page)
    bars(page).nth(2).click()
    run_example(page, tokens=2)
    expect(page.locator(DONE)).to_contain_text("2 tokens")
    expect(bars(page)).to_have_count(rounds(page).count())
    assert bars(page).count() <= 2
    expect(page.locator("#output .md-lit")).to_have_count(0)
