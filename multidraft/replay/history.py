"""What a run's record says of the pool and the machine."""

from __future__ import annotations

import platform
from importlib.metadata import version as version_of

from drafters.hardware import describe
from drafters.pool import Pool
from multidraft._version import version
from storage.run import Conditions


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
