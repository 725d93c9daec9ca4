"""What a run's record says of the pool and the machine, and the scores that replays give it."""

from __future__ import annotations

import platform
from importlib.metadata import version as version_of

from drafters.base import Acceptances
from drafters.hardware import describe
from drafters.pool import Pool
from multidraft._version import version
from multidraft.replay.regret import ExpectedRegret, Regret
from storage.run import Conditions, Scores


def conditions_of(pool: Pool, hardware: str | None = None) -> Conditions:
    """Under what conditions a run on this pool is made.

    Args:
        hardware: what it ran on, where that is not what the pool's device is called in this process.
    """
    libraries = {
        "python": platform.python_version(),
        "torch": version_of("torch"),
        "transformers": version_of("transformers"),
    }
    return Conditions(pool.name, pool.card_hash, hardware or describe(pool.device), pool.dtype, version(), libraries)


def scores_of(
    pool: Pool,
    lossless: bool | None,
    regret: Regret | None = None,
    expected: ExpectedRegret | None = None,
    table: Acceptances | None = None,
) -> Scores:
    """What was found out about a run after it ended.

    Args:
        regret: of a greedy run; ``expected`` of a sampled one.
        table: the drafts that were possible in a greedy run, from which any policy can be replayed.
    """
    names, found = [drafter.name for drafter in pool.drafters], regret or expected
    return Scores(
        lossless=lossless,
        regret_rounds=regret.rounds if regret else None,
        expected_regret=expected.loss if expected else None,
        best_drafter=names[found.best_arm] if found else None,
        best_arm_ratio=found.best_arm_ratio if found else None,
        drafter_rounds=dict(zip(names, regret.needed, strict=True)) if regret else None,
        acceptance=table,
    )
