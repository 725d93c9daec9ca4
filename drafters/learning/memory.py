"""What is kept of past texts to learn from."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Sequence

import numpy as np

from drafters.base import Lesson

HELD_OUT = 8
"""One prompt in so many is never trained on; what it was answered tells whether training helps."""


class Memory:
    """Texts within a bound: in one half the latest, in the other a fair sample of all before them.

    The sample is a reservoir (Vitter 1985), so that what was asked long ago is not forgotten for what is asked now.

    Args:
        tokens: of prompts and answers, at most.
    """

    def __init__(self, tokens: int, rng: random.Random):
        self.half, self.rng = tokens // 2, rng
        self.latest: dict[int, Lesson] = {}
        self.sample: dict[int, Lesson] = {}
        self.passed = 0
        """Texts that have gone out of the latest."""

    def __len__(self) -> int:
        return len(self.latest) + len(self.sample)

    def __iter__(self) -> Iterator[Lesson]:
        yield from self.sample.values()
        yield from self.latest.values()

    def add(self, lesson: Lesson) -> bool:
        """Keep a text; ``False`` where it is kept already, or is longer than there is room for."""
        name = key(lesson.prompt, lesson.answer)
        if name in self.latest or name in self.sample or size(lesson) > self.half:
            return False
        self.latest[name] = lesson
        while sum(map(size, self.latest.values())) > self.half:
            self._pass(next(iter(self.latest)))
        return True

    def draw(self, tokens: int) -> list[Lesson]:
        """About so many tokens of texts, drawn at random: as many of the latest as of the sample."""
        drawn: list[Lesson] = []
        while not drawn or sum(map(size, drawn)) < tokens:
            part = self.sample if self.sample and (not self.latest or self.rng.random() < 0.5) else self.latest
            drawn.append(self.rng.choice(list(part.values())))
        return drawn

    def _pass(self, name: int) -> None:
        lesson = self.latest.pop(name)
        self.passed += 1
        full = sum(map(size, self.sample.values())) + size(lesson) > self.half
        if full and self.rng.random() >= len(self.sample) / self.passed:
            return
        self.sample[name] = lesson
        while sum(map(size, self.sample.values())) > self.half:
            del self.sample[self.rng.choice([other for other in self.sample if other != name])]


def size(lesson: Lesson) -> int:
    """Tokens of prompt and answer."""
    return len(lesson.prompt) + len(lesson.answer)


def key(*texts: Sequence[int]) -> int:
    """A number by which texts of token ids are told apart, the same in every process."""
    return zlib.crc32(b"".join(np.array([len(text), *text], dtype=np.uint32).tobytes() for text in texts))


def held_out(lesson: Lesson) -> bool:
    """Whether a text is to be measured with, by its prompt: one in :data:`HELD_OUT`."""
    return key(lesson.prompt) % HELD_OUT == 0
