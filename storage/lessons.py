"""What the runs of a history teach about a pool's drafters, and since when they do."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from drafters.traffic import LESSONS, Lesson
from storage.connection import open_writer, read_column, read_rows, writing
from storage.run import utc_text

_TEACHES = """
    suitability IS NOT NULL AND learn
    AND created_at > coalesce((SELECT since FROM learning WHERE learning.card_hash = runs.card_hash), '')
"""
"""Condition in SQL."""


def lessons(
    path: str | Path, card_hash: str, newest: int = LESSONS, before: datetime | None = None
) -> list[tuple[str, Lesson]]:
    """Prompts and how well each drafter suited their texts (:func:`~drafters.traffic.suitability`), oldest first.

    Runs whose visitors did not want them to be learnt from are left out, and those before the last :func:`forget`; also
    those made from ``before`` on.
    """
    where, values = _of(card_hash, before)
    rows = read_rows(path, f"SELECT prompt, suitability FROM runs {where} ORDER BY id DESC LIMIT ?", [*values, newest])
    return [(prompt, json.loads(told)) for prompt, told in reversed(rows)]


class Taught(NamedTuple):
    """A pool that learns: its card, and how many ``lessons`` its runs have taught. ``draft_length`` is the longest."""

    pool: str
    card_hash: str
    drafters: tuple[str, ...]
    draft_length: int
    lessons: int


def pools(path: str | Path) -> list[Taught]:
    """The pools that runs of a history have taught anything, that of the newest run first."""
    sql = f"""
        SELECT pool, card_hash, drafters, max(draft_length), count(*) FROM runs
        WHERE {_TEACHES} GROUP BY card_hash ORDER BY max(id) DESC
    """
    rows = read_rows(path, sql)
    return [Taught(pool, card, tuple(json.loads(names)), length, count) for pool, card, names, length, count in rows]


def forgotten(path: str | Path, pool: str | None = None) -> bool:
    """Whether a pool, by default any, has been reset (:func:`forget`)."""
    sql = "SELECT count(*) FROM runs WHERE card_hash IN (SELECT card_hash FROM learning) AND pool = coalesce(?, pool)"
    return bool(read_column(path, sql, [pool])[0])


def count(path: str | Path, card_hash: str, before: datetime | None = None) -> int:
    """How many lessons there are."""
    where, values = _of(card_hash, before)
    (count,) = read_column(path, f"SELECT count(*) FROM runs {where}", values)
    return int(count)


def _of(card_hash: str, before: datetime | None) -> tuple[str, list[str]]:
    """The clause that chooses a pool's runs that teach, and its values."""
    return f"WHERE card_hash = ? AND {_TEACHES} AND created_at < ?", [card_hash, utc_text(before or datetime.max)]


def forget(path: Path, card_hash: str) -> None:
    """Have a pool learn from later runs only; the runs themselves stay."""
    newest = "SELECT ?, coalesce(max(created_at), '') FROM runs"
    with open_writer(path.absolute()) as db, writing(db):
        db.execute(f"INSERT OR REPLACE INTO learning (card_hash, since) {newest}", [card_hash])
