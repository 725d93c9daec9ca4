"""A run of *Play* whose page is left, or loaded again."""

import re
import threading
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from multidraft.service import workbench
from multidraft.service.workbench import RunJob
from tests.app import served_here
from tests.browser.conftest import visiting
from tests.browser.test_play import run_long


def test_a_reload_takes_up_the_run_under_way_with_its_prompt_and_settings(page: Page) -> None:
    run_long(page)
    page.reload()
    expect(page.locator("#output .md-token").nth(2)).to_be_visible()
    expect(page.locator("#policy input")).to_have_value(re.compile("draft-all$"))
    expect(page.locator("#prompt textarea")).to_have_value("Count on and on.")
    page.locator("#stop").dispatch_event("click")  # no harm if it has ended by now
    expect(page.locator("#run")).to_be_enabled()


def test_leaving_the_page_frees_the_device(
    chromium: Browser, pool_card: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, stopped, stop = threading.Event(), threading.Event(), RunJob.stop
    monkeypatch.setattr(workbench, "RETURN_SECONDS", 0.1)
    monkeypatch.setattr(workbench.Workbench, "observe", lambda *_: (begun.set(), stopped.wait(60)))
    monkeypatch.setattr(RunJob, "stop", lambda job: (stop(job), stopped.set()))
    with served_here(pool_card, tmp_path / "runs.db") as address, visiting(chromium, address) as page:
        page.locator("#prompt textarea").fill("abc")
        page.locator("#run").click()
        assert begun.wait(60)
        page.close()
        assert stopped.wait(30)
