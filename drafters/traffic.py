"""What a pool learns from its traffic: how well each drafter will suit a prompt, judged by the runs before it.

After a run it is known how every drafter would have done on it. A Gaussian process over prompts, whose covariance is
the share of n-grams that two prompts have in common, says from the last of these runs what to expect for a new prompt
and how far to trust that: with little experience, or none of such prompts, it is what was expected without any. Where
there is a router, the covariance includes its guesses, and a prompt unlike any lesson is left to the router.

Source: Rasmussen & Williams 2006, Eqs. 2.25 and 2.26; leave-one-out errors 5.12.
"""

from __future__ import annotations

import re
import threading
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import NamedTuple, Protocol

import numpy as np
from threadpoolctl import ThreadpoolController

FEATURES = 1 << 14
"""Hashed n-grams, half of them of words, half of characters."""
LONGEST = 4096
"""Characters of a prompt that are read at its beginning, and as many at its end."""
_WORD = re.compile(r"\w+|[^\w\s]")

LESSONS = 256
"""Runs that are remembered, the last ones: all that is kept, some 20 MB for each pool that is loaded."""
STRETCH, SHORTEST = 24, 8
"""Tokens of a stretch of text, in each of which drafters are judged: texts may hold several tasks, and a drafter need
not suit all of them. Texts of fewer than ``SHORTEST`` tokens teach nothing."""
SIMILAR = 64
"""Stretches that a query begins with at most, of the texts whose prompts are most like its own."""
EXPECTED = 0.6
"""Acceptance by token of a drafter of which nothing is known: such a drafter should be tried."""
BIAS, NOISE = 0.3, 0.03
"""Variance of what all prompts of a pool have in common, and of a run given its prompt; that of prompts without any
n-gram in common is 1."""
KEEP = 0.998
"""By how much a run counts for less with each that follows it."""
ROUTED = 0.2
"""Length scale of a Gaussian kernel over the acceptances that a router guesses for two prompts (Euclidean distance),
which counts as much as the n-grams."""
ALIKE = 0.5
"""Likeness to the nearest lesson from which on lessons count where a router has a guess: what equal guesses make
alone."""
CALIBRATION, USUAL = 8.0, 0.05
"""The scale of all these variances is measured, by leave-one-out errors. Before there are any it is ``USUAL``, which
counts as much as ``CALIBRATION`` runs."""

Stretches = tuple[tuple[float, ...], ...]
"""Acceptance by token of each drafter in the stretches of a text, in their order: ``(stretches, N)``."""
Lesson = Sequence[Sequence[float]] | Sequence[float]
"""``Stretches`` as lists or, of older runs, one of each drafter where it is at its best ``(N,)``."""

_GRID = np.linspace(0.0, 0.995, 1000)


class Prior(NamedTuple):
    """What may be expected of the drafters before a query begins.

    Attributes:
        acceptance: by drafter, the chance that it drafts what the target writes, token by token, where it is at its
            best in the answer.
        doubt: standard deviation of the tokens that its drafts are expected to have accepted, as a share of the draft
            length.
        lessons: how many runs that was learnt from; the number of this version.
        likeness: of the prompts of ``texts``, the cosine between its n-grams and theirs; where there is a router, the
            mean of that and of how alike they are routed.
        texts: what was learnt of the most similar prompts, as of :func:`suitability`; empty in older runs.
        repeated: whether one of the runs was of this very prompt.
    """

    acceptance: tuple[float, ...]
    doubt: tuple[float, ...]
    lessons: int
    likeness: tuple[float, ...] = ()
    texts: tuple[Stretches, ...] = ()
    repeated: bool = False

    def tokens(self, length: int) -> tuple[np.ndarray, np.ndarray]:
        """How many tokens of each drafter's drafts of ``length`` are expected to be accepted ``(N,)``, where it is at
        its best in the answer, and the standard deviations of that."""
        return tokens_of(np.array(self.acceptance), length), length * np.array(self.doubt)

    def without(self, arm: int) -> Prior:
        """What may be expected of the others."""
        acceptance, doubt = (part[:arm] + part[arm + 1 :] for part in (self.acceptance, self.doubt))
        texts = tuple(tuple(part[:arm] + part[arm + 1 :] for part in text) for text in self.texts)
        return self._replace(acceptance=acceptance, doubt=doubt, texts=texts)


class Expectation(Protocol):
    """Whoever knows what to expect of a pool's drafters for a prompt."""

    def prior(self, prompt: str) -> Prior | None: ...


def tokens_of(acceptance: np.ndarray, length: int) -> np.ndarray:
    """Tokens that drafts of ``length`` have accepted, where each token has this chance: ``sum_{j<=K} a^j``."""
    return np.sum([acceptance**depth for depth in range(1, length + 1)], axis=0)


def acceptance_of(tokens: np.ndarray, length: int) -> np.ndarray:
    """The inverse of :func:`tokens_of`, to three digits."""
    return np.interp(tokens, _grid_tokens(length), _GRID)


@cache
def _grid_tokens(length: int) -> np.ndarray:
    return tokens_of(_GRID, length)


def suitability(accepted: np.ndarray, length: int) -> Stretches | None:
    """How well each drafter suits a text, stretch by stretch: its acceptance by token there, ``(stretches, N)``.

    Args:
        accepted: tokens accepted of its draft begun at each position, or expected to be, ``(N, positions)``.
        length: draft length.

    Returns:
        ``None`` for a text that is too short to tell.
    """
    positions = accepted.shape[1]
    if positions < SHORTEST:
        return None
    ends = np.linspace(0, positions, max(round(positions / STRETCH), 1) + 1).astype(int)
    means = np.add.reduceat(accepted, ends[:-1], axis=1) / np.diff(ends)
    return tuple(map(tuple, acceptance_of(means.T, length).round(3).tolist()))


def stretches_of(lesson: Lesson) -> np.ndarray:
    """The acceptances of a lesson, ``(stretches, N)``."""
    return np.atleast_2d(np.array(lesson))


class Traffic:
    """The lessons of a pool's last runs, and what they let expect for a prompt; for any thread.

    Args:
        drafters: how many the pool has.
        length: its draft length.
        guess: of the acceptance of each drafter, by the prompt, such as a router's; ``None`` where there is none. What
            is learnt is how far it is off, and for which guesses.
    """

    def __init__(
        self, drafters: int, length: int, guess: Callable[[str], Sequence[float] | None] = lambda prompt: None
    ):
        self.drafters, self.length, self.guess = drafters, length, guess
        self.count = 0
        self._lessons: dict[str, tuple[_Asked, np.ndarray, Stretches]] = {}
        self._known: _Known | None = None
        self._lock = threading.Lock()

    def learn(self, lessons: Iterable[tuple[str, Lesson]]) -> None:
        """Learn from runs, oldest first: a prompt, and what :func:`suitability` made of its text.

        A prompt that is known is learnt anew. It takes some hundredths of a second, however many they are, on one
        thread: after work on several those of BLAS wait for more of it for a while, on the cores of the next text.
        """
        with self._lock, _libraries().limit(limits=1, user_api="blas"):
            known, count = dict(self._lessons), self.count  # a copy of this does not learn
            for prompt, lesson in lessons:
                stretches = stretches_of(lesson)
                if stretches.shape[1] != self.drafters:
                    raise ValueError(f"the pool has {self.drafters} drafters; the lesson is of {stretches.shape[1]}")
                known.pop(prompt, None)
                asked = self._asked(prompt)
                told = tokens_of(stretches.max(axis=0), self.length) / self.length - self._expected(asked)
                known[prompt] = asked, told, tuple(map(tuple, stretches.tolist()))
                count += 1
            self._lessons, self.count = dict(list(known.items())[-LESSONS:]), count
            self._known = _Known(*zip(*self._lessons.values(), strict=True)) if self._lessons else None

    def prior(self, prompt: str) -> Prior | None:
        """What to expect for ``prompt``; ``None`` where nothing was learnt yet, or where a router has a guess and
        nothing was learnt of prompts like this one. Takes less than a millisecond, but for the router."""
        known, count = self._known, self.count
        if known is None:
            return None
        asked = self._asked(prompt)
        near = known.covariance(asked)
        if asked.guess is not None and near.max() < BIAS + ALIKE:
            return None
        mean, variance = known.predict(near)
        tokens = self.length * (self._expected(asked) + mean)
        acceptance = acceptance_of(tokens, self.length).round(3)
        doubt = np.sqrt(variance).round(3)
        repeated = prompt in self._lessons
        return Prior(tuple(acceptance.tolist()), tuple(doubt.tolist()), count, *known.similar(near), repeated)

    def _asked(self, prompt: str) -> _Asked:
        guess = self.guess(prompt)
        return _Asked(n_grams(prompt), None if guess is None else np.asarray(guess, dtype=np.float64))

    def _expected(self, asked: _Asked) -> np.ndarray:
        """Share of its drafts that each drafter is expected to have accepted, ``(N,)``, without any experience."""
        acceptance = np.full(self.drafters, EXPECTED) if asked.guess is None else asked.guess
        return tokens_of(acceptance, self.length) / self.length


class _Asked(NamedTuple):
    """What is known of a prompt: hashes of its n-grams, of words and of characters, and the acceptances ``(N,)`` that a
    router guesses for it, if there is one."""

    grams: tuple[np.ndarray, np.ndarray]
    guess: np.ndarray | None


@cache
def _libraries() -> ThreadpoolController:
    """Those of this process that have threads of their own, which take a while to find."""
    return ThreadpoolController()


class _Known:
    """A Gaussian process that was fitted to lessons: the n-grams of their prompts, and what they told, each ``(N,)``,
    and stretch by stretch.

    Every n-gram is weighed by how few prompts have it; those of a single prompt count for nothing.
    """

    def __init__(self, prompts: Sequence[_Asked], told: Sequence[np.ndarray], texts: Sequence[Stretches]):
        self.texts, self.lengths = texts, np.array([len(text) for text in texts])
        count = len(prompts)
        prompts_with = np.zeros(FEATURES)
        for part in (part for prompt in prompts for part in prompt.grams):
            prompts_with[part] += 1.0
        rarity = np.log((count + 1) / np.maximum(prompts_with, 1.0)) * (prompts_with > 1.0)
        self.weights = np.sqrt(rarity).astype(np.float32)
        self.columns = np.zeros((FEATURES, count), dtype=np.float32)
        for column, prompt in enumerate(prompts):
            places, values = self._vector(prompt)
            self.columns[places, column] = values
        self.guesses = np.array([prompt.guess for prompt in prompts]) if prompts[0].guess is not None else None
        covariance = np.array([self.covariance(prompt) for prompt in prompts])
        covariance[np.diag_indices(count)] += NOISE / KEEP ** np.arange(count)[::-1]
        self.inverse = np.linalg.inv(covariance)
        self.solved = self.inverse @ np.array(told)
        variance = 1.0 / self.inverse.diagonal()  # of each lesson, given the others
        errors = self.solved * variance[:, None]
        squares = (errors**2 / variance[:, None]).sum(axis=0) + CALIBRATION * USUAL
        self.scale = squares / (count + CALIBRATION)

    def predict(self, near: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance ``(N,)`` of what a prompt of this covariance with the lessons would tell."""
        variance = float(BIAS + 1.0 + NOISE - near @ self.inverse @ near)
        return near @ self.solved, self.scale * max(variance, NOISE)

    def similar(self, near: np.ndarray) -> tuple[tuple[float, ...], tuple[Stretches, ...]]:
        """Likeness and stretches of the nearest lessons, ``SIMILAR`` stretches at most."""
        likeness, texts, left = list[float](), list[Stretches](), SIMILAR
        for lesson in np.argsort(-near, kind="stable").tolist():
            if not left or near[lesson] <= BIAS:
                break
            likeness.append(round(float(near[lesson] - BIAS), 3))
            texts.append(self.texts[lesson][:left])
            left -= len(texts[-1])
        return tuple(likeness), tuple(texts)

    def covariance(self, prompt: _Asked) -> np.ndarray:
        """Covariance with each lesson, ``(lessons,)``."""
        places, values = self._vector(prompt)
        alike = (values @ self.columns[places]).astype(np.float64)
        if prompt.guess is not None and self.guesses is not None:
            apart = np.square(self.guesses - prompt.guess).sum(axis=1)
            alike = (alike + np.exp(-apart / (2.0 * ROUTED**2))) / 2.0
        return BIAS + alike

    def _vector(self, prompt: _Asked) -> tuple[np.ndarray, np.ndarray]:
        """Where a prompt's vector is not zero, and its values there: words and characters weigh alike, together 1."""
        values = [self.weights[part] for part in prompt.grams]
        norms = [float(np.sqrt(2.0 * (part @ part))) or 1.0 for part in values]
        parts = [part / norm for part, norm in zip(values, norms, strict=True)]
        return np.concatenate(prompt.grams), np.concatenate(parts)


def n_grams(prompt: str) -> tuple[np.ndarray, np.ndarray]:
    """Hashes of the words and pairs of words of ``prompt``, and of its runs of four bytes; each once."""
    text = (prompt if len(prompt) <= 2 * LONGEST else f"{prompt[:LONGEST]} {prompt[-LONGEST:]}").lower()
    words = np.array([zlib.crc32(_encoded(word)) for word in _WORD.findall(text)], dtype=np.uint32)
    pairs = words[:-1] * np.uint32(0x9E3779B1) + words[1:]
    raw = np.frombuffer(_encoded(f"  {text} "), dtype=np.uint8).astype(np.uint32)
    runs = raw[:-3] << 24 | raw[1:-2] << 16 | raw[2:-1] << 8 | raw[3:]
    return _places(np.concatenate([words, pairs])), _places(runs) + FEATURES // 2


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _places(keys: np.ndarray) -> np.ndarray:
    mixed = (keys ^ (keys >> np.uint32(16))) * np.uint32(0x7FEB352D)
    return np.unique((mixed ^ (mixed >> np.uint32(15))) % np.uint32(FEATURES // 2)).astype(np.int64)
