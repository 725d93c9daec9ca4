"""The learning curve of a suite that was run in order, as traffic: figures by part of the stream."""

from __future__ import annotations

from collections.abc import Sequence

from multidraft.bench.baseline import BASELINE
from multidraft.bench.runner import Entry
from multidraft.bench.summary import Row, speedups
from multidraft.bench.table import NOTHING, markdown
from multidraft.replay.experiment import in_parts


def render_curve(entries: Sequence[Entry], specs: Sequence[str]) -> str:
    """A table by policy and part of the stream: decode speed-up with its 95 % interval / that of the whole request, and
    tokens per round. Failed runs are left out of their part."""
    places: dict[int, int] = {}  # of the items themselves: their ids may be the same
    for entry in entries:
        places.setdefault(id(entry.item), len(places))
    parts = in_parts(len(places))
    rows = []
    for spec in (spec for spec in specs if spec != BASELINE):
        runs = [entry for entry in entries if entry.policy == spec and entry.measured]
        rows.append((spec, *(_cell([e for e in runs if places[id(e.item)] in part]) for part in parts)))
    heads = [f"prompts {part.start + 1}–{part.stop}" for part in parts]
    return "Learning curve: decode speed-up (95 % interval) / whole request, tokens per round\n\n" + markdown(
        ["policy", *heads], rows
    )


def _cell(entries: Sequence[Entry]) -> str:
    rows = [Row.of(entry.item.id, entry.item.task, entry.run) for entry in entries]
    decode, request = speedups(rows)
    if decode is None or request is None:
        return NOTHING
    rate = sum(row.tokens for row in rows) / sum(row.rounds for row in rows)
    return f"{decode.text()} / {request.value:.2f}, {rate:.2f}"
