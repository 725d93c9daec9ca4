import re
import sqlite3
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import visiting
from tests.browser.test_first_visit import SHIFTS
from tests.browser.test_play import type_into

pytestmark = pytest.mark.usefixtures("recorded")


def open_lab(page: Page) -> None:
    page.get_by_role("tab", name="Lab").click()
    expect(page.locator("#lab-texts")).to_contain_text("each text counts once")


def test_it_opens_without_a_replay_or_an_error(page: Page) -> None:
    open_lab(page)
    page.wait_for_timeout(1000)  # for an answer that must not come
    expect(page.locator("#lab-status")).to_contain_text("Ready")
    expect(page.locator("#lab-replay")).to_have_text("Replay")
    expect(page.locator("#lab-outcomes tbody tr")).to_have_count(0)


def test_policies_are_replayed_at_once_and_one_with_settings_added(page: Page) -> None:
    open_lab(page)
    page.get_by_role("button", name="Add a policy").click()
    type_into(page.get_by_label("memory"), "7")
    page.locator("#lab-add").click()
    expect(page.locator("#lab-form-problem [role=alert]")).to_contain_text("at most 1")
    type_into(page.get_by_label("memory"), "0.9")
    page.locator("#lab-add").click()
    expect(page.locator("#lab-policies")).to_contain_text("rate-hedge:memory=0.9")
    page.locator("#lab-replay").click()
    expect(page.locator("#lab-status")).to_contain_text("without running a model")
    expect(page.locator("#lab-outcomes tbody tr")).to_have_count(6 + 3)
    expect(page.locator("#lab-outcomes")).to_contain_text("RateHedge (ours) (memory=0.9)")
    expect(page.locator("#lab-outcomes").get_by_text("rounds estimated")).to_have_count(2)
    assert page.locator("#lab-outcomes .md-scroll").evaluate("table => table.scrollWidth <= table.clientWidth")
    expect(page.locator("#lab-regret .js-plotly-plot")).to_be_visible()


@pytest.mark.parametrize("width", [1400, pytest.param(390, marks=pytest.mark.long)])
def test_nothing_moves_where_its_address_opens_a_tab(chromium: Browser, address: str, width: int) -> None:
    for tab, there in (("lab", "#lab-texts .md-done"), ("results", ".md-pager")):
        with visiting(chromium, f"{address}?tab={tab}", width=width, script=SHIFTS) as linked:
            expect(linked.locator(there).first).to_be_visible()
            linked.wait_for_timeout(500)
            assert linked.evaluate("shifted") < 0.05, tab


def test_a_setting_is_swept(page: Page) -> None:
    open_lab(page)
    page.locator("#lab-sweep").click()
    expect(page.locator("#lab-sweep-status")).to_contain_text("beta at 9 values")
    for chart in range(3):
        expect(page.locator(f"#lab-sweep-{chart} .js-plotly-plot")).to_be_visible()
    tops = "(ids) => ids.map((id) => document.querySelector(id).getBoundingClientRect().top)"
    sweep, stop = page.evaluate(tops, ["#lab-sweep", "#lab-sweep-stop"])  # both at one moment
    assert sweep == stop
    start = page.locator("#lab-from input")
    assert start.evaluate("field => field.scrollWidth <= field.clientWidth")  # its number is not cut off
    start.fill("-1")
    page.locator("#lab-sweep").click()
    expect(page.locator("#lab-sweep-status [role=alert]")).to_contain_text("above 0")
    start.fill("0.5")
    start.blur()
    expect(page).to_have_url(re.compile("lab_setting=beta&lab_from=0.5"))
    page.reload()
    expect(start).to_have_value("0.5")
    expect(page.locator("#lab-sweep-setting input")).to_have_value("beta")


def test_a_link_opens_the_lab_on_one_run(page: Page, address: str, history: Path) -> None:
    with sqlite3.connect(history) as connection:
        (run,) = connection.execute("SELECT max(id) FROM runs WHERE mean_accepted_tokens > 1").fetchone()
    page.goto(f"{address}?tab=lab&run={run}")
    expect(page.locator("#lab-lanes .js-plotly-plot")).to_be_visible(timeout=60_000)
    expect(page.locator("#lab-run input")).to_have_value(str(run))
    expect(page.locator("#lab-texts")).to_contain_text(f"Run {run}:")
    page.goto(f"{address}?tab=lab&run=999999")
    expect(page.locator("#lab-status [role=alert]")).to_contain_text("no run of this number", timeout=60_000)
    page.goto(f"{address}?tab=lab&lab_newest=7&lab_policy=exp3")
    expect(page.locator("#lab-newest input")).to_have_value("7")
    expect(page.locator("#lab-policies")).to_contain_text("exp3")
    type_into(page.locator("#lab-newest input"), "8")
    page.wait_for_function("location.search.includes('lab_newest=8') && location.search.includes('lab_policy=exp3')")
