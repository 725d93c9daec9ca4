"""Collecting past text for a datastore: files of text, tokenised as they are read."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from drafters.errors import UserError
from drafters.retrieval.datastore import END, write_datastore

PIECE = 1 << 16
"""Bytes of a plain text that are tokenised at once; pieces end with a line."""

BATCH = 1 << 20
"""Bytes handed to the tokenizer at once: it works in parallel on the texts of a batch."""


@dataclass(frozen=True)
class Built:
    """What went into a datastore.

    Attributes:
        texts, size, tokens: number of texts, bytes read, tokens stored (with one at the end of each text).
        seconds: of reading and tokenising.
        sort_seconds: of sorting and writing.
    """

    texts: int
    size: int
    tokens: int
    seconds: float
    sort_seconds: float


def build_datastore(
    out: Path, inputs: Sequence[Path], tokenizer: PreTrainedTokenizerBase, *, quiet: bool = False
) -> Built:
    """Write the datastore ``out`` of the texts in ``inputs``, with a progress bar on standard error.

    Args:
        inputs: plain text, one text a file; or ``.jsonl``, one text a line: a string or an object with a ``text``.

    Raises:
        UserError: a file that cannot be read or written, or no text.
    """
    started = time.perf_counter()
    chunks: list[np.ndarray] = []
    texts = size = 0
    try:
        total = sum(path.stat().st_size for path in inputs)
        with tqdm(total=total, unit="B", unit_scale=True, desc="tokenising", disable=quiet or None) as bar:
            for batch in _batches(inputs):
                contents = [piece.text for piece in batch]
                rows = tokenizer(contents, add_special_tokens=False, return_attention_mask=False, verbose=False)
                ids = [[*row, *[END] * piece.ends] for piece, row in zip(batch, rows["input_ids"], strict=True)]
                chunks.append(np.array(list(chain.from_iterable(ids)), dtype=np.uint32))
                texts += sum(piece.ends for piece in batch)
                size += (read := sum(piece.size for piece in batch))
                bar.update(read)
        tokens = np.concatenate([*chunks, np.empty(0, np.uint32)])
        if len(tokens) == texts:  # the ends of empty texts only
            raise UserError(f"there is no text in {', '.join(map(str, inputs))}")
        if len(tokens) >= 2**31:
            raise UserError(f"{len(tokens):,} tokens are too many for one datastore: split the text in several")
        done = time.perf_counter()
        write_datastore(out, tokens, tokenizer)
    except OSError as error:
        raise UserError(f"cannot read or write {error.filename or out}: {error.strerror or error}") from None
    return Built(texts, size, len(tokens), done - started, time.perf_counter() - done)


class _Piece(NamedTuple):
    """Part of a text, whether the text ends with it, and how many bytes of the file it was."""

    text: str
    ends: bool
    size: int


def _batches(inputs: Sequence[Path]) -> Iterator[list[_Piece]]:
    batch, waiting = list[_Piece](), 0
    for path in inputs:
        try:
            for piece in _records(path) if path.suffix == ".jsonl" else _pieces(path):
                batch.append(piece)
                waiting += piece.size
                if waiting >= BATCH:
                    yield batch
                    batch, waiting = [], 0
        except UnicodeDecodeError:
            raise UserError(f"{path} is not a text in UTF-8") from None
    if batch:
        yield batch


def _pieces(path: Path) -> Iterator[_Piece]:
    """A plain text, a few lines at a time; its last piece is empty and ends it."""
    with open(path, "rb") as file:
        while lines := file.readlines(PIECE):
            content = b"".join(lines)
            yield _Piece(content.decode(), False, len(content))
    yield _Piece("", True, 0)


def _records(path: Path) -> Iterator[_Piece]:
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line.decode())
            except json.JSONDecodeError as error:
                raise UserError(f"{path}, line {number}: not JSON ({error.msg})") from None
            text = record.get("text") if isinstance(record, dict) else record
            if not isinstance(text, str):
                raise UserError(f"{path}, line {number}: expected a string or an object with a text")
            yield _Piece(text, True, len(line))
