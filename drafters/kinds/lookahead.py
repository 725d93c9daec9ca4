"""``lookahead``: Jacobi trajectories of the target feed a pool of n-grams (Lookahead Decoding, Fu et al. 2024)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from pydantic import Field

from drafters.base import Acceptances
from drafters.draft import Draft
from drafters.errors import PoolError
from drafters.kinds.base import BuildContext, DrafterEntry, register
from drafters.proposing import ReadingDrafter
from drafters.tree import acceptances_of


class LookaheadDrafter(ReadingDrafter):
    """Drafts n-grams that the target itself has guessed before, or that stand in the text; no model of its own.

    Both branches of the paper ride in the target's one forward, as one tree of point masses:

    - verification: the pooled n-grams that begin with the context's last token. They come first, so they win ties.
    - lookahead: a window of guesses. Its first level is a chain after the context, one token a column; each column
      goes on with its later levels as a branch of its own. A node so attends to the first level up to its column and to
      the earlier levels of its column, and stands at the position that follows from its depth: the paper's attention
      pattern (Sec. 3). The target's argmax after a column is its next token. It and the column are a new n-gram for
      the pool; then the column loses its first token and gains this one, moving one position on with the text.

    Columns begin with tokens of the prompt and grow by one level per round until they are full; only full ones give
    n-grams. The pool also takes in the n-grams of the text itself, prompt and output (as the authors' program can), so
    that it is of use before the window is. Each query starts with an empty pool.

    A draft has no room for columns that reach deeper than the length asked for: with ``length`` tokens there are
    ``length - ngram + 2`` of them at most, below ``ngram - 1`` tokens none. What was not scored stays as it is.

    Args:
        window: columns of the window (the paper's W); 0 leaves the lookahead branch out.
        ngram: tokens of an n-gram (N), at least 2; a draft gets at most ``ngram - 1`` of them accepted, a lucky path
            through the window aside.
        guesses: n-grams remembered and proposed per first token (G); beyond that the least recently added is dropped.
    """

    def __init__(self, name: str, window: int = 8, ngram: int = 4, guesses: int = 4):
        if window < 0 or ngram < 2 or guesses < 1:
            sizes = f"{window}, {ngram} and {guesses}"
            raise ValueError(f"lookahead needs window >= 0, ngram >= 2 and guesses >= 1, got {sizes}")
        self.name, self.window, self.ngram, self.guesses = name, window, ngram, guesses
        self.prepare(())

    def prepare(self, context: Sequence[int]) -> None:
        self.pool: dict[int, list[tuple[int, ...]]] = {}
        """By the first token of n-grams their ends, the newest first."""
        self.read: list[int] = []
        self.guessed: list[list[tuple[int, ...]]] = []
        """At each position of the text the ends of the n-grams that were pooled before it was read."""
        self.found: list[tuple[int, ...]] = []
        """N-grams of the last observation, to be pooled when the tokens that were verified with it have been read."""
        self.columns: list[list[int]] = []
        self.proposed: tuple[Draft, list[int]] = (Draft.empty(), [])
        """The last draft, and for each column in it the node of its last token."""
        self._read(context)
        if context:
            self.columns = [[token] for token in random.Random(0).choices(list(context), k=self.window)]

    def draft(self, context: Sequence[int], length: int) -> Draft:
        self._catch_up(context)
        if not context or length < 1:
            return Draft.empty()
        trie = _Trie(self.pool.get(context[-1], []), length)
        ends, base = [], -1
        for column in self.columns[: max(length - self.ngram + 2, 0)]:
            base = trie.add(base, column[:1])
            ends.append(trie.add(base, column[1:]))
        self.proposed = trie.draft, ends
        return self.proposed[0]

    def observe(self, draft: Draft, logits: torch.Tensor) -> None:
        """Continue the columns of the window by the target's argmax.

        Args:
            draft: as proposed last, or its first nodes; any other is passed over.
        """
        proposed, ends = self.proposed
        scored = [(i, end) for i, end in enumerate(ends) if end < len(draft)]
        if not scored or draft.tokens != proposed.tokens[: len(draft)]:
            return
        rows = torch.tensor([end + 1 for _, end in scored], device=logits.device)
        for (i, _), token in zip(scored, logits[rows].argmax(dim=-1).tolist(), strict=True):
            column = [*self.columns[i], token]
            if len(column) == self.ngram:
                self.found.append(tuple(column))
                del column[0]
            self.columns[i] = column
        self.proposed = Draft.empty(), []

    def drafts(self, context: Sequence[int], begins: range, length: int) -> list[Draft]:
        """Those of the n-grams that were pooled before each position was read.

        The window's guess of the first token is not counted: it is there to be read, and seldom right.
        """
        if self.read[: len(context)] != list(context):
            self._catch_up(context)
        return [_Trie(self.guessed[begin], length).draft for begin in begins]

    def acceptances(self, context: Sequence[int], start: int, length: int) -> Acceptances:
        """What a pool of the text's own n-grams would have had accepted at each position.

        This is an approximation, and mostly too low. The pool of a live run holds n-grams of the target's Jacobi
        trajectories as well, which depend on the rounds played and cannot be known without the target. So a replay
        shows the drafter without what its lookahead branch finds; with ``window=0`` it is exact. The nodes of that
        branch are counted, for full columns.
        """
        reader = LookaheadDrafter(self.name, 0, self.ngram, self.guesses)
        found = acceptances_of(reader.drafts(context, range(start, len(context)), length), context, start, length)
        if columns := min(self.window, max(length - self.ngram + 2, 0)):
            depth, nodes = columns + self.ngram - 2, columns * (self.ngram - 1)
            return Acceptances(found.accepted, np.maximum(found.drafted, depth), found.nodes + nodes)
        return found

    def _catch_up(self, context: Sequence[int]) -> None:
        """Read the new tokens; a context that does not continue the one known begins a new query."""
        known = len(self.read)
        if not known or self.read != list(context[:known]):
            self.prepare(context)
            return
        self._read(context[known:])
        for ngram in self.found:
            self._add(ngram)
        self.found = []

    def _read(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self.guessed.append(list(self.pool.get(self.read[-1], [])) if self.read else [])
            self.read.append(token)
            if len(self.read) >= self.ngram:
                self._add(tuple(self.read[-self.ngram :]))

    def _add(self, ngram: tuple[int, ...]) -> None:
        """Pool an n-gram, or make it the newest of its first token."""
        ends = self.pool.setdefault(ngram[0], [])
        if ngram[1:] in ends:
            ends.remove(ngram[1:])
        ends.insert(0, ngram[1:])
        del ends[self.guesses :]


class _Trie:
    """A draft under construction, from ``guesses`` of up to ``length`` tokens: paths share their common beginning."""

    def __init__(self, guesses: Sequence[Sequence[int]], length: int):
        self._nodes: dict[tuple[int, int], int] = {}
        """By parent and token, in the order of their numbers."""
        for guess in guesses:
            self.add(-1, guess[:length])

    def add(self, node: int, tokens: Sequence[int]) -> int:
        """Let ``tokens`` follow ``node`` (-1: the context); the node of the last of them."""
        for token in tokens:
            node = self._nodes.setdefault((node, token), len(self._nodes))
        return node

    @property
    def draft(self) -> Draft:
        """The tree so far."""
        return Draft(tuple(token for _, token in self._nodes), tuple(parent for parent, _ in self._nodes))


@register
class LookaheadEntry(DrafterEntry):
    """A drafter of kind ``lookahead``: it has no weights."""

    title = "lookahead"
    description = "n-grams found by Jacobi iterations of the target"
    needs_target = True

    kind: Literal["lookahead"]
    columns: int = Field(8, ge=0, le=64, description="width of the window in which n-grams are looked for")
    ngram: int = Field(4, ge=2, le=16, description="length of the n-grams")
    guesses: int = Field(4, ge=1, le=64, description="n-grams remembered, and proposed, per first token")

    def most_nodes(self, draft_length: int) -> int:
        columns = min(self.columns, max(draft_length - self.ngram + 2, 0))
        return (self.guesses + columns) * (self.ngram - 1)

    def build(self, context: BuildContext) -> LookaheadDrafter:
        length = context.draft_length
        if self.ngram > length + 1:
            raise PoolError(
                f"drafter {self.name!r} looks for {self.ngram}-grams, but drafts of {length} tokens have room for "
                f"{length + 1}-grams at most; lower ngram or raise draft_length"
            )
        return LookaheadDrafter(self.name, self.columns, self.ngram, self.guesses)
