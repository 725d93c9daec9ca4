"""Runs as traces: a run is a trace, a round a span, in the form of Trackio's ``Trace`` (0.43)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from drafters.draft import OWN
from storage.records import FINISHED, PHASES
from storage.run import Run

FIGURES = "tokens_per_second mean_accepted_tokens acceptance_rate speedup request_speedup regret_rounds".split()
"""Of each run, beside its trace, for charts."""


def trace_of(run: Run) -> dict[str, Any]:
    """The arguments of ``trackio.Trace``: the conversation, what is known of the run, and its rounds with their times.

    A round's times follow from the moment at which the run began and from what its parts took.
    """
    g, values = run.generation, run.to_json()
    messages = [{"role": role, "content": text} for turn in g.turns for role, text in zip(("user", "assistant"), turn)]
    messages += [{"role": "user", "content": g.prompt}, {"role": "assistant", "content": g.text}]
    kept = ("policy", "pool", "card_hash", "hardware", "dtype", "version", "source", "task", "suite", "output_tokens")
    metadata = {name: values[name] for name in (*kept, *FIGURES) if values[name] is not None}
    metadata |= {"run": run.id, "status": "ok" if g.status in FINISHED else g.status}
    if values["request_seconds"] is not None:
        metadata["duration_ms"] = 1000 * values["request_seconds"]
    return {"messages": messages, "metadata": metadata, "spans": list(_spans(run))}


def _spans(run: Run) -> Iterator[dict[str, Any]]:
    begins = run.created_at + timedelta(seconds=run.generation.prefill_seconds)
    for r in run.generation.rounds:
        ends = begins + timedelta(seconds=r.seconds)
        phases = {f"{phase}_ms": 1000 * getattr(r, f"{phase}_seconds") for phase in PHASES}
        drafted = {"drafted": len(r.drafted), "accepted": r.accepted, "draft_length": r.draft_length}
        yield {
            "id": f"{run.id}-{r.index}",
            "name": r.drafter or OWN,
            "kind": "generation",
            "start_time": begins.isoformat(),
            "end_time": ends.isoformat(),
            "duration_ms": 1000 * r.seconds,
            "input": "".join(map(r.text_of, r.drafted)),
            "output": r.text,
            "usage": {"completion_tokens": r.emitted},
            "metadata": {**drafted, "reward": r.reward, **phases},
        }
        begins = ends
