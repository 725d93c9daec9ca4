"""A run's JSON form ↔ its row of the table ``runs`` and its rows of ``rounds``: columns are called as its keys are."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from drafters.base import Acceptances
from storage.records import Generation
from storage.run import Run, plain

JSON_COLUMNS = "turns drafters readers libraries versions benched prior drafter_rounds suitability".split()
"""Columns of ``runs`` that hold a list or an object as JSON."""

TRUTHS = ("lossless", "learn")
"""Columns of ``runs`` that hold true or false as 1 or 0."""

JSON_ROUND_COLUMNS = ("drafted", "tokens", "pieces", "probabilities", "choices", "siblings", "texts")
"""Likewise of ``rounds``."""

NOT_STORED = ("id", "rounds", "token_ids", "drafter_shares")
"""Keys without a column: they follow from the rounds, or are given by the database."""


def run_row(values: Mapping[str, Any]) -> dict[str, Any]:
    """The row of ``runs``.

    Args:
        values: what :meth:`~storage.run.Run.to_json` returns.
    """
    row = converted({key: value for key, value in values.items() if key not in NOT_STORED}, JSON_COLUMNS, _json)
    row = converted(row, ["acceptance"], pack_tables)
    row["prompt_hash"] = prompt_hash(row["prompt"], row["turns"])
    row["best_arm_rounds"] = _best_arm_rounds(values)
    return row


def round_rows(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of ``rounds``, without ``run_id``, which the insert assigns; ``text`` follows from ``pieces``."""
    rounds = ({key: value for key, value in r.items() if key != "text"} for r in values["rounds"])
    return [converted(r, JSON_ROUND_COLUMNS, _json) for r in rounds]


def run_of(row: Mapping[str, Any], rounds: Sequence[Mapping[str, Any]]) -> Run:
    """The run that was stored as these rows."""
    values = converted(converted(row, JSON_COLUMNS, json.loads), ["acceptance"], unpack_tables)
    values = converted(values, TRUTHS, bool)
    values["rounds"] = [converted(r, JSON_ROUND_COLUMNS, json.loads) for r in rounds]
    for r in values["rounds"]:
        r["text"] = "".join(r["pieces"])
    values["token_ids"] = [token for r in values["rounds"] for token in r["tokens"]]
    return Run.from_json(values)


def prompt_hash(prompt: str, turns: str) -> int:
    """64 bits that tell prompts apart, together with the conversation before them (``turns``, as JSON); signed."""
    return int.from_bytes(blake2b(f"{turns}\0{prompt}".encode(), digest_size=8).digest(), "big", signed=True)


def prompt_of(generation: Generation) -> int:
    """What ``prompt_hash`` is in the row of a run with this generation."""
    return prompt_hash(plain(generation.prompt), _json(plain(generation.turns)))


def pack_tables(tables: Mapping[str, Any]) -> bytes:
    """Tables of small whole numbers, by the fields of :class:`~drafters.base.Acceptances`, zlib-compressed in NumPy's
    own file format."""
    array, file = np.array([tables[name] for name in Acceptances._fields], dtype=np.uint16), io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return zlib.compress(file.getvalue())


def unpack_tables(packed: bytes) -> dict[str, Any]:
    """The tables, int64, as :func:`pack_tables` was given them."""
    loaded: np.ndarray = np.load(io.BytesIO(zlib.decompress(packed)), allow_pickle=False)
    return dict(zip(Acceptances._fields, loaded.astype(np.int64), strict=True))


def _best_arm_rounds(values: Mapping[str, Any]) -> str | None:
    """A character per round: ``1`` played the best drafter or one as good, ``0`` another, ``-`` none."""
    if (first := values["best_drafter"]) is None:
        return None
    needed = values["drafter_rounds"] or {}  # unknown of sampled runs
    best = {first, *(name for name, rounds in needed.items() if rounds == needed.get(first))}
    return "".join("-" if r["drafter"] is None else "1" if r["drafter"] in best else "0" for r in values["rounds"])


def converted(row: Mapping[str, Any], columns: Iterable[str], by: Callable[[Any], Any]) -> dict[str, Any]:
    """The row with these columns converted, but for ``None``."""
    return {**row, **{key: None if row[key] is None else by(row[key]) for key in columns}}


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
