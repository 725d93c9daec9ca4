"""Timing a generation a second time, where its first times tell more of what else the machine did."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

from multidraft.engine.decoding import Decoding
from multidraft.policies import ALL_DRAFTERS, NO_DRAFTER
from storage.records import PHASES, Generation, Round

_TIMES = tuple(f"{phase}_seconds" for phase in PHASES)


class Retiming(Decoding):
    """The rounds of a generation once more: with the same drafters, draft lengths and evaluations, whatever the policy
    would choose by now. With the same seed, sampled tokens are the same too.

    Args:
        known: the generation.
        arguments, named: as of its own :class:`~multidraft.engine.decoding.Decoding`, but that nobody should learn from
            a text twice.
    """

    def __init__(self, known: Generation, *arguments: Any, **named: Any):
        super().__init__(*arguments, **named)
        self.known = known

    def retime(self) -> Iterator[None]:
        """Decode, yielding after each round, and give the generation the times of this one.

        It keeps its own where a round turns out otherwise: a drafter may have learnt meanwhile.
        """
        known, rounds = self.known, list[Round]()
        with closing(self._rounds):  # it refers to this, which would be a cycle
            for old, new in zip(known.rounds, self, strict=False):
                if (old.arm, old.drafted, old.tokens) != (new.arm, new.drafted, new.tokens):
                    return
                rounds.append(replace(old, **{name: getattr(new, name) for name in _TIMES}))
                yield
        if len(rounds) == len(known.rounds):
            known.rounds[:] = rounds
            known.prefill_seconds = self.generation.prefill_seconds

    def _choice(self, room: int) -> tuple[int, int]:
        super()._choice(room)  # the policy takes its time as well
        due = self._due
        if due.together:
            return ALL_DRAFTERS, due.draft_length
        return NO_DRAFTER if due.arm is None else due.arm, due.draft_length

    def _wants_evaluation(self, emitted: int) -> bool:
        super()._wants_evaluation(emitted)
        return self._due.evaluated > 0

    @property
    def _due(self) -> Round:
        return self.known.rounds[len(self.generation.rounds)]
