from __future__ import annotations

import json

import pytest

from tests import tiny


@pytest.fixture
def suite(tmp_path):
    path = tmp_path / "suite.jsonl"
    rows = [{"prompt": text, "task": "letters"} for text in tiny.texts(3, 3, 3)]
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    return path
