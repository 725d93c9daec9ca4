"""How the Lab's replays are watched: what changes on the page while they are made, and after."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import gradio as gr

from drafters.errors import UserError
from multidraft.service.lab import ReplayJob
from multidraft.ui.tabs.lab import view
from multidraft.ui.widgets.events import RunButtons, Updates
from multidraft.ui.widgets.formats import sentence
from multidraft.ui.widgets.status import message_html
from storage.problems import StorageError

T = TypeVar("T")

UPDATE_SECONDS = 0.15

STOPPED = message_html("cancelled", "Stopped. The previous results are still shown.")


def watched(
    start: Callable[[], ReplayJob[T]],
    done: Callable[[T], Updates],
    status: gr.HTML,
    buttons: RunButtons,
    id: gr.Textbox,
) -> Iterator[Updates]:
    """The status line, the buttons and the job's id until it ends, then the results. Whoever stops watching ends it.

    Args:
        start: starts the job; raises ``UserError`` or ``StorageError`` where the visitor is to read what is wrong.
        done: what its result changes.
    """
    try:
        job = start()
    except (UserError, StorageError) as error:
        yield {status: message_html("error", sentence(error)), **buttons.live(running=False)}
        return
    try:
        yield {status: view.progress_html(job), **buttons.live(running=True), id: job.id}
        while not job.wait(UPDATE_SECONDS):
            yield {status: view.progress_html(job)}
    finally:
        job.cancel()
    ended = buttons.live(running=False)
    if job.error:
        yield {status: message_html("error", sentence(job.error)), **ended}
    else:
        yield {**({status: STOPPED} if job.result is None else done(job.result)), **ended}
