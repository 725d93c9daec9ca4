"""The screenshots of the documents: ``python -m docs.screenshots runs.db``, from a history that ``bench --db`` wrote.

It starts the app on a copy of it, uses every tab as a visitor would, and takes screenshots, light and dark, at desktop
and phone width. Needs requirements-dev.txt.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser.conftest import serve
from tests.browser.find_chromium import started

IMAGES = Path(__file__).parent / "images"
WIDTHS = {"": (1400, 1000), "-phone": (390, 844)}
READY_MS = 240_000


def run_example(page: Page, tab: str, task: str) -> None:
    """Run the first example of a task; ``tab`` begins the ids of its elements."""
    page.locator(f"#{tab}example-task").get_by_text(task, exact=True).click()
    page.locator(f"#{tab}prompt textarea").fill("")
    page.locator(f"#{tab}example-0").click()
    expect(page.locator(f"#{tab}prompt textarea")).not_to_have_value("")
    page.locator(f"#{tab}run").click()
    expect(page.locator(f"#{tab}status .md-done")).to_be_visible(timeout=READY_MS)


def race(page: Page) -> None:
    """The lanes that the tab begins with, seen in the middle of their replay."""
    run_example(page, "race-", "sql")
    page.locator("#race-stage .md-race-scrub").evaluate(
        "bar => { bar.value = 0.4 * bar.max; bar.dispatchEvent(new Event('input', {bubbles: true})); }"
    )


def batch(page: Page) -> None:
    """Seven prompts of the bundled suite under two policies."""
    page.locator("#limit input").fill("7")
    page.locator("#batch-run").click()
    expect(page.locator("#batch-status .md-done")).to_be_visible(timeout=READY_MS)
    expect(page.locator("#batch-verdict .md-verdict")).to_be_visible(timeout=READY_MS)


def lab(page: Page) -> None:
    """What other policies would have done on the history."""
    page.locator("#lab-replay").click()
    expect(page.locator("#lab-regret .js-plotly-plot")).to_be_visible(timeout=READY_MS)


def charts(page: Page) -> None:
    """Charts that the tab shows of itself."""
    page.wait_for_timeout(4000)


TABS: dict[str, Callable[[Page], None]] = {
    "Play": lambda page: run_example(page, "", "mixed"),
    "Race": race,
    "Batch": batch,
    "Lab": lab,
    "Dashboard": charts,
    "Pool": charts,
}


def main() -> None:
    """Write ``docs/images/TAB[-dark][-phone].png``."""
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("history", type=Path, help="a database of runs")
    parser.add_argument("--tabs", nargs="*", choices=TABS, default=list(TABS))
    parser.add_argument("--whole", action="store_true", help="the whole page, not what a screen shows of it")
    parser.add_argument("--out", type=Path, default=IMAGES)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, started() as browser:
        history = Path(folder, "runs.db")
        shutil.copy(options.history, history)
        with serve("pocket", history) as address:
            for tab in options.tabs:
                for suffix, (width, height) in WIDTHS.items():
                    page = browser.new_page(viewport={"width": width, "height": height})
                    page.goto(address)
                    page.get_by_role("tab", name=tab).click()
                    TABS[tab](page)
                    for scheme in ("light", "dark"):
                        page.emulate_media(color_scheme=scheme)
                        page.evaluate(f"document.body.classList.toggle('dark', {str(scheme == 'dark').lower()})")
                        page.evaluate("document.activeElement?.blur()")
                        page.wait_for_timeout(1500)
                        name = f"{tab.lower()}{'-dark' if scheme == 'dark' else ''}{suffix}.png"
                        page.screenshot(path=options.out / name, full_page=options.whole)
                        print(name)
                    page.close()


if __name__ == "__main__":
    main()
