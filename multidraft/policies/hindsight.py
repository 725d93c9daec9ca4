"""``oracle``: the yardstick, who knows the outcome."""

from __future__ import annotations

from multidraft.policies.base import Policy, register


@register
class Oracle(Policy):
    """The single drafter that needs the fewest rounds for the text, known by exact replay (ties: the first).

    The replay hands it the rounds that each drafter alone needs (:attr:`Context.hindsight`).
    """

    name = "oracle"
    title = "Oracle"
    explanation = (
        "The best single drafter for exactly this text, chosen after the fact. It cannot be played live, since nobody "
        "knows the text beforehand; in replays it is the mark that policies which stay with one drafter cannot pass."
    )
    source = "MetaSD Def. 1 and BanditSpec Eq. 1: the comparator of the regret"
    live = False

    def reset(self) -> None:
        needed = self.context.hindsight or [0]
        self.arm = needed.index(min(needed))

    def select(self) -> int:
        return self.arm
