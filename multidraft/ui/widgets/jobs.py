"""Buttons that start and stop jobs, and jobs that outlive the page that started them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import gradio as gr
from gradio.events import Dependency

from multidraft.service.jobs import Job, Jobs
from multidraft.ui.widgets.events import HIDDEN, PRIVATE, QUICK, Updates
from multidraft.ui.widgets.markup import message_html

J = TypeVar("J", bound=Job[Any])


def answered_at_once(
    events: Sequence[Any],
    call: Callable[..., Any],
    inputs: Any,
    outputs: Any,
    own: list[Any],
    button: gr.Button | gr.HTML,
    doing: str,
    failed: str,
    *,
    busy: str = "",
    waits: str = "",
    **named: Any,
) -> Dependency:
    """Call ``call`` on ``events`` of ``button``, which the page answers at once: the server, on a slow network, takes
    its time.

    Args:
        own: what the page changes by itself: the line that says ``doing`` until the server answers, and that it
            ``failed`` if the server does not take it; and ``button``, if it is to be out of use meanwhile.
        busy: what stands on ``button`` then, where a job under way may take that line for its progress.
        waits: what is said below the tab's prompt where ``button`` is out of use, since a job is under way.
    """
    begun = message_html("busy md-starting", doing)
    refused = message_html("error", f"{failed}: the server did not take it. Please try again.", refused=True)
    at_once = f"starting(...{json.dumps([button.elem_id, begun, busy, waits])}).slice(0, {len(own)})"
    gr.on(events, None, None, own, js=f"() => {at_once}", **PRIVATE)
    answered = gr.on(events, call, inputs, outputs, **named)
    told = f"notStarted(said, ...{json.dumps([refused, busy and button.value])}).slice(0, {len(own)})"
    answered.failure(None, own[0], own, js=f"(said) => {told}", **PRIVATE)
    return answered


class RunButtons(Generic[J]):
    """The button that starts a job of a kind and the one that stops it: one of them is live.

    Args:
        name: what the page calls such a job.
        title: of the first.
        ids: of both on the page.

    Attributes:
        id: holds that of the job to stop.
    """

    def __init__(self, name: str, title: str, ids: tuple[str, str], jobs: Jobs, kind: type[J]):
        self.name, self.jobs, self.kind = name, jobs, kind
        with gr.Row(elem_classes="md-buttons"):
            self.run = gr.Button(title, variant="primary", elem_id=ids[0])
            self.stop = gr.Button("Stop", variant="stop", interactive=False, elem_id=ids[1])
        self.both = [self.run, self.stop]
        self.id = gr.Textbox("", visible=False)

    def starts(
        self, events: Sequence[Any], start: Callable[..., Any], inputs: Any, outputs: Any, status: gr.HTML, **named: Any
    ) -> Dependency:
        """Call ``start`` on ``events``; until it answers, ``status`` says that the job is starting and the button is
        out of use. Likewise of the one that stops it."""
        self.status = status
        said = f"Stopping the {self.name} …", f"The {self.name} has not been stopped"
        own = [status, self.stop]
        answered_at_once(
            [self.stop.click], self.cancel, self.id, None, own, self.stop, *said, busy="Stopping …", **QUICK
        )
        return answered_at_once(events, start, inputs, outputs, [status, self.run], **self._said, **named)

    def presses(self, event: Any, fill: Callable[..., Any], inputs: Any, fields: Any, js: str) -> None:
        """On ``event``, have ``fill`` give the job's ``fields`` their values, and then the script ``js`` press the
        button; from ``event`` on the job is said to start."""
        filled = answered_at_once([event], fill, inputs, fields, [self.status], **self._said, **QUICK)
        filled.success(None, js=js, **PRIVATE)

    @property
    def _said(self) -> dict[str, Any]:
        return {
            "button": self.run,
            "doing": f"Starting the {self.name} …",
            "failed": f"The {self.name} has not started",
            "waits": f"A {self.name} is still under way: press {self.run.value} when it has ended, or stop it first.",
        }

    def find(self, id: str) -> J | None:
        return self.jobs.find(id, self.kind)

    def cancel(self, id: str) -> None:
        """End a job after the step in progress."""
        if job := self.find(id):
            job.cancel()

    def live(self, *, running: bool) -> Updates:
        return {self.run: gr.Button(interactive=not running), self.stop: gr.Button("Stop", interactive=running)}


class AddressedJobs(RunButtons[J]):
    """Likewise for jobs that go on whether anybody looks on or not: the page's address finds them again.

    Args:
        name: of the kind, in the address and the ids.

    Attributes:
        asked: holds the id of the job to watch.
    """

    def __init__(self, name: str, title: str, jobs: Jobs, kind: type[J]):
        super().__init__(name, title, (f"{name}-run", f"{name}-stop"), jobs, kind)
        self.asked = gr.Textbox("", visible=False)

    def wire(
        self,
        page: gr.Blocks,
        form: list[Any],
        form_of: Callable[[str], tuple[Any, ...] | None],
        show: Callable[[J], Iterator[Updates]],
        gone: Callable[[str], Iterator[Updates]],
        shown: list[Any],
    ) -> Dependency:
        """Watch what is asked for, and what the address of ``page`` names; returns the event that reads it.

        Args:
            form: the fields, with the values that ``form_of`` an id start its job once more, where they are known.
            show: what changes in ``shown`` until a job has ended.
            gone: the same for the id of a job that is no longer known.
        """
        self.form, self.form_of, self.show, self.gone = form, form_of, show, gone
        restored = page.load(self.linked, None, [self.asked, self.id, *form, *self.both], **QUICK)
        shown, most = [*shown, *self.both], self.jobs.limits.queue
        named: dict[str, Any] = {"trigger_mode": "multiple", "concurrency_limit": most, **HIDDEN}
        watched = self.asked.change(self.watch, self.asked, shown, **named)
        lost = (
            f"This page can no longer follow the {self.name}. Reload the page: its address finds the {self.name} again."
        )
        watched.failure(None, None, self.status, js=f"() => {json.dumps(message_html('error', lost))}", **PRIVATE)
        return restored

    def start(self, events: list[Any], start: Callable[..., Updates], inputs: list[Any], status: gr.HTML) -> None:
        """Call ``start`` on ``events``: it returns what to watch, or says in ``status`` what is wrong."""
        started = self.starts(events, start, inputs, [self.asked, status, *self.both], status, **HIDDEN)
        # The address names what was started now, if anything, so that a reload, or another browser, finds it again.
        named = f"address({{ tab: '{self.name}', {self.name}: asked }})"
        shown = f"(asked, shown) => {{ if (asked) {named}; return asked || shown; }}"
        started.then(None, [self.asked, self.id], self.id, js=shown, **PRIVATE)

    def linked(self, request: gr.Request) -> Updates:
        """What the page's address names: to be watched, with the form as it was when that was started, and the buttons.
        If it names nothing, all stays: a quick visitor may have started something."""
        id = str(request.query_params.get(self.name, ""))
        if not id:
            return {self.asked: gr.skip()}
        updates: Updates = {self.asked: id, self.id: id}
        if values := self.form_of(id):
            updates |= dict(zip(self.form, values, strict=True))
        if (job := self.find(id)) and not job.done:
            updates |= self.live(running=True)
        return updates

    def watch(self, id: str) -> Iterator[Updates]:
        if job := self.find(id):
            yield from self.show(job)
        elif id:
            for updates in self.gone(id):
                yield {**self.live(running=False), **updates}
        else:
            yield gr.skip()
