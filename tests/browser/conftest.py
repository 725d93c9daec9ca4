"""The app in a process of its own, and a real Chromium that visits it.

``MULTIDRAFT_TEST_POOL`` names another pool than the bundled one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.find_chromium import started
from tests.ports import free_port

ROOT = Path(__file__).parent.parent.parent
START_SECONDS = 240
"""Loading libraries and models takes long on a busy machine."""

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


@contextmanager
def serve(pool: str, history: Path) -> Iterator[str]:
    """The app on ``pool`` in a process of its own; its log lies beside ``history``."""
    folder = history.parent
    port = free_port()
    environment = {
        **os.environ,
        "MULTIDRAFT_POOL": pool,
        "MULTIDRAFT_DB": str(history),
        "GRADIO_SERVER_PORT": str(port),
        "GRADIO_TEMP_DIR": str(folder / "uploads"),
    }
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([sys.executable, "app.py"], cwd=ROOT, env=environment, stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}/"
            _wait_for(url, process, folder / "log")
            yield url
        finally:
            process.terminate()
            process.wait(30)


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        assert process.poll() is None, f"the app ended while it started:\n{log.read_text()[-3000:]}"
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise AssertionError(f"the app did not start within {START_SECONDS} s:\n{log.read_text()[-3000:]}")


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
