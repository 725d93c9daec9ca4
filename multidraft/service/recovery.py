"""What the end of an earlier server cut off: batches go on, other runs are marked as interrupted."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from drafters.errors import StoppingError, UserError
from multidraft.service.batch import ResumedBatch
from multidraft.service.workbench import Workbench
from storage.problems import StorageError
from storage.run import Run, utc_text
from storage.unfinished import unfinished

log = logging.getLogger(__name__)

MOST_STARTS = 3
"""A batch that did not come any further in so many starts is given up: it may be what ends the server."""

NOT_RESUMED = "interrupted by a restart of the server and not resumed"

LONGEST_WAIT = timedelta(days=7)
"""How long after its last start a batch waits for its pool to be loaded again."""


def recover(workbench: Workbench) -> None:
    """Take up all jobs that are unfinished in the history; call it while no other server works on them.

    A batch that was started on the page goes on, under its address, once the pool that it began with is in use
    (:func:`resume`); visitors were told that they may leave it. Of all else the history says that it was interrupted:
    whoever waited for it has gone.
    """
    try:
        workbench.cut_off = unfinished(workbench.store.path)
    except StorageError as error:
        log.warning("interrupted runs are not marked: %s", error)
    resume(workbench)


def resume(workbench: Workbench) -> None:
    """Take up what was cut off, except for the batches that wait for another pool than the present one."""
    with workbench.resuming:  # pools may be loaded one right after the other
        for id, asked in tuple(workbench.cut_off.items()):
            try:
                if not _take_up(workbench, id, asked):
                    continue
            except StoppingError:  # the next server takes it up
                return
            except UserError as error:
                log.warning("batch %s was interrupted and is not resumed: %s", id, error)
                workbench.store.add(ends=id, ending=f"{NOT_RESUMED}: {error}")
            except Exception:  # of whatever version has written it
                log.exception("interrupted jobs cannot be resumed")
                workbench.store.add(ends=id, ending=NOT_RESUMED)
            del workbench.cut_off[id]


def _take_up(workbench: Workbench, id: str, asked: Mapping[str, Any]) -> bool:
    """Mark runs as interrupted, or let a batch go on; a :class:`UserError` says why that cannot be. Returns false for a
    batch whose pool may be loaded yet."""
    if "runs" in asked:
        runs = [Run.from_json(values) for values in asked["runs"]]
        for run in runs:
            run.generation.status = "interrupted"
        workbench.store.add(*runs, ends=id)
        return True
    if asked["source"] == "api":
        raise UserError("its client has disconnected")
    if asked["conditions"]["card_hash"] != workbench.pool.card_hash:
        if asked["begun_at"] > utc_text(datetime.now(UTC) - LONGEST_WAIT):
            return False
        pool = asked["conditions"]["pool"]
        changed = " has changed, or" if pool == workbench.pool.name else ""
        raise UserError(f"its pool, {pool!r},{changed} was not loaded within {LONGEST_WAIT.days} days")
    if asked["starts"] >= MOST_STARTS:
        raise UserError(f"it made no progress in {MOST_STARTS} starts")
    workbench.jobs.submit(ResumedBatch(workbench, id, asked))
    log.warning("batch %s was interrupted and is resumed", id)
    return True
