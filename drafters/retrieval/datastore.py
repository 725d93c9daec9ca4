"""A datastore: past text as token ids with a suffix array, in a file that is mapped into memory (REST, He et al. 2023).

Layout, little-endian: 8 bytes magic; uint32 length of the header; the header, JSON padded with spaces to a multiple of
4 bytes; the tokens, uint32; the suffix array, uint32. Every text ends with the token ``END``, which no vocabulary has.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from drafters.errors import PoolError

MAGIC = b"mdstore1"
END = 2**32 - 1
"""Follows each text; greater than every token."""

NUMBERS = ("tokens", "vocabulary", "checksum")

DEPTH = 128
"""Suffixes are sorted by so many tokens at least: more than are ever looked up and drafted together."""


@dataclass(frozen=True)
class Datastore:
    """An open datastore.

    Attributes:
        path: its file.
        tokens: uint32 ``(n,)``, texts one after the other.
        suffixes: uint32 ``(n,)``, positions in ``tokens`` in the order of what stands there.
        header: ``tokens`` (n), ``tokenizer`` (fingerprint), ``vocabulary`` (ids are smaller), ``checksum``.
    """

    path: Path
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
        """Map the file ``path``.

        Args:
            fingerprint: of the target's tokenizer, see :func:`tokenizer_fingerprint`.
            vocabulary: the target's number of token ids.

        Raises:
            PoolError: no such file, no datastore, a damaged one, or one made with another tokenizer.
        """
        again = f"build it anew with: python -m multidraft datastore build --pool POOL --out {path} TEXT..."
        if not path.is_file():
            raise PoolError(f"the datastore {path} does not exist; {again}")
        try:
            header, body = _map(path)
        except (OSError, ValueError) as error:
            raise PoolError(f"the datastore {path} cannot be used: {error}; {again}") from None
        if header["tokenizer"] != fingerprint or header["vocabulary"] > vocabulary:
            raise PoolError(f"the datastore {path} was made with another tokenizer than this pool's; {again}")
        array, count = np.asarray(body), header["tokens"]  # slices of a memmap are slow to make
        return cls(path, array[:count], array[count:], header)


def _map(path: Path) -> tuple[dict[str, Any], np.memmap]:
    """Header, and tokens and suffix array ``(2n,)``; raises ValueError with what is wrong with the file."""
    with open(path, "rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise ValueError("it is no datastore")
        try:
            header = json.loads(file.read(struct.unpack("<I", file.read(4))[0]))
            header = {"tokenizer": header["tokenizer"], **{key: int(header[key]) for key in NUMBERS}}
        except (struct.error, ValueError, KeyError, TypeError, OverflowError):
            raise ValueError("it is damaged, its header cannot be read") from None
        start, count = file.tell(), header["tokens"]
    if path.stat().st_size != start + 8 * count or count < 1:
        raise ValueError("it is damaged, its length is wrong")
    body = np.memmap(path, np.dtype("<u4"), "r", start, shape=(2 * count,))
    if zlib.crc32(body.data) != header["checksum"] or body[count - 1] != END:
        raise ValueError("it is damaged, its checksum is wrong")
    return header, body


def write_datastore(path: Path, tokens: np.ndarray, tokenizer: PreTrainedTokenizerBase) -> None:
    """Write the datastore of ``tokens`` (uint32, texts that end with ``END`` each); the file appears when it is whole.

    Raises:
        OSError: the file cannot be written.
    """
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
    unfinished = path.with_name(f"{path.name}.part")
    try:
        with open(unfinished, "wb") as file:
            file.write(MAGIC + struct.pack("<I", len(text)) + text)
            tokens.astype("<u4").tofile(file)
            suffixes.astype("<u4").tofile(file)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """16 hex digits of what each token id stands for."""
    entries = sorted((index, token) for token, index in tokenizer.get_vocab().items())
    return hashlib.sha256(json.dumps(entries).encode()).hexdigest()[:16]


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
    suffixes = np.argsort(keys)
    keys = keys[suffixes]
    first = np.ones(count, bool)  # whether a new group of equals begins at a place of the array
    first[1:] = keys[1:] != keys[:-1]
    rank = np.zeros(count + 1, np.int64)  # 1 + the place where its group begins; 0 beyond the end
    rank[suffixes] = np.maximum.accumulate(np.where(first, np.arange(count), 0)) + 1
    while span < depth:
        tied = np.flatnonzero(~(first & np.append(first[1:], True)))
        if not len(tied):
            break
        positions = suffixes[tied]
        keys = (rank[positions] << 32) | rank[np.minimum(positions + span, count)]
        order = np.argsort(keys)
        suffixes[tied], keys = positions[order], keys[order]
        begins = np.ones(len(tied), bool)
        begins[1:] = keys[1:] != keys[:-1]
        first[tied] = begins
        rank[suffixes[tied]] = np.maximum.accumulate(np.where(begins, tied, 0)) + 1
        span *= 2
    return suffixes.astype(np.uint32)
