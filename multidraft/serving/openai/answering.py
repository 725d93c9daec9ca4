"""A request while it is answered: its texts, as runs on the workbench, and what is sent of them as they grow."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from drafters.pool import Pool
from drafters.text import TextStream
from multidraft.bench.measure import Request
from multidraft.engine.arguments import continued, read_prompt
from multidraft.engine.output import TokenLogprob
from multidraft.service.workbench import Reading, Workbench
from multidraft.serving.openai.answers import Form, Growing, News, ended_early, usage
from multidraft.serving.openai.errors import ApiError
from multidraft.serving.openai.requests import Asked, Prompt
from storage.run import Origin

log = logging.getLogger(__name__)

T = TypeVar("T")


class Answering:
    """The texts of a request, from the first to the last of which :meth:`close` lets go.

    Args:
        logprobs: alternatives of each token; ``None`` tells no log-probabilities.
        echo: whether the texts begin with their prompts.

    Attributes:
        most: tokens of each text at most; 0 repeats the prompts alone.
    """

    def __init__(self, workbench: Workbench, pool: Pool, asked: Asked, logprobs: int | None, *, echo: bool = False):
        self.workbench, self.pool, self.asked = workbench, pool, asked
        self.most, self.logprobs, self.echo = asked.most(pool, workbench.limits.new_tokens), logprobs, echo
        self.growing: list[Growing] = []
        self._loop, self._changed, self._closed = asyncio.get_running_loop(), asyncio.Event(), False

    async def begin(self, prompts: list[Prompt]) -> None:
        """Put all texts in line."""
        for prompt in prompts:
            known = await self._read(prompt) if self.echo and self.logprobs is not None else []
            for number, seed in enumerate(self.asked.seeds):
                await to_thread.run_sync(self._start, prompt, seed, number == 0, known)

    async def _read(self, prompt: Prompt) -> list[TokenLogprob]:
        """The log-probabilities of a prompt."""
        assert self.logprobs is not None
        _, ids = await to_thread.run_sync(read_prompt, self.pool, *prompt)
        job = self.workbench.jobs.submit(Reading(self.workbench, self.pool, ids, self.logprobs))
        try:
            # In a thread of its own: the shared ones are few, and all else would wait for one as well.
            await to_thread.run_sync(job.wait, abandon_on_cancel=True, limiter=CapacityLimiter(1))
        finally:
            job.cancel()
            self.workbench.jobs.forget(job)
        if job.result is None:
            if job.cancelled.is_set():
                raise ended_early(job)
            raise ApiError(500, f"the prompt could not be read: {job.error}")
        return job.result

    def _start(self, prompt: Prompt, seed: int, first: bool, known: list[TokenLogprob]) -> None:
        """Begin with one text; in a thread, since a prompt may be long."""
        index, asked, job = len(self.growing), self.asked, None
        output = asked.output(self.logprobs)
        if self.most:
            params = asked.params(self.pool, self.most)
            request = Request(
                prompt[0],
                asked.spec,
                params,
                seed,
                Origin("api", learn=asked.store),
                turns=prompt[1],
                output=output,
                measures_baseline=False,
                scores_when_idle=True,
            )
            job = self.workbench.submit(request, self.pool)
        text, ids = read_prompt(self.pool, *prompt)
        shown = text if self.echo else ""
        before = () if self.echo else continued(self.pool, prompt[0], ids, output)
        read = TextStream(self.pool.tokenizer, before)
        self.growing.append(
            Growing(index, job, read, len(ids) if first else 0, shown, known, asked.stops, asked.min_tokens)
        )
        if job:
            job.measurement.watch(self._wake)
        if self._closed:
            self.close()

    def _wake(self) -> None:
        """There is news; from any thread."""
        with suppress(RuntimeError):  # the loop is closed: the server has ended
            self._loop.call_soon_threadsafe(self._changed.set)

    async def _news(self) -> AsyncIterator[tuple[Growing, News]]:
        """What comes of each text, until all have ended."""
        open = list(self.growing)
        while open:
            self._changed.clear()
            for text in open:
                if news := text.news():
                    yield text, news
            if open := [text for text in open if not text.ended]:
                await self._changed.wait()

    async def whole(self, form: Form) -> JSONResponse:
        """The answer, when all texts have ended; made in a thread, since log-probabilities may be very many."""
        found = {text.index: News() for text in self.growing}
        async for text, news in self._news():
            found[text.index] += news
        return await to_thread.run_sync(lambda: JSONResponse(form.answer(self.growing, list(found.values()))))

    async def events(self, form: Form) -> AsyncIterator[str]:
        """The answer as server-sent events, a part of it for each round."""
        options = self.asked.stream_options
        begun = set[int]()
        try:
            async for text, news in self._news():
                more: dict[str, Any] = {"usage": None} if options.include_usage else {}
                if options.continuous_usage_stats:
                    more = {"usage": usage(self.growing)}
                if text.index not in begun and (opening := form.first(text)):
                    yield _event(form.chunk([opening], **more))
                begun.add(text.index)
                yield _event(form.chunk([form.delta(text, news)], **more))
            if options.include_usage:
                yield _event(form.chunk([], **form.end(self.growing)))
        except Exception as error:
            if not isinstance(error, ApiError):
                log.exception("a stream failed")
            yield _event(ApiError.of(error).form())
        yield "data: [DONE]\n\n"

    def close(self) -> None:
        """Nobody waits for it any more: texts under way end after the round in progress."""
        self._closed = True
        for text in self.growing:
            text.leave()


class EventStream(StreamingResponse):
    """Server-sent events; however it ends, ``close`` is called."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[str], close: Callable[[], None]):
        super().__init__(events, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._close()


async def unless_left(request: HttpRequest, work: Coroutine[Any, Any, T]) -> T | None:
    """What ``work`` returns; ``None`` where the client goes before, which cancels it. Its body has been read."""
    tasks = asyncio.ensure_future(work), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return tasks[0].result() if tasks[0].done() else None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _gone(request: HttpRequest) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n"
