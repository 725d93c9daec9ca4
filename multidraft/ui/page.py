"""Gradio's page with what it lacks: who asks is known to what they ask for, and every failure has its sentence."""

from __future__ import annotations

import inspect
import logging
from typing import Any

import gradio as gr
from fastapi.exceptions import RequestValidationError
from gradio.block_function import BlockFunction
from gradio.blocks import Block, BlocksConfig
from gradio.components import Component
from gradio.renderable import Renderable
from gradio.route_utils import FnIndexInferError
from starlette.requests import Request
from starlette.responses import JSONResponse

from drafters.errors import LONGEST_MESSAGE, UserError, first_line, quoted, without_folders
from multidraft.service.queue import CALLER, Caller
from multidraft.serving.callers import MCP_CALL, visitor_of
from storage.problems import StorageError

log = logging.getLogger(__name__)

FAILED = "The server failed; see its log. Please try again."


class _Shown(BlocksConfig):
    """The components of one visitor's page, without a description of each.

    Gradio describes every one anew for each visitor and keeps whatever is shown in it, for deep links, which this page
    does not have: half a MiB and 25 ms of the processor for every visitor, and all charts and texts on top. What is
    built for a visitor alone (``gr.render``) has to be described to the browser.
    """

    @staticmethod
    def config_for_block(
        _id: int, rendered_ids: list[int], block: Block | Component, renderable: Renderable | None = None
    ) -> dict[str, Any]:
        return BlocksConfig.config_for_block(_id, rendered_ids, block, renderable) if renderable else {}


class _Described(BlocksConfig):
    """The page as it is built; what visitors have are copies of it."""

    def __copy__(self) -> BlocksConfig:
        copied, shown = super().__copy__(), _Shown(self.root_block)
        vars(shown).update(vars(copied))
        return shown


class Page(gr.Blocks):
    """The page, whose events name their caller for the jobs that they start."""

    def __init__(self, **settings: Any):
        super().__init__(**settings)
        self.default_config = _Described(self)

    async def process_api(self, block_fn: BlockFunction | int, inputs: list[Any], *args: Any, **named: Any) -> Any:
        """Gradio's own, which tells nothing of errors that are not ``gr.Error``: all become one."""
        fn = self.fns[block_fn] if isinstance(block_fn, int) else block_fn
        request, session = named.get("request"), named.get("session_hash")
        if not fn.fn:
            raise gr.Error("there is no such event", print_exception=False)
        if isinstance(request, gr.Request):
            client = request.client
            waits = request.headers.get(MCP_CALL, session)
            CALLER.set(Caller(visitor_of(client.host if client else None), waits))
            if fn.queue and named.get("event_id") not in self._queue.event_ids_to_events:  # else it would have no end
                raise gr.Error(f"{fn.api_name or 'this'} has to be called by the queue", print_exception=False)
        inputs = _completed(fn, inputs)
        try:
            return await super().process_api(block_fn, inputs, *args, **named)
        except gr.Error as error:
            error.print_exception = False  # of Gradio's own, e.g. of a file of the wrong type
            raise
        except (UserError, StorageError) as error:
            raise gr.Error(without_folders(str(error)), print_exception=False) from None
        except (StopIteration, StopAsyncIteration):
            raise
        except Exception as error:
            log.exception("an event of the page failed")
            raise gr.Error(FAILED, print_exception=False) from error

    async def preprocess_data(self, block_fn: BlockFunction, *args: Any, **named: Any) -> list[Any]:
        """Gradio's own; what is not a value of the page's fields is refused."""
        try:
            return await super().preprocess_data(block_fn, *args, **named)
        except gr.Error:
            raise
        except Exception as error:
            raise UserError(f"{block_fn.api_name or 'this'} does not take such values: {first_line(error)}") from None


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


async def _not_there(request: Request, error: Exception) -> JSONResponse:
    if isinstance(error, KeyError) and not request.url.path.endswith("/queue/join"):
        raise error
    return JSONResponse({"detail": "there is no such endpoint; /?view=api lists them"}, 404)


async def _malformed(request: Request, error: RequestValidationError) -> JSONResponse:
    fault = error.errors()[0]
    where = quoted(".".join(map(str, fault["loc"])), 80)
    return JSONResponse({"detail": f"{where}: {fault['msg']}"[:LONGEST_MESSAGE]}, 422)


REFUSALS: dict[Any, Any] = {FnIndexInferError: _not_there, KeyError: _not_there, RequestValidationError: _malformed}
"""Handlers of exceptions for which Gradio has no answer, or one that repeats the whole body."""
