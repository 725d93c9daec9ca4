"""Ports for servers that start in a process of their own."""

import os
import socket
from itertools import count

_NEXT = count(20_000 + 37 * os.getpid() % 12_000)


def free_port() -> int:
    """A port that is free, and still is when the server has started.

    One that the system gives out (``bind`` to 0) may by then be that of some browser's connection: these are from
    below that range, and other test processes begin elsewhere.
    """
    for port in _NEXT:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("there is always another")
