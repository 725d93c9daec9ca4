from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator

import pytest

from drafters.errors import UserError
from multidraft.ui import server


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which another listens."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def test_a_port_that_was_asked_for_and_is_taken_is_refused(taken: int) -> None:
    with pytest.raises(UserError, match=rf"port {taken} is taken.*--port"):
        server.asked_port(taken)


def test_a_free_port_is_taken() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert server.asked_port(port) == port


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_what_is_no_port(port: int) -> None:
    with pytest.raises(UserError, match="from 1 to 65535"):
        server.asked_port(port)


def test_without_a_wish_the_first_free_one_is_taken_and_explained() -> None:
    assert server.asked_port(None) is None
    assert server.why_not_first(server.FIRST_PORT) == ""
    assert "7860 is taken" in server.why_not_first(7861)


def test_sigterm_is_ctrl_c_once_and_ends_what_is_stuck(monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    statuses, over = list[int](), threading.Event()
    monkeypatch.setattr(server, "END_SECONDS", 0.05)
    monkeypatch.setattr(os, "_exit", lambda status: (statuses.append(status), over.set()))
    before = signal.getsignal(signal.SIGTERM)
    with server.ended_by_sigterm():
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
            over.wait(10)
        os.kill(os.getpid(), signal.SIGTERM)  # what is being written is not cut short
        assert over.wait(10) and statuses == [1]
    assert signal.getsignal(signal.SIGTERM) == before
    assert "most recent call first" in capfd.readouterr().err
