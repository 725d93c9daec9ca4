"""Which port the page is served on."""

from __future__ import annotations

import socket

from drafters.errors import UserError

FIRST = 7860
"""Where the search for a free port begins if none is asked for."""


def asked_port(port: int | None) -> int | None:
    """The port that was asked for; ``None`` to take the first free one.

    Raises:
        UserError: it is no port, or taken. A port that was asked for is known to others, so another would not do.
    """
    if port is None:
        return None
    if not 0 < port < 2**16:
        raise UserError(f"a port is a number from 1 to 65535, not {port}")
    if is_taken(port):
        raise UserError(
            f"port {port} is taken by another program, or not allowed; name another one (--port or GRADIO_SERVER_PORT)"
        )
    return port


def is_taken(port: int) -> bool:
    """Whether another program listens on ``port`` of this machine, or this one may not."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def why_not_first(served: int) -> str:
    """Why the page is on port ``served`` though nobody asked for it; empty if it is the first of the search."""
    return "" if served == FIRST else f"; port {FIRST} is taken"
