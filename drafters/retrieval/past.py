"""Answers to earlier prompts, as drafters of a pool remember them."""

from __future__ import annotations

from collections.abc import Sequence

from drafters.retrieval.automaton import SuffixAutomaton


class Past:
    """The latest answers of a pool, in two automata: when the newer one is full, the older one is dropped.

    An answer is known from the next query with another prompt on, and to a prompt that has been answered before nothing
    is known: all policies that are compared on a prompt find the same, and none of them the answer itself.

    Args:
        most: remember so many tokens at most, and half of them at least.
    """

    def __init__(self, most: int):
        self.most = most
        self._ages = [_Age(), _Age()]
        self._waiting: dict[int, list[int]] = {}

    def begin(self, prompt: Sequence[int]) -> list[SuffixAutomaton]:
        """What is known to a query that begins with ``prompt``: to be read, as it grows with what others answer."""
        asked = hash(tuple(prompt))
        for other in [other for other in self._waiting if other != asked]:
            self._add(other, self._waiting.pop(other))
        known = any(asked in age.prompts for age in self._ages)
        return [] if known else [age.texts for age in self._ages if age.tokens]

    def keep(self, prompt: Sequence[int], answer: Sequence[int]) -> None:
        """Remember an answer, of a long one the end."""
        if answer:
            self._waiting[hash(tuple(prompt))] = list(answer[-(self.most // 2) :])

    def _add(self, prompt: int, answer: list[int]) -> None:
        if any(prompt in age.prompts for age in self._ages):
            return
        if self._ages[0].tokens + len(answer) > self.most // 2:
            self._ages = [_Age(), self._ages[0]]
        newest = self._ages[0]
        newest.prompts.add(prompt)
        newest.tokens += len(answer)
        for token in answer:
            newest.texts.extend(token)
        newest.texts.cut()


class _Age:
    """Answers that are dropped together."""

    def __init__(self) -> None:
        self.texts, self.tokens = SuffixAutomaton(), 0
        self.prompts = set[int]()
