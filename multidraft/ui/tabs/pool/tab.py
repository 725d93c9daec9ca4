"""*Pool*: what is loaded, what it costs, which drafter suits which task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr
import torch
from markupsafe import Markup

from drafters.card import WITHOUT, Card, load_card, pool_names
from drafters.errors import PoolError, UserError, without_folders
from drafters.hardware import format_bytes
from drafters.kinds import KINDS
from drafters.pool import Pool
from multidraft.service.pool_loading import Loading, PoolLoader, hub_models
from multidraft.service.settings import on_zerogpu
from multidraft.ui.pool_line import PoolLine, progress_text
from multidraft.ui.widgets import markup
from multidraft.ui.widgets.charts import drafter_task_figure, plot
from multidraft.ui.widgets.events import HIDDEN, QUICK, Updates, clicked
from multidraft.ui.widgets.jobs import answered_at_once
from multidraft.ui.widgets.markup import UNKNOWN, count, macros, number
from multidraft.ui.widgets.tokens import arm_classes, token
from storage import aggregates
from storage.filters import Filter
from storage.problems import StorageError

_template = macros("tabs/pool/pool.html")


@dataclass(frozen=True)
class Known:
    """A pool that can be asked for.

    Attributes:
        source: the card's bundled name or path.
        card: ``None`` if it cannot be read; then ``problem`` says why.
        within: the folder in which all has to lie that its card names; ``None`` of a bundled one.
    """

    source: str
    card: Card | None
    problem: str = ""
    within: Path | None = None

    @property
    def key(self) -> str:
        """What the page calls it: where the server keeps cards is not told."""
        return str(Path(self.source).relative_to(self.within)) if self.within else self.source


def known_pools(folder: Path | None = None) -> list[Known]:
    """The bundled pools, then those of ``folder``, as the cards are now."""
    paths = sorted((*folder.glob("*.yaml"), *folder.glob("*/card.yaml"))) if folder else []
    return [*(_known(name) for name in pool_names()), *(_known(str(path), folder) for path in paths)]


def pools_html(pools: Sequence[Known], loaded: Card, may_load: bool, busy: bool = False) -> Markup:
    """The pools with what they are and need; those that are not loaded have a button where one may be.

    Args:
        busy: another pool is being loaded, so the buttons are out of use; they stay, or all below them would move.
    """
    cards = []
    for pool in pools:
        if pool.card is None:
            cards.append(_template.broken_card(Path(pool.source).name, pool.problem))
        else:
            cards.append(_template.card(pool, _needs(pool.card), _as_loaded(pool.card, loaded), may_load, busy))
    return _template.list(cards)


def _as_loaded(card: Card, loaded: Card) -> str:
    """What is to be said of a pool that is loaded, with all of its drafters or without some; nothing of another one."""
    gone = left_out(card, loaded)
    if card == loaded:
        return "Loaded"
    without = 0 < len(gone) < len(card.drafters) and card.without(gone) == loaded
    return f"Loaded without {', '.join(gone)}" if without else ""


def left_out(card: Card, loaded: Card) -> list[str]:
    """Drafters of a card that are not loaded."""
    kept = [entry.name for entry in loaded.drafters]
    return [entry.name for entry in card.drafters if entry.name not in kept]


def loading_html(loading: Loading | None) -> Markup:
    """How far a pool is, or how its loading ended."""
    if loading is None:
        return Markup()
    seconds = f"{loading.seconds:.0f} s"
    if loading.phase == "done":
        return markup.message_html("done", f"{loading.title} is in use. Loading it took {seconds}.")
    if loading.phase == "cancelled":
        return markup.message_html("cancelled", f"Stopped loading {loading.title}.")
    if loading.phase == "waiting":
        return markup.message_html("idle", progress_text(loading))
    if loading.phase == "failed":
        return markup.message_html("error", without_folders(f"{loading.title} could not be loaded: {loading.error}."))
    step = loading.step
    done, total = (step.number - 1, step.of) if step else (0, 1)
    if step and step.total_bytes:
        done, total = step.done_bytes, step.total_bytes
    return markup.progress_html(f"{progress_text(loading)} {seconds} so far.", done, total, "Loading")


def _known(source: str, within: Path | None = None) -> Known:
    try:
        return Known(source, load_card(source, within)[0], within=within)
    except PoolError as error:
        return Known(source, None, without_folders(str(error)), within)


def _needs(card: Card) -> list[tuple[str, str]]:
    kinds = Counter((entry.kind, entry.stored_as) for entry in card.drafters)
    drafters = ", ".join(
        f"{number} × {KINDS[kind].title}" + (f" ({quantization})" if quantization else "")
        for (kind, quantization), number in kinds.items()
    )
    models, target = hub_models(card), card.target.id or "/".join(Path(str(card.target.path)).parts[-2:])
    return [
        ("Target", f"{target}, {card.target.quantization or card.dtype}"),
        ("Drafters", drafters),
        ("Weights", f"from the Hub, {count(len(models), 'model')}" if models else "on this machine"),
        ("Device", {"auto": "the GPU if there is one", "cpu": "the CPU"}.get(card.device, card.device)),
    ]


NO_MATRIX = markup.message_html(
    "idle",
    "Once prompts have been answered (any run of Play, Race or Batch), a chart here shows how many tokens per round "
    "each drafter alone would make on each task.",
)

UPDATE_SECONDS = 0.3

STOP = "Stop loading"


class PoolTab:
    """The tab; it is brought up to date whenever it is opened, and when the pool has changed."""

    def __init__(self, loader: PoolLoader):
        self.loader, self.workbench = loader, loader.workbench

    def build(self, page: gr.Blocks, tab: gr.Tab, line: PoolLine) -> None:
        """Lay out the inside of ``tab``; it follows the pool of ``line``."""
        bench = self.workbench
        self.asked = gr.State([])
        self.pool = gr.HTML(pool_html(bench.pool, bench.hardware, bench.version), js_on_load=None, elem_id="pool")
        with gr.Row(elem_classes="md-leave-out", visible=self.loader.allowed) as self.leaving:
            self.left_out = gr.Dropdown(
                [],
                multiselect=True,
                label="Drafters to leave out",
                info="To measure what they are worth, load the pool without them, run the same batch again, and "
                "compare the two in Results.",
                elem_id="left-out",
                scale=5,
            )
            self.reload = gr.Button("Load the pool", size="sm", elem_id="load-without")
        self.hint = gr.HTML(NO_MATRIX, js_on_load=None, elem_id="pool-matrix-hint")
        self.matrix = plot("pool-matrix", visible=False)
        with gr.Column(elem_classes="md-keeps-focus"):
            with gr.Column(elem_id="pool-progress"):
                self.status = gr.HTML("", js_on_load=None, elem_id="pool-status")
                self.stop_loading = gr.Button(STOP, variant="stop", size="sm", visible=False, elem_id="pool-stop")
            self.known = gr.HTML(
                "", js_on_load="tell('pool', element, trigger)", apply_default_css=False, elem_id="pools"
            )
        gr.HTML(_template.your_own(), js_on_load=None, elem_id="your-own")
        shown = [self.pool, self.leaving, self.left_out, self.hint, self.matrix]
        progress = [self.status, self.stop_loading, self.known]
        page.load(self.linked, None, self.asked, **QUICK)
        tab.select(self.show, self.asked, [*shown, self.asked], **HIDDEN)
        line.changed(self.show, None, shown)
        line.changed(self.state, None, progress)
        watched = dict[str, Any](concurrency_limit=32, trigger_mode="once", **HIDDEN)
        tab.select(self.load, None, [*progress, *shown], **watched)
        said: Any = ("Asking for the pool …", "The pool is not being loaded")
        for asks, call, fields in ((self.known, self.load, None), (self.reload, self.load_without, self.left_out)):
            answered_at_once([asks.click], call, fields, [*progress, *shown], [self.status], asks, *said, **watched)
        stops: Any = ([self.status, self.stop_loading], self.stop_loading, "Stopping …", "Loading goes on")
        answered_at_once([self.stop_loading.click], self.stop, None, None, *stops, busy="Stopping …", **QUICK)

    def linked(self, request: gr.Request) -> list[str]:
        """The pool that the page's address is about, and the drafters that it chooses to leave out, if it does."""
        query = request.query_params
        return [query.get("without_of", ""), *query["without"].split(",")] if "without" in query else []

    def show(self, asked: Sequence[str] = ()) -> Updates:
        """The pool with the costs measured so far, and the drafters by task over all of its recorded runs; those
        ``asked`` for (:meth:`linked`) chosen to be left out, once, if the pool is theirs."""
        bench, card = self.workbench, self._card()
        shown: Updates = {
            self.pool: pool_html(bench.pool, bench.hardware, bench.version),
            self.leaving: gr.Row(visible=self.loader.allowed and card is not None),
        }
        if asked:
            shown[self.asked] = []
            if asked[0] not in ("", bench.pool.name):
                said = f"The link leaves drafters out of pool {asked[0]}, but {bench.pool.name} is loaded: "
                gr.Warning(escape(f"{said}load {asked[0]}, then follow the link again."))
                asked = ()
        if card is not None:
            names, gone = [entry.name for entry in card.drafters], left_out(card, bench.pool.card)
            chosen = [name for name in names if name in asked[1:] or name in gone]
            shown[self.left_out] = gr.Dropdown(names, value=chosen, multiselect=True)
        try:
            known = aggregates.drafter_by_task(bench.store.path, Filter(pool=bench.pool.name))
        except StorageError as error:
            return {**shown, self.hint: markup.problem_html(error)}
        if known.empty:
            return {**shown, self.hint: NO_MATRIX, self.matrix: gr.Plot(visible=False)}
        return {**shown, self.hint: "", self.matrix: gr.Plot(drafter_task_figure(known), visible=True)}

    def _card(self) -> Card | None:
        """The card of the pool in use, with all of its drafters; ``None`` if it has gone."""
        path = self.workbench.pool.path
        return _known(str(path)).card if path else None

    def state(self) -> Updates:
        """How far the loading of a pool is, the button that stops it, and the pools to choose from."""
        loading, may = self.loader.under_way, self.loader.allowed
        # What is wrong with a card, and where it lies, is for the operator of the server.
        pools = [pool for pool in known_pools(self.loader.cards) if pool.card or may]
        note = "" if may else _template.fixed_on_zerogpu() if on_zerogpu() else _template.switching_off()
        return {
            self.status: loading_html(self.loader.last),
            self.stop_loading: gr.Button(STOP, visible=bool(loading) and may, interactive=True),
            self.known: pools_html(pools, self.workbench.pool.card, may, bool(loading)) + note,
        }

    def load(self, event: gr.EventData) -> Iterator[Updates]:
        """Load the pool that was clicked, if one was, and yield how far it is until it has ended; what :meth:`show`
        gives comes with the end, not only when the page has noticed the switch."""
        yield from self._watch(self.ask_for(key) if (key := clicked(event, "pool")) else "")

    def load_without(self, names: Sequence[str]) -> Iterator[Updates]:
        """The same of the pool in use without some of its drafters."""
        yield from self._watch(self.ask_without(names or ()))

    def _watch(self, problem: str) -> Iterator[Updates]:
        loading = self.loader.under_way  # it may end before the first look
        yield self.state()
        if problem:
            yield {self.status: problem}
            return
        # While it waits for the Hub, perhaps for hours, no page may hold a place in the queue.
        while loading and loading.phase != "waiting":
            if loading.wait(UPDATE_SECONDS):
                yield {**self.state(), **(self.show() if loading.phase == "done" else {})}
                return
            yield {self.status: loading_html(loading)}

    def stop(self) -> None:
        """Give up what is being loaded, where visitors may ask for pools at all."""
        if self.loader.allowed:
            self.loader.cancel()

    def ask_for(self, key: str) -> str:
        """Start loading a known pool; returns what is wrong, as HTML, or nothing."""
        known = {pool.key: pool for pool in known_pools(self.loader.cards) if pool.card}
        pool = known.get(key)
        return self._ask(pool.source if pool else None, pool.within if pool else None)

    def ask_without(self, names: Sequence[str]) -> str:
        """Start loading the pool in use without some of its drafters; returns what is wrong, as HTML, or nothing."""
        path, cards = self.workbench.pool.path, self.loader.cards
        within = cards if path and cards and path.is_relative_to(cards) else None
        without = f"{WITHOUT}{','.join(names)}" if names else ""
        return self._ask(f"{path}{without}" if path else None, within)

    def _ask(self, source: str | None, within: Path | None) -> str:
        try:
            if not self.loader.allowed:
                raise UserError("switching pools is off on this server")
            if source is None:
                raise UserError("this pool no longer exists; reopen this tab")
            self.loader.start(source, within=within)
        except UserError as error:
            return markup.problem_html(error)
        return ""


def pool_html(pool: Pool, hardware: str, version: str) -> Markup:
    """Target, drafters, device, dtype, weights, and what steps have cost so far."""
    model, costs = pool.target.model, pool.costs
    step, check = (_milliseconds(line.mean) if line.weight else "" for line in (costs.plain, costs.verify))
    facts = [
        (
            "Target",
            f"{_count(model.num_parameters())} parameters ({format_bytes(model.get_memory_footprint())}), "
            f"context window of {pool.target.window:,} tokens",
        ),
        ("Device", f"{hardware} ({pool.device}), {pool.dtype}"),
        ("Autoregressive latency per token", f"{step} ms" if step else "measured with the first run"),
        (
            "Verification latency",
            f"{check} ms on average, for up to {pool.draft_length} drafted tokens" if check else UNKNOWN,
        ),
        ("Card", f"{pool.name} ({pool.card_hash[:8]})"),
        ("Version", version),
    ]
    facts += [(drafter.name.capitalize(), report) for drafter in pool.drafters if (report := drafter.report())]
    if quantization := pool.card.target.quantization:
        honest = f"to {quantization}: outputs are exactly this quantised target's; those of the full weights may differ"
        facts.insert(1, ("Quantised", honest))
    kinds = arm_classes(pool.drafter_names)
    told = f"How many tokens it can draft; the target has {pool.target.vocab_size:,}"
    vocabulary = markup.tip("Draft vocabulary, tokens", told)
    lines = [
        {
            "Drafter": token(kinds[arm], drafter.name),
            # What a program adds to a pool may be of no kind.
            "Kind": _template.kind(kind) if (kind := KINDS.get(drafter.kind)) else drafter.kind,
            "Parameters": _count(drafter.parameter_count) if drafter.parameter_count else "none",
            "Weights": _weights(pool, arm) if drafter.parameter_count else UNKNOWN,
            vocabulary: number(drafter.outputs or None, 0),
            "Draft latency, ms per token": _milliseconds(costs.steps[arm].proportional) or UNKNOWN,
        }
        for arm, drafter in enumerate(pool.drafters)
    ]
    return _template.loaded(pool, facts, markup.table_of(lines, figures=4, label="Drafters"))


def _milliseconds(seconds: float) -> str:
    """Empty if nothing was measured."""
    return number(1000 * seconds, 2) if seconds else ""


def _weights(pool: Pool, arm: int) -> str:
    """Bytes of a drafter's weights, or whose they are."""
    drafter, entry = pool.drafters[arm], pool.card.drafters[arm]
    if other := pool.card.shares_with(entry):
        return f"shared with {other}"
    return format_bytes(drafter.stored_bytes or drafter.parameter_count * getattr(torch, pool.card.dtype).itemsize)


def _count(count: int) -> str:
    if count >= 10**9:
        return f"{count / 10**9:.1f} billion"
    return f"{count / 10**6:.1f} million" if count >= 10**6 else f"{count:,}"
