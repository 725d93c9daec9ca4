"""What watching a run costs it: the same run with a page in a browser that follows it, and without.

python -m tests.perf.streaming --browser /usr/bin/chromium
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import isnan
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import Page
from scipy.stats import quantile_test

from drafters.errors import UserError
from drafters.hardware import describe
from drafters.pool import Pool
from multidraft.bench.measure import Request
from multidraft.bench.table import markdown
from multidraft.commands.options import add_decoding, add_pool, load_pool, sampling_params
from multidraft.service.workbench import RunJob, Workbench
from multidraft.ui.app import serve
from storage.run import Run
from storage.store import Store
from tests.browser.find_chromium import started

PROMPT = "Count on and on."
"""A prompt of no task of the pocket pool, so that its answer does not end by itself."""

RUN_MS = 600_000
"""Milliseconds a run may take."""

IDLE_MS = 500
"""Milliseconds in which a page draws the end of a run before the next one begins."""

START_SECONDS = 60
"""Seconds a page may take to start a run."""


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


def streaming_cost(pool: Pool, request: Request, visits: int, pairs: int, browser: str | None) -> StreamingCost:
    """Run ``request`` without and with a page, in turn, so that drift hits both alike.

    Each run is one as visitors make it: plain decoding is measured just after it, off its clock. The browser runs on
    this machine, so what it takes for itself counts too.

    Args:
        visits: how many first visits; before the first pair of each no page is open.
        pairs: of runs in each visit. Before a further one the page stays open and idle.
        browser: the program; ``None`` takes the one that the browser tests find.

    Raises:
        UserError: a run failed.
        SystemExit: there is no browser.
    """
    alone: list[_Run] = []
    watched: list[_Run] = []
    paints: list[float] = []
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "runs.db") as store:
        workbench = _Bench(pool, store)
        workbench.warm_up()
        served = serve(workbench)
        try:
            with started(browser) as chromium:
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
        tokens=len(workbench.submitted[-1].run.generation.token_ids),
    )


class _Bench(Workbench):
    """Keeps its jobs instead of recording them."""

    def __init__(self, pool: Pool, store: Store):
        super().__init__(pool, store)
        self.submitted: list[RunJob] = []

    def submit(self, request: Request) -> RunJob:
        self.submitted.append(super().submit(request))
        return self.submitted[-1]

    def record(self, *runs: Run, **job: Any) -> None:
        pass


@dataclass(frozen=True)
class _Run:
    tokens_per_second: float
    cpu: float


def _measured(workbench: _Bench, start: Callable[[], object]) -> _Run:
    known, began = len(workbench.submitted), time.process_time()
    start()
    until = time.monotonic() + START_SECONDS
    while len(workbench.submitted) == known:
        if time.monotonic() > until:
            raise UserError("the page did not start the run: open the app in a browser and try the same settings")
        time.sleep(0.001)
    job = workbench.submitted[-1]
    generation = job.run.generation
    if not job.wait(RUN_MS / 1000) or generation.status == "error":
        raise UserError(f"a run failed: {generation.error or 'it does not end'}")
    return _Run(generation.tokens_per_second, time.process_time() - began)


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


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the speeds and the cost."""
    parser = argparse.ArgumentParser(prog="python -m tests.perf.streaming", description=__doc__.partition("\n")[0])
    add_pool(parser)
    parser.add_argument("--prompt", default=PROMPT)
    parser.add_argument(
        "--policy", default="round-robin", help="a policy whose runs do not differ (default: %(default)s)"
    )
    add_decoding(parser)
    parser.set_defaults(max_new_tokens=1000)
    parser.add_argument("--visits", type=int, default=6, help="how often the page is opened (default: %(default)s)")
    parser.add_argument("--pairs", type=int, default=1, help="pairs of runs per visit, one watched and one not")
    parser.add_argument("--browser", help="a Chromium (default: the one that the browser tests find)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args(arguments)
    pool = load_pool(options.pool)
    request = Request(options.prompt, options.policy, sampling_params(options, pool.draft_length), options.seed)
    measured = streaming_cost(pool, request, options.visits, options.pairs, options.browser)
    if options.json:
        figures = {**asdict(measured), "cost": measured.cost, "interval": measured.interval}
        print(json.dumps({**figures, "hardware": describe(pool.device)}))
        return
    rows = []
    columns = (measured.alone, measured.watched, measured.cpu_alone, measured.cpu_watched)
    for n, (alone, watched, *cpu) in enumerate(zip(*columns, strict=True)):
        paint = f"{measured.paints[n // options.pairs]:.2f}" if n % options.pairs == 0 else ""
        ratio = f"{watched / alone:.3f}"
        rows.append((str(n + 1), f"{alone:.1f}", f"{watched:.1f}", ratio, *(f"{each:.2f}" for each in cpu), paint))
    heads = ["run", "tokens/s alone", "tokens/s watched", "ratio", "CPU s alone", "CPU s watched", "first paint s"]
    print(markdown(heads, rows))
    spread = "" if measured.interval is None else " ({:.1%} to {:.1%})".format(*measured.interval)
    more_cpu = median(w / a for a, w in zip(measured.cpu_alone, measured.cpu_watched, strict=True)) - 1
    print(
        f"\nWatching costs {measured.cost:.1%}{spread} of the speed and {more_cpu:+.1%} processor time of the server;"
    )
    print(f"{measured.tokens} tokens per run, {describe(pool.device)}.")


if __name__ == "__main__":
    main()
