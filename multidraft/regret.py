"""Exact regret of a greedy generation against the best single drafter in hindsight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from multidraft.records import Generation

if TYPE_CHECKING:
    from drafters.pool import Pool


@dataclass(frozen=True)
class Regret:
    """Stopping-time regret (MetaSD Def. 1, BanditSpec Eq. 1).

    Attributes:
        rounds: rounds played minus the fewest that one fixed drafter would have needed; negative where
            switching beat every single drafter.
        best_arm: that drafter (ties: the first).
        best_rounds: its rounds.
        needed: rounds that each drafter alone would have needed.
        best_arm_ratio: in what share of the rounds with a drafter it was the one.
    """

    rounds: int
    best_arm: int
    best_rounds: int
    best_arm_ratio: float
    needed: tuple[int, ...] = ()


def acceptance_table(pool: Pool, prompt_ids: Sequence[int], output_ids: Sequence[int], draft_length: int) -> np.ndarray:
    """``A[i, s]``: how many tokens of drafter ``i``'s greedy draft begun at output position ``s`` would be accepted.

    Needs no target call: a greedy target's text is the same whoever drafts it (SPEC 6).

    Args:
        prompt_ids, output_ids: the recorded generation.
        draft_length: drafts hold at most so many tokens.

    Returns:
        int64 ``(drafters, output positions)``, entries in ``0 … draft_length``.
    """
    return pool.acceptances([*prompt_ids, *output_ids], len(prompt_ids), draft_length)


def fixed_rounds(accepted: np.ndarray) -> int:
    """Rounds that one drafter needs for the whole output: the walk ``s ← s + A[s] + 1``."""
    position = rounds = 0
    while position < len(accepted):
        position += int(accepted[position]) + 1
        rounds += 1
    return rounds


def regret_of(generation: Generation, table: np.ndarray) -> Regret:
    """Regret of a greedy generation, given its acceptance table."""
    needed = [fixed_rounds(row) for row in table]
    best = int(np.argmin(needed))
    arms = [r.arm for r in generation.rounds if r.arm is not None]
    return Regret(
        rounds=len(generation.rounds) - needed[best],
        best_arm=best,
        best_rounds=needed[best],
        best_arm_ratio=arms.count(best) / len(arms) if arms else 0.0,
        needed=tuple(needed),
    )
