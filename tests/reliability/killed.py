"""What is killed: servers and benchmarks, in processes that are forked when all libraries and the pool are loaded."""

import json
import os
import random
import sys
import threading
import time
from itertools import count
from pathlib import Path
from typing import Any

import torch

from drafters.pool import Pool, load_pool
from drafters.sampling import SamplingParams
from multidraft import __main__ as command
from multidraft.bench.measure import Request
from multidraft.bench.suites import SuiteItem
from multidraft.commands import options
from multidraft.service.batch import BatchJob
from multidraft.service.race import RaceJob
from multidraft.service.recovery import recover
from multidraft.service.settings import Settings
from multidraft.service.workbench import Workbench
from multidraft.ui import app
from storage.run import Origin
from storage.store import Store
from storage.unfinished import serving
from tests.reliability.clients import POLICIES

torch.set_num_threads(1)


_pools: list[Pool] = []


def load(card: Path) -> None:
    """Load the pool of all processes that are forked from then on."""
    _pools[:] = [load_pool(card)]


def loaded(*_: Any, **__: Any) -> Pool:
    """It, whichever is asked for."""
    return _pools[0]


app.load_pool = options.load = loaded


def serve(card: str, db: str, port: int, log: str) -> None:
    """A server, as ``demo`` starts it; in a process of its own."""
    _quiet(log)
    app.launch(Settings(pool=card, db=Path(db), port=port, may_switch=False))


def work(card: str, db: str, told: str, kill: int, log: str) -> None:
    """A server without a page: visitors in threads ask for runs, races and batches; likewise."""
    _quiet(log)

    params, out = SamplingParams(max_new_tokens=16, draft_length=4), os.open(told, os.O_WRONLY | os.O_APPEND)

    def tell(*what: Any) -> None:
        os.write(out, (json.dumps(what) + "\n").encode())

    def visit(bench: Workbench, visitor: int) -> None:
        chance = random.Random(f"{kill} {visitor}")
        for number in count():
            prompt, policy = f"ab {kill}-{visitor}-{number}", chance.choice(POLICIES)
            if visitor == 0:
                items = [SuiteItem(str(n), f"{prompt}-{n}") for n in range(6)]
                batch = BatchJob(bench, items, ["ucb", "round-robin"], params, texts_at_once=chance.choice([1, 1, 2]))
                bench.jobs.submit(batch)
                rows = 0
                while not batch.wait(0.005) or rows < len(batch.rows):
                    if (more := len(batch.rows)) > rows:
                        tell("batch", batch.id, more - rows)
                        rows = more
            elif visitor == 1:
                race = bench.jobs.submit(RaceJob(bench, prompt, ["ucb", "autoregressive"], params))
                race.wait()
                tell("race", race.id, len(race.measured))
            else:  # as programs ask under /v1, or visitors on the page
                aside = {"measures_baseline": False, "scores_when_idle": True} if visitor == 2 else {}
                job = bench.submit(Request(prompt, policy, params, origin=Origin("api"), **aside))
                while not (job.recorded if aside else job.done):
                    time.sleep(0.001)
                tell("run without a baseline" if aside else "run", prompt, job.run.id)

    path = Path(db)
    with serving(path) as alone, Store(path) as store:
        bench = Workbench(loaded(), store)
        if alone:
            recover(bench)
        for visitor in range(4):
            threading.Thread(target=visit, args=(bench, visitor), daemon=True).start()
        threading.Event().wait()


def bench(card: str, db: str, suite: str, log: str) -> None:
    """A benchmark that records its runs; likewise."""
    _quiet(log)
    asked = ["--policies", "ucb,round-robin", "--max-new-tokens", "24", "--repeat", "50", "--db", db]
    command.main(["bench", suite, "--pool", card, *asked])


def _quiet(log: str) -> None:
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        stream.flush()
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
