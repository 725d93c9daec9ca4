"""Kills servers and benchmarks at random moments, and counts what they had told and the history lacks::

    python -m tests.reliability.kills --kills 200

Of ten processes seven are servers without a page, whose jobs tell a file when they have ended; two are whole servers,
with clients that use the page's own events, its API and ``/v1`` at once; one is a benchmark. Batches are among all.
They have one history, one after the other, and each takes up what the one before it left. At the end nothing may be
missing, doubled or damaged.
"""

import argparse
import json
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import count
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import httpx

from tests.ports import free_port
from tests.reliability.clients import Clients, Told

START_SECONDS = 240
"""How long a server may take until it answers, on a busy machine."""

MOST_SECONDS = 2.0
"""A process is killed within so many seconds from its first sign of life, a whole server within three times as many."""

LEFT_SECONDS = 120
"""How long the last server may take for the batches that go on."""


@dataclass
class Report:
    """The result. Attributes are counts, ``told`` by the way in which it was told."""

    kills: int
    told: dict[str, int]
    unkept: int
    rows: int
    interrupted: int
    lost: int
    doubled: int
    damaged: int
    unfinished: int

    @property
    def well(self) -> bool:
        """Whether every promise was kept."""
        return not (self.lost or self.doubled or self.damaged or self.unfinished)


def campaign(folder: Path, kills: int, seed: int = 0, most_seconds: float = MOST_SECONDS) -> Report:
    """Kill so many processes, and see what is left.

    Args:
        folder: of the history ``runs.db``, the pool and the log.
    """
    from tests import tiny
    from tests.reliability.killed import bench, load, serve, work  # the whole program

    (folder / "pool").mkdir()
    card, db, log = tiny.write_pool(folder / "pool"), folder / "runs.db", folder / "log"
    load(card)
    context = get_context("fork")  # while no threads of clients are there
    suite = folder / "suite.jsonl"
    suite.write_text("\n".join(json.dumps({"prompt": text}) for text in tiny.texts(8, 6, 1)))
    chance, told, numbers = random.Random(seed), Told(), count()
    damaged = 0
    said = folder / "told"
    said.touch()
    for kill in range(kills + 1):
        rest, clients = most_seconds * chance.random(), None
        before, size = _rows(db), said.stat().st_size
        if kill == kills or kill % 10 in (3, 7):
            port = free_port()
            process = context.Process(target=serve, args=(str(card), str(db), port, str(log)), daemon=True)
            process.start()
            rest *= 3
            address = f"http://127.0.0.1:{port}"
            _until(lambda address=address: _answers(address), process, log)
            if kill == kills:
                _until(lambda: not _left(db), process, log, LEFT_SECONDS)
            else:
                try:
                    clients = Clients(address, told, numbers, seed=kill)
                except httpx.HTTPError:  # was it killed by somebody else, as for memory? Then see below
                    process.join(10)
                    if process.is_alive():
                        raise
        elif kill % 10 == 9:
            process = context.Process(target=bench, args=(str(card), str(db), str(suite), str(log)), daemon=True)
            process.start()
            _until(lambda before=before: _rows(db) > before, process, log)
        else:
            named = (str(card), str(db), str(said), kill, str(log))
            process = context.Process(target=work, args=named, daemon=True)
            process.start()
            _until(lambda size=size: said.stat().st_size > size, process, log)
        if kill < kills:
            time.sleep(rest)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL, _ended(process, log)
        for thread in clients.threads if clients else ():
            thread.join()
        damaged += _damaged(db)
        if (kill + 1) % 10 == 0:
            print(f"{kill + 1} kills, {_rows(db)} runs recorded", flush=True)
    for line in said.read_text().splitlines():
        kind, key, value = json.loads(line)
        if kind.startswith("run"):
            told.run(kind, key, value is not None)
        else:
            told.batches[key] += value
            told.kinds[kind] += value
    return report(db, kills, told, damaged)


def _until(condition: Callable[[], bool], process: BaseProcess, log: Path, seconds: float = START_SECONDS) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert process.is_alive(), _ended(process, log)
        assert time.monotonic() < end, f"it took too long:\n{log.read_text()[-3000:]}"
        time.sleep(0.02)


def _ended(process: BaseProcess, log: Path) -> str:
    return f"it ended by itself, with status {process.exitcode}:\n{log.read_text()[-3000:]}"


def _answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/health", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def _asked(db: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(db, timeout=30)) as connection:
        return connection.execute(sql).fetchall()


def _rows(db: Path) -> int:
    with suppress(sqlite3.Error):
        return int(_asked(db, "SELECT count(*) FROM runs")[0][0])
    return 0


def _left(db: Path) -> int:
    return int(_asked(db, "SELECT count(*) FROM unfinished")[0][0])


def _damaged(db: Path) -> bool:
    """Whether the file is damaged, or a run lacks rounds."""
    if not db.exists():
        return False
    whole = "SELECT count(*) FROM runs WHERE round_count <> (SELECT count(*) FROM rounds WHERE run_id = runs.id)"
    found = _asked(db, "PRAGMA integrity_check"), _asked(db, "PRAGMA foreign_key_check")
    try:
        return found != ([("ok",)], []) or _asked(db, whole) != [(0,)]
    except sqlite3.OperationalError as error:
        return "no such table" not in str(error)  # it was killed before there were any


def report(db: Path, kills: int, told: Told, damaged: int) -> Report:
    """Compare what was told with what is there."""
    finished = "status IN ('completed', 'stopped', 'context_limit')"
    prompts = Counter(dict(_asked(db, f"SELECT prompt, count(*) FROM runs WHERE {finished} GROUP BY prompt")))
    batches = Counter(dict(_asked(db, f"SELECT batch_id, count(*) FROM runs WHERE {finished} GROUP BY batch_id")))
    lost = sum(not prompts[prompt] for prompt in told.runs)
    lost += sum(max(0, runs - max(prompts[known], batches[known])) for known, runs in told.batches.items())
    alike = "SELECT count(*) FROM runs WHERE source <> 'bench' GROUP BY prompt, policy, batch_id HAVING count(*) > 1"
    doubled = sum(number - 1 for (number,) in _asked(db, alike))
    (rows,), (interrupted,) = _asked(
        db, "SELECT count(*) FROM runs UNION ALL SELECT total(status = 'interrupted') FROM runs"
    )
    counts = dict(sorted(told.kinds.items()))
    return Report(kills, counts, told.unkept, rows, int(interrupted), lost, doubled, damaged, _left(db))


def main(options: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("::")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(options)
    with tempfile.TemporaryDirectory(prefix="multidraft-kills-") as folder:
        report = campaign(Path(folder), asked.kills, asked.seed)
    for name, value in vars(report).items():
        print(f"{name}: {value}")
    return 0 if report.well else 1


if __name__ == "__main__":
    sys.exit(main())
