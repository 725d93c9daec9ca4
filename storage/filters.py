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


CHOSEN = (
    *("pool", "policy", "task", "hardware", "version", "dtype", "card_hash", "baseline_kind", "source"),
    *("draft_length", "temperature", "max_new_tokens"),
)
"""The columns that a history's values of are offered to choose from (``aggregates.filters``)."""

_AS_OFFERED = {"temperature": ("CAST(temperature AS TEXT)", "CAST(CAST(? AS REAL) AS TEXT)")}
"""Columns whose values are offered with fewer digits than they have, and how both are compared."""


@dataclass(frozen=True)
class Filter:
    """Which runs, by the columns of the history; what is left out restricts nothing, and of several values a run has
    any.

    Attributes:
        since: earliest ``created_at``: a date or time in UTC as ISO 8601 text.
        until: likewise the moment before which a run must have been created.
        id: their numbers.
        draft_length, temperature, max_new_tokens: settings, as text.
        batch_id: of batches, races or benchmarks.
        shared: have policies compared on the prompts that all of them ran (``ranking.policy_summary`` alone).
    """

    pool: str | None = None
    policy: tuple[str, ...] = ()
    task: tuple[str, ...] = ()
    hardware: str | None = None
    source: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None
    card_hash: str | None = None
    dtype: str | None = None
    version: str | None = None
    baseline_kind: str | None = None
    draft_length: str | None = None
    temperature: str | None = None
    max_new_tokens: str | None = None
    id: tuple[int, ...] = ()
    prompt_hash: tuple[int, ...] = ()
    batch_id: tuple[str, ...] = ()
    shared: bool = False

    def where(self, *conditions: str, compared: Mapping[str, object] = MappingProxyType({})) -> tuple[str, list[Any]]:
        """The WHERE clause and its parameters.

        Args:
            conditions: further SQL, as it is.
            compared: further values by column and operator, such as ``"id >"``; ``None`` restricts nothing.
        """
        parts, values = list(conditions), list[Any]()
        bounds = {**compared, "created_at >=": self.since, "created_at <": self.until}
        for comparison, value in bounds.items():
            if value is not None:
                parts.append(f"{comparison} ?")
                values.append(value)
        for column in (*CHOSEN, "id", "prompt_hash", "batch_id"):
            wanted = getattr(self, column)
            choices = wanted if isinstance(wanted, tuple) else () if wanted is None else (wanted,)
            if choices:
                compare, to = _AS_OFFERED.get(column, (column, "?"))
                parts.append(f"{compare} IN ({', '.join([to] * len(choices))})")
                values.extend(choices)
        return (f"WHERE {' AND '.join(parts)}" if parts else "", values)

    @property
    def by_run(self) -> bool:
        """Whether it asks for what the counts of runs do not tell: time, number, prompt or experiment."""
        return self.since is not None or self.until is not None or bool(self.id or self.prompt_hash or self.batch_id)


def run_id(id: int) -> int:
    """The number of a run as SQLite can look it up; 0, which no run has, for one beyond its 64 bits."""
    return 0 if isinstance(id, int) and abs(id) >= 2**63 else id


ALL = Filter()
"""Every run."""
