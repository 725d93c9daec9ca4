"""What the runs of a batch say of drafters and draft lengths, for its page, which has no script: it is loaded again
until that has been worked out."""

from __future__ import annotations

from typing import NamedTuple

from markupsafe import Markup

from drafters.errors import UserError, without_folders
from multidraft.service.batch import BatchJob
from multidraft.service.lab import Verdicts
from multidraft.ui.widgets.markup import count
from multidraft.ui.widgets.verdict import verdict_html
from storage.problems import StorageError

WAIT_SECONDS = 1.0
"""So long a page waits for a verdict, which for a few prompts is quick."""


class Advised(NamedTuple):
    """What is known: the verdict, or a line on why there is none; ``again`` whether it will be known a little later."""

    verdict: Markup = Markup()
    line: str = ""
    again: bool = False


def advice_on(verdicts: Verdicts, id: str) -> Advised:
    """The verdict on an experiment."""
    batch = verdicts.work.workbench.jobs.find(id, BatchJob)
    if batch and not batch.done:
        done = f"{batch.runs_done:,} of {count(batch.total, 'run')}"
        line = f"This batch is running: {done} so far, of which these figures are; reload the page for newer ones. "
        return Advised(line=f"{line}Which drafters and draft length to use is worked out when it has ended.")
    try:
        job = verdicts.job(id)
    except (UserError, StorageError) as error:
        return Advised(line=f"No advice on drafters and draft length now: {without_folders(str(error))}.")
    if not job.wait(WAIT_SECONDS):
        line = "Working out which drafters and draft length to use; this page reloads by itself."
        return Advised(line=line, again=True)
    if job.result:
        return Advised(verdict_html(job.result))
    return Advised(line=f"No advice on drafters and draft length: {without_folders(job.error or 'stopped')}.")
