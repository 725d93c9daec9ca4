"""The pools that the app knows: the bundled cards, and those in a folder of the server's owner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from drafters.card import Card, find_card, load_card, pool_names
from drafters.errors import PoolError
from drafters.hardware import format_bytes
from drafters.kinds import KINDS
from drafters.source import Source
from multidraft.service.pool_loading import Loading, hub_models
from multidraft.ui.widgets.markup import count, macros, message_html, progress_html

SILENT_SECONDS = 5.0
"""After so long without data from the Hub the page says so."""

FAILED_SECONDS = 60.0
"""How long every page says that a pool could not be loaded."""

_template = macros("tabs/pool/pool.html")


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
            cards.append(_template.card(pool, _needs(pool.card), pool.card == loaded, may_load, busy))
    return _template.list(cards)


def loading_html(loading: Loading | None) -> Markup:
    """How far a pool is, or how its loading ended."""
    if loading is None:
        return Markup()
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
        return f"{loading.title} cannot be loaded yet and will be tried again: {loading.error}."
    if loading.phase == "switching":
        return f"{loading.title} is loaded; it takes over when the queued runs have ended."
    if loading.phase == "warming":
        return f"{loading.title} is loaded and decodes its first tokens …"
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
        failed = f"{loading.title} could not be loaded; the Pool tab says why."
        return failed if loading.since_end < FAILED_SECONDS else ""
    if loading.phase == "waiting":
        return f"{loading.title} cannot be loaded yet and will be tried again; the Pool tab says why."
    if loading.phase == "loading" and (step := loading.step):
        return f"Loading {loading.title}, step {step.number} of {step.of} …"
    return progress_text(loading)


def _known(source: str) -> Known:
    try:
        return Known(source, load_card(find_card(source))[0])
    except PoolError as error:
        return Known(source, None, str(error))


def _needs(card: Card) -> list[tuple[str, str]]:
    kinds = Counter(entry.kind for entry in card.drafters)
    drafters = ", ".join(f"{number} × {KINDS[kind].title}" for kind, number in kinds.items())
    models = hub_models(card)
    return [
        ("Target", f"{_place(card.target)}, {card.target.quantization or card.dtype}"),
        ("Drafters", drafters),
        ("Weights", f"from the Hub, {count(len(models), 'model')}" if models else "on this machine"),
        ("Device", "the GPU if there is one" if card.device == "auto" else card.device),
    ]


def _place(source: Source) -> str:
    return source.id or "/".join(Path(str(source.path)).parts[-2:])
