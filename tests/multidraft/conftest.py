"""A suite, and a workbench on the tiny pool."""

import json
import lzma
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from drafters.pool import Pool, load_pool
from multidraft.bench.measure import Measurement
from multidraft.service.workbench import Workbench
from storage.store import Store
from tests import tiny

RECORDED = Path(__file__).parent / "replay" / "data" / "pocket-bench.db.xz"
"""The runs of ``python -m multidraft bench pocket --limit 21 --max-new-tokens 256 --policies
ucb:reward=be,ucbspec,normal-hedge,rate-hedge,fixed:general,router --start both --db runs.db``, recorded on a quiet
machine, less the autoregressive ones."""


@pytest.fixture(scope="session")
def bench_db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bench of the pocket pool."""
    path = tmp_path_factory.mktemp("bench") / "runs.db"
    path.write_bytes(lzma.decompress(RECORDED.read_bytes()))
    return path


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "runs.db", busy_seconds=0.05, retry_seconds=0.05) as store:
        yield store


@pytest.fixture
def workbench(pool: Pool, store: Store) -> Iterator[Workbench]:
    workbench = Workbench(pool, store)
    yield workbench
    workbench.close()


class Gate:
    """Holds the target before each forward until it is opened; ``reached`` tells that a run is under way."""

    def __init__(self) -> None:
        self.reached, self._open = threading.Event(), threading.Event()

    def open(self) -> None:
        self._open.set()

    def wait(self) -> None:
        self.reached.set()
        assert self._open.wait(30), "the test never opened the gate"


@pytest.fixture
def gate(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate, score = Gate(), pool.target.score
    monkeypatch.setattr(pool.target, "score", lambda draft: (gate.wait(), score(draft))[1])
    yield gate
    gate.open()  # else a failed test would wait for its worker


@pytest.fixture
def other_card(pool_card: Path, tmp_path: Path) -> Path:
    """Card of a pool with the same target and two drafters, of which one is called as the other pool's."""
    content = yaml.safe_load(pool_card.read_text())
    drafters = [{"name": "far", "kind": "lm", "path": "far"}, {"name": "copy", "kind": "suffix"}]
    content |= {"name": "other", "title": "Another <pool>", "draft_length": 6, "drafters": drafters}
    content |= {"description": "It copies.", "examples": [{"task": "letters", "prompt": "a b"}]}
    path = tmp_path / "other" / "card.yaml"
    for entry in (content["target"], drafters[0]):  # copies: a card of a folder of cards names no others
        shutil.copytree(pool_card.parent / entry["path"], path.parent / entry["path"])
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture
def own_bench(pool_card: Path, store: Store) -> Iterator[Workbench]:
    """A workbench whose pool nothing else refers to."""
    workbench = Workbench(load_pool(pool_card), store)
    yield workbench
    workbench.close()


@pytest.fixture(scope="session")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("suite") / "suite.jsonl"
    rows = [{"prompt": text, "task": "letters"} for text in tiny.texts(3, 3, 3)]
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    return path


@pytest.fixture
def lossy_ucb(monkeypatch):
    """Outputs of ``ucb`` end with another token than the target's."""
    decode = Measurement._decode

    def lossy(measurement):
        yield from decode(measurement)
        if measurement.request.policy == "ucb":
            measurement.generation.token_ids[-1] ^= 1

    monkeypatch.setattr(Measurement, "_decode", lossy)
