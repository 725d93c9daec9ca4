"""The app, and a real Chromium that visits it.

``MULTIDRAFT_TEST_POOL`` names another pool than the bundled one.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.app import serve
from tests.browser.find_chromium import started
from tests.browser.test_play import ran_example

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
        yield context


@contextmanager
def opened(context: BrowserContext, address: str) -> Iterator[Page]:
    """The app's page as a new visitor sees it; fails at the end if a script of it failed or asked another site."""
    context.set_default_timeout(ACTION_MS)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: errors.append(f"request to {request.url}") if _foreign(request.url) else None)
    page.goto(address)
    if "tab=" not in address:
        expect(page.locator("#run")).to_be_visible()
    yield page
    for other in context.pages:
        other.close()
    assert not errors, errors


@contextmanager
def visiting(
    chromium: Browser, address: str, *, width: int = 1400, script: str = "", **settings: Any
) -> Iterator[Page]:
    """The page of a visitor with a browser of this width and these settings; the script runs before the app's."""
    with chromium.new_context(viewport={"width": width, "height": 900}, **settings) as context:
        context.add_init_script(script)
        with opened(context, address) as page:
            yield page


@pytest.fixture
def page(desktop: BrowserContext, address: str) -> Iterator[Page]:
    """A page of the test's own."""
    with opened(desktop, address) as page:
        yield page
    desktop.clear_cookies()
    desktop.clear_permissions()


@pytest.fixture(scope="module")
def _shared(chromium: Browser, address: str) -> Iterator[Page]:
    with visiting(chromium, address) as page:
        yield page


@pytest.fixture
def shared(_shared: Page, address: str, request: pytest.FixtureRequest) -> Page:
    """One page for the tests of a file that bring it into the state that they need: to open one takes seconds. A test
    that is run again opens it anew."""
    if getattr(request.node, "execution_count", 1) > 1:
        _shared.goto(address)
        expect(_shared.locator("#run")).to_be_visible()
    return _shared


def _foreign(url: str) -> bool:
    return not url.startswith(("http://127.0.0.1", "data:", "blob:"))


@pytest.fixture(scope="session")
def recorded(chromium: Browser, address: str) -> None:
    """A run to look at."""
    with visiting(chromium, address) as page:
        ran_example(page, tokens=24)


@pytest.fixture
def other(chromium: Browser, address: str) -> Iterator[Page]:
    """A second visitor."""
    with visiting(chromium, address) as page:
        yield page
