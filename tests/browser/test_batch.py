import csv
import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.test_first_visit import MOST_SHIFT, SHIFTS
from tests.browser.test_play import type_into, wait_for_text

SUITE = """{"prompt": "What is 3 plus 4?", "task": "<img src=x onerror=window.broken=1>"}
this line is no JSON
{"question_id": 81, "category": "math", "turns": ["A box holds 12 eggs. How many are in 5 boxes?", "And in 6?"]}
"""


def open_batch(page: Page) -> None:
    page.get_by_role("tab", name="Batch").click()
    expect(page.locator("#batch-run")).to_be_visible()
    type_into(page.locator("#length input"), "12")


def run_batch(page: Page, prompts: int) -> None:
    """Begin one of so many prompts of the bundled suite, 0 for all."""
    open_batch(page)
    type_into(page.locator("#limit input"), str(prompts))
    page.locator("#batch-run").click()


def upload(page: Page, path: Path) -> None:
    page.locator("#upload input[type=file]").set_input_files(path)


def test_a_file_with_a_bad_line(page: Page, tmp_path: Path) -> None:
    long = json.dumps({"id": "far too long", "task": "math", "prompt": "word and number 12 " * 3000})
    path = tmp_path / "mine.jsonl"
    path.write_text(SUITE + long + "\n", encoding="utf-8")
    open_batch(page)
    upload(page, path)
    expect(page.locator("#suite-read")).to_contain_text("3 prompts")
    expect(page.locator("#suite-read")).to_contain_text("Line 2: not valid JSON")
    page.locator("#batch-run").click()
    status = page.locator("#batch-status .md-done")
    expect(status).to_contain_text("6 of 6 runs")
    expect(status).to_contain_text("2 too long")
    expect(status).to_contain_text("left out of the file: line 2")
    assert page.locator("#rows tbody tr").count() == 6
    assert page.locator("#rows td", has_text="too long").count() >= 2
    heights = page.locator("#rows tbody tr").evaluate_all("rows => rows.map(row => row.offsetHeight)")
    assert max(heights) <= 1.1 * min(heights), "a long remark is cut in the table"
    assert page.locator("#rows img, #summary img").count() == 0 and page.evaluate("window.broken") is None
    expect(page.locator("#summary tbody tr").first).to_be_visible()
    expect(page.locator("#batch-chart .js-plotly-plot")).to_be_visible()

    page.locator("#batch-chart .md-save summary").click()
    with page.expect_download() as download:
        page.locator("#batch-chart .md-save").get_by_role("button", name="CSV").click()
    head = download.value.path().read_text("utf-8").splitlines()[0].split(",")
    assert head[:3] == ["series", "task", "speed-up"] and head[-1] == "pale"

    with page.expect_download() as download:
        page.locator("#csv").click()
    with Path(download.value.path()).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6 and {row["status"] for row in rows} >= {"too long"}
    with page.expect_download() as download:
        page.locator("#json").click()
    report = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))
    assert len(report["rows"]) == 6 and report["problems"][0]["line"] == 2

    page.set_viewport_size({"width": 390, "height": 844})
    expect(page.locator("#rows td:visible .md-bad").first).not_to_have_css("font-size", "0px")
    for table in ("#rows .md-rows", "#summary .md-matrix"):
        assert page.locator(table).evaluate("table => table.scrollWidth <= table.clientWidth"), table


def test_a_files_name_that_turns_the_direction_of_writing_turns_no_line(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "suite\u202egnp.exe.txt"
    path.write_text("Add 2 and 3.\n", encoding="utf-8")
    open_batch(page)
    upload(page, path)
    expect(page.locator("#upload .stem")).to_have_css("unicode-bidi", "isolate")
    page.locator("#batch-run").click()
    expect(page.locator("#batch-status .md-done")).to_contain_text("Suite “suitegnp.exe” on pool")
    page.reload()
    expect(page.locator("#batch-verdict a").first).to_be_visible()
    page.get_by_role("tab", name="Results").click()
    expect(page.locator("#experiments-list td a").first).to_contain_text("Batch: suitegnp.exe, draft length")


def test_a_bundled_suite_can_be_stopped(page: Page) -> None:
    run_batch(page, 0)
    expect(page.locator("#rows tbody tr").first).to_be_visible()
    page.locator("#batch-stop").click()
    expect(page.locator("#batch-status")).to_contain_text(re.compile(r"Stopped: \d+ of \d+ runs"))
    expect(page.locator("#batch-run")).to_be_enabled()


def test_a_file_that_cannot_be_read_gets_a_message_until_a_field_changes(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "picture.txt"
    path.write_bytes(bytes(range(128, 256)))
    open_batch(page)
    late: list[Route] = []  # as if the server were slow: no answer of its may come after the message and take it away
    page.route("**/run/predict**", lambda route: late.append(route))
    upload(page, path)
    expect(page.locator("#suite-read [role=alert]")).to_contain_text("not UTF-8 text")
    expect(page.locator("#suite input")).to_have_value("")
    page.locator("#batch-run").click()
    expect(page.locator("#batch-status [role=alert]")).to_contain_text("not UTF-8 text")
    for route in late:
        route.continue_()
    page.wait_for_timeout(300)
    expect(page.locator("#batch-status [role=alert]")).to_contain_text("not UTF-8 text")
    type_into(page.locator("#limit input"), "1")
    expect(page.locator("#batch-status")).to_contain_text("Ready.")


def test_a_file_that_is_too_large_gets_a_message(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "large.txt"
    path.write_bytes(b"word " * (21 * 2**20 // 5))
    open_batch(page)
    upload(page, path)
    expect(page.get_by_text("exceed the maximum allowed size of 20")).to_be_visible()


def test_a_batch_goes_on_while_the_page_is_reloaded(page: Page) -> None:
    run_batch(page, 4)
    expect(page.locator("#rows tbody tr").first).to_be_visible()
    page.wait_for_function("location.search.includes('batch=')")
    page.reload()
    expect(page.locator("#batch-run")).to_be_visible()  # the address opens the tab
    expect(page.locator("#batch-status .md-done")).to_contain_text("8 of 8 runs")
    expect(page.locator("#batch-status")).to_contain_text("on pool pocket")
    expect(page.locator("#limit input")).to_have_value("4")
    expect(page.locator("#length input")).to_have_value("12")
    expect(page.locator("#rows tbody tr")).to_have_count(8)
    expect(page.locator("#summary .md-matrix td").first).to_be_visible()
    expect(page.locator("#batch-verdict .md-verdict")).to_be_visible(timeout=60_000)
    expect(page.locator("#batch-spread .js-plotly-plot")).to_be_visible()

    page.locator("#rows .md-open").nth(2).press("Enter")
    expect(page.locator("#prompt-detail article")).to_have_count(2)
    expect(page.locator("#prompt-detail .md-token").first).to_be_visible()


@pytest.mark.long
def test_nothing_jumps_when_a_batch_ends_and_its_verdict_comes(page: Page) -> None:
    run_batch(page, 6)
    expect(page.locator("#rows tbody tr").first).to_be_visible()
    page.locator("#batch-status").evaluate("status => status.scrollIntoView()")
    page.evaluate(SHIFTS.replace("buffered: true", "buffered: false"))
    top = page.locator("#rows").evaluate("rows => rows.getBoundingClientRect().y")
    expect(page.locator("#batch-verdict .md-verdict")).to_be_visible()
    assert abs(page.locator("#rows").evaluate("rows => rows.getBoundingClientRect().y") - top) < 5
    assert page.evaluate("shifted") < MOST_SHIFT


def test_play_is_play_after_a_batch_and_its_link_has_none_of_it(page: Page, address: str) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{address}?tab=batch&batch=unknown")
    expect(page.locator("#batch-run")).to_be_visible()
    page.get_by_role("tab", name="Play").click()
    page.wait_for_function("location.search.includes('tab=play')")
    page.locator("#prompt textarea").fill("Add 2 and 3.")
    page.locator("#copy-link").click()
    wait_for_text(page, "#copy-link", "Link copied")
    link = page.evaluate("navigator.clipboard.readText()")
    assert "batch" not in link and "tab=" not in link and "prompt=Add+2" in link
    assert "batch=unknown" in page.url and "tab=play" in page.url  # the address still finds the batch again
    page.reload()
    expect(page.locator("#status")).to_contain_text("Press Run")
    expect(page.get_by_role("tab", name="Play")).to_have_attribute("aria-selected", "true")


def test_a_frame_tells_the_page_around_it_which_batch_it_shows(page: Page) -> None:
    """On a Space the visible address is that of the page around."""
    page.add_init_script(
        "window.told = []; const tell = (m) => told.push(m.queryString);"
        "Object.defineProperty(window, 'parent', {value: {postMessage: tell}});"
    )
    page.reload()
    run_batch(page, 1)
    page.wait_for_function("told.some((query) => /tab=batch&batch=[0-9a-f]{32}/.test(query))")
    expect(page.locator("#batch-status .md-done")).to_be_visible()


def test_a_refused_batch_leaves_the_results_of_the_last(page: Page) -> None:
    run_batch(page, 1)
    expect(page.locator("#batch-status .md-done")).to_contain_text("2 of 2 runs")
    for typed, said in (("0", "must be at least 1"), ("2.5", "must be a whole number, got 2.5")):
        type_into(page.locator("#length input"), typed)
        page.locator("#batch-run").click()
        expect(page.locator("#batch-status [role=alert]")).to_contain_text(said)
    expect(page.locator("#rows tbody tr")).to_have_count(2)
    page.locator("#rows .md-open").first.press("Enter")
    expect(page.locator("#prompt-detail article")).to_have_count(2)


def test_a_batch_that_is_gone_is_explained(page: Page, address: str) -> None:
    page.goto(f"{address}?batch=unknown")
    expect(page.locator("#batch-status [role=alert]")).to_contain_text("There is no such batch here")
