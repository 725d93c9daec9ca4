"""ASGI middleware: which requests are too large, and how the page reaches the browser."""

from __future__ import annotations

import re
from pathlib import Path

import brotli
from anyio import sleep_forever, to_thread
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY = 8 * 2**20
"""Bytes of a request's body, uploads of files apart."""

FORM = 2**16
"""Bytes that the form around an uploaded file may add."""

_SCRIPT = f"<script>{Path(__file__).with_name('early.js').read_text(encoding='utf-8')}</script>".encode()
_HEAD = b"<head>"
_ASSET = re.compile(r"/assets/[\w.-]+")


class BodyLimit:
    """Answers 413 where a body has more than ``MAX_BODY`` bytes, or that of an upload more than ``upload``.

    A body without a ``Content-Length`` is counted while it is read.
    """

    def __init__(self, app: ASGIApp, upload: int):
        self._app, self._upload = app, upload + FORM

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        uploads = str(scope["path"]).rstrip("/").endswith("/upload")
        limit = self._upload if uploads else MAX_BODY
        advice = "split the file" if uploads else "send fewer or shorter prompts at once"
        detail = f"the body of a request may have {limit:,} bytes here; {advice}"
        length = Headers(scope=scope).get("Content-Length", "")
        if length.isdecimal() and (len(length) > 18 or int(length) > limit):
            return await JSONResponse({"detail": detail}, 413, {"Connection": "close"})(scope, receive, send)
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > limit:
                raise HTTPException(413, detail)
            return message

        await self._app(scope, counted, send)


class Answer:
    """A response of Gradio, read whole; ``small`` is its body compressed by Brotli, if it is."""

    def __init__(self) -> None:
        self.status, self.headers = 0, MutableHeaders(raw=[])
        self.body, self.small = b"", b""
        self.whole = False

    async def take(self, message: Message) -> None:
        """Receive a part from Gradio, which sends it here."""
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], MutableHeaders(raw=list(message["headers"]))
        else:
            self.body += message.get("body", b"")
            self.whole = not message.get("more_body", False)

    async def compress(self) -> None:
        """Fill ``small``, outside the event loop."""
        self.small = await to_thread.run_sync(lambda: brotli.compress(self.body, quality=5))
        self.headers.add_vary_header("Accept-Encoding")

    async def send(self, scope: Scope, send: Send) -> None:
        """Hand it to the browser. A cached answer stays as it is, whatever outer middleware does to the headers."""
        headers, body = self.headers.mutablecopy(), self.body
        if self.small and "br" in Headers(scope=scope).get("Accept-Encoding", ""):
            headers["Content-Encoding"], body = "br", self.small
        headers["Content-Length"] = str(len(body))
        await send({"type": "http.response.start", "status": self.status, "headers": headers.raw})
        await send({"type": "http.response.body", "body": body})


class Delivery:
    """Answers ``GET`` of the page and of its fixed files; all else goes to ``app``. It is innermost, around Gradio.

    The names of Gradio's scripts and styles hold a hash of their content, so each is read and compressed once, where
    Gradio does so for every visit, and browsers may cache it. The page itself, most of it Gradio's description of the
    components, is compressed too (Gradio's own compression, further out, then leaves it alone), and gets ``early.js``.
    """

    def __init__(self, app: ASGIApp):
        self._app = app
        self._cached: dict[str, Answer] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "GET" and "Range" not in Headers(scope=scope):
            path = str(scope["path"]).removeprefix(scope.get("root_path", ""))
            if _ASSET.fullmatch(path):
                answer = self._cached.get(path) or await self._asset(path, scope)
                return await answer.send(scope, send)
            if path in ("", "/"):
                answer = await self._page(scope)
                return await answer.send(scope, send)
        await self._app(scope, receive, send)

    async def _asset(self, path: str, scope: Scope) -> Answer:
        answer = await self._asked(scope)
        if answer.status == 200 and answer.whole:
            answer.headers["Cache-Control"] = "public, max-age=31536000, immutable"
            if path.endswith((".js", ".css")):
                await answer.compress()
            self._cached[path] = answer
        return answer

    async def _page(self, scope: Scope) -> Answer:
        answer = await self._asked(scope)
        if answer.headers.get("Content-Type", "").startswith("text/html"):
            answer.body = answer.body.replace(_HEAD, _HEAD + _SCRIPT, 1)
            await answer.compress()
        return answer

    async def _asked(self, scope: Scope) -> Answer:
        """Gradio's own answer, read to its end even if the visitor who asks has gone: others will want it, too."""
        asked = False

        async def receive() -> Message:
            nonlocal asked
            if asked:
                await sleep_forever()
            asked = True
            return {"type": "http.request", "body": b"", "more_body": False}

        answer = Answer()
        await self._app(scope, receive, answer.take)
        return answer
