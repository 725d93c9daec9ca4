"""Which runs a query looks at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from storage import records

FINISHED = f"status IN {records.FINISHED}"
"""SQL: runs that came to an end of their own. Figures about speed and regret count these only."""

COMPARED = "speedup IS NOT NULL"
"""SQL: runs with a baseline whose answers are long enough for a speed-up."""

TIMED = "tokens_per_second IS NOT NULL"
"""SQL: runs whose rounds were taken alone: where a text was decoded beside others, its seconds measure no policy."""


@dataclass(frozen=True)
class Filter:
    """Which runs; what is left out restricts nothing.

    Attributes:
        policies, tasks, sources: any of them.
        since: earliest ``created_at``: a date or time in UTC as ISO 8601 text.
        until: likewise the moment before which a run must have been created.
        card: hash of the pool's card.
        baseline: what speed-ups compare with (``run.BaselineKind``).
        draft_length, temperature, max_new_tokens: settings, as text.
        prompts: any of these, by their ``prompt_hash``.
        experiments: of these batches, races or benchmarks, by their ``batch_id``.
        shared: have policies compared on the prompts that all of them ran (``ranking.policy_summary`` alone).
    """

    pool: str | None = None
    policies: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    hardware: str | None = None
    sources: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None
    card: str | None = None
    dtype: str | None = None
    version: str | None = None
    baseline: str | None = None
    draft_length: str | None = None
    temperature: str | None = None
    max_new_tokens: str | None = None
    prompts: tuple[int, ...] = ()
    experiments: tuple[str, ...] = ()
    shared: bool = False

    def where(self, *conditions: str, compared: Mapping[str, object] = MappingProxyType({})) -> tuple[str, list[Any]]:
        """The WHERE clause and its parameters.

        Args:
            conditions: further SQL, as it is.
            compared: further values by column and operator, such as ``"id >"``; ``None`` restricts nothing.
        """
        parts, values = list(conditions), list[Any]()
        compared = {
            **compared,
            "pool =": self.pool,
            "hardware =": self.hardware,
            "card_hash =": self.card,
            "dtype =": self.dtype,
            "version =": self.version,
            "baseline_kind =": self.baseline,
            "draft_length =": self.draft_length,
            "temperature =": self.temperature,
            "max_new_tokens =": self.max_new_tokens,
            "created_at >=": self.since,
            "created_at <": self.until,
        }
        for comparison, value in compared.items():
            if value is not None:
                parts.append(f"{comparison} ?")
                values.append(value)
        among: dict[str, tuple[object, ...]] = {
            "policy": self.policies,
            "task": self.tasks,
            "source": self.sources,
            "prompt_hash": self.prompts,
            "batch_id": self.experiments,
        }
        for column, choices in among.items():
            if choices:
                parts.append(f"{column} IN ({', '.join('?' * len(choices))})")
                values.extend(choices)
        return (f"WHERE {' AND '.join(parts)}" if parts else "", values)

    @property
    def by_run(self) -> bool:
        """Whether it asks for what the counts of runs do not tell: time, prompt or experiment."""
        return self.since is not None or self.until is not None or bool(self.prompts or self.experiments)


def run_id(id: int) -> int:
    """The number of a run as SQLite can look it up; 0, which no run has, for one beyond its 64 bits."""
    return 0 if isinstance(id, int) and abs(id) >= 2**63 else id


ALL = Filter()
"""Every run."""
