"""Widths, light and dark, and what a screen reader or keyboard needs."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import visiting
from tests.browser.test_play import DONE, ran_example, run_example, run_long, take_long

TABS = ("Play", "Race", "Batch", "Lab", "Results", "Dashboard", "Pool")


@pytest.fixture(params=["light", "dark"])
def phone(request: pytest.FixtureRequest, chromium: Browser, address: str) -> Iterator[Page]:
    """The page on a phone of 390 pixels."""
    with visiting(chromium, address, width=390, color_scheme=request.param) as page:
        yield page


@pytest.mark.parametrize("phone", ["dark"], indirect=True)
def test_a_phone_never_scrolls_sideways(phone: Page) -> None:
    ran_example(phone, tokens=24)
    for tab in TABS:
        phone.get_by_role("tab", name=tab).click()
        phone.wait_for_timeout(700)  # charts settle
        assert phone.evaluate("document.documentElement.scrollWidth") <= 390, tab


@pytest.mark.parametrize("phone", ["light"], indirect=True)
def test_a_choice_that_is_wider_than_its_field_is_cut_before_the_arrow(phone: Page) -> None:
    phone.set_viewport_size({"width": 320, "height": 800})
    field = phone.locator("#policy input")
    expect(field).to_have_css("text-overflow", "ellipsis")
    end = "field => field.getBoundingClientRect().right - parseFloat(getComputedStyle(field).paddingRight)"
    assert field.evaluate(end) <= phone.locator("#policy .icon-wrap").bounding_box()["x"]


@pytest.mark.parametrize("phone", ["light"], indirect=True)
def test_a_phone_shows_the_drawing_of_a_round_in_letters_that_can_be_read_and_fields_in_full_width(phone: Page) -> None:
    phone.get_by_text("How it works").click()
    letters = phone.locator(".md-how text").evaluate_all("all => all.map(text => text.getBoundingClientRect().height)")
    assert min(letters) > 12, letters
    phone.get_by_role("tab", name="Dashboard").click()
    field = phone.locator("#beginning-prompt textarea")
    assert field.bounding_box()["width"] > 250
    height = field.evaluate("field => field.scrollHeight")
    field.evaluate("field => { field.placeholder = ''; }")
    assert height == field.evaluate("field => field.scrollHeight"), "what it says while it is empty takes one line"


CUT = """() => {
  const charts = [...document.querySelectorAll(".md-chart:has(> .md-save)")].filter((chart) => chart.offsetParent);
  return charts.flatMap((chart) => {
    const box = chart.querySelector(".js-plotly-plot").getBoundingClientRect();
    const save = chart.querySelector(".md-save").getBoundingClientRect();
    return [...chart.querySelectorAll(".gtitle, .xtitle")].filter((text) => {
      const { left, right, top } = text.getBoundingClientRect();
      return left < box.left - 1 || right > box.right + 1 || (right > save.left && top < save.bottom);
    }).map((text) => text.textContent);
  });
}"""
"""Titles of charts and axes that are cut, or that the menu covers."""


@pytest.mark.parametrize("phone", ["light"], indirect=True)
def test_the_narrowest_phone_cuts_no_title_of_a_chart_and_no_name_of_a_button(phone: Page) -> None:
    phone.set_viewport_size({"width": 320, "height": 800})
    phone.evaluate("goToTab('batch')")
    for format in ("csv", "json", "parquet"):
        button = phone.locator(f"#{format}")
        expect(button).to_be_visible()
        assert button.evaluate("button => button.scrollWidth <= button.clientWidth"), format
    phone.evaluate("goToTab('dashboard')")
    expect(phone.locator(".md-chart:visible > .md-save").nth(5)).to_be_visible()
    phone.wait_for_timeout(1000)  # all charts are drawn
    assert phone.evaluate(CUT) == []


def test_fields_of_a_row_stand_at_one_height_and_names_of_pools_are_not_broken(page: Page) -> None:
    page.get_by_role("tab", name="Batch").click()
    expect(page.locator("#limit input")).to_be_visible()
    tops = {page.locator(f"#{field} input").bounding_box()["y"] for field in ("limit", "length")}
    assert len(tops) == 1, tops
    page.get_by_role("tab", name="Pool").click()
    expect(page.locator(".md-pools h3 code").first).to_be_visible()
    parts = page.locator(".md-pools h3 code").evaluate_all("all => all.map(code => code.getClientRects().length)")
    assert set(parts) == {1}, parts


@pytest.mark.parametrize("phone", ["dark"], indirect=True)
def test_a_phone_goes_to_the_output_when_a_run_starts(phone: Page) -> None:
    output = phone.locator("#output .md-output")
    expect(output).not_to_be_in_viewport()
    expect(phone.locator("#example-task input:checked")).to_have_count(0)
    run_example(phone, tokens=24)
    expect(phone.locator("#status")).to_be_in_viewport()
    expect(output).to_be_in_viewport(ratio=1)


@pytest.mark.long
@pytest.mark.parametrize("phone", ["light"], indirect=True)
def test_edges_on_a_phone(phone: Page) -> None:
    ran_example(phone, tokens=24)
    left = "node => node.getBoundingClientRect().left"
    card, bars = (phone.locator(box).evaluate(left) for box in ("#output .md-run", "#output .md-timeline"))
    assert bars - card >= 12, "bars that are scrolled away end before the card's edge"
    phone.get_by_role("tab", name="Batch").click()
    expect(phone.locator("#rows .md-scroll")).to_have_css("background-image", "none")  # an empty table has no shade


def test_dark_mode_is_dark_with_light_text(phone: Page) -> None:
    dark = phone.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    body = brightness(phone.evaluate("getComputedStyle(document.body).backgroundColor"))
    text = brightness(phone.evaluate("getComputedStyle(document.querySelector('#status p')).color"))
    assert (body < 60 and text > 200) if dark else (body > 230 and text < 60)


def brightness(colour: str) -> float:
    return sum(map(float, re.findall(r"[\d.]+", colour)[:3])) / 3


@pytest.mark.long
def test_nothing_moves_while_tokens_stream_in(page: Page) -> None:
    box = "(({top, height}) => [top, height])(document.querySelector('#chart-place').getBoundingClientRect())"
    run_example(page, tokens=48)
    expect(page.locator("#output .md-token").first).to_be_attached()
    page.evaluate("window.scrollTo(0, 0)")
    top, height = page.evaluate(box)
    expect(page.locator(DONE)).to_be_visible()
    assert page.evaluate(box)[0] == pytest.approx(top, abs=1)
    expect(page.locator("#chart .js-plotly-plot .gtitle")).to_be_visible()
    assert page.evaluate(box)[1] == height


@pytest.mark.long
def test_a_long_output_stays_in_sight_at_its_end(page: Page) -> None:
    run_long(page)
    page.wait_for_function(
        "document.querySelector('#output .md-output').scrollTop > 40"
        " && document.querySelector('#output .md-timeline').scrollLeft > 40"
    )
    page.locator("#stop").dispatch_event("click")  # no harm if it has ended by now
    expect(page.locator("#run")).to_be_enabled()


def test_all_cards_have_one_border(page: Page) -> None:
    ran_example(page, tokens=8)
    borders = [
        page.locator(card).first.evaluate("node => getComputedStyle(node).border")
        for card in ("#output", "#chart", ".md-tile")
    ]
    assert len(set(borders)) == 1 and borders[0].startswith("1px solid")


def test_the_keyboard_reaches_the_output_and_its_focus_is_seen_and_never_lost(page: Page) -> None:
    assert page.locator("#output .md-output").get_attribute("tabindex") == "0"
    assert page.locator("#output .md-output").get_attribute("aria-label")
    page.locator("#prompt textarea").press("Tab")
    expect(page.locator("#run")).to_be_focused()
    for _ in range(2):  # past the link to what is kept
        page.keyboard.press("Tab")
    chip = page.locator("#example-task label", has=page.locator(":focus"))
    expect(chip).to_have_css("outline-style", "solid")
    take_long(page)  # a short run might have ended before anybody looks
    page.locator("#run").press("Enter")
    expect(page.locator("#stop")).to_be_focused()
    page.locator("#stop").press("Enter")
    expect(page.locator("#run")).to_be_focused()
