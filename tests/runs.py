"""Runs made by hand, for tests."""

from collections.abc import Generator
from dataclasses import fields
from typing import Any, TypeVar

from sqlite_utils import Database

from drafters.sampling import SamplingParams
from storage.records import Generation, Round
from storage.run import Baseline, Conditions, Origin, Run, Scores
from storage.schema import upgrade

T = TypeVar("T")


def make_round(index: int = 0, **changes: Any) -> Round:
    """A round that drafts three tokens, of which two are accepted, in 10 ms."""
    values: dict[str, Any] = {
        "index": index,
        "arm": 1,
        "drafter": "math",
        "drafted": (5, 6, 7),
        "accepted": 2,
        "tokens": (5, 6, 9),
        "own": 9,
        "text": "abc",
        "pieces": ("a", "b", "c"),
        "draft_length": 3,
        "nodes": 3,
        "depth": 3,
        "reward": 0.5,
        "probabilities": (0.25, 0.75),
        "draft_seconds": 0.001,
        "verify_seconds": 0.006,
        "policy_seconds": 0.002,
        "evaluate_seconds": 0.001,
        "evaluated": 3,
        "choices": (5, 6, 9, 2),
        "texts": {2: "d", 7: "e"},
    }
    return Round(**{**values, **changes})


def make_generation(**changes: Any) -> Generation:
    """A finished generation; by default of two rounds, six tokens, at 300 tokens per second."""
    rounds = changes.pop("rounds", [make_round(0), make_round(1)])
    values: dict[str, Any] = {
        "prompt": "What is 2 + 3?",
        "policy": "ucb:beta=0.1",
        "drafters": ("code", "math"),
        "prompt_tokens": 4,
        "token_ids": [token for r in rounds for token in r.tokens],
        "text": "".join(r.text for r in rounds),
        "rounds": rounds,
        "status": "completed",
        "prefill_seconds": 0.003,
    }
    return Generation(**{**values, **changes})


def make_run(generation: Generation | None = None, **changes: Any) -> Run:
    """A run of the playground. ``changes`` are fields of any part of it; ``baseline`` is its tokens per second."""
    values: dict[str, Any] = {
        "source": "play",
        "task": "math",
        "pool": "pocket",
        "card_hash": "c0ffee",
        "max_new_tokens": 6,
        "draft_length": 3,
        "hardware": "CPU",
        "dtype": "float32",
        "version": "1.0",
        **changes,
    }
    baseline = values.pop("baseline", 150.0)
    if isinstance(baseline, (int, float)):
        baseline = Baseline("prefix", 6, 1 / baseline, 0.002)
    own = {name: values.pop(name) for name in ("created_at", "id") if name in values}
    seed = values.pop("seed", 7)

    def part(kind: type[Any]) -> Any:
        return kind(**{f.name: values.pop(f.name) for f in fields(kind) if f.name in values})

    parts = part(SamplingParams), seed, part(Conditions), part(Origin), baseline, part(Scores)
    return Run(generation or make_generation(**values), *parts, **own)


def columns_of(table: str) -> list[str]:
    """The columns of a table of the history."""
    db = Database(memory=True)
    upgrade(db)
    return list(db.table(table).columns_dict)


def result_of(steps: Generator[object, None, T]) -> T:
    """What steps return when all of them are made."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
