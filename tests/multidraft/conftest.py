from __future__ import annotations

import json

import pytest

from multidraft.bench import runner
from tests import tiny


@pytest.fixture
def suite(tmp_path):
    path = tmp_path / "suite.jsonl"
    rows = [{"prompt": text, "task": "letters"} for text in tiny.texts(3, 3, 3)]
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    return path


@pytest.fixture
def lossy_ucb(monkeypatch):
    """Outputs of ``ucb`` in benchmarks end with another token than the target's."""
    generate = runner._generate

    def lossy(pool, prompt, policy, *rest):
        out = generate(pool, prompt, policy, *rest)
        if policy == "ucb":
            out.token_ids[-1] ^= 1
        return out

    monkeypatch.setattr(runner, "_generate", lossy)
