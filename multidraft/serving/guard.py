"""What keeps others out: the names that the server answers to, what browsers may do with its answers, and keys."""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from drafters.errors import quoted
from multidraft.serving.openai.errors import refusal

ANY = "*"

HUB = "https://huggingface.co"
"""The page of a Space shows its name and likes, which it asks the Hub for."""

_POLICY = {
    "default-src": "'self'",
    # Gradio's page holds scripts, and makes functions of the texts that it is built of.
    "script-src": "'self' 'unsafe-inline' 'unsafe-eval'",
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data: blob:",
    "font-src": "'self' data:",
    "connect-src": "'self'",
    "worker-src": "'self' blob:",
    "object-src": "'none'",
    "base-uri": "'self'",
    "form-action": "'self'",
}
"""What the page may load, and from where: nothing from elsewhere, and nothing goes there."""

_FILE = "default-src 'none'; sandbox"
"""Of files, which visitors may have uploaded: nothing in them runs."""


def bearer(request: Request) -> str:
    """The key that a request brings as its bearer token; empty where it brings none."""
    scheme, _, key = request.headers.get("Authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def has_key(request: Request, key: str) -> bool:
    """Whether a request brings this key."""
    return secrets.compare_digest(bearer(request).encode(), key.encode())


class Guard:
    """ASGI middleware, outermost. It refuses requests that come by a name that is not the server's: a page elsewhere
    whose name has been made to lead here (DNS rebinding) could read all that is served. Where names are limited, it
    also refuses to be written to by pages of other names. And it says with each answer what browsers may do with it.

    Args:
        hosts: the names, without ports; ``*`` are all. Addresses need not be named, since nobody can make them lead
            elsewhere.
        frames: addresses of pages that may show this one in a frame, beside its own; ``*`` are all.
    """

    def __init__(self, app: ASGIApp, hosts: Sequence[str] = (ANY,), frames: Sequence[str] = ()):
        self._app, self._hosts = app, [host.strip("[]").lower() for host in hosts]
        shown = " ".join(frames) if ANY in frames else " ".join(("'self'", *frames))
        policy = {**_POLICY, "frame-ancestors": shown}
        if HUB in frames:
            policy["connect-src"] += f" {HUB}"
            policy["img-src"] += f" {HUB}"
        self._page = "; ".join(f"{name} {allowed}" for name, allowed in policy.items())
        self._only_own = not frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        headers, path, said = Headers(scope=scope), str(scope["path"]), ""
        host, origin = headers.get("Host", ""), headers.get("Origin")
        if not self._known(f"//{host}"):
            said = (
                f"this server does not answer to the name {quoted(host)}; its operator can add it to MULTIDRAFT_HOSTS"
            )
        elif origin is not None and scope["method"] not in ("GET", "HEAD", "OPTIONS") and not self._known(origin):
            more = "its operator can allow more hosts by MULTIDRAFT_HOSTS"
            said = f"pages of {quoted(origin)} may not write to this server; {more}"
        if said:
            return await refusal(path, 421, said)(scope, receive, send)
        is_file = "/file=" in path

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = MutableHeaders(scope=message)
                given["X-Content-Type-Options"] = "nosniff"
                if "Content-Security-Policy" not in given:  # what is made to be shown elsewhere says so itself
                    given["Content-Security-Policy"] = _FILE if is_file else self._page
                    if self._only_own:
                        given["X-Frame-Options"] = "SAMEORIGIN"
            await send(message)

        await self._app(scope, receive, guarded)

    def _known(self, address: str) -> bool:
        if ANY in self._hosts:
            return True
        try:
            name = (urlsplit(address).hostname or "").rstrip(".")
        except ValueError:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self._hosts
        return True
