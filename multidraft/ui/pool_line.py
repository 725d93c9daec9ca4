"""The line below the page's title: which pool is loaded, and which is on its way; and what is told of a loading.

It asks the server now and then, so that every open page learns of a switch; then the tabs follow, and what was typed
stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr
from gradio.events import Dependency

from drafters.hardware import format_bytes
from multidraft.service.pool_loading import Loading, PoolLoader
from multidraft.serving.api import PoolReport, endpoint
from multidraft.ui.widgets.events import HIDDEN, PRIVATE, QUICK
from multidraft.ui.widgets.markup import source

_FRAME = '<p class="md-pool-line"><span></span><span></span></p>'
_SCRIPT = source("pool_line.js")

KEPT = (
    "The history of this server records every run, with prompt and answer. Drafters and policies also learn "
    "from them, to be faster later, unless you uncheck this box. The output does not depend on it."
)
"""What is told beside the box."""

SILENT_SECONDS = 5.0
"""After so long without data from the Hub the page says so."""

FAILED_SECONDS = 60.0
"""How long every page says that a pool could not be loaded."""


class PoolLine:
    """The line, and the endpoint ``pool``.

    Attributes:
        learn: the box that visitors empty who do not want anything to be learnt from what they run: one for all tabs,
            to be rendered below them. Its value is an input of whatever starts runs.
    """

    def __init__(self, loader: PoolLoader):
        self.loader = loader

    def build(self) -> None:
        self.learn = gr.Checkbox(True, label="Later runs may learn from mine", info=KEPT, elem_id="learn", render=False)

        def report(nothing: Any = None) -> PoolReport:  # Gradio marks it, which a method does not allow
            return self.pool()

        self.line = gr.HTML(
            self.pool(),
            html_template=_FRAME,
            js_on_load=_SCRIPT,
            apply_default_css=False,
            server_functions=[report],
            elem_id="pool-line",
        )
        gr.api(self.pool, api_name="pool", queue=False)
        self.line.click(self._announce, None, None, **HIDDEN)  # messages come by the queue only

    def look_after(self, restored: Dependency) -> None:
        """Compare the pool with the one that the page was built with once ``restored``, an event of its loading,
        is done: what it has restored is among what :meth:`followed_by` is to keep."""
        restored.then(None, js="() => { document.dispatchEvent(new Event('md-restored')); }", **PRIVATE)

    def followed_by(self, follow: Callable[..., Any], inputs: Any, outputs: Any) -> None:
        """Call ``follow`` when the pool has changed, while a page is open or before it was opened.

        A page shows the pool that it was built with, so as long as that one is in use there is nothing to do, and what
        a quick visitor has begun by then is left alone.
        """
        gr.on([self.line.click, self.line.select], follow, inputs, outputs, **QUICK)

    def changed(self, follow: Callable[..., Any], inputs: Any, outputs: Any) -> None:
        """Call ``follow`` when the pool has changed since the page was opened."""
        self.line.click(follow, inputs, outputs, **QUICK)

    @endpoint(PoolReport)
    def pool(self) -> PoolReport:
        """Tell which pool of models is loaded: its name, drafters and draft length, and what is being loaded."""
        pool, loading = self.loader.workbench.pool, self.loader.under_way
        news = news_text(self.loader.last)
        return {
            "name": pool.name,
            "title": pool.title,
            "card_hash": pool.card_hash,
            "draft_length": pool.draft_length,
            "drafters": pool.drafter_names,
            "loading": loading is not None and loading.phase != "waiting",
            "status": f"{pool.title} is loaded. {news}".rstrip(),
            "news": news,
        }

    def _announce(self) -> None:
        gr.Info(f"The pool is now {self.loader.workbench.pool.title}. Your input has been kept.", duration=8)


def progress_text(loading: Loading) -> str:
    """How far a pool is, in a sentence."""
    step = loading.step
    if loading.phase == "waiting":
        return f"{loading.title} cannot be loaded yet and will be retried: {loading.error}."
    if loading.phase == "switching":
        return f"{loading.title} is ready and takes over once the queued runs have finished."
    if loading.phase == "warming":
        return f"Loading {loading.title}: it decodes its first tokens …"
    silent = ""
    if loading.asks_hub and (silence := loading.silence) > SILENT_SECONDS:
        silent = f" No data from the Hub for {silence:.0f} s; it will be asked again a few times."
    if step is None:
        return f"Loading {loading.title} …{silent}"
    arrived = f" ({format_bytes(step.done_bytes)} of {format_bytes(step.total_bytes)})" if step.total_bytes else ""
    return f"Loading {loading.title}, step {step.number} of {step.of}: {step.doing} {step.what}{arrived} …{silent}"


def news_text(loading: Loading | None) -> str:
    """What the line below the page's title says of a pool being loaded, in few words; the *Pool* tab has the rest.

    A failure is shown for a minute: whoever did not ask for the pool has nothing to do with it.
    """
    if loading is None or (loading.done and loading.phase != "failed"):
        return ""
    if loading.phase == "failed":
        failed = f"{loading.title} could not be loaded: see the Pool tab."
        return failed if loading.since_end < FAILED_SECONDS else ""
    if loading.phase == "waiting":
        return f"{loading.title} cannot be loaded yet and will be retried: see the Pool tab."
    if loading.phase == "loading" and (step := loading.step):
        return f"Loading {loading.title}, step {step.number} of {step.of} …"
    return progress_text(loading)
