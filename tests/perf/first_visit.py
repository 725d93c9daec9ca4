"""How soon a first visitor sees something, as a browser measures it.

``python -m tests.perf.first_visit --visits 5`` opens the page anew for each visit, at desktop and phone width in turn,
lets the recorded race begin and clicks *Run*. It shows

- ``race``: seconds from asking for the page to the first token of the recorded race,
- ``text``: seconds from the click to the first token of the answer in sight,
- ``shift``: the cumulative layout shift of the whole visit, in the sense of Web Vitals.

The exit status is 1 where a median is above its limit: 1.5 s, 0.3 s, 0.1.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from playwright.sync_api import Browser, expect

from tests.app import serve
from tests.browser.find_chromium import started

WIDTHS = 1400, 390
LIMITS = {"race": 1.5, "text": 0.3, "shift": 0.1}
READY_MS = 120_000

WATCH = """
window.seen = {shift: 0};
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) seen.shift += entry.value;
}).observe({type: 'layout-shift', buffered: true});
document.addEventListener('click', ({target}) => {
  if (target.closest('#run')) seen.clicked = performance.now();
}, true);
const tokens = {
  race: '#recorded .md-round:not([hidden]) .md-token',
  text: '#output .md-round:not(.md-coming) .md-token',
};
new MutationObserver(() => {
  for (const [name, where] of Object.entries(tokens))
    if (!(name in seen) && document.querySelector(where)) seen[name] = performance.now();
}).observe(document, {subtree: true, childList: true, attributes: true, attributeFilter: ['hidden', 'class']});
"""
"""Notes when what was looked for is first there, in milliseconds since the page was asked for."""


def visit(browser: Browser, address: str, width: int) -> dict[str, float]:
    """One first visit at a width in pixels; see above."""
    with browser.new_context(viewport={"width": width, "height": 900}) as context:
        context.set_default_timeout(READY_MS)
        context.add_init_script(WATCH)
        page = context.new_page()
        page.goto(address)
        page.wait_for_function("'race' in seen")
        expect(page.locator("#run")).to_be_enabled(timeout=READY_MS)
        page.locator("#run").click()
        expect(page.locator("#status .md-done")).to_be_visible(timeout=READY_MS)
        seen = page.evaluate("seen")
    return {"race": seen["race"] / 1000, "text": (seen["text"] - seen["clicked"]) / 1000, "shift": seen["shift"]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print them; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pool", default="pocket")
    parser.add_argument("--visits", type=int, default=5, help="at each width")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory() as folder,
        started() as browser,
        serve(options.pool, Path(folder) / "runs.db") as address,
    ):
        found = [(width, visit(browser, address, width)) for _ in range(options.visits) for width in WIDTHS]
    medians = {name: median(seen[name] for _, seen in found) for name in LIMITS}
    if options.json:
        print(json.dumps({"medians": medians, "visits": [{"width": width, **seen} for width, seen in found]}))
    else:
        for width, seen in found:
            print(f"{width} px: " + ", ".join(f"{name} {seen[name]:.3f}" for name in LIMITS))
        print("medians: " + ", ".join(f"{name} {medians[name]:.3f} (at most {most})" for name, most in LIMITS.items()))
    return int(any(medians[name] > most for name, most in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(main())
