"""A suffix automaton that counts: every text seen before, extended token by token; and a pool's past answers in two."""

from __future__ import annotations

from collections.abc import Sequence

LONGEST = 32
"""Longest suffix, in tokens, by which continuations are looked up."""

WIDTH = 4
"""How many continuations of a text are kept in order."""

ROOT = 0


class SuffixAutomaton:
    """The smallest automaton of all substrings of a text (Blumer et al. 1985), built online, with frequencies.

    A state stands for the substrings that occur at the same places; ``link`` leads to that of their longest suffix
    occurring elsewhere too. Extending it by a token is amortised O(1), plus one step along the links for each suffix of
    at most ``LONGEST`` tokens, to count it: what is longer is never looked up, so it need not be counted, and
    ``aaaa…`` costs no more than any other text.

    Attributes:
        next: transitions of each state.
        link: suffix link of each state; -1 for the root, the empty text.
        length: tokens of the longest substring of each state.
        count: how often the substrings of a state have occurred. Exact for states with one of up to ``LONGEST + 1``
            tokens.
        top: the up to ``WIDTH`` most frequent continuations of each state, the most frequent first (ties: the latest
            seen). Exact for states with a substring of up to ``LONGEST`` tokens.
    """

    def __init__(self) -> None:
        self.next: list[dict[int, int]] = [{}]
        self.link, self.length, self.count = [-1], [0], [0]
        self.top: list[list[int]] = [[]]
        self.counted = [-1]  # the time at which each state was counted last
        self.time = 0
        self.whole = ROOT
        self.place, self.matched = ROOT, 0  # the last `matched` tokens, at most LONGEST, and their state

    def extend(self, token: int) -> None:
        """Append ``token`` (>= 0) to the text."""
        self._append(token)
        place = self._shortened(self.place, self.matched)  # a split may have moved it
        self._count(place, token)
        self.matched = min(self.matched + 1, LONGEST)
        self.place = self._shortened(self.next[place][token], self.matched)

    def cut(self) -> None:
        """End a text and begin another: nothing is found across the cut."""
        self.time += 1
        self._append(-self.time)  # a token that occurs only here and is no continuation
        self.place, self.matched = ROOT, 0

    def advance(self, state: int, length: int, token: int) -> tuple[int, int]:
        """From a substring of ``length`` tokens in ``state``, continued by ``token``, on to the longest suffix of it
        that occurs: its state and length."""
        transitions = self.next
        state = self._shortened(state, length)
        while state and token not in transitions[state]:
            state = self.link[state]
            length = self.length[state]
        if token not in transitions[state]:
            return ROOT, 0
        length = min(length + 1, LONGEST)
        return self._shortened(transitions[state][token], length), length

    def weigh(
        self, chances: dict[int, float], state: int, length: int, escape: float, ended: int = 0, width: int = WIDTH
    ) -> None:
        """Put into ``chances`` the tokens that may follow a substring, and what each of its suffixes promises of them.

        A token that followed ``c`` of the ``n`` occurrences of a suffix of ``m`` tokens is expected with the
        probability ``c / (n + escape / m)``; of several suffixes the one counts that promises most.

        Args:
            chances: by token; what stands there already is only raised.
            ended: occurrences of each suffix that nothing has followed yet.
            width: how many tokens are considered per suffix.
        """
        links, lengths, tops, counts = self.link, self.length, self.top, self.count
        state = self._shortened(state, length)
        while state:
            if top := tops[state]:
                occurrences = counts[state] - ended + escape / min(length, lengths[state])
                children = self.next[state]
                for token in top[:width]:
                    chance = counts[children[token]] / occurrences
                    if chance > chances.get(token, 0.0):
                        chances[token] = chance
            state = links[state]

    def _shortened(self, state: int, length: int) -> int:
        """The state of the last ``length`` tokens of a substring of ``state``."""
        while state and self.length[self.link[state]] >= length:
            state = self.link[state]
        return state

    def _append(self, token: int) -> None:
        transitions, links = self.next, self.link
        new = self._state({}, self.length[self.whole] + 1, ROOT)
        before = self.whole
        while before >= 0 and token not in transitions[before]:
            transitions[before][token] = new
            before = links[before]
        if before >= 0:
            known = transitions[before][token]
            links[new] = known if self.length[known] == self.length[before] + 1 else self._split(before, token)
        self.whole = new

    def _split(self, before: int, token: int) -> int:
        """The longest known suffix shares a state with longer substrings, which did not occur here: part them."""
        known = self.next[before][token]
        short = self._state(dict(self.next[known]), self.length[before] + 1, self.link[known])
        self.count[short], self.counted[short] = self.count[known], self.counted[known]
        self.top[short] = self.top[known][:]
        while before >= 0 and self.next[before].get(token) == known:
            self.next[before][token] = short
            before = self.link[before]
        self.link[known] = short
        return short

    def _state(self, transitions: dict[int, int], length: int, link: int) -> int:
        self.next.append(transitions)
        self.length.append(length)
        self.link.append(link)
        self.count.append(0)
        self.counted.append(-1)
        self.top.append([])
        return len(self.next) - 1

    def _count(self, state: int, token: int) -> None:
        """Count ``token`` after every suffix from ``state`` on: no other count or order can have changed."""
        transitions, counts = self.next, self.count
        self.time += 1
        while state >= 0:
            reached = transitions[state]
            child = reached[token]
            if self.counted[child] != self.time:
                self.counted[child] = self.time
                counts[child] += 1
            top = self.top[state]
            if not top:
                top.append(token)
            elif top[0] != token:
                if token in top:
                    top.remove(token)
                place = next((i for i, other in enumerate(top) if counts[reached[other]] <= counts[child]), len(top))
                top.insert(place, token)
                del top[WIDTH:]
            state = self.link[state]


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
