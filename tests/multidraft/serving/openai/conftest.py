"""The servers for programs, over a real connection, on the tiny pool."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import httpx
import openai
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route

from multidraft.service.workbench import Workbench
from multidraft.serving.metrics import Metrics
from multidraft.serving.openai.server import Server, healthy
from tests.ports import free_port

Serve = Callable[..., str]


@contextmanager
def served(workbench: Workbench, key: str | None = None) -> Iterator[str]:
    """The servers, at this address."""
    routes = [*Server(workbench, key).routes(), Metrics(workbench).route(), Route("/health", healthy)]
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), port=port, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.005)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = server.force_exit = True
    thread.join()


@pytest.fixture
def serve(workbench: Workbench) -> Iterator[Serve]:
    """Starts the servers; returns their address."""
    with ExitStack() as stack:
        yield lambda key=None: stack.enter_context(served(workbench, key))


@pytest.fixture
def http(serve: Serve) -> Iterator[httpx.Client]:
    """A client of the servers."""
    with httpx.Client(base_url=serve(), timeout=60) as client:
        yield client


@pytest.fixture
def client(serve: Serve) -> Iterator[openai.OpenAI]:
    """OpenAI's own client of them."""
    with openai.OpenAI(base_url=serve() + "/v1", api_key="none", max_retries=0) as client:
        yield client
