"""The app as on a Space: the files that ``deploy`` uploads, read only, with its variables and without a network."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from gradio_client import Client

from drafters.card import find_card, load_card
from multidraft.commands.deploy import staged
from storage import queries
from storage.sync import FILE
from tests.app import wait_for
from tests.history import recorded
from tests.ports import free_port

STANDIN = Path(__file__).parent / "spaces_standin"
PROMPT = "Translate into English: Heute Abend will Julia mit ihrer Nachbarin ein Bild malen."

NO_NETWORK = '''
"""Only this machine can be reached; who tries for another is written down."""
import os, socket

def guarded(reach):
    def connect(self, address):
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            with open(os.environ["NETWORK_LOG"], "a") as log:
                print(address, file=log)
            raise OSError(101, "Network is unreachable")
        return reach(self, address)
    return connect

def lookup(host, *arguments, **named):
    if host not in (None, "", "127.0.0.1", "::1", "localhost", "0.0.0.0", b"127.0.0.1", b"localhost"):
        with open(os.environ["NETWORK_LOG"], "a") as log:
            print(host, file=log)
        raise socket.gaierror(-3, "Temporary failure in name resolution")
    return resolve(host, *arguments, **named)

resolve, socket.getaddrinfo = socket.getaddrinfo, lookup
socket.socket.connect = guarded(socket.socket.connect)
socket.socket.connect_ex = guarded(socket.socket.connect_ex)
'''

Process = subprocess.Popen[bytes]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The files of the Space, write-protected."""
    path = find_card("pocket").resolve()
    with staged(load_card(path)[0], path, "cpu-basic", None) as folder:
        for file in folder.rglob("*"):
            file.chmod(0o555 if file.is_dir() else 0o444)
        yield folder
        for file in [folder, *folder.rglob("*")]:
            file.chmod(0o755)


@contextmanager
def space(repository: Path, machine: Path, data: Path, **variables: str) -> Iterator[tuple[str, Process]]:
    """A start of the Space on a fresh ``machine``, a folder with its home, its temporary files and its log."""
    for folder in ("home", "tmp", "site"):
        (machine / folder).mkdir(parents=True)
    (machine / "site" / "sitecustomize.py").write_text(NO_NETWORK)
    port = free_port()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MULTIDRAFT", "HF_"))}
    environment = {
        **kept,
        "HOME": str(machine / "home"),
        "TMPDIR": str(machine / "tmp"),
        "PYTHONPATH": f"{machine / 'site'}:{STANDIN}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "NETWORK_LOG": str(machine / "network"),
        "SPACES_STANDIN_LOG": str(machine / "calls"),
        "SYSTEM": "spaces",
        "SPACE_ID": "me/demo",
        "SPACE_HOST": "me-demo.hf.space",
        "GRADIO_SERVER_NAME": "0.0.0.0",
        "GRADIO_SERVER_PORT": str(port),
        "MULTIDRAFT_BACKUP_FOLDER": str(data),
        **variables,
    }
    url = f"http://127.0.0.1:{port}/"
    with (machine / "log").open("w") as log:
        process = subprocess.Popen([sys.executable, "app.py"], cwd=repository, env=environment, stdout=log, stderr=log)
        try:
            wait_for(url, process, machine / "log")
            yield url, process
        finally:
            process.kill()
            process.wait()


def ask(url: str) -> dict[str, Any]:
    client = Client(url, verbose=False)
    report = client.predict(PROMPT, policy="ucb", max_new_tokens=24, api_name="/generate")
    client.close()
    return dict(report)


def end(process: Process) -> float:
    """End it as platforms do; returns how many seconds that took."""
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    return time.monotonic() - begun


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(file): (file.stat().st_mtime_ns, file.stat().st_size) for file in [folder, *folder.rglob("*")]}


@pytest.mark.long
def test_a_space_starts_answers_ends_and_remembers(repository: Path, tmp_path: Path) -> None:
    before, data = contents(repository), tmp_path / "data"
    first, second = tmp_path / "first", tmp_path / "second"

    with space(repository, first, data) as (url, process):
        plain = ask(url)
        assert plain["status"] in ("completed", "stopped") and plain["lossless"] is True
        assert end(process) < 15
    assert queries.count(data / FILE) == 1, "the history was copied before the end"

    with space(repository, second, data, SPACES_ZERO_GPU="true") as (url, process):
        assert queries.count(second / "home" / "multidraft-runs.db") == 1, "it was restored"
        on_zerogpu = ask(url)
        assert on_zerogpu["text"] == plain["text"] and on_zerogpu["lossless"] is True
        assert end(process) < 15
    assert len((second / "calls").read_text().splitlines()) == 1 and not (first / "calls").exists()
    runs = recorded(data / FILE)
    assert [run.origin.source for run in runs] == ["api"] * 2 and len({run.generation.text for run in runs}) == 1

    assert contents(repository) == before, "nothing is written beside the code"
    for machine in (first, second):
        log = (machine / "log").read_text()
        assert "multidraft serves pool 'pocket'" in log and "Traceback" not in log, log
        assert not (machine / "network").exists(), (machine / "network").read_text()
