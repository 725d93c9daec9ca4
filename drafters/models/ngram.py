"""A small n-gram language model over the target's tokens, with which drafts of Medusa and BPD heads are rescored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from drafters.errors import PoolError, first_line

ORDER = 3
"""Tokens per trigram; so many less one are what a prediction looks back to."""

LARGEST_VOCABULARY = 2**21 - 1
"""Up to so many tokens a trigram, and what bounds the last one, are numbers below 2^63."""

BUFFER = 2**20
"""Tokens counted at once: memory while counting grows with these and with the different n-grams found."""

NAMES = ("unigrams", "bigrams.keys", "bigrams.counts", "trigrams.keys", "trigrams.counts")


class _Counts:
    """Counts of all n-grams of one length.

    Args:
        keys: int64 ``(n,)``, ascending; an n-gram is the number whose digits to base V are its tokens.
        counts: int64 ``(n,)``.
    """

    def __init__(self, keys: np.ndarray, counts: np.ndarray, vocab_size: int):
        self.keys, self.counts, self.vocab_size = keys, counts, vocab_size
        self.before = np.concatenate(([0], np.cumsum(counts)))

    def interpolate(self, history: int, tokens: np.ndarray, lower: np.ndarray) -> np.ndarray:
        """Probabilities of ``tokens`` after ``history`` (a key of one token less), given those by a shorter history."""
        first = history * self.vocab_size
        low, high = (int(place) for place in np.searchsorted(self.keys, (first, first + self.vocab_size)))
        if low == high:
            return lower
        keys, wanted = self.keys[low:high], tokens + first
        places = np.minimum(np.searchsorted(keys, wanted), high - low - 1)
        counts = np.where(keys[places] == wanted, self.counts[low:high][places], 0)
        different, total = high - low, int(self.before[high] - self.before[low])
        return (counts + different * lower) / (total + different)


class NGram:
    """Trigrams interpolated with bigrams, unigrams and the uniform distribution.

    After a history ``h`` that was followed ``c(h)`` times, by ``t(h)`` different tokens, a token has the probability
    ``(c(h w) + t(h) P(w | h')) / (c(h) + t(h))``, with ``h'`` the history without its first token: the more different
    tokens followed, the less the counts are believed. There is nothing to tune and no token without a probability.

    Args:
        unigrams: counts int64 ``(V,)``.
        bigrams, trigrams: keys and counts, int64 ``(n,)`` each, see :func:`count_ngrams`.

    Source: Witten & Bell 1991 (method C) in the interpolated form of Chen & Goodman 1998, Sec. 2.6.
    """

    def __init__(
        self, unigrams: np.ndarray, bigrams: tuple[np.ndarray, np.ndarray], trigrams: tuple[np.ndarray, np.ndarray]
    ):
        self.unigrams, self.vocab_size = unigrams, len(unigrams)
        self.levels = [_Counts(*bigrams, self.vocab_size), _Counts(*trigrams, self.vocab_size)]
        different, total = np.count_nonzero(unigrams), unigrams.sum()
        self._alone = np.full(self.vocab_size, 1.0 / self.vocab_size)
        if total:
            self._alone = (unigrams + different * self._alone) / (total + different)

    def log_probabilities(self, before: Sequence[int], tokens: Sequence[int]) -> np.ndarray:
        """Logarithms of the probabilities of ``tokens`` after the text ``before``, of which the end counts.

        Returns:
            float64 ``(len(tokens),)``.
        """
        wanted = np.asarray(tokens, dtype=np.int64)
        probabilities, history = self._alone[wanted], 0
        for length, level in enumerate(self.levels, start=1):
            if len(before) < length:
                break
            history += before[-length] * self.vocab_size ** (length - 1)
            probabilities = level.interpolate(history, wanted, probabilities)
        return np.log(probabilities)

    def save(self, path: Path) -> None:
        """Write it as safetensors."""
        bigrams, trigrams = self.levels
        arrays = (self.unigrams, bigrams.keys, bigrams.counts, trigrams.keys, trigrams.counts)
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(dict(zip(NAMES, arrays, strict=True)), path)

    @classmethod
    def open(cls, path: Path, vocab_size: int) -> NGram:
        """Read what :meth:`save` wrote.

        Args:
            vocab_size: the target's.

        Raises:
            PoolError: no such file, no n-gram model, a damaged one, or one of another vocabulary.
        """
        if not path.is_file():
            raise PoolError(f"the n-gram model {path} does not exist")
        try:
            found = load_file(path)
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise PoolError(f"cannot read the n-gram model {path}: {first_line(error)}") from None
        for name in NAMES:
            if name not in found:
                raise PoolError(f"{path} is no n-gram model: it lacks the tensor {name}")
            if found[name].ndim != 1 or found[name].dtype != np.int64:
                raise PoolError(
                    f"{path}: tensor {name} has the shape {list(found[name].shape)} and the type {found[name].dtype}, "
                    f"but one dimension of int64 is expected"
                )
        unigrams, *rest = (found[name] for name in NAMES)
        if len(unigrams) != vocab_size:
            raise PoolError(
                f"{path} was made for {len(unigrams):,} tokens, but the target has {vocab_size:,} "
                f"(tensor unigrams has the shape {[len(unigrams)]}, but {[vocab_size]} is expected)"
            )
        if (unigrams < 0).any():
            raise PoolError(f"{path} is damaged: it has negative counts")
        bigrams, trigrams = (rest[0], rest[1]), (rest[2], rest[3])
        for length, (keys, counts) in enumerate((bigrams, trigrams), start=2):
            if len(keys) != len(counts):
                raise PoolError(f"{path} is damaged: {len(keys)} keys and {len(counts)} counts of {length}-grams")
            inside = not len(keys) or (keys[0] >= 0 and keys[-1] < vocab_size**length)
            if not inside or (keys[1:] <= keys[:-1]).any() or (counts < 1).any():
                raise PoolError(f"{path} is damaged: its {length}-grams are not in order")
        return cls(unigrams, bigrams, trigrams)


def count_ngrams(texts: Iterable[Sequence[int]], vocab_size: int) -> NGram:
    """Count the n-grams of ``texts``, token ids each; none spans two texts.

    They are read one after the other, and only the counts are kept.

    Raises:
        ValueError: a vocabulary too large, or a token that it does not hold.
    """
    if not 1 <= vocab_size <= LARGEST_VOCABULARY:
        raise ValueError(f"n-grams are counted over 1 to {LARGEST_VOCABULARY:,} tokens, not {vocab_size:,}")
    empty = np.empty(0, np.int64)
    found = [(empty, empty) for _ in range(ORDER)]
    waiting: list[np.ndarray] = []

    def count() -> None:
        for length in range(1, ORDER + 1):
            found[length - 1] = _merged(found[length - 1], [_keys(text, length, vocab_size) for text in waiting])
        waiting.clear()

    buffered = 0
    for text in texts:
        ids = np.asarray(text, dtype=np.int64)
        if len(ids) and not 0 <= ids.min() <= ids.max() < vocab_size:
            raise ValueError(f"token ids {ids.min()} to {ids.max()} are not all in a vocabulary of {vocab_size:,}")
        waiting.append(ids)
        buffered += len(ids)
        if buffered >= BUFFER:
            count()
            buffered = 0
    count()
    (tokens, counts), bigrams, trigrams = found
    unigrams = np.zeros(vocab_size, np.int64)
    unigrams[tokens] = counts
    return NGram(unigrams, bigrams, trigrams)


def _keys(text: np.ndarray, length: int, vocab_size: int) -> np.ndarray:
    """The n-grams of a text as numbers."""
    count = max(len(text) - length + 1, 0)
    keys = np.zeros(count, np.int64)
    for offset in range(length):
        keys = keys * vocab_size + text[offset : offset + count]
    return keys


def _merged(known: tuple[np.ndarray, np.ndarray], more: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Counts ``known`` (keys and counts) and those of the n-grams ``more`` together, in ascending order."""
    if not more:
        return known
    fresh, times = np.unique(np.concatenate(more), return_counts=True)
    keys, places = np.unique(np.concatenate((known[0], fresh)), return_inverse=True)
    counts = np.zeros(len(keys), np.int64)
    np.add.at(counts, places, np.concatenate((known[1], times)))
    return keys, counts
