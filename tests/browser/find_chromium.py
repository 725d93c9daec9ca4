"""Finds a Chromium for the browser tests: ``$CHROMIUM``, one on the PATH, or Playwright's own.

Run as a script it downloads Playwright's if there is none, and fails with what to install if that fails too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""Headless first: without a window's own parts it takes a sixth less of the processor."""

HINT = (
    "no Chromium for the browser tests: install one (`apt-get install chromium`, or `python -m playwright install "
    "--with-deps chromium`), or set CHROMIUM to its path"
)


def find_chromium() -> str | None:
    """Path of the browser, ``None`` if there is none.

    Raises:
        FileNotFoundError: ``$CHROMIUM`` names a file that does not exist.
    """
    if named := os.environ.get("CHROMIUM"):
        if not Path(named).is_file():
            raise FileNotFoundError(f"CHROMIUM names {named}, which does not exist; correct or unset it")
        return named
    return next(filter(None, map(shutil.which, NAMES)), None) or _playwrights_own()


@contextmanager
def started(path: str | None = None) -> Iterator[Browser]:
    """The browser at a path, by default the one found, for as long as the context lasts.

    Raises:
        SystemExit: there is none; it says what to install.
    """
    from playwright.sync_api import sync_playwright

    path = path or find_chromium()
    if not path:
        raise SystemExit(HINT)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def _playwrights_own() -> str | None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = Path(playwright.chromium.executable_path)
    headless = path.parents[1].name.replace("chromium", "chromium_headless_shell")
    found = [*path.parents[2].glob(f"{headless}/*/*headless*shell"), path]
    return next((str(path) for path in found if path.is_file()), None)


def main() -> int:
    """Find or download one; 0 if there is one in the end."""
    if not find_chromium():
        subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"], check=False)
        if not find_chromium():
            print(HINT, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
