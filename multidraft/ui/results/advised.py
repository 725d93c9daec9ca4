"""What the runs of a batch say of drafters and draft lengths, for its page, which has no script: it is worked out by a
job, once, and the page is loaded again until that has ended."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

from markupsafe import Markup

from drafters.errors import UserError, without_folders
from multidraft.service.batch import BatchJob
from multidraft.service.lab import AdviceJob, LabWork
from multidraft.ui.widgets.markup import count
from multidraft.ui.widgets.verdict import verdict_html
from storage.filters import Filter
from storage.problems import StorageError
from storage.texts import TextFilter

WAIT_SECONDS = 1.0
"""So long a page waits for a verdict, which for a few prompts is quick."""

KEPT = 64
"""Of the verdicts asked for last, so many are kept."""


class Advised(NamedTuple):
    """What is known: the verdict, or a line on why there is none; ``again`` whether it will be known a little later."""

    verdict: Markup = Markup()
    line: str = ""
    again: bool = False


class Verdicts:
    """The verdicts on batches of the history."""

    def __init__(self, work: LabWork):
        self._work, self._lock = work, threading.Lock()
        self._jobs: dict[tuple[str, int], AdviceJob] = {}

    def of(self, about: Mapping[str, Any]) -> Advised:
        """The verdict on an experiment (``experiments.listed``)."""
        batch = self._work.workbench.jobs.find(about["id"], BatchJob)
        if batch and not batch.done:
            done = f"{batch.runs_done:,} of {count(batch.total, 'run')}"
            line = f"This batch is running: {done} so far, of which these figures are; reload the page for newer ones. "
            return Advised(line=f"{line}Which drafters and draft length to use is worked out when it has ended.")
        try:
            job = self._job(about["id"], about["runs"])
        except (UserError, StorageError) as error:
            return Advised(line=f"No advice on drafters and draft length now: {without_folders(str(error))}.")
        if not job.wait(WAIT_SECONDS):
            line = "Working out which drafters and draft length to use; this page reloads by itself."
            return Advised(line=line, again=True)
        if job.result:
            return Advised(verdict_html(job.result))
        return Advised(line=f"No advice on drafters and draft length: {without_folders(job.error or 'stopped')}.")

    def _job(self, id: str, runs: int) -> AdviceJob:
        """The one under way or kept; a new one where runs were added, or the last was stopped."""
        with self._lock:
            job = self._jobs.pop((id, runs), None)
            if job is None or job.cancelled.is_set():
                job = self._work.advise(TextFilter(Filter(experiments=(id,))))
            self._jobs[id, runs] = job
            while len(self._jobs) > KEPT:
                del self._jobs[next(iter(self._jobs))]
            return job
