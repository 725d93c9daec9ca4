"""How a job of the Lab is watched: progress, then its results or what went wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import gradio as gr
from markupsafe import Markup

from drafters.errors import UserError
from multidraft.service.lab import ReplayJob
from multidraft.ui.widgets import markup
from multidraft.ui.widgets.events import Updates
from multidraft.ui.widgets.jobs import RunButtons
from multidraft.ui.widgets.markup import message_html, problem_html, refused_html
from storage.problems import StorageError

UPDATE_SECONDS = 0.15

T = TypeVar("T")

STOPPED = message_html("cancelled", "Stopped. The previous results are still shown.")


def watched(
    start: Callable[[], ReplayJob[T]],
    done: Callable[[T], Updates],
    status: gr.HTML,
    buttons: RunButtons[ReplayJob[Any]],
) -> Iterator[Updates]:
    """The status line, the buttons and the job's id until it ends, then the results. Whoever stops watching ends it.

    Args:
        start: starts the job; raises ``UserError`` or ``StorageError`` where the visitor is to read what is wrong.
        done: what its result changes.
    """
    try:
        job = start()
    except (UserError, StorageError) as error:
        yield {status: refused_html(error), **buttons.live(running=False)}
        return
    try:
        yield {status: progress_html(job), **buttons.live(running=True), buttons.id: job.id}
        while not job.wait(UPDATE_SECONDS):
            yield {status: progress_html(job)}
    finally:
        job.leave()
    ended = buttons.live(running=False)
    if job.error:
        yield {status: problem_html(job.error), **ended}
    else:
        yield {**({status: STOPPED} if job.result is None else done(job.result)), **ended}


def progress_html(job: ReplayJob[Any]) -> Markup:
    """How far the replays are."""
    if not job.total:
        return markup.progress_html("Reading the texts, in turn with the runs under way …", 0, 1, "Replays")
    return markup.progress_html(f"{job.replays:,} of {job.total:,} replays …", job.replays, job.total, "Replays")
