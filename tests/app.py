"""The app, in a process of its own or in this one."""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.ports import free_port

ROOT = Path(__file__).parent.parent
START_SECONDS = 240
"""Loading libraries and models takes long on a busy machine."""


END_SECONDS = 90
"""A server ends within 60 seconds; its log then says where it was stuck."""


@contextmanager
def serve(pool: str, history: Path, **variables: str) -> Iterator[str]:
    """The app on ``pool``, with further environment variables; its log lies beside ``history``."""
    with started(pool, history, history.parent / "log", **variables) as (address, _):
        yield address


@contextmanager
def started(pool: str, history: Path, log: Path, **variables: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Likewise, with its process; the log is ``log``."""
    port = free_port()
    environment = {
        **os.environ,
        **variables,
        "MULTIDRAFT_POOL": pool,
        "MULTIDRAFT_DB": str(history),
        "GRADIO_SERVER_PORT": str(port),
        "GRADIO_TEMP_DIR": str(history.parent / "uploads"),
    }
    with log.open("w") as written:
        process = subprocess.Popen(
            [sys.executable, "app.py"], cwd=ROOT, env=environment, stdout=written, stderr=written
        )
        try:
            url = f"http://127.0.0.1:{port}/"
            wait_for(url, process, log)
            yield url, process
        finally:
            process.terminate()
            process.wait(END_SECONDS)


@contextmanager
def served_here(card: Path, history: Path, cards: Path | None = None) -> Iterator[str]:
    """The app on a small pool in this process, whose libraries are loaded already: to start another takes 20 seconds.
    Visitors may load the further ``cards`` of a folder."""
    from drafters.pool import load_pool
    from multidraft.service.pool_loading import PoolLoader
    from multidraft.service.workbench import Workbench
    from multidraft.ui import app
    from storage.store import Store

    with ExitStack() as ended:
        workbench = Workbench(load_pool(card), ended.enter_context(Store(history)))
        ended.callback(workbench.close)
        page = app.serve(workbench, loader=PoolLoader(workbench, cards is not None, cards))
        ended.callback(page.close)
        yield page.local_url


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Return once an app that was started answers at ``url``."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        assert process.poll() is None, f"the app ended while it started:\n{log.read_text()[-3000:]}"
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise AssertionError(f"the app did not start within {START_SECONDS} s:\n{log.read_text()[-3000:]}")
