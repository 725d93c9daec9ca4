"""*Pool*: what is loaded, what it costs, which drafter suits which task."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

import gradio as gr
import torch

from drafters.memory import in_words
from drafters.pool import Pool
from multidraft.costs import Line
from multidraft.errors import UserError
from multidraft.settings import on_zerogpu
from multidraft.ui import about
from multidraft.ui.charts import base_figure
from multidraft.ui.controls import sentence
from multidraft.ui.events import HIDDEN, QUICK, skips
from multidraft.ui.history_charts import drafter_task_figure
from multidraft.ui.pool_line import PoolLine
from multidraft.ui.pool_list import known_pools, loading_html, pools_html
from multidraft.ui.pool_loading import PoolLoader
from multidraft.ui.stats import message_html
from multidraft.ui.tables import number, table_html
from multidraft.ui.tokens import arm_class
from storage import figures
from storage.filters import Filter
from storage.problems import StorageError

NO_MATRIX = message_html(
    "idle",
    "Once prompts have been answered (any run of Play, Race or Batch), a chart here shows how many tokens a round each "
    "drafter makes by itself on each task.",
)

SWITCHING_OFF = (
    '<p class="md-hint">Another pool is loaded by who runs this server: a switch would be everybody\'s '
    "(<code>MULTIDRAFT_SWITCH</code>).</p>"
)

FIXED_ON_ZEROGPU = (
    '<p class="md-hint">On ZeroGPU the pool is the one of the start (<code>MULTIDRAFT_POOL</code>): its weights are '
    "handed over to the GPU then.</p>"
)

UPDATE_SECONDS = 0.3


_LOAD_POOL = """
element.addEventListener('click', (event) => {
  const button = event.target.closest('button[data-pool]');
  if (button) trigger('click', { pool: button.dataset.pool });
});
"""


class PoolTab:
    """The tab; it is brought up to date whenever it is opened, and when the pool has changed."""

    def __init__(self, loader: PoolLoader):
        self.loader, self.workbench = loader, loader.workbench

    def build(self, page: gr.Blocks, tab: gr.Tab, line: PoolLine) -> None:
        """Lay out the inside of ``tab``; it follows the pool of ``line``."""
        bench = self.workbench
        pool = gr.HTML(pool_html(bench.pool, bench.hardware, bench.version), js_on_load=None, elem_id="pool")
        hint = gr.HTML(NO_MATRIX, js_on_load=None, elem_id="pool-matrix-hint")
        matrix = gr.Plot(
            base_figure("", "", ""), show_label=False, visible=False, elem_id="pool-matrix", elem_classes="md-chart"
        )
        with gr.Column(elem_classes="md-keeps-focus"):
            with gr.Column(elem_id="pool-progress"):
                status = gr.HTML("", js_on_load=None, elem_id="pool-status")
                stop = gr.Button("Stop loading", variant="stop", size="sm", visible=False, elem_id="pool-stop")
            known = gr.HTML("", js_on_load=_LOAD_POOL, apply_default_css=False, elem_id="pools")
        gr.HTML(about.YOUR_OWN, js_on_load=None, elem_id="your-own")
        shown, progress = [pool, hint, matrix], [status, stop, known]
        tab.select(self.show, None, shown, **HIDDEN)
        line.changed(self.show, None, shown)
        line.changed(self.state, None, progress)
        watched = dict[str, Any](concurrency_limit=32, trigger_mode="once", **HIDDEN)
        gr.on([known.click, tab.select], self.load, None, [*progress, *shown], **watched)
        stop.click(self.stop, None, None, **QUICK)

    def show(self) -> tuple[str, str, Any]:
        """The pool with the costs measured so far, and the drafters by task over all of its recorded runs."""
        bench = self.workbench
        html = pool_html(bench.pool, bench.hardware, bench.version)
        try:
            known = figures.drafter_by_task(bench.store.path, Filter(pool=bench.pool.name))
        except StorageError as error:
            return html, message_html("error", str(error)), gr.skip()
        if known.empty:
            return html, NO_MATRIX, gr.Plot(visible=False)
        return html, "", gr.Plot(drafter_task_figure(known), visible=True)

    def state(self) -> tuple[str, gr.Button, str]:
        """How a pool is on its way, the button that stops it, and the pools to choose from."""
        loading, may = self.loader.under_way, self.loader.allowed
        # What is wrong with a card, and where it lies, is for who runs the server.
        pools = [pool for pool in known_pools(self.loader.cards) if pool.card or may]
        offered = pools_html(pools, self.workbench.pool.card, may, bool(loading))
        note = "" if may else FIXED_ON_ZEROGPU if on_zerogpu() else SWITCHING_OFF
        return loading_html(self.loader.last), gr.Button(visible=bool(loading) and may), offered + note

    def load(self, event: gr.EventData) -> Iterator[tuple[Any, ...]]:
        """Load the pool that was clicked, if one was, and yield how far it is until it has ended; what :meth:`show`
        tells comes with the end, not only when the page has noticed the switch."""
        problem = ""
        if source := getattr(event, "pool", None):
            problem = self.ask_for(source)
        loading = self.loader.under_way  # it may end before the first look
        yield *self.state(), *skips(3)
        if problem:
            yield problem, *skips(5)
            return
        # While it waits for the Hub, perhaps for hours, no page may hold a place in the queue.
        while loading and loading.phase != "waiting":
            if loading.ended.wait(UPDATE_SECONDS):
                yield *self.state(), *(self.show() if loading.phase == "done" else skips(3))
                return
            yield loading_html(loading), *skips(5)

    def stop(self) -> None:
        """Give up what is being loaded, where visitors may ask for pools at all."""
        if self.loader.allowed:
            self.loader.cancel()

    def ask_for(self, source: str) -> str:
        """Start loading a known pool; returns what is wrong, as HTML, or nothing."""
        try:
            if not self.loader.allowed:
                raise UserError("switching pools is off on this server")
            if source not in {pool.source for pool in known_pools(self.loader.cards) if pool.card}:
                raise UserError("there is no such pool any more; open this tab anew")
            self.loader.start(source)
        except UserError as error:
            return message_html("error", sentence(error))
        return ""


def pool_html(pool: Pool, hardware: str, version: str) -> str:
    """Target, drafters, device, number type, memory, and what steps have cost so far."""
    model, costs = pool.target.model, pool.costs
    step, check = _milliseconds(costs.plain), _milliseconds(costs.verify)
    facts = [
        (
            "Target",
            f"{_count(model.num_parameters())} parameters ({in_words(model.get_memory_footprint())}), "
            f"context window of {pool.target.window:,} tokens",
        ),
        ("Device", f"{hardware} ({pool.device}), {pool.dtype}"),
        ("A token alone", f"{step} ms" if step else "not measured yet: it is with the first run"),
        ("Checking a draft", f"{check} ms on average, for up to {pool.draft_length} drafted tokens" if check else "–"),
        ("Card", f"{pool.name} ({pool.card_hash[:8]})"),
        ("Version", version),
    ]
    if quantization := pool.card.target.quantization:
        honest = f"to {quantization}: outputs are exactly this quantised target's; those of the full weights may differ"
        facts.insert(1, ("Quantised", honest))
    lines = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in facts)
    rows = (
        [
            f'<span class="md-token {arm_class(arm)}">{escape(drafter.name)}</span>',
            escape(about.KINDS.get(drafter.kind, drafter.kind)),
            _count(drafter.parameter_count) if drafter.parameter_count else "none",
            _memory(pool, arm) if drafter.parameter_count else "–",
            _milliseconds(costs.steps[arm]) or number(None, 2),
        ]
        for arm, drafter in enumerate(pool.drafters)
    )
    columns = ("Drafter", "Kind", "Parameters", "Memory", "ms a drafted token")
    return (
        f'<h2>{escape(pool.title)}</h2><p>{escape(pool.description)}</p><dl class="md-facts">{lines}</dl>'
        + table_html(columns, rows, figures=3, label="Drafters")
    )


def _milliseconds(line: Line) -> str:
    """Mean of what was measured so far; empty if nothing was."""
    return number(1000 * line.mean, 2) if line.weight else ""


def _memory(pool: Pool, arm: int) -> str:
    """Bytes of a drafter's weights, or whose they are."""
    drafter, entry = pool.drafters[arm], pool.card.drafters[arm]
    if other := pool.card.shares_with(entry):
        return f"shared with {other}"
    if entry.quantization:  # of a model of transformers, which knows best
        return in_words(drafter.model.model.get_memory_footprint())  # type: ignore[attr-defined]
    return in_words(drafter.parameter_count * getattr(torch, pool.card.dtype).itemsize)


def _count(count: int) -> str:
    if count >= 10**9:
        return f"{count / 10**9:.1f} billion"
    return f"{count / 10**6:.1f} million" if count >= 10**6 else f"{count:,}"
