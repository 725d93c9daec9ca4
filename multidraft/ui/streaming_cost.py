"""What watching a run costs it: the same run with a page in a browser that follows it, and without."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from drafters.pool import Pool
from multidraft.errors import UserError
from multidraft.records import Generation
from multidraft.ui.app import serve
from multidraft.ui.worker import Baseline, Job, Request, Workbench
from storage.store import Store

if TYPE_CHECKING:
    from playwright.sync_api import Page

RUN_MS = 600_000
"""Milliseconds after which a run that the page started is given up."""


@dataclass(frozen=True)
class StreamingCost:
    """Decoding speeds in tokens per second, a pair for each repetition, by the rounds' own clock.

    Attributes:
        alone, watched: without and with a page that follows the run.
        tokens: length of the output.
    """

    alone: list[float]
    watched: list[float]
    tokens: int

    @property
    def cost(self) -> float:
        """Share of the speed that watching costs: 1 − median of the pairs' ratios."""
        return 1.0 - median(watched / alone for alone, watched in zip(self.alone, self.watched, strict=True))


def streaming_cost(pool: Pool, request: Request, repeat: int, browser: Path | None = None) -> StreamingCost:
    """Run ``request`` ``repeat`` times without and with a page, in turn, so that drift hits both alike.

    The browser runs on this machine, so what it takes for itself counts too.

    Args:
        browser: the program; ``None`` takes Playwright's own.

    Raises:
        UserError: there is no browser, or a run failed.
    """
    alone: list[float] = []
    watched: list[float] = []
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "runs.db") as store:
        workbench = _Bench(pool, store)
        workbench.warm_up()
        served = serve(workbench)
        try:
            with _visit(browser) as page:
                for _ in range(repeat):
                    workbench.submit(request).wait(RUN_MS / 1000)
                    alone.append(_speed(workbench.ended[-1]))
                    _run_in_page(page, str(served.local_url), request)
                    watched.append(_speed(workbench.ended[-1]))
        finally:
            workbench.close()
            served.close()
    return StreamingCost(alone, watched, len(workbench.ended[-1].token_ids))


class _Bench(Workbench):
    """Keeps what ended instead of recording it, and spares the measurement of plain decoding before each run."""

    def __init__(self, pool: Pool, store: Store):
        super().__init__(pool, store)
        self.ended: list[Generation] = []

    def submit(self, request: Request, pool: Pool | None = None) -> Job:
        return super().submit(replace(request, baseline=Baseline(1.0, 1)))

    def record(self, job: Job) -> None:
        self.ended.append(job.generation)


@contextmanager
def _visit(browser: Path | None) -> Iterator[Page]:
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        raise UserError("the page needs a browser: install playwright (requirements-dev.txt)") from None
    with sync_playwright() as playwright:
        try:
            program: dict[str, Any] = {"executable_path": str(browser)} if browser else {}
            started = playwright.chromium.launch(args=["--no-sandbox"], **program)
        except Error as error:
            raise UserError(f"the browser cannot be started: {str(error).splitlines()[0]}") from None
        yield started.new_page(viewport={"width": 1400, "height": 900})
        started.close()


def _run_in_page(page: Page, address: str, request: Request) -> None:
    params = request.params
    query = {
        "prompt": request.prompt,
        "policy": request.policy,
        "max_new_tokens": params.max_new_tokens,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k,
        "draft_length": params.draft_length,
        "seed": request.seed,
    }
    page.goto(f"{address}?{urlencode(query)}")
    page.get_by_text("Press Run").wait_for()
    page.locator("#run").click()
    page.locator("#status :is(.md-done, .md-error)").wait_for(timeout=RUN_MS)


def _speed(generation: Generation) -> float:
    if generation.status == "error":
        raise UserError(f"a run failed: {generation.error}")
    return generation.tokens_per_second
