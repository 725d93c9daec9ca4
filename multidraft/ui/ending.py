"""How the server ends: promptly, and with all that is to be written down before."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import gradio as gr


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM, by which machines end programs, do what Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():  # as in a notebook: signals are not ours there
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def wait_for_the_end(page: gr.Blocks) -> None:
    """Serve until Ctrl-C; then close the page without waiting for the browsers that have it open."""
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        print("multidraft ends …", flush=True)
    finally:
        page.close(verbose=False)  # ends the streams of open pages first, for which Uvicorn would wait
