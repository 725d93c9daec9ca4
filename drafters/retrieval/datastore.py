"""A datastore: past text as token ids with a suffix array, in a file that is mapped into memory (REST, He et al. 2023).

Layout, little-endian: 8 bytes magic; uint32 length of the header; the header, JSON padded with spaces to a multiple of
4 bytes; the tokens, uint32; the suffix array, uint32. Every text ends with the token ``END``, which no vocabulary has.
"""

from __future__ import annotations

import json
import os
import struct
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from drafters.checkpoints.digest import digest_of
from drafters.errors import PoolError, UserError, unreadable
from drafters.files import replacing

MAGIC = b"mdstore1"
END = 2**32 - 1
"""Follows each text; greater than every token."""

NUMBERS = ("tokens", "vocabulary", "checksum")

DEPTH = 128
"""Suffixes are sorted by so many tokens at least: more than are ever looked up and drafted together."""


PIECE = 1 << 16
"""Bytes of a plain text that are tokenised at once; pieces end with a line."""

BATCH = 1 << 20
"""Bytes handed to the tokenizer at once: it works in parallel on the texts of a batch."""


@dataclass(frozen=True)
class Datastore:
    """An open datastore.

    Attributes:
        tokens: uint32 ``(n,)``, texts one after the other.
        suffixes: uint32 ``(n,)``, positions in ``tokens`` in the order of what stands there.
        header: ``tokens`` (n), ``tokenizer`` (fingerprint), ``vocabulary`` (ids are smaller), ``checksum``.
    """

    tokens: np.ndarray
    suffixes: np.ndarray
    header: dict[str, Any]

    @property
    def fingerprint(self) -> str:
        """Identifies its content."""
        return f"{self.header['tokens']}:{self.header['checksum']:08x}"

    def bounds(self) -> np.ndarray:
        """Where in the suffix array the suffixes that begin with each token begin, and after the last one where they
        end: int64 ``(largest token + 2,)``."""
        return np.concatenate(([0], np.cumsum(np.bincount(self.tokens[self.tokens != END]))))

    @classmethod
    def open(cls, path: Path, fingerprint: str, vocabulary: int) -> Datastore:
        """Map the file ``path`` for a target with this tokenizer and number of token ids.

        Raises:
            PoolError: no such file, no datastore, a damaged one, or one made with another tokenizer.
        """
        build = "python -m multidraft datastore build --pool POOL --out"
        again = f"build it anew with: {build} {path} TEXT..."
        if not path.is_file():
            raise PoolError(f"the datastore {path} does not exist; {again}")
        try:
            if not is_datastore(path):
                raise PoolError(f"{path} is no datastore; name a datastore, or build one into a new file: {build} FILE")
            header, array = _map(path)
        except PoolError:
            raise
        except (OSError, ValueError) as error:
            raise PoolError(f"the datastore {path} cannot be used: {error}; {again}") from None
        if header["tokenizer"] != fingerprint or header["vocabulary"] > vocabulary:
            raise PoolError(f"the datastore {path} was made with another tokenizer than this pool's; {again}")
        tokens, suffixes = np.split(array, 2)
        return cls(tokens, suffixes, header)


def is_datastore(path: Path) -> bool:
    """Whether a file begins as datastores do."""
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _map(path: Path) -> tuple[dict[str, Any], np.ndarray]:
    """Header, and tokens and suffix array ``(2n,)``; raises ValueError with what is wrong with the file."""
    with open(path, "rb") as file:
        file.seek(len(MAGIC))
        try:
            header = json.loads(file.read(struct.unpack("<I", file.read(4))[0]))
            header = {"tokenizer": header["tokenizer"], **{key: int(header[key]) for key in NUMBERS}}
        except (struct.error, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            raise ValueError("it is damaged, its header cannot be read") from None
        start, count = file.tell(), header["tokens"]
    if path.stat().st_size != start + 8 * count or count < 1:
        raise ValueError("it is damaged, its length is wrong")
    body = np.memmap(path, np.dtype("<u4"), "r", start, shape=(2 * count,))
    if zlib.crc32(body.data) != header["checksum"] or body[count - 1] != END:
        raise ValueError("it is damaged, its checksum is wrong")
    return header, np.asarray(body)  # slices of a memmap are slow to make


def write_datastore(path: Path, tokens: np.ndarray, tokenizer: PreTrainedTokenizerBase) -> None:
    """Write the datastore of ``tokens`` (uint32, texts that end with ``END`` each) in one step."""
    suffixes = suffix_array(tokens)
    ids = tokens[tokens != END]
    header = {
        "tokens": len(tokens),
        "tokenizer": tokenizer_fingerprint(tokenizer),
        "vocabulary": int(ids.max()) + 1 if len(ids) else 0,
        "checksum": zlib.crc32(suffixes.data, zlib.crc32(tokens.data)),
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 4)
    with replacing(path) as part, open(part, "wb") as file:
        file.write(MAGIC + struct.pack("<I", len(text)) + text)
        tokens.astype("<u4").tofile(file)
        suffixes.astype("<u4").tofile(file)


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """16 hex digits of what each token id stands for."""
    entries = sorted((index, token) for token, index in tokenizer.get_vocab().items())
    return digest_of(json.dumps(entries))


def suffix_array(tokens: np.ndarray, depth: int = DEPTH) -> np.ndarray:
    """Positions of ``tokens`` sorted by what stands there, by ``depth`` tokens at least; uint32 ``(n,)``.

    Prefix doubling (Manber & Myers 1990): what is sorted by h tokens is sorted by 2h once ties are broken by the rank
    of what stands h tokens further on. The first step packs several tokens into one number; the later ones sort only
    what is not yet unique (Larsson & Sadakane 1999).
    """
    count = len(tokens)
    if count == 0:
        return np.empty(0, np.uint32)
    ends = tokens == END
    highest = int(tokens.max(where=~ends, initial=0)) + 2
    ids = np.where(ends, highest, tokens.astype(np.int64) + 1)  # 0 is left for what lies beyond the end
    bits = highest.bit_length()
    span = 62 // bits
    keys = np.zeros(count, np.int64)
    for offset in range(span):
        keys <<= bits
        keys[: max(count - offset, 0)] |= ids[offset:]
    suffixes, tied = np.arange(count), np.arange(count)
    first = np.ones(count, bool)  # whether a new group of equals begins at a place of the array
    rank = np.zeros(count + 1, np.int64)  # 1 + the place where its group begins; 0 beyond the end
    while True:
        order = np.argsort(keys)
        positions, keys = suffixes[tied][order], keys[order]
        suffixes[tied] = positions
        first[tied] = begins = np.append(True, keys[1:] != keys[:-1])
        rank[positions] = np.maximum.accumulate(np.where(begins, tied, 0)) + 1
        tied = np.flatnonzero(~(first & np.append(first[1:], True)))
        if span >= depth or not len(tied):
            return suffixes.astype(np.uint32)
        keys = (rank[suffixes[tied]] << 32) | rank[np.minimum(suffixes[tied] + span, count)]
        span *= 2


@dataclass(frozen=True)
class Built:
    """What went into a datastore: texts, bytes read, tokens stored (with one at the end of each text), and seconds of
    reading and tokenising, and of sorting and writing."""

    texts: int
    size: int
    tokens: int
    seconds: float
    sort_seconds: float


def build_datastore(out: Path, inputs: Sequence[Path], tokenizer: PreTrainedTokenizerBase) -> Built:
    """Write the datastore ``out`` of the texts in ``inputs``, with a progress bar on standard error.

    Args:
        inputs: plain text, one text a file; or ``.jsonl``, one text a line: a string or an object with a ``text``.

    Raises:
        UserError: a file that cannot be read or written, no text, or something else at ``out`` than a datastore.
    """
    started = time.perf_counter()
    chunks: list[np.ndarray] = []
    texts = size = 0
    try:
        if out.is_file() and out.stat().st_size and not is_datastore(out):
            raise UserError(f"--out: {out} is no datastore and is not overwritten; name a datastore, or a new file")
        for batch, rows in _tokenised(inputs, tokenizer):
            ids = [[*row, *[END] * piece.ends] for piece, row in zip(batch, rows, strict=True)]
            chunks.append(np.array(list(chain.from_iterable(ids)), dtype=np.uint32))
            texts += sum(piece.ends for piece in batch)
            size += sum(piece.size for piece in batch)
        tokens = np.concatenate([*chunks, np.empty(0, np.uint32)])
        if len(tokens) == texts:  # the ends of empty texts only
            raise UserError(f"there is no text in {', '.join(map(str, inputs))}")
        if len(tokens) >= 2**31:
            raise UserError(f"{len(tokens):,} tokens are too many for one datastore: split the text in several")
        done = time.perf_counter()
        write_datastore(out, tokens, tokenizer)
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror or error}") from None
    return Built(texts, size, len(tokens), done - started, time.perf_counter() - done)


def count_tokens(inputs: Sequence[Path], tokenizer: PreTrainedTokenizerBase) -> Counter[int]:
    """How often each token stands in texts, read as by :func:`build_datastore`; the end token once for each text.

    Raises:
        UserError: a file that cannot be read, or no text.
    """
    counts, texts = Counter[int](), 0
    for batch, rows in _tokenised(inputs, tokenizer):
        counts.update(chain.from_iterable(rows))
        texts += sum(piece.ends for piece in batch)
    if not counts:
        raise UserError(f"there is no text in {', '.join(map(str, inputs))}")
    if tokenizer.eos_token_id is not None:
        counts[tokenizer.eos_token_id] += texts
    return counts


def _tokenised(
    inputs: Sequence[Path], tokenizer: PreTrainedTokenizerBase
) -> Iterator[tuple[list[_Piece], list[list[int]]]]:
    """Pieces of texts and the tokens of each, with a progress bar on standard error."""
    total = sum(os.path.getsize(path) for path in inputs if os.path.isfile(path))
    with tqdm(total=total, unit="B", unit_scale=True, desc="tokenising", disable=None) as bar:
        for batch in _batches(inputs):
            contents = [piece.text for piece in batch]
            rows = tokenizer(contents, add_special_tokens=False, return_attention_mask=False, verbose=False)
            yield batch, rows["input_ids"]
            bar.update(sum(piece.size for piece in batch))


class _Piece(NamedTuple):
    """Part of a text, whether the text ends with it, and how many bytes of the file it was."""

    text: str
    ends: bool
    size: int


def _batches(inputs: Sequence[Path]) -> Iterator[list[_Piece]]:
    batch, waiting = list[_Piece](), 0
    for path in inputs:
        try:
            for piece in _records(path) if path.suffix.lower() == ".jsonl" else _pieces(path):
                batch.append(piece)
                waiting += piece.size
                if waiting >= BATCH:
                    yield batch
                    batch, waiting = [], 0
        except UnicodeDecodeError:
            raise UserError(f"{path} is not a text in UTF-8") from None
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror or error}") from None
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
            content = line.decode()
            try:
                record = json.loads(content)
            except (ValueError, RecursionError) as error:
                raise UserError(f"{path}, line {number}: not JSON ({unreadable(error)})") from None
            text = record.get("text") if isinstance(record, dict) else record
            if not isinstance(text, str):
                raise UserError(f"{path}, line {number}: expected a string or an object with a text")
            try:
                text.encode()
            except UnicodeEncodeError:
                raise UserError(f"{path}, line {number}: holds half of a character (a lone surrogate)") from None
            yield _Piece(text, True, len(line))
