"""What the loaded pool learns from its traffic: read from the history when the pool is loaded, then run by run."""

from __future__ import annotations

import logging
from datetime import datetime
from pathlib import Path

from drafters.pool import Pool
from drafters.traffic import Traffic
from multidraft.engine.experience import new_traffic
from storage import lessons
from storage.problems import StorageError
from storage.run import Run

log = logging.getLogger(__name__)


def traffic_of(pool: Pool, path: Path, before: datetime | None = None) -> Traffic:
    """What the runs of a history, those ``before`` a time, have taught about a pool; nothing where the history cannot
    be read."""
    traffic = new_traffic(pool)
    try:
        traffic.learn(lessons.lessons(path, pool.card_hash, before=before))
        traffic.count = lessons.count(path, pool.card_hash, before)
    except (StorageError, ValueError) as error:
        log.warning("what the history teaches about pool %s could not be read: %s", pool.name, error)
    return traffic


def learn_from(pool: Pool, run: Run) -> None:
    """Let a pool learn from a run that was made on it, if it may and if there is anything to learn."""
    told = run.scores.suitability
    if isinstance(pool.traffic, Traffic) and told and run.origin.learn and run.conditions.card_hash == pool.card_hash:
        pool.traffic.learn([(run.generation.prompt, told)])
