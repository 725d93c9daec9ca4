"""Gradio's page with what it lacks: who asks is known to what they ask for, and every failure has its sentence."""

from __future__ import annotations

import inspect
import logging
from typing import Any

import gradio as gr
from gradio.block_function import BlockFunction

from drafters.errors import UserError, without_folders
from multidraft.service.line import CALLER, Caller
from multidraft.serving.callers import visitor_of

log = logging.getLogger(__name__)

FAILED = "The server failed; its log says why. Please try again."


class Page(gr.Blocks):
    """The page, whose events name their caller for the jobs that they start."""

    async def process_api(self, block_fn: BlockFunction | int, inputs: list[Any], *args: Any, **named: Any) -> Any:
        """Gradio's own, which tells nothing of errors that are not ``gr.Error``: all become one."""
        fn = self.fns[block_fn] if isinstance(block_fn, int) else block_fn
        request, session = named.get("request"), named.get("session_hash")
        if isinstance(request, gr.Request):
            client = request.client
            CALLER.set(Caller(visitor_of(client.host if client else None), session))
            if fn.queue and named.get("event_id") not in self._queue.event_ids_to_events:  # else it would have no end
                raise gr.Error(f"{fn.api_name or 'this'} has to be called by the queue", print_exception=False)
        inputs = _completed(fn, inputs)
        try:
            return await super().process_api(block_fn, inputs, *args, **named)
        except gr.Error:
            raise
        except UserError as error:
            raise gr.Error(without_folders(str(error)), print_exception=False) from None
        except (StopIteration, StopAsyncIteration):
            raise
        except Exception as error:
            log.exception("an event of the page failed")
            raise gr.Error(FAILED, print_exception=False) from error


def _completed(fn: BlockFunction, inputs: list[Any]) -> list[Any]:
    """All values that an event takes: for those that a call leaves out at the end, their defaults.

    Raises:
        gr.Error: one of them has none.
    """
    missing = len(fn.inputs) - len(inputs)
    if missing <= 0:
        return inputs
    known = list(inspect.signature(fn.fn).parameters.values()) if fn.fn else []
    left_out = known[len(inputs) :] if len(known) == len(fn.inputs) else []
    defaults = [parameter.default for parameter in left_out]
    if len(defaults) < missing or inspect.Parameter.empty in defaults:
        needed = next((p.name for p in left_out if p.default is inspect.Parameter.empty), "more")
        raise gr.Error(
            f"{fn.api_name or 'this'} takes {len(fn.inputs)} values, got {len(inputs)}: {needed} is missing",
            print_exception=False,
        )
    return [*inputs, *defaults]
