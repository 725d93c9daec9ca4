import gc
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import gradio as gr
import pytest

from drafters.errors import UserError
from multidraft.service.settings import Settings
from multidraft.ui import app, server


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


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Statuses with which what is stuck was ended; that of this process goes on."""
    statuses = list[int]()
    monkeypatch.setattr(server, "END_SECONDS", 0.05)
    monkeypatch.setattr(os, "_exit", statuses.append)
    before = signal.getsignal(signal.SIGTERM)
    yield statuses
    assert 0 < signal.alarm(0) <= 1 + server.LAST_SECONDS, "the kernel ends what cannot even say that it is stuck"
    assert signal.getsignal(signal.SIGTERM) == before


def wait_for(statuses: list[int]) -> None:
    until = time.monotonic() + 10
    while not statuses and time.monotonic() < until:
        time.sleep(0.01)
    assert statuses == [1]


def test_sigterm_is_ctrl_c_once_and_ends_what_is_stuck(ended: list[int], capfd: pytest.CaptureFixture[str]) -> None:
    with server.ended_by_sigterm():
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
        os.kill(os.getpid(), signal.SIGTERM)  # what is being written is not cut short
        wait_for(ended)
    assert "most recent call first" in capfd.readouterr().err


def test_sigterm_that_another_thread_receives_ends_the_waiting(ended: list[int]) -> None:
    """As of a process that was stopped when it was sent, in which any thread may be the first to go on."""
    waits, over = threading.Event(), threading.Event()

    def receive() -> None:
        waits.wait()
        time.sleep(0.05)  # the main thread is asleep by then; if not, this shows nothing
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        over.wait(10)

    class Page(gr.Blocks):
        def close(self, verbose: bool = True) -> None:
            over.set()

    other = threading.Thread(target=receive)
    other.start()
    with server.ended_by_sigterm():
        page = Page()
        waits.set()
        server.wait_for_the_end(page)
        assert over.is_set()
        wait_for(ended)
    other.join()


def test_the_collector_passes_over_what_was_loaded_while_the_app_serves(
    pool_card: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aside = list[int]()
    page = SimpleNamespace(server_port=1, local_url="http://here/")
    monkeypatch.setattr(app, "serve", lambda *_: page)
    monkeypatch.setattr(app, "wait_for_the_end", lambda _: aside.append(gc.get_freeze_count()))
    assert app.launch(Settings(str(pool_card), db=tmp_path / "runs.db", learnt=None)), "all runs are kept"
    assert aside[0] > 0 and gc.get_freeze_count() == 0
