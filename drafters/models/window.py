"""Which tokens of a long context a drafter reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from drafters.base import Evidence


@dataclass(frozen=True)
class Window:
    """The most tokens a drafter reads, and what becomes of longer contexts.

    Without sinks it has nothing to say about them. With sinks it reads the first ``sinks`` tokens, which models
    attend to whatever they say, and the last ones. Those slide by half a window at a time: the cache is then
    filled again, which on average doubles the cost of a token.

    Positions are counted within the window, so a drafter can follow a context longer than any it was trained on.

    Attributes:
        size: at least 1.
        sinks: fewer than ``size``; ``None`` for a window that does not slide.

    Source: StreamingLLM (Xiao et al. 2023), as in MetaSD App. F.11; there one token is dropped at a time.
    """

    size: int
    sinks: int | None = None

    def left_out(self, tokens: int) -> int:
        """How many tokens after the sinks are not read of a context of so many; all beyond the sinks at most."""
        if tokens <= self.size or self.sinks is None:
            return 0
        stride = max(1, (self.size - self.sinks) // 2)
        return -(-(tokens - self.size) // stride) * stride

    def covers(self, tokens: int) -> bool:
        """Whether a drafter can follow a context of so many tokens."""
        return tokens <= self.size or self.sinks is not None

    def view(self, context: Sequence[int]) -> Sequence[int]:
        """What is read of ``context``."""
        return self._cut(context, self.left_out(len(context)))

    def parts(self, evidence: Evidence, ahead: int = 0) -> Iterator[tuple[int, Evidence]]:
        """The evidence as it is read: positions that share a view together, in order, those not covered left out.

        Args:
            ahead: let each part reach so many positions further in its own view, as a draft begun at its last one does.

        Yields:
            How many positions the part is for, and the evidence, which holds those and the further ones.
        """
        begin, end = evidence.start, len(evidence.context)
        while begin < end and self.covers(begin):
            left_out, stop = self.left_out(begin), begin + 1
            while stop < end and self.covers(stop) and self.left_out(stop) == left_out:
                stop += 1
            reach = min(stop + ahead, end)
            p = None if evidence.p is None else evidence.p[begin - evidence.start : reach - evidence.start]
            view = self._cut(evidence.context[:reach], left_out)
            yield stop - begin, Evidence(view, begin - left_out, p, evidence.params)
            begin = stop

    def _cut(self, context: Sequence[int], left_out: int) -> Sequence[int]:
        if not left_out:
            return context
        sinks = self.sinks or 0
        return [*context[:sinks], *context[sinks + left_out :]]
