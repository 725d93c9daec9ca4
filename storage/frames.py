"""Rows of a query as a data frame."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import pandas as pd


def read_frame(
    connection: sqlite3.Connection, sql: str, values: Sequence[Any] = (), numbers: Sequence[str] = ()
) -> pd.DataFrame:
    """The rows; ``numbers`` are columns of floats even where every value is missing or there is no row.

    A column ``created_at`` becomes UTC times where ``numbers`` are given.
    """
    cursor = connection.execute(sql, values)
    frame = pd.DataFrame(cursor.fetchall(), columns=[column[0] for column in cursor.description])
    frame = frame.astype(dict.fromkeys(numbers, float))
    if numbers and "created_at" in frame:
        frame["created_at"] = pd.to_datetime(frame["created_at"], utc=True, format="ISO8601")
    return frame
