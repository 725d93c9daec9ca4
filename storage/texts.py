"""Recorded texts that policies can be replayed on: finished greedy runs that hold an acceptance table.

A greedy text does not depend on who drafted it, so the runs of one prompt on one pool that wrote the same are one text:
the newest stands for all. Every function opens its own read-only connection (see ``storage.queries``).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.connection import read_column, read_dicts, read_rows
from storage.filters import ALL, FINISHED, Filter, run_id
from storage.rows import run_of
from storage.run import Run

REPLAYABLE = f"{FINISHED} AND acceptance IS NOT NULL"
"""Condition in SQL: runs that were cancelled or failed don't count."""

_TEXT = ("prompt_hash", "text", "max_new_tokens", "draft_length")
"""What tells texts of a pool apart."""


@dataclass(frozen=True)
class TextFilter:
    """Which texts; what is left out restricts nothing.

    Attributes:
        runs: what the runs that wrote it must be.
        id: one run alone.
        suite: of the runs that wrote it.
        newest: the newest so many texts only.
        among: of the newest so many runs only, which keeps a long history quick.
    """

    runs: Filter = ALL
    id: int | None = None
    suite: str | None = None
    newest: int | None = None
    among: int | None = None

    def where(self) -> tuple[str, list[Any]]:
        """The WHERE clause and its parameters."""
        id = None if self.id is None else run_id(self.id)
        compared = {"id =": id, "suite =": self.suite, "id > (SELECT max(id) FROM runs) -": self.among}
        return self.runs.where(REPLAYABLE, compared=compared)


ALL_TEXTS = TextFilter()
"""Every text."""


@dataclass(frozen=True)
class Bench:
    """A pool on a machine: its ``texts`` replayable texts have the same drafters, and the same costs."""

    pool: str
    card_hash: str
    hardware: str
    dtype: str
    drafters: tuple[str, ...]
    texts: int


def benches(path: str | Path, filter: TextFilter = ALL_TEXTS) -> list[Bench]:
    """Pools and machines with texts, that of the newest run first."""
    where, values = filter.where()
    sql = f"""
        SELECT pool, card_hash, hardware, dtype, drafters,
               count(DISTINCT {" || '|' || ".join(_TEXT)}), max(id)
        FROM runs {where} GROUP BY card_hash, hardware, dtype ORDER BY max(id) DESC
    """
    rows = read_rows(path, sql, values)
    return [
        Bench(pool, card, hardware, dtype, tuple(json.loads(names)), count)
        for pool, card, hardware, dtype, names, count, _ in rows
    ]


def groups(path: str | Path, filter: TextFilter = ALL_TEXTS) -> dict[str, list[str]]:
    """The distinct ``suites`` and ``tasks`` of texts, sorted."""
    where, values = filter.where()
    sql = "SELECT DISTINCT {0} FROM runs {1} AND {0} IS NOT NULL ORDER BY {0}"
    return {f"{column}s": read_column(path, sql.format(column, where), values) for column in ("suite", "task")}


def replayable(path: str | Path, filter: TextFilter = ALL_TEXTS) -> list[Run]:
    """The texts, newest first, each as the newest run that wrote it, but without its rounds and tokens, which no
    replay needs."""
    chosen, values = _newest(filter)
    rows = read_dicts(path, f"SELECT * FROM runs WHERE id IN ({chosen}) ORDER BY id DESC", values)
    return [run_of(row, ()) for row in rows]


@dataclass(frozen=True)
class Size:
    """How many texts, tokens in them, and distinct prompts; their draft lengths and code versions; and how many older
    texts the filter's ``newest`` leaves out."""

    texts: int
    tokens: int
    prompts: int
    draft_lengths: tuple[int, ...]
    versions: tuple[str, ...]
    older: int


def size(path: str | Path, filter: TextFilter = ALL_TEXTS) -> Size:
    """How many texts a filter lets through."""
    chosen, values = _newest(filter)
    counts = "count(*), coalesce(sum(output_tokens), 0), count(DISTINCT prompt_hash)"
    distinct = ", ".join(f"json_group_array(DISTINCT {column})" for column in ("draft_length", "version"))
    sql = f"SELECT {counts}, {distinct} FROM runs WHERE id IN ({chosen})"
    ((texts, tokens, prompts, *lists),) = read_rows(path, sql, values)
    (every,) = read_column(path, f"SELECT count(*) FROM ({chosen})", [*values[:-1], -1])
    lengths, versions = (tuple(sorted(value for value in json.loads(found) if value is not None)) for found in lists)
    return Size(texts, tokens, prompts, lengths, versions, every - texts)


def _newest(filter: TextFilter) -> tuple[str, list[Any]]:
    """SQL for the ids of the newest run of each text, newest first, and its parameters.

    In a batch policies ran on the same prompt at the same time, and only those that start from past queries noted what
    these had taught: where it is not the text's newest run that did, another of its batch stands for it.
    """
    where, values = filter.where()
    newest = f"SELECT max(id) AS id FROM runs {where} GROUP BY card_hash, {', '.join(_TEXT)} ORDER BY 1 DESC LIMIT ?"
    values = [*values, -1 if filter.newest is None else filter.newest]
    if filter.id is not None:
        return newest, values
    same = " AND ".join(f"other.{column} = own.{column}" for column in ("batch_id", *_TEXT))
    knowing = f"""
        SELECT max(other.id) FROM runs AS other
        WHERE own.prior IS NULL AND {same} AND other.prior IS NOT NULL AND {REPLAYABLE}
    """
    return f"SELECT coalesce(({knowing}), own.id) FROM ({newest}) JOIN runs AS own USING (id)", values
