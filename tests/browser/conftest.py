"""The app, and a real Chromium that visits it.

``MULTIDRAFT_TEST_POOL`` names another pool than the bundled one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.app import serve
from tests.browser.find_chromium import started

ACTION_MS = 60_000

expect.set_options(timeout=ACTION_MS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run a browser test that fails once more: Chromium, the server and the models share the cores, and what was to be
    watched may be over first. The summary lists the tests that needed it."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.fixture(scope="session")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The app's database, empty at first."""
    return tmp_path_factory.mktemp("app") / "runs.db"


@pytest.fixture(scope="session")
def address(history: Path) -> Iterator[str]:
    """Address of a freshly started app."""
    with serve(os.environ.get("MULTIDRAFT_TEST_POOL", "pocket"), history) as url:
        yield url


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with started() as browser:
        yield browser


@pytest.fixture(scope="session")
def desktop(chromium: Browser) -> Iterator[BrowserContext]:
    """Pages at desktop width; they share what the browser caches of the app's scripts."""
    with chromium.new_context(viewport={"width": 1400, "height": 900}) as context:
        context.set_default_timeout(ACTION_MS)
        yield context


@pytest.fixture
def page(desktop: BrowserContext, address: str) -> Iterator[Page]:
    """The app's page as a new visitor sees it; the test fails if a script of the page fails or asks another site."""
    page = desktop.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: errors.append(f"request to {request.url}") if _foreign(request.url) else None)
    page.goto(address)
    expect(page.locator("#run")).to_be_visible()
    yield page
    for opened in desktop.pages:
        opened.close()
    desktop.clear_cookies()
    desktop.clear_permissions()
    assert not errors, errors


def _foreign(url: str) -> bool:
    return not url.startswith(("http://127.0.0.1", "data:", "blob:"))


@pytest.fixture
def other(chromium: Browser, address: str) -> Iterator[Page]:
    """A second visitor."""
    with chromium.new_context() as context:
        context.set_default_timeout(ACTION_MS)
        page = context.new_page()
        page.goto(address)
        expect(page.locator("#run")).to_be_visible()
        yield page
