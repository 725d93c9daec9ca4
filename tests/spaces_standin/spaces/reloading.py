"""Gradio asks for it on every Space."""

from __future__ import annotations

import threading
from typing import Any


def start_reload_server(prerun: Any, postrun: Any, stop_event: threading.Event) -> None:
    """Nothing is ever reloaded."""
    stop_event.wait()
