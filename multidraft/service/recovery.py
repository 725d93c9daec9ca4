"""What the end of an earlier server cut off: batches go on, other runs are marked as interrupted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

from drafters.errors import UserError
from multidraft.bench.measure import conditions_of
from multidraft.service.batch import ResumedBatch, interrupted
from multidraft.service.jobs import Job
from multidraft.service.workbench import Workbench
from storage.problems import StorageError
from storage.run import Run
from storage.unfinished import unfinished

log = logging.getLogger(__name__)

MOST_STARTS = 3
"""A batch that did not come any further in so many starts is given up: it may be what ends the server."""


def recover(workbench: Workbench, loading: Job | None = None) -> None:
    """Take up all jobs that are unfinished in the history; call it while no other server works on them.

    A batch that was started on the page goes on, under its address, if the pool is the one it began with; visitors were
    told that they may leave it. Of all else the history says that it was interrupted: whoever waited for it has gone.

    Args:
        loading: of the pool that batches wait for; this returns at once.
    """
    try:
        found = unfinished(workbench.store.path)
    except StorageError as error:
        log.warning("interrupted runs are not marked: %s", error)
        return
    if loading:
        threading.Thread(target=_take_up_all, args=(workbench, found, loading), daemon=True).start()
    else:
        _take_up_all(workbench, found)


def _take_up_all(workbench: Workbench, found: Mapping[str, Mapping[str, Any]], loading: Job | None = None) -> None:
    if loading:
        loading.wait()
    for id, asked in found.items():
        try:
            _take_up(workbench, id, asked)
        except Exception:  # of whatever version has written it
            log.exception("interrupted jobs cannot be resumed")
            workbench.store.add(ends=id)


def _take_up(workbench: Workbench, id: str, asked: Mapping[str, Any]) -> None:
    if "runs" in asked:
        runs = [Run.from_json(values) for values in asked["runs"]]
        for run in runs:
            run.generation.status = "interrupted"
    else:
        try:
            if why := _cannot_go_on(workbench, asked):
                raise UserError(why)
            workbench.jobs.submit(ResumedBatch(workbench, id, asked))
            log.warning("batch %s was interrupted and is resumed", id)
            return
        except UserError as error:
            log.warning("batch %s was interrupted and is not resumed: %s", id, error)
            runs = interrupted(workbench.store.path, id, asked)
    workbench.store.add(*runs, ends=id)


def _cannot_go_on(workbench: Workbench, asked: Mapping[str, Any]) -> str | None:
    if asked["source"] == "api":
        return "its client has disconnected"
    if asked["conditions"]["card_hash"] != conditions_of(workbench.pool).card_hash:
        return f"it ran on pool {asked['conditions']['pool']!r}, which is not loaded or has changed"
    if asked["starts"] >= MOST_STARTS:
        return f"it made no progress in {MOST_STARTS} starts"
    return None
