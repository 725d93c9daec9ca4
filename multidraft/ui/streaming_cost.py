"""What watching a run costs it: the same run with a page in a browser that follows it, and without."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import isnan
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from scipy.stats import quantile_test

from drafters.pool import Pool
from multidraft.errors import UserError
from multidraft.ui.app import serve
from multidraft.ui.worker import Job, Request, Workbench
from storage.store import Store

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

RUN_MS = 600_000
"""Milliseconds after which a run is given up."""

IDLE_MS = 500
"""Milliseconds that a page has to draw the end of a run before the next one begins."""

START_SECONDS = 60
"""Seconds after which a page that was told to start a run is given up."""


@dataclass(frozen=True)
class StreamingCost:
    """Runs in pairs, an entry of each list for each pair.

    Attributes:
        alone, watched: decoding speeds in tokens per second by the rounds' own clock, without and with a page that
            follows the run.
        cpu_alone, cpu_watched: processor seconds of this process, which decodes and serves, from the start of a run
            until its output has been checked; what the browser takes is not among them.
        paints: seconds from a first visit to the page's Run button, one for each visit.
        tokens: length of the output.
    """

    alone: list[float]
    watched: list[float]
    cpu_alone: list[float]
    cpu_watched: list[float]
    paints: list[float]
    tokens: int

    @property
    def cost(self) -> float:
        """Share of the speed that watching costs: 1 − median of the pairs' ratios."""
        return 1.0 - median(self._ratios)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Where :attr:`cost` lies with 95 % confidence (order statistics, pairs as independent); ``None`` for fewer
        than six pairs."""
        low, high = quantile_test(self._ratios, p=0.5).confidence_interval(0.95)
        return None if isnan(low) or isnan(high) else (float(1 - high), float(1 - low))

    @property
    def _ratios(self) -> list[float]:
        return [watched / alone for alone, watched in zip(self.alone, self.watched, strict=True)]


def streaming_cost(
    pool: Pool, request: Request, visits: int, pairs: int = 1, browser: Path | None = None
) -> StreamingCost:
    """Run ``request`` without and with a page, in turn, so that drift hits both alike.

    Each run is one as visitors make it: plain decoding is measured first, off its clock. The browser runs on this
    machine, so what it takes for itself counts too.

    Args:
        visits: how many first visits; before the first pair of each no page is open.
        pairs: of runs in each visit. Before a further one the page stays open and idle.
        browser: the program; ``None`` takes Playwright's own.

    Raises:
        UserError: there is no browser, or a run failed.
    """
    alone: list[_Run] = []
    watched: list[_Run] = []
    paints: list[float] = []
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "runs.db") as store:
        workbench = _Bench(pool, store)
        workbench.warm_up()
        served = serve(workbench)
        try:
            with _started(browser) as chromium:
                for _ in range(visits):
                    alone.append(_measured(workbench, partial(workbench.submit, request)))
                    with chromium.new_context(viewport={"width": 1400, "height": 900}) as context:
                        page = context.new_page()
                        paints.append(_visit(page, str(served.local_url), request))
                        for n in range(pairs):
                            if n:
                                alone.append(_measured(workbench, partial(workbench.submit, request)))
                            watched.append(_measured(workbench, page.locator("#run").click))
                            page.locator("#status :is(.md-done, .md-error)").wait_for(timeout=RUN_MS)
                            page.wait_for_timeout(IDLE_MS)
        finally:
            workbench.close()
            served.close()
    return StreamingCost(
        alone=[run.tokens_per_second for run in alone],
        watched=[run.tokens_per_second for run in watched],
        cpu_alone=[run.cpu for run in alone],
        cpu_watched=[run.cpu for run in watched],
        paints=paints,
        tokens=len(workbench.jobs[-1].generation.token_ids),
    )


class _Bench(Workbench):
    """Keeps its jobs instead of recording them."""

    def __init__(self, pool: Pool, store: Store):
        super().__init__(pool, store)
        self.jobs: list[Job] = []

    def submit(self, request: Request, pool: Pool | None = None) -> Job:
        self.jobs.append(super().submit(request, pool))
        return self.jobs[-1]

    def record(self, job: Job) -> None:
        pass


@dataclass(frozen=True)
class _Run:
    tokens_per_second: float
    cpu: float


def _measured(workbench: _Bench, start: Callable[[], object]) -> _Run:
    known, began = len(workbench.jobs), time.process_time()
    start()
    until = time.monotonic() + START_SECONDS
    while len(workbench.jobs) == known:
        if time.monotonic() > until:
            raise UserError("the page did not start the run: open the app in a browser and try the same settings")
        time.sleep(0.001)
    job = workbench.jobs[-1]
    generation = job.generation
    if not job.wait(RUN_MS / 1000) or generation.status == "error":
        raise UserError(f"a run failed: {generation.error or 'it does not end'}")
    return _Run(generation.tokens_per_second, time.process_time() - began)


@contextmanager
def _started(browser: Path | None) -> Iterator[Browser]:
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
        yield started
        started.close()


def _visit(page: Page, address: str, request: Request) -> float:
    """Open the app with what ``request`` asks for; returns the seconds until its Run button was there."""
    params = request.params
    query = {
        "prompt": request.prompt,
        "with_policy": request.policy,
        "max_new_tokens": params.max_new_tokens,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k,
        "draft_length": params.draft_length,
        "seed": request.seed,
    }
    page.goto(f"{address}?{urlencode(query)}")
    page.locator("#run").wait_for()
    painted = float(page.evaluate("performance.now()")) / 1000  # since the navigation began
    page.get_by_text("Press Run").wait_for()
    return painted
