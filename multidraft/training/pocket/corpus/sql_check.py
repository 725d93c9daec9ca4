"""Runs the untrusted queries of the family ``sql`` on small seeded databases."""

from __future__ import annotations

import random
import sqlite3
from typing import Any

SIZES = (3, 4, 5, 6, 8, 12, 20, 40, 60)
"""Rows a table; small tables show what large ones blur (one row decides a minimum), large ones fill groups."""

LABELS = ("name", "title", "model")
MAX_ROWS = 5000
MAX_ANSWER = 4000
MAX_STEPS = 200
ALLOWED_FUNCTIONS = {"sum", "total", "avg", "count", "min", "max", "like", "round", "lower", "upper", "substr"}


def column_values(rng: random.Random, name: str, kind: str, pins: list[Any], size: int) -> list[Any]:
    """Values of one column, crowded around the constants of the query so that near misses differ."""
    if name == "id":
        return list(range(1, size + 1))
    if name.endswith("_id"):
        return [rng.randint(1, size // 3 + 1) for _ in range(size)]
    if kind == "TEXT":
        others = [f"{letter}o{pin}" for letter in "QXYZUKJHFDB" for pin in pins or ["u", "v"]]
        starts = [*pins, *pins, *pins, *others]
        picks = [starts[int(len(starts) * rng.random() ** 2)] for _ in range(size)]
        return [f"{text} {row}" if name in LABELS else text for row, text in enumerate(picks)]
    if not pins:
        # Unique, so that a sorted result has one order only.
        return rng.sample(range(1, 1000), size)
    edges = [value + step for value in pins for step in (-1, 0, 1)]
    return [rng.choice(edges) if rng.random() < 0.6 else rng.randint(1, 2 * max(edges)) for _ in range(size)]


def build(check: dict[str, Any], size: int) -> sqlite3.Connection:
    """An in-memory database with ``size`` rows a table, which depend on ``check`` and ``size`` only."""
    connection, rng = sqlite3.connect(":memory:"), random.Random(size)
    for table, columns in check["tables"].items():
        connection.execute(f"CREATE TABLE {table} ({', '.join(f'{c} {t}' for c, t in columns.items())})")
        values = [column_values(rng, c, t, check["pins"].get(f"{table}.{c}", []), size) for c, t in columns.items()]
        connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", zip(*values))
    connection.execute("PRAGMA query_only = ON")
    connection.set_authorizer(authorize)
    return connection


def authorize(action: int, _: str | None, name: str | None, *__: str | None) -> int:
    """Let an untrusted query read tables and call harmless functions, nothing else."""
    harmless = action == sqlite3.SQLITE_FUNCTION and str(name).lower() in ALLOWED_FUNCTIONS
    allowed = harmless or action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def run(connection: sqlite3.Connection, text: str) -> list[tuple[Any, ...]] | None:
    """Rows of the query at the start of ``text``; None if there is none or it fails."""
    query, end, _ = text[:MAX_ANSWER].strip().partition(";")
    if not end or not query.upper().startswith("SELECT"):
        return None
    steps = iter(range(MAX_STEPS))
    connection.set_progress_handler(lambda: next(steps, None) is None, 1000)
    try:
        return connection.execute(query).fetchmany(MAX_ROWS)
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError):
        return None
