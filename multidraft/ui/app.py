"""The whole page, and how it is served."""

from __future__ import annotations

import sys
from functools import partial
from importlib.util import find_spec

import gradio as gr
from starlette.middleware import Middleware
from starlette.routing import Route
from transformers.utils import logging

from drafters.card import load_card
from drafters.hardware import set_aside
from drafters.pool import load_pool
from multidraft.bench.suites import MAX_BYTES
from multidraft.service import zerogpu
from multidraft.service.lab import LabWork, Verdicts
from multidraft.service.limits import Allowance
from multidraft.service.pool_loading import PoolLoader, hub_models
from multidraft.service.recovery import recover
from multidraft.service.settings import Settings
from multidraft.service.workbench import Workbench
from multidraft.serving.api import Api
from multidraft.serving.callers import Callers
from multidraft.serving.guard import ANY, Guard
from multidraft.serving.metrics import Metrics
from multidraft.serving.openai.server import Server, healthy
from multidraft.serving.operator import Operator
from multidraft.ui.middleware import BodyLimit, Delivery
from multidraft.ui.page import REFUSALS, Page
from multidraft.ui.pool_line import PoolLine
from multidraft.ui.result_pages.pages import ResultPages
from multidraft.ui.server import asked_port, ended_by_sigterm, trust_proxies, wait_for_the_end, why_not_first
from multidraft.ui.tabs.batch.tab import Batch
from multidraft.ui.tabs.dashboard.tab import Dashboard
from multidraft.ui.tabs.lab.tab import Lab
from multidraft.ui.tabs.play.recorded import recorded_runs
from multidraft.ui.tabs.play.tab import Play
from multidraft.ui.tabs.pool.tab import PoolTab
from multidraft.ui.tabs.race.tab import Race
from multidraft.ui.tabs.results.tab import Results
from multidraft.ui.widgets import events, exports, markup
from multidraft.ui.widgets.theme import css, theme
from storage.store import Store
from storage.sync import Backup, Dataset, Folder, Place
from storage.unfinished import serving

TITLE = "multidraft"

MEANWHILE = "pocket"
"""The pool that is served while one from the Hub is on its way."""

SESSIONS = 2
"""For each job that the queue has room for, so many visitors' state is held; the one away for longest is dropped
first."""

SPARE_THREADS = 32
"""Each job that is watched has a thread of the page; so many more answer everything else."""

SETTINGS = Settings(hosts=(ANY,))

READERS = 8
"""How many visitors' calls of the same event are answered at once, unless it has a limit of its own. All of them
may be: they read the history, each on a connection of its own, or hand their work to the jobs."""

EVENT_SECONDS, PROGRESS_SECONDS = 0.02, 1.0
"""How often Gradio looks for events, and for progress bars, which the page has none of. By itself it does so a thousand
times a second (gradio 6.31), which takes up to a tenth of the speed of decoding on a CPU, and 5 % of a core from an
idle server."""

_FILES = (3600, exports.KEPT_SECONDS)
"""Files for download are looked over every hour, and go once they have been kept for so long, in seconds."""

_HEADER = markup.page("header.html")
_SCRIPTS = (
    "widgets/address.js",
    "widgets/stepper.js",
    "widgets/charts.js",
    "tabs/dashboard/dashboard.js",
    "tabs/results/results.js",
    "tabs/play/permalink.js",
    "page.js",
)
_SCRIPT = "\n".join(map(markup.source, _SCRIPTS))


def launch(settings: Settings) -> bool:
    """Load the pool, serve the page, print its address, and return when the server is ended, by Ctrl-C or SIGTERM:
    whether all runs are on the disk.

    A pool of Hub models is loaded in the background, and ``pocket`` served meanwhile, but not on ZeroGPU.

    Raises:
        UserError: a setting is wrong, the pool cannot be loaded, or the port that was asked for is taken.
        OSError: no port is free.
    """
    asked = asked_port(settings.port)
    trust_proxies()
    zerogpu.prepare()
    logging.disable_progress_bar()
    card, _ = load_card(settings.pool)
    later = bool(hub_models(card)) and not zerogpu.on_zerogpu()  # there only what the start loads reaches the GPU
    learnt = settings.learnt
    load = partial(load_pool, cache_bytes=settings.cache_bytes, learnt=learnt, learns=learnt is not None)
    loaded = load(MEANWHILE if later else settings.pool)
    copies: list[Place] = [Folder(settings.backup_folder)] if settings.backup_folder else []
    copies += [Dataset(settings.backup_dataset)] if settings.backup_dataset else []
    with (
        ended_by_sigterm(),
        serving(settings.db) as alone,
        Backup(settings.db, copies, settings.backup_minutes) as backup,
        Store(settings.db) as store,
    ):
        store.backup = backup
        workbench = Workbench(loaded, store, settings.limits)
        workbench.warm_up()
        loader = PoolLoader(workbench, settings.may_switch, settings.pools, load)
        try:
            if alone:
                recover(workbench)
            if later:
                loader.start(settings.pool, patient=not settings.may_switch)
            page = serve(workbench, asked, settings, loader)
            why = why_not_first(page.server_port) if asked is None else ""
            until = f" until pool {card.name!r} is there" if later else ""
            print(
                f"multidraft serves pool {loaded.name!r}{until} at {page.local_url} (Ctrl-C ends it{why})\n"
                f"OpenAI clients take {page.local_url}v1 as base_url",
                flush=True,
            )
            if store.problem:  # also logged when it arose, but nobody reads above the address
                print(f"The history is not being written. {store.problem}", flush=True)
            with set_aside():
                wait_for_the_end(page)
        finally:
            workbench.close()
            kept = store.close()
            if not kept:
                print(f"multidraft: the history is incomplete. {store.problem}", file=sys.stderr, flush=True)
    return kept


def serve(
    workbench: Workbench, port: int | None = None, settings: Settings = SETTINGS, loader: PoolLoader | None = None
) -> gr.Blocks:
    """Build the page and serve it in the background, with the servers for programs beside it; ``page.local_url`` is its
    address, ``page.close()`` ends it. Of the settings those count that say who may ask, for what, and by which name."""
    verdicts = Verdicts(LabWork(workbench))
    results = ResultPages(verdicts, lambda: recorded_runs()[-1])
    routes = [*Server(workbench, settings.api_key).routes(), Metrics(workbench).route(), Route("/health", healthy)]
    routes += results.routes()
    if settings.operator_key:
        routes += Operator(workbench, settings.operator_key).routes()
    page = build(workbench, loader or PoolLoader(workbench, allowed=False), verdicts, settings.may_import)
    most = workbench.limits.queue
    page.launch(
        server_name=settings.host,
        server_port=port,
        theme=theme(),
        css=css(),
        max_file_size=MAX_BYTES,
        footer_links=["api", "settings"],
        app_kwargs={
            "routes": routes,
            "exception_handlers": REFUSALS,
            "middleware": [
                Middleware(Guard, hosts=settings.hosts, frames=settings.frames),
                Middleware(Callers, queue=lambda: page._queue, left=workbench.jobs.left),
                Middleware(BodyLimit, upload=MAX_BYTES, allowance=Allowance(workbench.limits)),
                Middleware(Delivery, tags=results.tags),
            ],
        },
        max_threads=most + SPARE_THREADS,
        state_session_capacity=SESSIONS * most,
        run_history=False,
        mcp_server=find_spec("mcp") is not None,
        ssr_mode=False,
        share=False,
        _frontend=False,  # else it ends where the page is not answered in 3 s, as on a busy machine
        quiet=True,
        prevent_thread_lock=True,
    )
    return page


def build(workbench: Workbench, loader: PoolLoader, verdicts: Verdicts, may_import: bool = True) -> gr.Blocks:
    """The page; ``may_import`` lets visitors import results of other tools."""
    line = PoolLine(loader)
    with Page(title=TITLE, analytics_enabled=False, fill_width=True, delete_cache=_FILES) as page:
        gr.HTML(_HEADER, js_on_load=_SCRIPT)
        line.build()
        with gr.Tab("Play", id="play"):
            play = Play(workbench)
            play.build(page, line)
            line.look_after(play.restored)
        with gr.Tab("Race", id="race") as tab:
            race = Race(workbench)
            race.build(page, line)
            race.follows_prompt_of(tab, play.prompt)
            play.sends_to(race.buttons, [race.prompt, race.lanes[-1], *race.settings])
        with gr.Tab("Batch", id="batch") as tab:
            Batch(workbench, verdicts).build(page, line, tab)
        with gr.Tab("Lab", id="lab") as lab:
            Lab(workbench).build(lab, page)
        with gr.Tab("Results", id="results") as tab:
            Results(workbench, loader.allowed).build(page, tab)
        with gr.Tab("Dashboard", id="dashboard") as tab:
            dashboard = Dashboard(verdicts.work, may_import)
            dashboard.build(page, tab)
            line.changed(dashboard.follow, dashboard.followers, dashboard.followers)
        with gr.Tab("Pool", id="pool") as tab:
            PoolTab(loader).build(page, tab, line)
        line.learn.render()
        Api(workbench).build()
        # Tabs bring themselves up to date when they are opened, by what has been restored of the address.
        dashboard.restored.then(None, js="() => openTab()", **events.PRIVATE)
    page.queue(max_size=workbench.limits.queue, default_concurrency_limit=READERS)
    page._queue.sleep_when_free, page._queue.progress_update_sleep_when_free = EVENT_SECONDS, PROGRESS_SECONDS
    return page
