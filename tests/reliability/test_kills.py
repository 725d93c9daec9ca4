"""What was told before a kill is in the history: a few kills of a writer, and with the long tests some of servers."""

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from storage.store import Store
from storage.unfinished import unfinished
from tests.reliability.kills import Told, report
from tests.runs import make_run


def killed_writer(path: Path, kill: int, answers: int) -> list[str]:
    """What a process tells that hands over runs, until it is killed after so many answers."""
    reading, writing = os.pipe()
    if (process := os.fork()) == 0:
        try:
            store = Store(path)
            for number in count():
                prompt = f"{kill}-{number}"
                store.add(begins=(prompt, {"runs": []})).wait(5)
                if store.add(make_run(prompt=prompt), make_run(prompt=prompt, policy="exp3"), ends=prompt).wait(5):
                    os.write(writing, f"{prompt}\n".encode())
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as told:
        heard = [told.readline().strip() for _ in range(answers)]
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        return [*heard, *told.read().split()]


def test_what_was_told_is_there_whole_and_once(tmp_path: Path) -> None:
    path, told = tmp_path / "runs.db", Told()
    for kill in range(5):
        for prompt in killed_writer(path, kill, 3 * kill + 1):
            told.run("runs", prompt)
    found = report(path, 5, told, damaged=0)
    assert found.told["runs"] >= 35 and found.rows >= 70 and not found.lost and not found.doubled
    assert len(unfinished(path)) <= 5
    with closing(sqlite3.connect(path)) as connection:
        whole = "SELECT count(*) FROM runs WHERE round_count <> (SELECT count(*) FROM rounds WHERE run_id = runs.id)"
        assert connection.execute(whole).fetchone() == (0,)
        connection.execute("DELETE FROM runs WHERE prompt = ?", [told.runs[0]])
        connection.execute("UPDATE runs SET policy = 'ucb'")
        connection.commit()
    found = report(path, 5, told, damaged=0)
    assert found.lost == 1 and found.doubled >= 34 and not found.well, "what is lost or doubled is noticed"


@pytest.mark.long
def test_servers_with_clients_are_killed() -> None:
    command = [
        sys.executable,
        "-m",
        "tests.reliability.kills",
        "--kills",
        "10",
    ]  # it forks
    found = subprocess.run(command, capture_output=True, text=True, timeout=550)
    assert found.returncode == 0, found.stdout + found.stderr
