"""The verdicts on batches of the history, each worked out once, whoever asks."""

from __future__ import annotations

import threading

from multidraft.service.lab import AdviceJob, LabWork
from storage import experiments
from storage.experiments import Sought
from storage.filters import Filter
from storage.texts import TextFilter

KEPT = 64
"""Of the verdicts asked for last, so many are kept."""

FLUSH_SECONDS = 1.0


class Verdicts:
    """Jobs that work them out, under way or ended."""

    def __init__(self, work: LabWork):
        self.work, self._lock = work, threading.Lock()
        self._jobs: dict[tuple[str, int], AdviceJob] = {}

    def job(self, id: str) -> AdviceJob:
        """The one on an experiment; a new one where runs were added, or the last was stopped.

        Raises:
            UserError: too many jobs wait.
            StorageError: the history cannot be read.
        """
        store, filter = self.work.workbench.store, Filter(experiments=(id,))
        store.flush(FLUSH_SECONDS)  # a batch that has just ended
        found = experiments.listed(store.path, Sought(filter), limit=1)
        key = id, found[0]["runs"] if found else 0
        with self._lock:
            job = self._jobs.pop(key, None)
            if job is None or job.cancelled.is_set():
                job = self.work.advise(TextFilter(filter))
            self._jobs[key] = job
            while len(self._jobs) > KEPT:
                del self._jobs[next(iter(self._jobs))]
            return job
