"""Filters that together leave no finished run: which of them to let go."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from markupsafe import Markup

from multidraft.ui.tabs.dashboard import tables
from multidraft.ui.tabs.dashboard.filters import CONTROLS, Chosen
from multidraft.ui.widgets import markup
from storage import aggregates

_NAMES = [control.column for control in CONTROLS]
_FREE = vars(Chosen())
_DAYS = "since", "until"


def let_go(path: Path, chosen: Chosen, changed: int) -> Chosen:
    """``chosen`` where finished runs match; else without those choices below the control that was changed, by its
    place, that leave none beside those above them."""
    if _runs(path, chosen):
        return chosen
    below = _NAMES[changed + 1 :]
    kept = replace(chosen, **_free(below))
    if not _runs(path, kept):
        return chosen
    for name in below:
        tried = replace(kept, **{name: getattr(chosen, name)})
        kept = tried if _runs(path, tried) else kept
    return kept


def relaxed(chosen: Chosen, names: str) -> Chosen:
    """``chosen`` without restriction by some filters, as a button of :func:`nothing_fits_html` names them."""
    return replace(chosen, **_free([name for name in names.split() if name in _FREE]))


def nothing_fits_html(path: Path, chosen: Chosen) -> Markup:
    """That no run fits, with a button for each filter without which some do; where there is none, for all at once."""
    ways = [(control.column, control.every) for control in CONTROLS if getattr(chosen, control.column)]
    ways += [(" ".join(_DAYS), "all days")] if chosen.since or chosen.until else []
    found = [(names, title, _runs(path, relaxed(chosen, names))) for names, title in ways]
    every = " ".join((*_NAMES, *_DAYS))
    shown = [way for way in found if way[2]] or [(every, "no filter", _runs(path, relaxed(chosen, every)))]
    if not shown[0][2]:
        return markup.empty_html("No run has finished yet.")
    return markup.empty_html("No finished run matches these filters.", tables.template.ways(shown))


def _free(names: list[str]) -> dict[str, Any]:
    return {name: _FREE[name] for name in names}


def _runs(path: Path, chosen: Chosen) -> int:
    """How many finished runs match."""
    return int(aggregates.conditions(path, chosen.filter())["runs"].sum())
