"""A bench of the pocket pool, recorded on a quiet machine.

``data/pocket-bench.db.xz`` holds the runs of ``python -m multidraft bench pocket --limit 21 --max-new-tokens 256
--policies ucb:reward=be,ucbspec,normal-hedge,rate-hedge,fixed:general,router --start both --db runs.db``, less the
autoregressive ones.
"""

import lzma
from pathlib import Path

import pytest

RECORDED = Path(__file__).with_name("data") / "pocket-bench.db.xz"


@pytest.fixture(scope="module")
def bench_db(tmp_path_factory):
    path = tmp_path_factory.mktemp("bench") / "runs.db"
    path.write_bytes(lzma.decompress(RECORDED.read_bytes()))
    return path
