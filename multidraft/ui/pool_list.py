"""The pools that the app knows: the bundled cards, and those in a folder of the server's owner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from drafters.card import Card, Source, find_card, load_card, pool_names
from drafters.memory import in_words
from multidraft.errors import PoolError
from multidraft.ui import about
from multidraft.ui.pool_loading import Loading, hub_models
from multidraft.ui.stats import message_html, progress_html
from multidraft.ui.tables import count

SILENT_SECONDS = 5.0
"""From when on it is told that nothing comes from the Hub."""

FAILED_SECONDS = 60.0
"""How long every page tells that a pool could not be loaded."""


@dataclass(frozen=True)
class Known:
    """A pool that can be asked for.

    Attributes:
        source: the card's bundled name or path.
        card: ``None`` if it cannot be read; then ``problem`` says why.
    """

    source: str
    card: Card | None
    problem: str = ""


def known_pools(folder: Path | None = None) -> list[Known]:
    """The bundled pools, then those of ``folder``, as the cards are now."""
    paths = sorted((*folder.glob("*.yaml"), *folder.glob("*/card.yaml"))) if folder else []
    return [_known(source) for source in (*pool_names(), *map(str, paths))]


def pools_html(pools: Sequence[Known], loaded: Card, may_load: bool, busy: bool = False) -> str:
    """The pools with what they are and need; those that are not loaded have a button where one may be.

    Args:
        busy: another pool is being loaded, so the buttons are out of use; they stay, or all below them would move.
    """
    cards = "".join(_pool_html(pool, pool.card == loaded, may_load, busy) for pool in pools)
    return f'<h2>Pools</h2><div class="md-pools">{cards}</div>'


def loading_html(loading: Loading | None) -> str:
    """How far a pool is, or how its loading ended."""
    if loading is None:
        return ""
    seconds = f"{loading.seconds:.0f} s"
    if loading.phase == "done":
        return message_html("done", f"{loading.title} is in use. Loading it took {seconds}.")
    if loading.phase == "cancelled":
        return message_html("cancelled", f"Stopped loading {loading.title}.")
    if loading.phase == "waiting":
        return message_html("idle", progress_text(loading))
    if loading.phase == "failed":
        return message_html("error", f"{loading.title} could not be loaded: {loading.error}.")
    step = loading.step
    done, total = (step.number - 1, step.of) if step else (0, 1)
    if step and step.total_bytes:
        done, total = step.done_bytes, step.total_bytes
    return progress_html(f"{progress_text(loading)} {seconds} so far.", done, total, "Loading")


def progress_text(loading: Loading) -> str:
    """How far a pool is, in a sentence."""
    step = loading.step
    if loading.phase == "waiting":
        return f"{loading.title} cannot be loaded yet, and will be tried again: {loading.error}."
    if loading.phase == "switching":
        return f"{loading.title} is loaded; it takes over when the runs in line have ended."
    if loading.phase == "warming":
        return f"{loading.title} is loaded and decodes its first tokens …"
    silent = ""
    if loading.asks_hub and (silence := loading.silence) > SILENT_SECONDS:
        silent = f" Nothing has come from the Hub for {silence:.0f} s; it is asked again a few times."
    if step is None:
        return f"Loading {loading.title} …{silent}"
    arrived = f" ({in_words(step.done_bytes)} of {in_words(step.total_bytes)})" if step.total_bytes else ""
    return f"Loading {loading.title}, step {step.number} of {step.of}: {step.doing} {step.what}{arrived} …{silent}"


def news_text(loading: Loading | None) -> str:
    """What the line below the page's title says of a pool on its way, in few words; the tab *Pool* tells the rest.

    A failure is told for a minute: whoever did not ask for the pool has nothing to do with it.
    """
    if loading is None or (loading.ended.is_set() and loading.phase != "failed"):
        return ""
    if loading.phase == "failed":
        failed = f"{loading.title} could not be loaded; the tab Pool says why."
        return failed if loading.since_end < FAILED_SECONDS else ""
    if loading.phase == "waiting":
        return f"{loading.title} cannot be loaded yet, and will be tried again; the tab Pool says why."
    if loading.phase == "loading" and (step := loading.step):
        return f"Loading {loading.title}, step {step.number} of {step.of} …"
    return progress_text(loading)


def _known(source: str) -> Known:
    try:
        return Known(source, load_card(find_card(source))[0])
    except PoolError as error:
        return Known(source, None, str(error))


def _pool_html(pool: Known, is_loaded: bool, may_load: bool, busy: bool) -> str:
    card = pool.card
    if card is None:
        return f"<article><h3>{escape(Path(pool.source).name)}</h3>{message_html('error', pool.problem)}</article>"
    head = f"<h3>{escape(card.title)} <code>{escape(card.name)}</code></h3>"
    facts = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in _needs(card))
    action = ""
    if is_loaded:
        action = '<p class="md-pool-loaded">Loaded</p>'
    elif may_load:
        label = escape(f"Load {card.title}")
        off = " disabled" if busy else ""
        action = f'<button type="button" data-pool="{escape(pool.source)}" aria-label="{label}"{off}>Load</button>'
    description = f"<p>{escape(card.description)}</p>" if card.description else ""
    return f'<article>{head}{description}<dl class="md-facts">{facts}</dl>{action}</article>'


def _needs(card: Card) -> list[tuple[str, str]]:
    kinds = Counter(entry.kind for entry in card.drafters)
    drafters = ", ".join(f"{number} × {about.KINDS[kind].partition(':')[0]}" for kind, number in kinds.items())
    models = hub_models(card)
    return [
        ("Target", f"{_place(card.target)}, {card.target.quantization or card.dtype}"),
        ("Drafters", drafters),
        ("Weights", f"from the Hub, {count(len(models), 'model')}" if models else "on this machine"),
        ("Device", "the GPU if there is one" if card.device == "auto" else card.device),
    ]


def _place(source: Source) -> str:
    return source.id or "/".join(Path(str(source.path)).parts[-2:])
