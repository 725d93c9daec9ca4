"""The runs as a file: CSV, JSON or Parquet, oldest first, with all columns but those for the program's own use; or as
files that other tools read (:mod:`storage.exchange`).

JSON holds values as a run's own JSON does, Parquet as they are stored; CSV is made for people and spreadsheets: see
:func:`~storage.records.status_title` and :func:`cell`. All of these functions write as they read, so a history of any
size fits into memory.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow.parquet import ParquetWriter

from storage.connection import open_reader, read_rows
from storage.exchange import FORMS, export_form
from storage.filters import Filter
from storage.records import status_title
from storage.rows import JSON_COLUMNS, TRUTHS, converted

PACKED = ("acceptance", "prompt_hash", "best_arm_rounds")
"""Columns for the program's own use."""

ROW_GROUP = 10_000
"""Rows that are written to Parquet at once."""

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What formulas begin with."""

TYPES = {"INTEGER": pa.int64(), "REAL": pa.float64(), "TEXT": pa.string()}
"""Of columns by their declared type."""


def export_csv(path: str | Path, filter: Filter, file: str | Path) -> int:
    """Write the runs of the database ``path`` that the filter lets through, with a header; returns how many.

    Raises:
        OSError: the file cannot be written.
        StorageError: the database cannot be read.
    """
    with open(file, "w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        columns, rows = _runs(path, filter)
        writer.writerow(columns)
        status = list(columns).index("status")
        shown = ([status_title(v) if place == status else cell(v) for place, v in enumerate(row)] for row in rows)
        return sum(1 for _ in map(writer.writerow, shown))


def cell(value: Any) -> Any:
    """A value as CSV holds it: a text that a spreadsheet would run as a formula begins with an apostrophe there.

    The characters are those that OWASP names (CSV Injection).
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def csv_of(lines: Sequence[Mapping[str, Any]]) -> str:
    """Lines that name their cells by the columns as CSV, with a header."""
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, list(lines[0]) if lines else [], lineterminator="\r\n")
    writer.writeheader()
    writer.writerows({name: cell(value) for name, value in line.items()} for line in lines)
    return file.getvalue()


def export_json(path: str | Path, filter: Filter, file: str | Path) -> int:
    """Likewise, as a JSON list of objects, one a line."""
    written = 0
    with open(file, "w", encoding="utf-8") as out:
        columns, rows = _runs(path, filter)
        out.write("[")
        for written, row in enumerate(rows, start=1):
            record = converted(dict(zip(columns, row, strict=True)), JSON_COLUMNS, json.loads)
            record = converted(record, TRUTHS, bool)
            out.write((",\n" if written > 1 else "\n") + json.dumps(record, ensure_ascii=False))
        out.write("\n]\n")
    return written


def export_parquet(path: str | Path, filter: Filter, file: str | Path) -> int:
    """Likewise, as Parquet, with the types of the database: int64, float64 and string."""
    written = 0
    columns, rows = _runs(path, filter)
    schema = pa.schema([(name, TYPES[kind]) for name, kind in columns.items()])
    with ParquetWriter(str(file), schema) as writer:
        while group := list(islice(rows, ROW_GROUP)):
            arrays = [pa.array(values, type) for values, type in zip(zip(*group), schema.types, strict=True)]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
            written += len(group)
    return written


EXPORTS: dict[str, Callable[[str | Path, Filter, str | Path], int]] = {
    "csv": export_csv,
    "json": export_json,
    "parquet": export_parquet,
    **{f"{form}.zip": partial(export_form, form) for form in FORMS},
}
"""How to write each kind of file, by its suffix."""


def _runs(path: str | Path, filter: Filter) -> tuple[dict[str, str], Iterator[tuple[Any, ...]]]:
    """The columns with their declared types, and the rows."""
    table = read_rows(path, "SELECT name, type FROM pragma_table_info('runs')")
    columns = {name: kind for name, kind in table if name not in PACKED}

    def rows() -> Iterator[tuple[Any, ...]]:
        where, values = filter.where()
        sql = f"SELECT {', '.join(columns)} FROM runs {where} ORDER BY created_at, id"
        with open_reader(path) as connection:
            yield from connection.execute(sql, values)

    return columns, rows()
