"""Which port the page is served on, and how its server ends: promptly, with everything written first."""

from __future__ import annotations

import faulthandler
import logging
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import gradio as gr

from drafters.errors import UserError

log = logging.getLogger(__name__)

PRIVATE = "127.0.0.1,::1,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,100.64.0.0/10,fc00::/7"
"""Networks of which no address is reached from outside, so that what comes from one has come by a proxy."""

END_SECONDS = 60.0
"""So long after SIGTERM the process ends with whatever is still under way: by then all that can be written is."""

LAST_SECONDS = 10
"""So long after that the kernel ends it: what it says may go to a pipe that nobody empties."""

WAKING_SECONDS = 0.5
"""Between two looks of the waiting main thread for a signal. Python handles signals there alone, but a process that was
stopped while one was sent may get it, when it goes on, in another thread, which does not wake the main one."""

FIRST_PORT = 7860
"""Where Gradio's search for a free port begins if none is asked for."""


def asked_port(port: int | None) -> int | None:
    """The port that was asked for; ``None`` to take the first free one.

    Raises:
        UserError: it is not a valid port, or taken. Others know a port that was asked for, so another would not do.
    """
    if port is None:
        return None
    if not 0 < port < 2**16:
        raise UserError(f"a port is a number from 1 to 65535, not {port}")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise UserError(
                f"port {port} is taken by another program, or not allowed; name another one (--port or "
                "GRADIO_SERVER_PORT)"
            ) from None
    return port


def why_not_first(served: int) -> str:
    """Why the page is on port ``served`` though nobody asked for it; empty if it is the first of the search."""
    return "" if served == FIRST_PORT else f"; port {FIRST_PORT} is taken"


def trust_proxies() -> None:
    """On a Space, believe the platform's proxies which visitor they speak for; elsewhere Uvicorn's own variable says
    whom to believe."""
    if "SPACE_ID" in os.environ:
        os.environ.setdefault("FORWARDED_ALLOW_IPS", PRIVATE)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM do what Ctrl-C does, once; and whatever is stuck, let it end the process."""
    if threading.current_thread() is not threading.main_thread():  # as in a notebook: only the main thread may
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # another one would cut short what is being written
        last = threading.Timer(END_SECONDS, _end_anyway)
        last.daemon = True
        last.start()
        if hasattr(signal, "alarm"):  # not on Windows
            signal.alarm(math.ceil(END_SECONDS) + LAST_SECONDS)
        signal.default_int_handler(number, frame)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _end_anyway() -> None:
    log.error("the server did not end within %.0f seconds; its threads are at:", END_SECONDS)
    faulthandler.dump_traceback(all_threads=True)
    os._exit(1)


def wait_for_the_end(page: gr.Blocks) -> None:
    """Serve until Ctrl-C; then close the page without waiting for the browsers that have it open."""
    try:
        while True:
            time.sleep(WAKING_SECONDS)
    except KeyboardInterrupt:
        print("multidraft ends …", flush=True)
    finally:
        page.close(verbose=False)  # ends the streams of open pages first, for which Uvicorn would wait
