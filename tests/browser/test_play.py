import re

from playwright.sync_api import Locator, Page, expect

DONE = "#status .md-done"


def run_example(page: Page, tokens: int = 32) -> None:
    """Take an example and run it."""
    take_example(page, tokens)
    page.locator("#run").click()


def ran_example(page: Page, tokens: int = 32) -> None:
    """The same, to its end."""
    run_example(page, tokens)
    expect(page.locator(DONE)).to_be_visible()


def take_example(page: Page, tokens: int) -> None:
    set_length(page, tokens)
    page.locator("#example-task").get_by_text("json", exact=True).click()
    page.locator("#prompt textarea").fill("")
    page.locator("#example-0").click()
    expect(page.locator("#prompt textarea")).not_to_have_value("")


def set_length(page: Page, tokens: int) -> None:
    set_number(page, "#max-new-tokens", tokens)


def set_number(page: Page, control: str, value: float) -> None:
    """Type a number into one of the settings, opening them if need be."""
    field = page.locator(f"{control} input[type=number]")
    if not field.is_visible():
        page.locator("#settings > button").click()
    type_into(field, str(value))


def type_into(field: Locator, text: str) -> None:
    """Fill a field; again where the settings, just opening, put back what was there, faster than anyone could type."""
    for _ in range(20):
        field.fill(text)
        field.blur()
        field.page.wait_for_timeout(150)
        if field.input_value() == text:
            return
    raise AssertionError(f"the field does not keep {text!r}")


def wait_for_text(page: Page, selector: str, text: str) -> None:
    """Wait for a text that is there for two seconds only: looked for in every frame, not in every second."""
    page.wait_for_function("([of, text]) => document.querySelector(of).innerText.trim() === text", arg=[selector, text])


def set_spec(page: Page, spec: str) -> None:
    field = page.locator("#policy input")
    field.fill(spec)
    field.press("Enter")
    expect(field).to_have_value(re.compile(rf"(^|· ){re.escape(spec)}$"))


def take_long(page: Page) -> None:
    """Prepare a run of many seconds: slow, and sampled hot, on no task of the pool's, so hardly ever ends by itself."""
    set_spec(page, "draft-all")
    set_length(page, 900)
    set_number(page, "#temperature", 2)
    page.locator("#prompt textarea").fill("Count on and on.")


def run_long(page: Page) -> None:
    """Start that run and wait until it streams."""
    take_long(page)
    page.locator("#run").click()
    expect(page.locator("#output .md-token").nth(2)).to_be_attached()


def choose_policy(page: Page, title: str) -> None:
    page.locator("#policy input").click()
    page.get_by_role("option", name=title, exact=True).click()


def test_tokens_are_coloured_by_drafter_and_the_targets_own_are_marked(page: Page) -> None:
    run_example(page)
    expect(page.locator(DONE)).to_contain_text("tokens in")
    output = page.locator("#output")
    drafted = output.locator(".md-token[class*=md-arm]")
    own = output.locator(".md-token.md-own")
    assert drafted.count() > 0 and own.count() > 0
    expect(drafted.first).not_to_have_css("background-color", "rgba(0, 0, 0, 0)")
    expect(own.first).to_have_css("border-bottom-style", "dotted")
    expect(own.first).to_have_css("font-weight", "700")
    tooltip = output.locator(".md-round").first.get_attribute("title")
    assert tooltip and re.match(r"Round 1: \w+, accepted \d of \d", tooltip)


def test_figures_legend_chart_and_details(page: Page) -> None:
    choose_policy(page, "HedgeSpec (NormalHedge) · normal-hedge")
    ran_example(page)
    figures = page.locator("#tiles .md-tile dd:not(.md-unit)").all_inner_texts()
    # Of the speed-up a busy machine tells the side, or nothing.
    assert len(figures) == 4 and all(re.match(r"\d|–|faster|slower", figure) for figure in figures), figures
    summary = page.locator("#tiles summary")
    expect(summary).to_contain_text("the text is the same as without drafters.")
    summary.click()
    note = page.locator("#tiles details .md-note")
    expect(note).to_contain_text("Autoregressive decoding just after it:")
    expect(note).to_contain_text("each the target's own greedy choice")
    expect(note).to_contain_text("The best single drafter")
    shares = page.locator("#legend li b").all_inner_texts()
    assert abs(sum(int(share.split()[0]) for share in shares) - 100) <= len(shares)
    expect(page.locator("#chart .js-plotly-plot .scatterlayer .trace").first).to_be_attached()
    expect(page.locator("#chart .gtitle")).to_contain_text("Selection probability by round")
    page.get_by_text("Every round in detail").click()
    expect(page.locator("#rounds td").first).to_be_visible()
    assert page.locator("#rounds tbody tr").count() == page.locator("#output .md-round").count()


def test_a_double_tap_on_run_selects_nothing(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    run = page.locator("#run")
    run.scroll_into_view_if_needed()
    box = run.bounding_box()
    assert box
    for tap in (1, 2):
        page.mouse.click(box["x"] + 50, box["y"] + 20, click_count=tap)
        page.wait_for_timeout(120)
    expect(page.locator(DONE)).to_be_visible()
    assert page.evaluate("getSelection().toString()") == ""


def test_stop_in_mid_stream(page: Page) -> None:
    run_long(page)
    expect(page.locator("#run")).to_be_disabled()
    page.locator("#stop").click()
    expect(page.locator("#status .md-cancelled")).to_contain_text("Stopped", timeout=5_000)
    expect(page.locator("#run")).to_be_enabled()
    assert 3 <= page.locator("#output .md-round").count() < 900


def test_an_emptied_number_comes_back(shared: Page) -> None:
    set_length(shared, 77)
    field = shared.locator("#max-new-tokens input[type=number]")
    field.fill("")
    field.blur()
    expect(field).to_have_value("77")
    expect(shared.locator("#max-new-tokens input[type=range]")).to_have_value("77")


def test_a_number_beyond_a_sliders_end_is_said_to_have_become_the_end(shared: Page) -> None:
    set_length(shared, 77)
    box = shared.locator("#max-new-tokens")
    field, most = box.locator("input[type=number]"), box.locator("input[type=range]").get_attribute("max")
    for typed, shown in (("99999", most), ("0", "1")):
        field.fill(typed)
        field.blur()
        expect(box.get_by_role("alert")).to_have_text(f"Set to {shown}: {typed} is not between 1 and {most}.")
    field.fill("77")
    field.blur()
    expect(box.get_by_role("alert")).to_have_count(0)


def test_a_bad_spec_gets_the_valid_names(page: Page) -> None:
    page.locator("#policy input").click()
    page.wait_for_function("getSelection().toString() !== ''")  # what is typed takes the place of what stands
    page.keyboard.type("<img src=x onerror=window.broken=1>\n")
    expect(page.locator("#explanation [role=alert]")).to_contain_text("Unknown policy '<img")
    page.locator("#prompt textarea").fill("Add 2 and 3.")
    page.locator("#run").click()
    expect(page.locator("#status [role=alert]")).to_contain_text("normal-hedge")
    assert page.locator("#status img, #explanation img").count() == 0
    assert page.evaluate("window.broken") is None


def test_choosing_a_policy_explains_it(shared: Page) -> None:
    before = shared.locator("#explanation").inner_text()
    choose_policy(shared, "UCB · ucb")
    expect(shared.locator("#explanation")).to_contain_text("MetaSD Alg. 2")
    expect(shared.locator("#explanation")).not_to_have_text(before)


def test_markup_in_a_prompt_does_nothing(shared: Page) -> None:
    set_length(shared, 24)
    shared.locator("#prompt textarea").fill(
        '<img src=x onerror="window.broken=1"> <script>window.broken=2</script> שלום 👩‍🔬'
    )
    expect(shared.locator("#prompt textarea")).to_have_css("unicode-bidi", "plaintext")
    shared.locator("#run").click()
    expect(shared.locator(DONE)).to_be_visible()
    assert shared.locator("#output img, #output script").count() == 0
    assert shared.evaluate("window.broken") is None
