"""A server that is told to end while a drafter hangs."""

import signal
import time
from pathlib import Path

import httpx
import pytest

from storage import queries
from storage.unfinished import unfinished
from tests import tiny
from tests.app import END_SECONDS, START_SECONDS, started

HANGS = """
import time
from pathlib import Path

from drafters.draft import Draft
from drafters.proposing import PointMassDrafter


class Hangs(PointMassDrafter):
    def __init__(self, name, target, tokenizer):
        self.beside = Path(__file__).parent

    def draft(self, context, length):
        if not (self.beside / "armed").exists():
            return Draft.chain([])
        (self.beside / "hangs").touch()
        while True:
            HOW
"""


@pytest.mark.long
@pytest.mark.parametrize("how", ["time.sleep(1000)", "pass"])
def test_sigterm_while_a_drafter_hangs(tmp_path: Path, how: str) -> None:
    """The server ends in bounded time, with status 0, since all that was told is in the history."""
    card, db = tiny.write_pool(tmp_path), tmp_path / "runs.db"
    (tmp_path / "own.py").write_text(HANGS.replace("HOW", how))
    drafters = [
        {"name": "hangs", "kind": "custom", "path": "own.py", "factory": "Hangs", "seconds": 10_000},
        {"name": "lookup", "kind": "pld"},
    ]
    tiny.change_card(card, drafters=drafters)
    with (
        started(str(card), db, tmp_path / "log") as (address, server),
        httpx.Client(base_url=address, timeout=START_SECONDS) as http,
    ):
        asked = {
            "prompt": tiny.texts(1)[0],
            "max_tokens": 4,
            "model": "tiny",
            "policy": "fixed:lookup",
            "temperature": 0,
        }
        told = http.post("/v1/completions", json=asked).raise_for_status().json()["metrics"]["run_id"]
        until = time.monotonic() + START_SECONDS
        while queries.run(db, told).scores.acceptance is None:  # all drafters draft for that, after the answer
            assert time.monotonic() < until
            time.sleep(0.05)
        (tmp_path / "armed").touch()
        begun = {**asked, "policy": "fixed:hangs", "stream": True}
        with http.stream("POST", "/v1/completions", json=begun):
            until = time.monotonic() + START_SECONDS
            while not (tmp_path / "hangs").exists():
                assert server.poll() is None and time.monotonic() < until, (tmp_path / "log").read_text()[-3000:]
                time.sleep(0.05)
            server.send_signal(signal.SIGTERM)
            # Not by the last resort after 60 seconds, whose status is 1.
            assert server.wait(END_SECONDS) == 0, (tmp_path / "log").read_text()[-3000:]
    assert "a step did not end within" in (tmp_path / "log").read_text()
    assert queries.run(db, told).generation.status == "completed" and queries.count(db) == 1
    assert len(unfinished(db)) == 1, "the next server marks what was under way as interrupted"
