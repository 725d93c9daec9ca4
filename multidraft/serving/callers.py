"""Who calls: visitors by their network address, and sessions that nobody reads any more."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import re
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs

from gradio.queueing import Queue
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from multidraft.service.queue import CALLER, Caller

UNREAD_SECONDS = 10.0
"""A call whose answer nobody has begun to read after so long is given up."""

MCP_CALL = "X-Multidraft-Call"
"""Header by which a call is known that came over MCP. Gradio sends it on to its own API, over a connection of this
machine, with the headers that it came with."""

MCP_CALLS = 30
"""Calls over MCP that are under way at once; others wait. Gradio waits for each in one of the 40 threads that all else
on the server shares, and its own API, which answers it, needs them too."""

_MCP = re.compile(r"/mcp(?:/http)?/?$")
_READS = re.compile(r"/call/(?:v2/)?[^/]+/(\w+)/?$")
_CALLS = re.compile(r"/(?:queue/join|call/(?:v2/)?[^/]+)/?$")


def visitor_of(host: str | None) -> str:
    """What visitors are told apart by: their IPv4 address, or the network of their IPv6 address, which gives a home
    some 2^64 of them."""
    try:
        address = ipaddress.ip_address(host or "")
    except ValueError:
        return host or "unknown"
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(getattr(address, "ipv4_mapped", None) or address)


class Callers:
    """ASGI middleware that names the caller of each request for the jobs that come of it, and ends jobs whose caller
    has gone or never comes for the answer.

    Args:
        queue: Gradio's, which does not end what nobody reads.
        left: is told of each session of which nobody waits for results any more.
    """

    def __init__(self, app: ASGIApp, queue: Callable[[], Queue], left: Callable[[str], None]):
        self._app, self._queue, self._left = app, queue, left
        self._readers = Counter[str]()
        self._last: dict[str, str] = {}  # a session's last call, until it has been looked after
        self._looking = set[asyncio.Task[None]]()
        self._over_mcp: dict[str | None, Any] = {}  # by the headers of calls, from where they came
        self._mcp_places = asyncio.Semaphore(MCP_CALLS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        headers = MutableHeaders(scope=scope)
        if (call := headers.get(MCP_CALL)) in self._over_mcp:
            scope["client"] = self._over_mcp[call]
        else:
            del headers[MCP_CALL]  # nobody else is to say whose job it is
        CALLER.set(Caller(visitor_of((scope.get("client") or (None,))[0])))
        path, method = str(scope["path"]), scope["method"]
        if method == "POST" and _MCP.search(path):
            return await self._tool(scope, receive, send)
        if method == "GET" and (session := self._read(path, scope)):
            return await self._watch(session, scope, receive, send)
        if method == "POST" and _CALLS.search(path):
            return await self._call(scope, receive, send)
        await self._app(scope, receive, send)

    def _read(self, path: str, scope: Scope) -> str | None:
        """The session whose results a request reads, if it reads any."""
        if path.rstrip("/").endswith("/queue/data"):
            return next(iter(parse_qs(scope["query_string"].decode("latin1")).get("session_hash", [])), None)
        found = _READS.search(path)
        return self._session(found[1]) if found else None

    def _session(self, event: str) -> str:
        """Of an event; calls without a session have its id for one."""
        queue = self._queue()
        if known := queue.event_ids_to_events.get(event):
            return known.session_hash
        return next((s for s, ids in queue.pending_event_ids_session.items() if event in ids), event)

    async def _watch(self, session: str, scope: Scope, receive: Receive, send: Send) -> None:
        whole = False

        async def noted(message: Message) -> None:
            nonlocal whole
            whole = whole or (message["type"] == "http.response.body" and not message.get("more_body", False))
            await send(message)

        self._readers[session] += 1
        try:
            await self._app(scope, receive, noted)
        finally:
            self._readers -= Counter([session])
            self._later(self._settle(session) if whole else self._end(session))

    async def _call(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""

        async def noted(message: Message) -> None:
            nonlocal body
            body += message.get("body", b"")
            await send(message)

        await self._app(scope, receive, noted)
        with suppress(ValueError, KeyError, TypeError):
            event = str(json.loads(body)["event_id"])
            session = self._session(event)
            self._last[session] = event
            self._later(self._give_up(event, session))

    async def _tool(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A call over MCP, which ends its jobs when it is over: before them, if its client has gone."""
        call = MutableHeaders(scope=scope)[MCP_CALL] = uuid.uuid4().hex
        self._over_mcp[call] = scope.get("client")
        try:
            async with self._mcp_places:
                await self._app(scope, receive, send)
        finally:
            self._left(call)
            self._later(self._end_tool(call))

    async def _end_tool(self, call: str) -> None:
        """It may have been on its way to Gradio's API when its client went."""
        await asyncio.sleep(UNREAD_SECONDS)
        self._left(call)
        del self._over_mcp[call]

    async def _give_up(self, event: str, session: str) -> None:
        """End a session if nobody reads it in time, that is after its last call: a page that is opened asks for
        several things before it reads, which takes a while on a busy machine."""
        await asyncio.sleep(UNREAD_SECONDS)
        if self._last.get(session) != event:
            return
        del self._last[session]
        if self._queue().pending_event_ids_session.get(session):
            await self._end(session)

    async def _settle(self, session: str) -> None:
        """Keep nothing of a session whose results are read; not at once, since a page whose last answer came while it
        still asked begins to read once more, and would be told then that its session is unknown."""
        await asyncio.sleep(UNREAD_SECONDS)
        if not self._readers[session] and not self._queue().pending_event_ids_session.get(session):
            self._forget(session)

    async def _end(self, session: str) -> None:
        """If nobody reads a session, its jobs end, and nothing is kept of it."""
        if self._readers[session]:
            return
        self._left(session)
        await self._queue().clean_events(session_hash=session)
        if not self._readers[session]:
            self._forget(session)

    def _forget(self, session: str) -> None:
        queue = self._queue()
        queue.pending_messages_per_session.pop(session, None)
        queue.pending_event_ids_session.pop(session, None)

    def _later(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)
