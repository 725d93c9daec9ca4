import json
import re
from contextlib import suppress

import pytest
from playwright.sync_api import Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from tests.browser.test_play import DONE, choose_policy, set_length, take_example, type_into

PLAY = "#race-stage .md-race-play"

WATCH_STATUS = """() => {
  const status = document.querySelector('#race-status');
  window.said = [];
  new MutationObserver(() => window.said.push(status.innerText))
    .observe(status, {childList: true, subtree: true, characterData: true});
}"""
"""Measuring is over soon: what was said meanwhile is kept, lest a slow test comes too late to read it."""


def open_race(page: Page, tokens: int = 96) -> None:
    page.get_by_role("tab", name="Race").click()
    expect(page.locator("#race-run")).to_be_visible()
    page.locator("#race-settings > button").click()
    field = page.locator("#race-max-new-tokens input[type=number]")
    expect(field).to_be_visible()
    type_into(field, str(tokens))


def choose_lane(page: Page, lane: int, title: str) -> None:
    page.locator(f"#race-lane-{lane} input").click()
    page.get_by_role("option", name=title, exact=True).click()
    expect(page.get_by_role("option")).to_have_count(0)


def two_lanes(page: Page) -> None:
    """Autoregressive decoding against UCB: the other lanes of the start are taken out."""
    open_race(page)
    for lane in (2, 4):
        choose_lane(page, lane, "– no lane –")
    page.locator("#race-prompt textarea").fill("")
    page.locator("#race-example-task").get_by_text("json", exact=True).click()
    expect(page.locator("#race-prompt textarea")).not_to_have_value("")


@pytest.fixture
def raced(shared: Page) -> Page:
    """A race of two lanes, run."""
    if shared.locator("#race-stage .md-lane").count() != 2:
        two_lanes(shared)
        shared.locator("#race-run").click()
    expect(shared.locator(PLAY)).to_be_enabled()
    return shared


def scrub(page: Page, share: float) -> None:
    page.locator("#race-stage .md-race-scrub").evaluate(
        "(bar, share) => { bar.value = share * bar.max; bar.dispatchEvent(new Event('input', {bubbles: true})); }",
        share,
    )


def tokens_shown(page: Page, lane: int) -> int:
    return page.locator("#race-stage .md-lane").nth(lane).locator(".md-token:visible").count()


def clock(page: Page) -> float:
    return float(page.locator("#race-stage .md-race-clock").inner_text().split()[0])


def test_the_prompt_comes_from_play_until_there_is_one_here(page: Page) -> None:
    page.locator("#prompt textarea").fill("a prompt of my own")
    page.get_by_role("tab", name="Race").click()
    field = page.locator("#race-prompt textarea")
    expect(field).to_have_value("a prompt of my own")
    field.fill("another one")
    page.get_by_role("tab", name="Play").click()
    page.locator("#prompt textarea").fill("a third")
    page.get_by_role("tab", name="Race").click()
    page.wait_for_timeout(500)
    expect(field).to_have_value("another one")


def test_a_race_of_two_lanes(page: Page) -> None:
    two_lanes(page)
    page.locator("#race-stage").get_by_label("1/10×").check(force=True)
    page.evaluate(WATCH_STATUS)
    page.locator("#race-run").click()
    expect(page.locator(PLAY)).to_have_text("Pause")  # it starts by itself
    expect(page.locator("#race-stage .md-lane")).to_have_count(2)
    said = " ".join(page.evaluate("window.said"))
    assert re.search("Lane [12] of 2", said)  # either may be over before the status is brought up to date
    top = page.evaluate("document.querySelector('#race-figures').getBoundingClientRect().top + scrollY")
    page.locator(PLAY).click()
    expect(page.locator(PLAY)).to_have_text("Play")
    at = clock(page)
    page.wait_for_timeout(300)
    assert clock(page) == at  # it stands still

    scrub(page, 1)
    expect(page.locator("#race-stage .md-race-verdict")).to_contain_text("Both outputs are identical")
    expect(page.locator("#race-stage .md-race-verdict")).to_have_attribute("data-kind", "same")
    places = page.locator("#race-stage .md-lane-place").all_inner_texts()
    assert sorted(places) in (["1st", "2nd"], ["", ""])  # on a busy machine it cannot be told
    assert page.locator("#race-stage .md-lane.md-first").count() == places.count("1st")
    texts = page.locator("#race-stage .md-lane-tokens").all_inner_texts()
    assert texts[0] and texts[0] == texts[1]
    plain, drafted = (page.locator("#race-stage .md-lane").nth(lane) for lane in (0, 1))
    assert plain.locator(".md-token[class*=md-arm]").count() == 0
    assert drafted.locator(".md-token[class*=md-arm]").count() > 0
    figures = drafted.locator("dd").all_inner_texts()
    assert int(figures[0]) > 0 and ("×" in figures[3] or figures[3] == "too noisy")  # as on a busy machine
    assert plain.locator("dd").all_inner_texts()[3] == "1.00×"

    whole = tokens_shown(page, 0)
    scrub(page, 0.1)  # early: on a busy machine the other lane may take several times as long
    assert 0 < tokens_shown(page, 0) < whole
    scrub(page, 0)
    assert tokens_shown(page, 0) == tokens_shown(page, 1) == 0
    assert page.evaluate("document.querySelector('#race-figures').getBoundingClientRect().top + scrollY") == top

    page.locator("#race-stage").get_by_label("1×", exact=True).check(force=True)
    page.locator("#race-stage .md-race-again").click()
    expect(page.locator("#race-stage .md-race-news")).to_contain_text(re.compile("is (1st|2nd|done)"))
    expect(page.locator(PLAY)).to_have_text("Play")
    assert tokens_shown(page, 0) == whole
    page.get_by_text("Results in figures").click()
    assert page.locator("#race-figures tbody tr").count() == 2
    table = page.locator("#race-figures .md-scroll")
    assert table.evaluate("table => table.scrollWidth <= table.clientWidth"), "no column is cut"


@pytest.mark.long
def test_the_figures_of_four_lanes_fit_into_their_cards(page: Page) -> None:
    open_race(page, tokens=32)
    choose_lane(page, 4, "Random drafter · random")
    expect(page.locator("#race-explanation")).to_contain_text("Random drafter.")
    page.locator("#race-run").click()
    expect(page.locator(PLAY)).to_be_enabled()
    scrub(page, 1)
    page.locator("#race-stage dd").evaluate_all("all => all.forEach(dd => dd.textContent = '10.61× ± 0.22')")
    for width in (1400, 1100, 390, 320):
        page.set_viewport_size({"width": width, "height": 900})
        cut = page.locator("#race-stage h3").evaluate_all("all => all.some(h3 => h3.scrollHeight > h3.clientHeight)")
        assert not cut, f"a title of a page {width} px wide"
        over = page.locator("#race-stage .md-lane-figures > div").evaluate_all(
            "all => all.filter(cell => cell.scrollWidth > cell.clientWidth || "
            "cell.getBoundingClientRect().right > cell.closest('.md-lane').getBoundingClientRect().right).length"
        )
        assert over == 0, f"of a page {width} px wide"


def test_the_prompt_of_play_comes_along(page: Page) -> None:
    choose_policy(page, "EXP3Spec · exp3spec")
    page.locator("#prompt textarea").fill("Count the apples.")
    set_length(page, 77)
    page.locator("#race-this").click()
    expect(page.locator("#race-run")).to_be_visible()
    expect(page).to_have_url(re.compile("tab=race"))
    expect(page.locator("#race-prompt textarea")).to_have_value("Count the apples.")
    expect(page.locator("#race-lane-4 input")).to_have_value("EXP3Spec · exp3spec")
    page.locator("#race-settings > button").click()
    expect(page.locator("#race-max-new-tokens input[type=number]")).to_have_value("77")
    expect(page).to_have_url(re.compile("race=[0-9a-f]"))
    expect(page.locator("#race-stage .md-lane")).to_have_count(4)


def test_bad_input_keeps_the_replay(raced: Page) -> None:
    raced.locator("#race-prompt textarea").fill("")
    raced.locator("#race-run").click()
    expect(raced.locator("#race-status [role=alert]")).to_contain_text("prompt is empty")
    expect(raced.locator("#race-stage .md-lane")).to_have_count(2)
    expect(raced.locator("#race-run")).to_be_enabled()


def test_a_reload_finds_the_race_again(page: Page) -> None:
    two_lanes(page)
    type_into(page.locator("#race-max-new-tokens input[type=number]"), "900")
    prompt = page.locator("#race-prompt textarea").input_value()
    page.locator("#race-run").click()
    expect(page).to_have_url(re.compile("tab=race&race="))
    page.reload()
    expect(page.locator("#race-stage .md-lane")).to_have_count(2)
    expect(page.locator("#race-prompt textarea")).to_have_value(prompt)
    expect(page.locator("#race-lane-3 input")).to_have_value("– no lane –")
    page.locator("#race-settings > button").click()
    expect(page.locator("#race-max-new-tokens input[type=number]")).to_have_value("900")
    with suppress(PlaywrightTimeout):  # the race may end by itself first
        page.locator("#race-stop").click(timeout=5_000)
    expect(page.locator("#race-run")).to_be_enabled()
    page.goto(re.sub("tab=race&race=[0-9a-f]+", "race=f00", page.url))
    expect(page.locator("#race-status [role=alert]")).to_contain_text("There is no such race here")


def test_a_spec_that_is_typed_is_the_one_that_is_taken(page: Page) -> None:
    open_race(page)
    for lane, spec, label in (
        (1, "normal-hedge", "HedgeSpec (NormalHedge) · normal-hedge"),
        (2, "ucb", "UCB · ucb"),
        (3, "hedge", "Hedge · hedge"),
        (4, "ucb:beta=0.1", "ucb:beta=0.1"),
    ):
        field = page.locator(f"#race-lane-{lane} input")
        field.click()
        field.press("ControlOrMeta+a")
        page.keyboard.type(spec)
        field.press("Enter")
        expect(field).to_have_value(label)


def test_the_replay_by_keyboard(raced: Page) -> None:
    expect(raced.locator(PLAY)).to_have_text("Play")  # it ran to its end
    raced.locator("#race-stage").get_by_label("1/10×").focus()
    raced.keyboard.press("Space")
    raced.locator("#race-stage .md-race-scrub").focus()
    raced.keyboard.press("Home")
    assert clock(raced) == 0
    raced.keyboard.press("End")
    expect(raced.locator("#race-stage .md-lane.md-finished")).to_have_count(2)
    for _ in range(20):  # steps of 1 %, of a short replay less than the hundredth of a second that is shown
        raced.keyboard.press("ArrowLeft")
    valued = raced.locator("#race-stage .md-race-scrub").get_attribute("aria-valuetext") or ""
    now, whole = map(float, re.findall(r"[\d.]+", valued))
    assert 0 < now < whole
    raced.keyboard.press("Shift+Tab")
    raced.keyboard.press("Enter")  # from the start
    expect(raced.locator(PLAY)).to_have_text("Pause")


def test_texts_of_the_data_are_shown_as_texts(page: Page) -> None:
    """Hostile text cannot be had from the model at will, so the page's answer is rewritten on its way."""
    nasty = "<img src=x onerror=window.broken=1><script>window.broken=2</script> ${window.broken=3} {{x}} שלום 👩‍🔬"

    def rewrite(route) -> None:
        answer = route.fetch()
        body = re.sub(r'"pieces":\s*\[\s*"', lambda m: m.group() + json.dumps(nasty)[1:-1], answer.text())
        route.fulfill(response=answer, body=body)

    page.route(re.compile(r"/queue/data"), rewrite)
    two_lanes(page)
    page.locator("#race-run").click()
    expect(page.locator(PLAY)).to_be_enabled()
    scrub(page, 1)
    expect(page.locator("#race-stage .md-lane-tokens").first).to_contain_text(nasty)
    assert page.locator("#race-stage img, #race-stage script").count() == 0
    assert page.evaluate("window.broken") is None


def test_whoever_comes_during_a_race_waits_and_sees_it(page: Page, other: Page) -> None:
    """A race is timed, so it has the device alone until its turn is over."""
    take_example(other, tokens=8)
    other.evaluate(  # a turn is short: what is shown meanwhile is noted
        """() => { window.shown = new Set(); new MutationObserver(
            () => window.shown.add(document.querySelector("#status").innerText)
        ).observe(document.body, { subtree: true, childList: true, characterData: true }); }"""
    )
    open_race(page, tokens=900)
    type_into(page.locator("#race-temperature input[type=number]"), "2")  # hot: hardly ever ends by itself
    page.locator("#race-prompt textarea").fill("Count on and on.")
    page.locator("#race-run").click()
    expect(page.locator("#race-status")).to_contain_text("Lane 1 of")
    other.locator("#run").click()
    expect(other.locator(DONE)).to_be_visible()
    page.locator("#race-stop").dispatch_event("click")  # no harm if it has ended by now
    shown = other.evaluate("[...window.shown].join()")
    assert "Waiting for the device: 1 job ahead of yours" in shown, shown
