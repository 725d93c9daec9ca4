"""Policies that drop the weaker half of the drafters again and again until one is left."""

from __future__ import annotations

import math

from pydantic import Field

from multidraft.policies.base import register
from multidraft.policies.rewards import AlignmentBandit


class Halving(AlignmentBandit):
    """Plays all drafters still in the race for a number of turns, then keeps the better half by summed reward.

    Subclasses say with :meth:`turns` how many turns a phase has. Of an odd number the middle one stays; ties
    stay in the pool's order. The last one standing is played to the end of the query.

    Source: MetaSD Alg. 5 (Karnin et al. 2013). We take ⌈log₂ N⌉ phases, since ⌊log₂ N⌋ of them leave two drafters
    standing where N is not a power of two.
    """

    def reset(self) -> None:
        super().reset()
        self.standing = list(range(self.arm_count))
        self._begin_phase()

    def turns(self) -> int:
        """How often each drafter still standing is played in the phase under way, at least once."""
        raise NotImplementedError

    def _begin_phase(self) -> None:
        self.played = 0
        self.sums = [0.0] * self.arm_count

    def select(self) -> int:
        return self.standing[self.played % len(self.standing)]

    def learn(self, arm: int, reward: float) -> None:
        if len(self.standing) == 1:
            return
        self.sums[arm] += reward
        self.played += 1
        if self.played == self.turns() * len(self.standing):
            best = sorted(self.standing, key=lambda arm: -self.sums[arm])[: math.ceil(len(self.standing) / 2)]
            self.standing = sorted(best)
            self._begin_phase()


@register
class SequentialHalving(Halving):
    """MetaSD-SH: ``period`` turns for every drafter in every phase."""

    name = "sh"
    title = "Sequential halving"
    explanation = (
        "A knock-out tournament: every drafter gets a turn, the worse half is dropped for the rest of the text, and so "
        "on until one is left. It stops paying for bad drafters early and seldom switches, but a drafter that had a "
        "bad start never comes back."
    )
    source = "MetaSD Alg. 5, period = 1 from its experiments"

    class Settings(AlignmentBandit.Settings):
        period: int = Field(1, ge=1, le=10_000, description="turns of each drafter per phase")

    def turns(self) -> int:
        return self.settings.period


@register
class PureExplorationThenCommit(Halving):
    """PETC: sequential halving within ``B0 = c ln B`` rounds, then the survivor to the end.

    Every phase has the same number of rounds, shared by the drafters still standing; each is played at least once,
    so that a small ``c`` makes it ``sh`` with period 1.
    """

    name = "petc"
    title = "Explore, then commit"
    explanation = (
        "A knock-out tournament with a budget: a number of rounds that grows slowly with the length of the text is "
        "spent on finding the best drafter, which then writes the rest alone. Fewer switches than a bandit that never "
        "stops exploring, at the risk of having settled on the wrong one."
    )
    source = "MetaSD Alg. 4, Theorem 8 (which leaves c open)"

    class Settings(AlignmentBandit.Settings):
        c: float = Field(6.0, gt=0, le=1000, description="rounds of exploration per unit of ln B")
        budget: int = Field(200, ge=2, le=1_000_000, description="number of tokens expected, B")

    def turns(self) -> int:
        phases = math.ceil(math.log2(self.arm_count))
        exploration = self.settings.c * math.log(self.settings.budget)
        return max(1, int(exploration / (len(self.standing) * phases)))
