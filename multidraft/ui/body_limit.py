"""ASGI middleware that refuses requests with a body too large to be read into memory."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY = 8 * 2**20
"""Bytes of a request's body, uploads of files apart."""

FORM = 2**16
"""Bytes that the form around an uploaded file may add."""


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
