"""How the laboratory's replays are watched: the page's parts while they are made, and after."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import gradio as gr

from multidraft.errors import UserError
from multidraft.ui import lab_view
from multidraft.ui.controls import sentence
from multidraft.ui.lab_work import Progress
from multidraft.ui.stats import message_html
from storage.problems import StorageError

T = TypeVar("T")

STOPPED = message_html("cancelled", "Stopped. What was shown before is left as it was.")


def watched(
    steps: Iterator[Progress | T], done: Callable[[T], tuple[Any, ...]], parts: int
) -> Iterator[tuple[Any, ...]]:
    """A status line, the parts, the buttons that start and stop: again and again until ``steps`` end.

    Args:
        steps: raise ``UserError`` or ``StorageError`` where the visitor is to be told what is wrong.
        done: the status line and the parts for what came of them.
        parts: how many these are; they are left as they are until then.
    """
    left = [gr.skip()] * parts
    try:
        for step in steps:
            if isinstance(step, Progress):
                yield lab_view.progress_html(step), *left, *buttons(working=True)
            else:
                yield *done(step), *buttons(working=False)
    except (UserError, StorageError) as error:
        yield message_html("error", sentence(error)), *left, *buttons(working=False)


def buttons(working: bool) -> tuple[gr.Button, gr.Button]:
    """The buttons that start and that stop replays."""
    return gr.Button(interactive=not working), gr.Button(interactive=working)


def stopped() -> tuple[Any, ...]:
    """The status line and the buttons after Stop, which ends the events that watch: nobody asks for the next slice."""
    return STOPPED, *buttons(working=False)
