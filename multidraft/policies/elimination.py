"""Policies that drop the weaker half of the drafters again and again until one is left."""

from __future__ import annotations

import math
from collections.abc import Sequence

from multidraft.errors import PolicyError
from multidraft.policies.base import register
from multidraft.policies.rewards import AlignmentBandit


class Halving(AlignmentBandit):
    """Plays all drafters still in the race for a number of turns, then keeps the better half by summed reward.

    Subclasses say with :meth:`turns` how many turns a phase has. Of an odd number the middle one stays; ties
    stay in the pool's order. The last one standing is played to the end of the query.

    Source: MetaSD Alg. 5 (Karnin et al. 2013). We take ⌈log₂ N⌉ phases, since ⌊log₂ N⌋ of them leave two drafters
    standing where N is not a power of two.
    """

    def reset(self, prompt: str = "") -> None:
        super().reset(prompt)
        self.standing = list(range(self.arm_count))
        self._begin_phase()

    def turns(self) -> int:
        """How often each drafter still standing is played in the phase that begins, at least once."""
        raise NotImplementedError

    def _begin_phase(self) -> None:
        self.to_play = [arm for _ in range(self.turns()) for arm in self.standing] if len(self.standing) > 1 else []
        self.sums = [0.0] * self.arm_count

    def select(self) -> int:
        return self.to_play[0] if self.to_play else self.standing[0]

    def learn(self, arm: int, reward: float) -> None:
        if not self.to_play:
            return
        self.sums[arm] += reward
        self.to_play.pop(0)
        if not self.to_play:
            kept = sorted(self.standing, key=lambda arm: -self.sums[arm])[: math.ceil(len(self.standing) / 2)]
            self.standing = sorted(kept)
            self._begin_phase()


@register
class SequentialHalving(Halving):
    """MetaSD-SH: ``period`` turns for every drafter in every phase.

    Args:
        period: turns a phase, at least 1.
        reward: ``bd`` block divergence or ``be`` block efficiency.

    Source: MetaSD Alg. 5; period = 1 from its experiments.
    """

    name = "sh"
    title = "Sequential halving"
    explanation = (
        "A knock-out tournament: every drafter gets a turn, the worse half is dropped for the rest of the text, and so "
        "on until one is left. It stops paying for bad drafters early and seldom switches, but a drafter that had a "
        "bad start never comes back."
    )
    source = "MetaSD Alg. 5"

    def __init__(self, arms: Sequence[str], seed: int = 0, period: int = 1, reward: str = "bd"):
        if period < 1:
            raise PolicyError(f"period must be at least 1 turn, got {period}")
        self.period = period
        super().__init__(arms, seed, reward)

    def turns(self) -> int:
        return self.period


@register
class PureExplorationThenCommit(Halving):
    """PETC: sequential halving within ``B0 = c ln B`` rounds, then the survivor to the end.

    Every phase has the same number of rounds, shared by the drafters still standing; each is played at least once,
    so that a small ``c`` makes it ``sh`` with period 1.

    Args:
        c: rounds of exploration per unit of ln B, above 0.
        budget: B, the number of tokens expected, at least 2.
        reward: ``bd`` block divergence or ``be`` block efficiency.

    Source: MetaSD Alg. 4, Theorem 8 (which leaves ``c`` open).
    """

    name = "petc"
    title = "Explore, then commit"
    explanation = (
        "A knock-out tournament with a budget: a number of rounds that grows slowly with the length of the text is "
        "spent on finding the best drafter, which then writes the rest alone. Fewer switches than a bandit that never "
        "stops exploring, at the risk of having settled on the wrong one."
    )
    source = "MetaSD Alg. 4"

    def __init__(self, arms: Sequence[str], seed: int = 0, c: float = 6.0, budget: int = 200, reward: str = "bd"):
        if not 0 < c < math.inf:
            raise PolicyError(f"c must be a positive number, got {c}")
        if budget < 2:
            raise PolicyError(f"budget must be at least 2 tokens, got {budget}")
        self.exploration = c * math.log(budget)
        super().__init__(arms, seed, reward)

    def turns(self) -> int:
        phases = math.ceil(math.log2(self.arm_count))
        return max(1, int(self.exploration / (len(self.standing) * phases)))
