"""The servers for programs, over a real connection, on the tiny pool."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route

from multidraft.service.workbench import Workbench
from multidraft.serving.metrics import Metrics
from multidraft.serving.openai.server import Server, healthy
from tests.ports import free_port

Serve = Callable[..., str]


@pytest.fixture
def serve(workbench: Workbench) -> Iterator[Serve]:
    """Starts the servers; returns their address."""
    running: list[tuple[uvicorn.Server, threading.Thread]] = []

    def serve(key: str | None = None) -> str:
        routes = [*Server(workbench, key).routes(), Metrics(workbench).route(), Route("/health", healthy)]
        port = free_port()
        config = uvicorn.Config(Starlette(routes=routes), port=port, log_level="error", lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        running.append((server, thread))
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.005)
        return f"http://127.0.0.1:{port}"

    yield serve
    for server, thread in running:
        server.should_exit = server.force_exit = True
        thread.join()


@pytest.fixture
def http(serve: Serve) -> Iterator[httpx.Client]:
    """A client of the servers."""
    with httpx.Client(base_url=serve(), timeout=60) as client:
        yield client
