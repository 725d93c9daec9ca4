"""ASGI middleware: which requests are too large, and how the page reaches the browser."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import brotli
from anyio import sleep_forever, to_thread
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from drafters.errors import BusyError
from multidraft.service.limits import Allowance
from multidraft.service.queue import CALLER
from multidraft.serving.openai.errors import refusal
from multidraft.ui.result_pages.pages import root_of
from multidraft.ui.widgets.markup import source

MAX_BODY = 8 * 2**20
"""Bytes of a request's body, uploads of files apart."""

FORM = 2**16
"""Bytes that the form around an uploaded file may add."""

_SCRIPT = f"<script>{source('early.js')}</script>".encode()
_HEAD = b"<head>"
_CONFIG = b"window.gradio_config"
"""What follows is Gradio's description of the page."""

_PREVIEW = re.compile(rb'<meta\s+(?:property="og:|name="twitter:)[^>]*>')
_ASSET = re.compile(r"/assets/[\w.-]+")


class BodyLimit:
    """Answers 413 where a body has more than ``MAX_BODY`` bytes, or that of an upload more than ``upload``.

    A body without a ``Content-Length`` is counted while it is read. Uploads that are more than the visitor may have
    are answered with 429.
    """

    def __init__(self, app: ASGIApp, upload: int, allowance: Allowance):
        self._app, self._upload, self._allowance = app, upload + FORM, allowance

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        uploads = str(scope["path"]).rstrip("/").endswith("/upload")
        limit = self._upload if uploads else MAX_BODY
        advice = "split the file" if uploads else "send fewer or shorter prompts at once"
        detail = f"the body of a request may have {limit:,} bytes here; {advice}"
        length = Headers(scope=scope).get("Content-Length", "")
        if length.isdecimal() and (len(length) > 18 or int(length) > limit):
            return await refusal(str(scope["path"]), 413, detail)(scope, receive, send)
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            part = len(message.get("body", b""))
            read += part
            if read > limit:
                raise HTTPException(413, detail)
            if uploads:
                try:
                    self._allowance.take(CALLER.get().visitor, part)
                except BusyError as error:
                    raise HTTPException(429, str(error)) from None
            return message

        await self._app(scope, counted, send)


class Delivery:
    """Answers ``GET`` of the page and of its fixed files; all else goes to ``app``. It is innermost, around Gradio.

    The names of Gradio's scripts and styles hold a hash of their content, so each is read and compressed once, where
    Gradio does so for every visit, and browsers may cache it. The page itself, most of it Gradio's description of the
    components, is compressed too (Gradio's own compression, further out, then leaves it alone), and gets ``early.js``,
    and in place of Gradio's own the tags by which sites show a preview of a link.

    Args:
        tags: those tags, by the address's query and the app's own address; HTML.
    """

    def __init__(self, app: ASGIApp, tags: Callable[[Mapping[str, str], str], str]):
        self._app, self._tags = app, tags
        self._cached: dict[str, tuple[Response, Response]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = str(scope.get("path", "")).removeprefix(scope.get("root_path", ""))
        ours = _ASSET.fullmatch(path) or path in ("", "/")
        if not ours or scope["type"] != "http" or scope["method"] != "GET" or "Range" in Headers(scope=scope):
            return await self._app(scope, receive, send)
        whole, small = self._cached.get(path) or await self._asked(path, scope)
        answer = small if "br" in Headers(scope=scope).get("Accept-Encoding", "") else whole
        # A cached answer stays as it is, whatever outer middleware does to the headers.
        await _response(answer.status_code, answer.headers, answer.body)(scope, receive, send)

    async def _asked(self, path: str, scope: Scope) -> tuple[Response, Response]:
        """Gradio's own answer and the same compressed, if it is to be.

        It is read to its end even if the visitor who asks has gone: others will want it, too.
        """
        messages: list[Message] = []
        request: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> Message:
            if not request:
                await sleep_forever()
            return request.pop()

        async def take(message: Message) -> None:
            messages.append(message)

        await self._app(scope, receive, take)
        status, headers = messages[0]["status"], MutableHeaders(raw=list(messages[0]["headers"]))
        body = b"".join(message.get("body", b"") for message in messages[1:])
        is_page = headers.get("Content-Type", "").startswith("text/html")
        kept = not is_page and status == 200 and not messages[-1].get("more_body", False)
        if is_page:
            asked = Request(scope)
            tags = await to_thread.run_sync(self._tags, asked.query_params, root_of(asked))
            head, config, rest = body.partition(_CONFIG)
            head = _PREVIEW.sub(b"", head).replace(_HEAD, _HEAD + _SCRIPT + tags.encode(), 1)
            body = head + config + rest
        if kept:
            headers["Cache-Control"] = "public, max-age=31536000, immutable"
        whole = small = _response(status, headers, body)
        if is_page or (kept and path.endswith((".js", ".css"))):
            compressed = await to_thread.run_sync(lambda: brotli.compress(body, quality=5))
            headers.add_vary_header("Accept-Encoding")
            whole = _response(status, headers, body)
            headers["Content-Encoding"] = "br"
            small = _response(status, headers, compressed)
        if kept:
            self._cached[path] = whole, small
        return whole, small


def _response(status: int, headers: MutableHeaders, body: bytes | memoryview) -> Response:
    response = Response(body, status)
    response.raw_headers = [*headers.raw]
    response.headers["Content-Length"] = str(len(body))
    return response
