"""The whole page, and how it is served."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import gradio as gr
from transformers.utils import logging

from drafters.pool import Pool, load_pool
from multidraft.bench.suites import MAX_BYTES
from multidraft.ui import links
from multidraft.ui.api import Api
from multidraft.ui.batch import Batch
from multidraft.ui.batch_run import Batches
from multidraft.ui.dashboard import Dashboard
from multidraft.ui.lab import Lab
from multidraft.ui.play import Play
from multidraft.ui.pool_tab import PoolTab
from multidraft.ui.ports import asked_port, why_not_first
from multidraft.ui.race import Race
from multidraft.ui.theme import css, theme
from multidraft.ui.worker import Workbench
from storage.store import Store, default_path

TITLE = "multidraft"

_FILES = (3600, 24 * 3600)
"""Files for download are looked over every hour and go after a day, in seconds."""

HEADER = """
<header class="md-header">
<h1>multidraft</h1>
<p>One language model writes, several small drafters guess ahead, and a policy learns whom to trust.
<b>The output is exactly what the target would write alone; only the speed changes.</b></p>
</header>
"""


def build(pool: Pool, store: Store) -> gr.Blocks:
    """The interface on a pool, with its history in ``store``; a workbench of its own runs what visitors ask for."""
    return _build(Workbench(pool, store))


def launch(
    pool: str | Path | None = None, port: int | None = None, db: str | Path | None = None, host: str | None = None
) -> None:
    """Load the pool, serve the page, print its address, and return when the server is ended.

    Args:
        pool: a bundled card's name or a path; the environment variable ``MULTIDRAFT_POOL``, else ``pocket``.
        port: if ``None``, ``GRADIO_SERVER_PORT``; without that the first free one from 7860 on.
        db: file of the history; ``MULTIDRAFT_DB``, else ``runs.db``.
        host: address to listen on; ``GRADIO_SERVER_NAME``, else this machine only.

    Raises:
        UserError: the pool cannot be loaded, or the port that was asked for is taken.
        OSError: no port is free.
    """
    asked = asked_port(port)
    logging.disable_progress_bar()
    loaded = load_pool(pool or os.environ.get("MULTIDRAFT_POOL") or "pocket")
    with Store(db or default_path()) as store:
        workbench = Workbench(loaded, store)
        workbench.warm_up()
        try:
            page = serve(workbench, asked, host)
            why = why_not_first(page.server_port) if asked is None else ""
            print(f"multidraft serves pool {loaded.name!r} at {page.local_url} (Ctrl-C ends it{why})", flush=True)
            page.block_thread()
        finally:
            workbench.close()


def serve(workbench: Workbench, port: int | None = None, host: str | None = None) -> gr.Blocks:
    """Build the page and serve it in the background; ``page.local_url`` is its address, ``page.close()`` ends it."""
    page = _build(workbench)
    page.launch(
        server_name=host,
        server_port=port,
        theme=theme(),
        css=css(),
        max_file_size=MAX_BYTES,
        footer_links=["api", "settings"],
        run_history=False,
        mcp_server=find_spec("mcp") is not None,
        ssr_mode=False,
        share=False,
        quiet=True,
        prevent_thread_lock=True,
    )
    return page


def _build(workbench: Workbench) -> gr.Blocks:
    with gr.Blocks(title=TITLE, analytics_enabled=False, fill_width=True, delete_cache=_FILES) as page:
        gr.HTML(HEADER, js_on_load=None)
        with gr.Tab("Play", id="play"):
            Play(workbench).build(page)
        with gr.Tab("Race", id="race"):
            Race(workbench).build()
        with gr.Tab("Batch", id="batch"):
            batches = Batches(workbench)
            Batch(workbench, batches).build(page)
        with gr.Tab("Lab", id="lab") as lab:
            Lab(workbench).build(lab, page)
        with gr.Tab("Dashboard", id="dashboard") as tab:
            dashboard = Dashboard(workbench.store, workbench.pool.name, workbench.hardware)
            dashboard.build(page, tab)
        with gr.Tab("Pool", id="pool") as tab:
            PoolTab(workbench).build(tab)
        Api(workbench, batches).build()
        links.open_tab(dashboard.restored)
    page.queue(max_size=64)
    return page
