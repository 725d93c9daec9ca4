"""``oracle``: the yardstick, who knows the outcome."""

from __future__ import annotations

from collections.abc import Sequence

from multidraft.policies.base import Policy, register


@register
class Oracle(Policy):
    """The single drafter that needs the fewest rounds for the text, known by exact replay (ties: the first).

    ``hindsight``, the rounds that each drafter alone needs, is set by the replay before :meth:`reset`.
    """

    name = "oracle"
    title = "Oracle"
    explanation = (
        "The best single drafter for exactly this text, chosen after the fact. It cannot be played live, since nobody "
        "knows the text beforehand; in replays it is the mark that policies which stay with one drafter cannot pass."
    )
    source = "MetaSD Def. 1 and BanditSpec Eq. 1: the comparator of the regret"
    takes_start = False
    live = False

    def reset(self, prompt: str = "") -> None:
        super().reset(prompt)
        needed: Sequence[int] = self.hindsight or [0]
        self.arm = needed.index(min(needed))

    def select(self) -> int:
        return self.arm
