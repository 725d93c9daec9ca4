"""The routes of the OpenAI-compatible server."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from drafters.errors import PromptError, UserError
from multidraft.service.queue import CALLER
from multidraft.service.workbench import Workbench
from multidraft.serving.guard import bearer, has_key
from multidraft.serving.openai.answering import Answering, EventStream, unless_left
from multidraft.serving.openai.answers import ChatForm, CompletionForm, Form
from multidraft.serving.openai.errors import ASTRAY, ApiError, answer_astray, answer_error
from multidraft.serving.openai.requests import MOST_TEXTS, ChatAsked, CompletionAsked, read

log = logging.getLogger(__name__)

CLOSED = 499
"""Status of an answer that nobody waits for."""


NO_KEY = "this server asks for a key, sent as a bearer token"


async def healthy(request: Request) -> Response:
    """Says that the server is there; clients look at ``/health`` before they begin."""
    return Response()


class Server:
    """Answers OpenAI's requests by runs on a workbench, recorded like all others.

    Args:
        key: what clients have to send as bearer token; ``None`` asks for nothing.
    """

    def __init__(self, workbench: Workbench, key: str | None = None):
        self.workbench, self._key = workbench, key
        self._started, self._texts = int(time.time()), Counter[str]()

    def routes(self) -> list[BaseRoute]:
        """The routes under ``/v1``, and the same addresses without it, which say that it is missing."""
        routes = [
            Route("/completions", self._guarded(self.complete), methods=["POST"]),
            Route("/chat/completions", self._guarded(self.chat), methods=["POST"]),
            Route("/models", self._guarded(self.models)),
            Route("/models/{id:path}", self._guarded(self.model)),
        ]
        served = Mount("/v1", Starlette(routes=routes, exception_handlers={HTTPException: answer_error}))
        return [served, *(Route(path, answer_astray, methods=["GET", "POST"]) for path in ASTRAY)]

    def _guarded(self, answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """``answer`` for those who have the key, and errors in OpenAI's form."""

        async def guarded(request: Request) -> Response:
            try:
                if self._key is not None and not has_key(request, self._key):
                    said = "this key is not valid here" if bearer(request) else NO_KEY
                    raise ApiError(401, said, code="invalid_api_key")
                return await answer(request)
            except ClientDisconnect:
                return Response(status_code=CLOSED)
            except Exception as error:
                if not isinstance(error, (ApiError, UserError, HTTPException)):
                    log.exception("a request to %s failed", request.url.path)
                return ApiError.of(error).response()

        return guarded

    async def models(self, request: Request) -> Response:
        """The pool that is loaded, as the only model."""
        return JSONResponse({"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        """The model of this name."""
        only = self.workbench.pool.name
        if (id := request.path_params["id"]) != only:
            raise ApiError(404, f"there is no model {id!r} here, only {only!r}", "model", "model_not_found")
        return JSONResponse(self._model())

    def _model(self) -> dict[str, Any]:
        pool = self.workbench.pool
        known = {"id": pool.name, "object": "model", "created": self._started, "owned_by": "multidraft"}
        return {**known, "max_model_len": pool.target.window, "drafters": pool.drafter_names}

    async def complete(self, request: Request) -> Response:
        """Go on with each prompt as it stands."""
        asked, pool = read(CompletionAsked, await request.body()), self.workbench.pool
        form = CompletionForm(pool, logprobs=asked.logprobs is not None)
        answering = Answering(self.workbench, pool, asked, asked.logprobs, echo=asked.echo)
        return await self._answer(request, form, answering)

    async def chat(self, request: Request) -> Response:
        """Answer a conversation."""
        asked, pool = read(ChatAsked, await request.body()), self.workbench.pool
        answering = Answering(self.workbench, pool, asked, asked.top_logprobs if asked.logprobs else None)
        try:
            return await self._answer(request, ChatForm(pool, logprobs=asked.logprobs), answering)
        except PromptError as error:  # it was made of the messages
            found = ApiError.of(error)
            found.param = "messages"
            raise found from None

    async def _answer(self, request: Request, form: Form, answering: Answering) -> Response:
        asked = answering.asked
        if self.workbench.gpu and answering.logprobs is not None:
            raise ApiError(400, "logprobs are not offered on ZeroGPU; leave them out", "logprobs")
        try:
            self.workbench.limits.check_answer(answering.most)
        except UserError as error:
            raise ApiError(400, str(error).replace("max new tokens", asked.most_name), asked.most_name) from None
        if asked.min_tokens > max(answering.most, 0):
            most = f"{asked.most_name} ({answering.most})"
            raise ApiError(400, f"min_tokens must be at most {most}, got {asked.min_tokens}", "min_tokens")
        close = self._admit(asked.texts, answering)  # before anything is done for any of them
        streamed = False

        async def work() -> Response:
            await answering.begin(await to_thread.run_sync(asked.prompts, answering.pool))
            if asked.stream:
                return EventStream(answering.events(form), close)
            return await answering.whole(form)

        try:
            answer = await unless_left(request, work())
            streamed = isinstance(answer, EventStream)
            return answer or Response(status_code=CLOSED)
        finally:
            if not streamed:
                close()

    def _admit(self, count: int, answering: Answering) -> Callable[[], None]:
        """Take up ``count`` more texts; returns what lets go of them."""
        visitor, limits = CALLER.get().visitor, self.workbench.limits
        own, most = limits.own(limits.queue), limits.queue
        if count > (largest := min(MOST_TEXTS, own)):  # however long the client waited
            said = f"a request may ask for {largest} texts at once, this one asks for {count}"
            raise ApiError(400, said, "n" if answering.asked.n > 1 else "prompt")
        under_way, whose = self._texts.total(), "programs"
        if self._texts[visitor] + count > own < most:
            under_way, whose, most = self._texts[visitor], "you", own
        if under_way + count > most:
            said = f"{under_way} texts are under way for {whose}, and {most} may be at once; try again soon"
            raise ApiError(429, said, code="rate_limit_exceeded")
        self._texts[visitor] += count

        def close() -> None:
            self._texts -= Counter({visitor: count})
            answering.close()

        return close
