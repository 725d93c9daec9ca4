"""The learning curve of a suite that was run in order as traffic: what each part of the stream made of the lessons."""

from __future__ import annotations

from collections.abc import Sequence

from multidraft.bench.measure import BASELINE
from multidraft.bench.runner import Entry
from multidraft.bench.table import markdown
from multidraft.replay.stream import in_parts
from storage.figures import ratio_of_totals


def render_curve(entries: Sequence[Entry], specs: Sequence[str]) -> str:
    """A table by policy and part of the stream: decode speed-up with its 95 % interval / that of the whole request, and
    tokens per round. Failed runs are left out of their part."""
    prompts = list(dict.fromkeys(entry.item.id for entry in entries))
    parts = in_parts(len(prompts))
    places = {prompt: place for place, prompt in enumerate(prompts)}
    rows = []
    for spec in (spec for spec in specs if spec != BASELINE):
        runs = [entry for entry in entries if entry.policy == spec and entry.measured]
        rows.append((spec, *(_cell([e for e in runs if places[e.item.id] in part]) for part in parts)))
    heads = [f"prompts {part.start + 1}–{part.stop}" for part in parts]
    return "Learning curve: decode speed-up (95 % interval) / whole request, tokens per round\n\n" + markdown(
        ["policy", *heads], rows
    )


def _cell(entries: Sequence[Entry]) -> str:
    runs = [entry.run for entry in entries]
    baselines = [(run.baseline, len(run.generation.token_ids)) for run in runs if run.baseline]
    decode = ratio_of_totals([b.decode_seconds(n) for b, n in baselines], [r.generation.seconds for r in runs])
    request = ratio_of_totals(
        [b.request_seconds(n) for b, n in baselines], [r.generation.request_seconds for r in runs]
    )
    rounds = sum(len(run.generation.rounds) for run in runs)
    if decode is None or request is None or not rounds:
        return "–"
    tokens = sum(len(run.generation.token_ids) for run in runs) / rounds
    return f"{decode.text()} / {request.value:.2f}, {tokens:.2f}"
