"""How the page reaches the browser: ASGI middleware between Gradio's routes and its server.

The names of Gradio's scripts and styles hold a hash of what is in them. So each is read and compressed once here, where
Gradio does so for every visit, and browsers may keep it. The page itself, most of it Gradio's description of the
components, is compressed too, and gets ``early.js``.
"""

from __future__ import annotations

from pathlib import Path

import brotli
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_EARLY = Path(__file__).with_name("early.js").read_text(encoding="utf-8")
_HEAD = b"<head>"
_KEEP = "public, max-age=31536000, immutable"

Answer = tuple[Message, bytes]
"""What begins a response, with its status and headers, and the body."""


class Delivery:
    """Answers ``GET`` of the page and of its fixed files; all else goes to ``app``, as do browsers without Brotli."""

    def __init__(self, app: ASGIApp):
        self._app = app
        self._kept: dict[str, Answer] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET" or not _takes_brotli(scope):
            return await self._app(scope, receive, send)
        path = str(scope["path"]).removeprefix(scope.get("root_path", ""))
        if path.startswith("/assets/"):
            answer = self._kept.get(path) or await self._asset(path, scope, receive)
        elif path in ("", "/"):
            answer = await self._page(scope, receive)
        else:
            return await self._app(scope, receive, send)
        start, body = answer
        await send(start)
        await send({"type": "http.response.body", "body": body})

    async def _asset(self, path: str, scope: Scope, receive: Receive) -> Answer:
        start, body = await self._asked(scope, receive)
        if start["status"] != 200:
            return start, body
        MutableHeaders(scope=start)["Cache-Control"] = _KEEP
        self._kept[path] = _compressed(start, body)
        return self._kept[path]

    async def _page(self, scope: Scope, receive: Receive) -> Answer:
        start, body = await self._asked(scope, receive)
        if not Headers(raw=start["headers"]).get("Content-Type", "").startswith("text/html"):
            return start, body
        return _compressed(start, body.replace(_HEAD, _HEAD + f"<script>{_EARLY}</script>".encode(), 1))

    async def _asked(self, scope: Scope, receive: Receive) -> Answer:
        """Gradio's own answer."""
        start: Message = {}
        parts: list[bytes] = []

        async def take(message: Message) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            else:
                parts.append(message.get("body", b""))

        await self._app(scope, receive, take)
        return start, b"".join(parts)


def _takes_brotli(scope: Scope) -> bool:
    """Whether the browser takes it, and asks for a whole file that it does not have."""
    headers = Headers(scope=scope)
    return "br" in headers.get("Accept-Encoding", "") and not {"range", "if-none-match"} & set(headers.keys())


def _compressed(start: Message, body: bytes) -> Answer:
    small = brotli.compress(body, quality=5)
    headers = MutableHeaders(scope=start)
    headers["Content-Encoding"], headers["Content-Length"] = "br", str(len(small))
    headers.add_vary_header("Accept-Encoding")
    return start, small
